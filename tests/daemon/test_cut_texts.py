"""A text of a megabyte through a real daemon: stored, listed, journaled, read in pieces; and what was cut is said."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Final

import pytest

from harken.ingest.policy import utf8_bytes
from harken.model import MAX_TEXT_BYTES
from harken.testing import EdgeClient, edge_command
from tests.daemon.test_webhooks import HOOK, SECONDS, ask, port_of
from tests.loss.rig import Json, Served
from tests.sources.webhook.rig import SECRET, generic

WIRE_BYTES: Final = 5 << 20


@pytest.fixture
def hooked(home: Path) -> Path:
    """A home with a webhook of any service."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        '[sources.ci]\nkind = "webhook"\npreset = "generic"\nsecret = "file:ci.secret"\ntext = "text"\n'
    )
    (home / "ci.secret").touch(mode=0o600)
    (home / "ci.secret").write_text(SECRET)
    return home


def post(daemon: Served, text: str) -> int:
    """Post a text; return the status of the answer."""
    body = json.dumps({"text": text}, ensure_ascii=False).encode()
    headers = {"content-type": "application/json", **generic(body)}
    return ask(port_of(daemon), "POST", HOOK, headers, body).status


def newest(daemon: Served) -> Json:
    """Return the newest message."""
    return daemon.call("list", limit=1)["messages"][0]


def test_text_of_a_webhook_is_whole_up_to_a_million_bytes_and_above_that_every_view_says_so(
    hooked: Path, daemon: Served
) -> None:
    """The agent, the person, a program and the journal must all know that there was more."""
    assert hooked.exists()
    daemon.start()
    assert post(daemon, "日" * 300_000) == 202
    whole = newest(daemon)
    assert (whole["content_text_sanitized"], "cut_from" in whole) == ("日" * 300_000, False)
    assert post(daemon, "日" * 400_000) == 202
    cut = newest(daemon)
    stored = cut["content_text_sanitized"]
    assert (cut["cut_from"], cut["meta"]["cut_from"]) == (400_000, "400000")
    assert MAX_TEXT_BYTES - 100 < utf8_bytes(stored) <= MAX_TEXT_BYTES
    assert daemon.call("read", ref=cut["id"])["message"]["cut_from"] == 400_000
    assert daemon.call("read", ref=cut["id"], offset=100_000, limit=10)["message"]["cut_from"] == 400_000
    files = (daemon.home / "journal").glob("*.jsonl")
    lines = [json.loads(line) for path in files for line in path.read_bytes().splitlines()]
    records = {line["message"]["id"]: line["message"] for line in lines if line["kind"] == "received"}
    assert (records[cut["id"]]["cut_from"], records[cut["id"]]["content_text_sanitized"]) == (400_000, stored)
    with socket.create_connection(("127.0.0.1", port_of(daemon)), SECONDS) as wire:
        head = ("host: localhost", "content-type: application/json", f"content-length: {WIRE_BYTES + 1}")
        wire.sendall("\r\n".join((f"POST {HOOK} HTTP/1.1", *head, "", "{" + " " * WIRE_BYTES)).encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 413 ")
    assert newest(daemon)["id"] == cut["id"]


def test_agent_reads_a_million_bytes_in_pieces_and_is_told_of_the_cut(hooked: Path, daemon: Served) -> None:
    """It counts as seen when all pieces were given, however many they are."""
    assert hooked.exists()
    daemon.start()
    assert post(daemon, "a word, " * 150_000) == 202
    cut = newest(daemon)
    with EdgeClient(edge_command(daemon.home, "some-client"), name="some-client") as agent:
        listed = agent.tool("inbox_pull")["messages"][0]
        assert (listed["truncated"], listed["cut_from"]) == (True, 1_200_000 - 1)
        pieces = [agent.tool("inbox_read", message_id=cut["id"])]
        while (offset := pieces[-1]["next_offset"]) is not None:
            pieces.append(agent.tool("inbox_read", message_id=cut["id"], offset=offset))
        assert "".join(piece["text"] for piece in pieces) == cut["content_text_sanitized"]
        assert {piece["cut_from"] for piece in pieces} == {1_200_000 - 1}
        assert pieces[-1]["unread_from"] is None
        assert len(pieces) > 10
        agent.tool("inbound_queue_stats")
    ledger = daemon.call("read", ref=cut["id"])["ledger"]
    assert [line["state"] for line in ledger if line["consumer"] == "some-client"] == ["seen"]
