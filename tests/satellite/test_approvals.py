"""What a host on a satellite asks you: your answer reaches it over the link, and a cut is never taken for one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harken.daemon.satellites.link import HEAD, FrameKind
from tests.loss.rig import DaemonStarter, Json, Served, Wire, until
from tests.satellite.rig import FakeMain, MainDaemon, Pair, RawLink, ask, hook_lines, join
from tests.satellite.test_cuts import hook

GIVEN = {"command": "touch a", "description": "make a file"}


def question(transcript: Path) -> dict[str, object]:
    """What Claude Code writes to the hook that asks."""
    return {
        "session_id": "s-1",
        "transcript_path": str(transcript),
        "cwd": "/w",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash",
        "tool_input": GIVEN,
    }


def record(*, has_result: bool) -> str:
    """The record of a session in which the tool was called, and has its result or not yet."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": GIVEN}
    entries: list[Json] = [{"type": "assistant", "message": {"content": [call]}}]
    if has_result:
        entries.append({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}})
    return "".join(json.dumps(each) + "\n" for each in entries)


@contextmanager
def asking(pair: Pair, transcript: Path) -> Iterator[Wire]:
    """A hook of Claude Code on the satellite that asks."""
    data = hook_lines("ask", question(transcript), os.getpid())
    with Wire(pair.satellite.socket) as wire:
        wire.say(data)
        yield wire


def one(main: Served, state: str) -> Json:
    """Return the only question, once it has this state."""

    def look() -> Json:
        found = main.call("approvals", all=True)["approvals"]
        assert len(found) < 2
        return found[0] if found and found[0]["state"] == state else None

    return until(look, f"it is {state}")


def answer(main: Served) -> None:
    """Say yes to the only question."""
    found = one(main, "open")
    main.call("approve", approval=found["id"], digest=found["digest"], choice="once")


def prove(pair: Pair, transcript: Path) -> None:
    """Write the result of the call into the record, and end turns until the daemon has looked at it."""
    transcript.write_text(record(has_result=True))
    end = {"session_id": "s-1", "hook_event_name": "Stop", "transcript_path": str(transcript)}

    def is_obeyed() -> bool:
        hook(pair, "stop", json.dumps(end).encode(), pid=os.getpid())
        return bool(pair.main.served.call("approvals", all=True)["approvals"][0]["state"] == "obeyed")

    until(is_obeyed, "it is proven")


def test_answer_reaches_a_host_on_a_satellite_and_its_record_there_proves_it(pair: Pair, tmp_path: Path) -> None:
    """From the main machine to the agent's, and the proof back."""
    transcript = tmp_path / "t.jsonl"
    with asking(pair, transcript) as wire:
        answer(pair.main.served)
        assert wire.line().startswith(b"0 ")
        wire.say(b"+")
        one(pair.main.served, "answered")
    prove(pair, transcript)


def test_question_of_a_satellite_is_withdrawn_when_its_link_is_cut(pair: Pair, tmp_path: Path) -> None:
    """The hook ends without a word, so that the host goes on asking; nobody can answer what nobody would hear."""
    with asking(pair, tmp_path / "t.jsonl") as wire:
        one(pair.main.served, "open")
        pair.way.drop()
        assert wire.line() == b""
    assert "out of reach" in one(pair.main.served, "withdrawn")["because"]


def test_answer_that_was_on_its_way_when_the_link_broke_is_not_called_refused(pair: Pair, tmp_path: Path) -> None:
    """The host may have it: only its record can tell, and does when the link is back."""
    transcript = tmp_path / "t.jsonl"
    with asking(pair, transcript) as wire:
        answer(pair.main.served)
        assert wire.line().startswith(b"0 ")
        pair.way.drop()
        assert wire.is_closed()
    until(pair.is_linked, "the satellite is linked again")
    assert one(pair.main.served, "answered")
    prove(pair, transcript)


def test_main_daemon_looks_at_no_file_of_its_own_for_a_satellite(main: MainDaemon, tmp_path: Path) -> None:
    """The same path is another file there: the machine is asked whether its host still asks."""
    transcript = tmp_path / "projects" / "p" / "t.jsonl"
    transcript.parent.mkdir(parents=True)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "4711.json").write_text('{"status": "waiting"}')
    token = main.start().token("buildbox")
    with main.knock(token) as socket:
        link = RawLink(socket)
        link.open(hook_lines("ask", question(transcript), 4711), pids=[4711])
        for is_asking in (True, False):
            for _, number, data in link.frames(FrameKind.ASK):
                if (asked := json.loads(data))["do"] == "asking":
                    assert (asked["host"], asked["pid"]) == ("claude-code", 4711)
                    link.say(FrameKind.ANSWER, number, json.dumps({"asking": is_asking}).encode())
                    break
                link.say(FrameKind.ANSWER, number, b"{}")
        assert one(main.served, "withdrawn")["because"] == "it was answered in its own terminal"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMain]:
    """A main daemon that is none."""
    with FakeMain(tmp_path) as main:
        yield main


def test_satellite_looks_at_the_files_of_its_hosts(
    fake: FakeMain, starter: DaemonStarter, home: Path, tmp_path: Path
) -> None:
    """Whether a host still asks, and what its record shows of an answer; what cannot be told is not guessed."""
    join(home, fake, "harken_x", fake.port)
    transcript, state = tmp_path / "projects" / "p" / "t.jsonl", tmp_path / "sessions" / "4711.json"
    for folder in (transcript.parent, state.parent):
        folder.mkdir(parents=True)
    asked: dict[str, object] = {"host": "claude-code", "payload": question(transcript)}
    wrong: list[dict[str, object]] = [{"pid": "x"}, {"host": "nobody", "pid": 1}, {"payload": 7, "pid": 1}]
    with starter.daemon(home) as satellite:
        satellite.start()
        link = fake.link()
        assert ask(link, 1, do="asking", **asked, pid=4711) == {"asking": None}
        for number, (status, is_asking) in enumerate({"waiting": True, "busy": False}.items(), 2):
            state.write_text(json.dumps({"status": status}))
            assert ask(link, number, do="asking", **asked, pid=4711) == {"asking": is_asking}
        assert ask(link, 4, do="evidence", **asked, choice="once") == {"evidence": ""}
        transcript.write_text(record(has_result=True))
        assert "toolu_1" in ask(link, 5, do="evidence", **asked, choice="once")["evidence"]
        for number, each in enumerate(wrong, 6):
            assert not ask(link, number, **{"do": "asking", **asked, **each}).get("asking")
        link.send(HEAD.pack(FrameKind.ASK, 9) + b'{"do": "evidence"}')
        assert ask(link, 10, do="asking", **asked, pid=4711) == {"asking": False}
