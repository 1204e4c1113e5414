"""A connection that breaks while something is asked for: nothing is started twice, and no answer is called lost."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest

from tests.cli.rig import Rig

CONFLICT, UNAVAILABLE = 4, 5
Json = dict[str, Any]
MESSAGE: Json = {
    "id": "m-1",
    "mailbox": "inbox",
    "seq": 1,
    "source": "local",
    "channel": "",
    "from": "amy",
    "sender_id": "amy",
    "trust": "known",
    "received_at": "2026-03-01T12:00:00Z",
    "text": "hello",
}
ACTION: Json = {
    "id": "a-4k2m9x",
    "state": "queued",
    "message": MESSAGE,
    "tools": ["read_file"],
    "agent": "",
    "runs_on": "",
    "folder": "",
    "workdir": "",
    "reason": "",
    "run": None,
}


class Peer(socketserver.ThreadingUnixStreamServer):
    """Speaks as a daemon does, and hangs up on the first `confirm` and on every `run_now` without an answer."""

    daemon_threads = True

    def __init__(self, path: Path, state: str) -> None:
        super().__init__(str(path), Talk)
        self.state = state
        self.asked: list[str] = []

    def answer(self, method: str) -> Json | None:
        """Return what is answered; None hangs up."""
        self.asked.append(method)
        match method:
            case "confirm" if self.asked.count(method) > 1:
                said = f"a-4k2m9x is {self.state}."
                return {"error": {"code": "conflict", "message": said, "hint": ""}}
            case "actions":
                return {"result": {"actions": [{**ACTION, "state": self.state}]}}
            case "read":
                return {"result": {"message": MESSAGE}}
            case _:
                return None


class Talk(socketserver.StreamRequestHandler):
    """One connection."""

    server: Peer

    def handle(self) -> None:
        """Answer each line until there is no answer."""
        self.rfile.readline()
        for line in self.rfile:
            request = json.loads(line)
            answer = self.server.answer(request["method"])
            if answer is None:
                return
            self.wfile.write(json.dumps({"id": request["id"], **answer}).encode() + b"\n")


@contextmanager
def peer(folder: Path, state: str) -> Iterator[tuple[Rig, Peer]]:
    """A home whose daemon is such a peer."""
    run = folder / "home" / "run"
    run.mkdir(parents=True, mode=0o700)
    # The address of a socket is short; the folders of tests are not.
    with TemporaryDirectory(prefix="harken-") as short, Peer(Path(short) / "s", state) as server:
        (run / "address").write_text(f"unix:{short}/s", encoding="utf-8")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Rig(folder / "home"), server
        finally:
            server.shutdown()
            thread.join()


def test_a_run_is_asked_for_once(tmp_path: Path) -> None:
    """Asked again it would be two runs; that it is not known is said instead."""
    with peer(tmp_path, "queued") as (rig, server):
        done = rig.run("channel", "run", "1", "--yes")
    assert (done.code, "harken run list" in done.err) == (UNAVAILABLE, True)
    assert server.asked == ["read", "run_now"]


@pytest.mark.parametrize(("answer", "state"), [("yes", "queued"), ("yes", "started"), ("no", "declined")])
def test_an_answer_that_got_through_is_not_called_too_late(tmp_path: Path, answer: str, state: str) -> None:
    """The first time counted, although its answer was lost."""
    with peer(tmp_path, state) as (rig, server):
        assert rig.ok("channel", "confirm", "a-4k2m9x", answer).splitlines()[-1].startswith(f"a-4k2m9x  {state}")
    assert server.asked == ["confirm", "confirm", "actions"]


@pytest.mark.parametrize(("answer", "state"), [("no", "queued"), ("yes", "declined"), ("yes", "expired")])
def test_another_answer_that_was_faster_is_told(tmp_path: Path, answer: str, state: str) -> None:
    """Whoever was too late must not think that they decided."""
    with peer(tmp_path, state) as (rig, _):
        done = rig.run("channel", "confirm", "a-4k2m9x", answer)
    assert (done.code, f"a-4k2m9x is {state}" in done.err) == (CONFLICT, True)
