"""Long messages on the command line: read in parts by anybody, and given to an agent only as far as its host shows."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.budget import printed_bytes
from harken.cli.output import Screen, json_text
from harken.hosts.registry import host_named
from harken.model import DeliveryId, MessageId, Offer, Sender
from harken.verbs import shapes
from tests.builders import a_message
from tests.cli.rig import Outcome, Rig
from tests.cli.test_as_agent import hosting
from tests.cli.test_task import inside
from tests.examples import examples

NOT_VALID: Final = 2
CODEX: Final = "codex-mcp-client"
MAX: Final = host_named("codex").result_bytes
NARROWEST: Final = 60  # columns: agents' terminals are wider
# Letters of every width, such as terminals and JSON need escapes for, and line ends.
LETTERS: Final = 'a "\\\n\t今é😀\u00a0\ue000\U0001fffd'


def size(done: Outcome) -> int:
    """Return how many bytes a host has to show of a command's output."""
    assert done.code == 0, done
    return len(done.out.encode()) + len(done.err.encode())


def test_part_of_a_text_says_where_the_next_begins(rig: Rig) -> None:
    """A text that is longer than a screen, or than a program wants at once."""
    text = "".join(f"{number:04}" for number in range(1_000))
    message = rig.json("send", text)["id"]
    found = rig.json("read", message, "--offset", "400", "--limit", "8")
    assert (found["offset"], found["length"], found["next_offset"]) == (400, 4_000, 408)
    assert found["message"]["content_text_sanitized"] == "01000101"
    assert found["message"]["id"] == message
    last = rig.json("read", message, "--offset", "3996")
    assert (last["message"]["content_text_sanitized"], last["next_offset"]) == ("0999", None)
    assert rig.json("read", message, "--limit", "4")["message"]["content_text_sanitized"] == "0000"
    done = rig.run("read", message, "--offset", "400", "--limit", "8")
    assert "01000101" in done.out
    assert done.err == f"Up to character 408 of 4000. The next: harken read {message} --offset 408 --limit 8\n"
    assert rig.json("read", message)["message"]["content_text_sanitized"] == text
    done = rig.run("read", message, "--offset", "4000")
    assert (done.code, done.err) == (
        NOT_VALID,
        f"harken: The text of {message} has 4000 characters.\n  Give an offset below 4000.\n",
    )


def state(rig: Rig, message: str) -> str:
    """Return how far a message got for the agent."""
    lines = rig.ask("read", ref=message)["ledger"]
    return next(str(line["state"]) for line in lines if line["consumer"] == "codex")


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("letters", ["今天构建失败了", "line\n", "a word \U0001fffd "], ids=ascii)
def test_agent_is_shown_what_its_host_shows_and_nothing_else_is_taken(
    rig: Rig, letters: str, words: tuple[str, ...]
) -> None:
    """What `pull` has printed counts as seen; of what the host cuts away, that would be wrong."""
    texts = [(letters * length)[: length - 1] + "." for length in (2_000, 40_000, 1_500, 1_000, 3_000)]
    sent = [str(rig.ask("send", text=text, sender="ann")["id"]) for text in texts]
    with hosting(rig, CODEX) as agent:
        given: list[str] = []
        for _ in range(3):
            assert size(rig.run("pull", *words)) <= MAX
            given += [message for message in sent if message not in given and state(rig, message) == "seen"]
        left = [message for message in sent if message not in given]
        assert sent[1] in left
        assert given == [message for message in sent if message not in left]
        assert len(given) >= 2
        assert [state(rig, message) for message in left] == ["queued"] * len(left)
        agent.tool("ack", ids=left)


def test_mail_of_a_task_is_shown_to_its_agent_only_as_far_as_its_host_shows_it(rig: Rig, tmp_path: Path) -> None:
    """What `check-inbox` has printed counts as seen, too."""
    rig.ok("task", "new", "Long mail", "--id", "long-mail", "--dir", str(tmp_path))
    lengths = (2_000, 40_000, 1_500, 4_000, 4_500)
    sent = [str(rig.ask("send_to_task", task_id="long-mail", body="x" * length)["id"]) for length in lengths]
    with hosting(rig, CODEX, ("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(tmp_path))) as agent:
        done = inside(rig, tmp_path, "check-inbox")
        assert size(done) <= MAX
        states = [
            next(
                line["state"] for line in rig.ask("read", ref=message)["ledger"] if line["consumer"] == "task:long-mail"
            )
            for message in sent
        ]
        assert (states[:3], states[-1]) == (["seen", "queued", "seen"], "queued")
        assert "(cut, 40000 characters)" in done.out
        agent.tool("ack", ids=sent)
    rig.ok("task", "done", "long-mail")


def test_agent_reads_what_is_cut_in_parts_and_marks_it(rig: Rig) -> None:
    """Without the tools there is a way, too; and it is told which."""
    text = "".join(f"{number:05}\n" for number in range(6_000)).strip()
    with hosting(rig, CODEX) as agent:
        message = rig.json("send", "-", stdin=text)["id"]
        done = rig.run("pull")
        assert f"(cut, {len(text)} characters)" in done.out
        assert "harken read ID --offset 0" in done.err
        read = ""
        offset: int | None = 0
        while offset is not None:
            done = rig.run("read", message, "--offset", str(offset), "--json")
            assert size(done) <= MAX
            found = json.loads(done.out)
            read += found["message"]["content_text_sanitized"]
            offset = found["next_offset"]
        assert read == text
        assert state(rig, message) == "queued"
        assert rig.json("wait", "--timeout", "0")["messages"] == []
        rig.ok("ack", message)
        assert state(rig, message) == "seen"
        agent.tool("inbound_queue_stats")


def test_wait_of_an_agent_is_ended_once_by_what_is_too_long(rig: Rig) -> None:
    """An agent that waits in a loop would not rest; whichever way it was told, it was told."""
    with hosting(rig, CODEX) as agent:
        long = rig.json("send", "x" * 40_000)["id"]
        (listed,) = rig.json("wait", "--timeout", "0")["messages"]
        assert (listed["id"], listed["truncated"], listed["length"]) == (long, True, 40_000)
        assert listed["delivery_id"] == ""
        assert rig.json("wait", "--timeout", "0")["messages"] == []
        assert agent.tool("wait_for_inbound_message", timeout_s=0) == []
        short = rig.json("send", "short")["id"]
        assert [each["id"] for each in rig.json("wait", "--timeout", "0")["messages"]] == [short]
        agent.tool("ack", ids=[long])


def test_person_is_shown_everything(rig: Rig) -> None:
    """A terminal has no such bound, and a program that reads the JSON has none either."""
    while rig.json("pull", "--limit", "100")["messages"]:
        continue
    texts = ["x" * 40_000, "y" * 30_000]
    for text in texts:
        rig.ask("send", text=text, sender="ann")
    pulled = rig.json("pull")
    assert [each["content_text_sanitized"] for each in pulled["messages"]] == texts
    assert pulled["unread_remaining"] == 0


def offer_of(text: str, name: str) -> Offer:
    """Return a message that was handed out."""
    message = a_message(
        text,
        id=MessageId("m-0000000001"),
        received_at=datetime(2026, 11, 17, tzinfo=UTC),
        sender=Sender("ann", name),
        channel=name,
        meta={name: name, "other": ""},
    )
    return Offer(message=message, delivery_id=DeliveryId("d-0000000001"))


@settings(max_examples=examples(150))
@given(
    text=st.text(alphabet=LETTERS, min_size=1, max_size=400),
    name=st.text(alphabet='a今😀\ue000"', max_size=20),
    width=st.sampled_from([0, NARROWEST, 200]),
)
@pytest.mark.parametrize("shape", [shapes.offer, shapes.cut_offer])
def test_no_message_takes_more_when_it_is_printed_than_it_is_taken_for(
    shape: Callable[[Offer], dict[str, object]], text: str, name: str, width: int
) -> None:
    """On a terminal, or in a pipe, as text or as JSON: hosts cut what was printed, not what was meant."""
    offer = offer_of(text, name)
    record = shape(offer)
    screen, printed = Screen(width, has_colour=width > 0), io.StringIO()
    with contextlib.redirect_stdout(printed):
        if "truncated" not in record:
            screen.message(record, "(repeat)")
        else:
            screen.row(record, "(cut, 99999 characters)")
    as_json = json_text(record, indent=2 if width else None)
    most = printed_bytes(record)
    assert len(printed.getvalue().encode()) <= most
    assert len(as_json.encode()) <= most
