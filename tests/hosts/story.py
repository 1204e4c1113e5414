"""The steps that the stories of all hosts share: a message is sent, reaches the model once, and the ledger says so.

What arrived is judged on the model's wire, never by what a host shows. A marker is a word that occurs nowhere else.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harken.testing.agent import Json
from harken.trial.exchange import ConversationTurn, ModelRequest
from tests.hosts.stage import Stage
from tests.loss.rig import until

# Ten times what a host needs on a quiet machine: it is waited for, not measured.
ARRIVAL_SECONDS: Final = 90.0
READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 40.0


def marker() -> str:
    """Return a word that occurs nowhere else, and that no host splits or escapes."""
    return f"MARK{secrets.token_hex(6).upper()}"


def send(stage: Stage, text: str, *options: str) -> str:
    """Send a message as a person does, and return its id."""
    sent = json.loads(stage.harken("send", "--json", *options, "--", text))
    return str(sent["id"])


def ledger(stage: Stage, message: str) -> Json:
    """Return what Harken says about a message: its text, and who got it and how."""
    return json.loads(stage.harken("read", "--json", message))


def line_of(stage: Stage, message: str) -> Json:
    """Return what the ledger says about a message and this host; empty before it was offered."""
    lines = [line for line in ledger(stage, message)["ledger"] if line["consumer"] == stage.host.name]
    assert len(lines) <= 1
    return lines[0] if lines else {}


def eventually(stage: Stage, message: str, is_so: Callable[[Json], bool]) -> Json:
    """Return the ledger's line once it is as wanted: a hook that ends a turn runs after the model's last answer."""
    end = time.monotonic() + ARRIVAL_SECONDS
    while not is_so(line := line_of(stage, message)):
        assert time.monotonic() < end, f"the ledger stays at {line}"
    return line


def is_seen(line: Json) -> bool:
    """Whether there is proof that the model got it."""
    return bool(line.get("state") == "seen")


def sessions(stage: Stage) -> list[Json]:
    """Return the sessions of this host that Harken knows."""
    found = json.loads(stage.harken("status", "--json"))["sessions"]
    return [session for session in found if session["host"] == stage.host.name]


def until_idle(stage: Stage, count: int = 1) -> None:
    """Return when so many sessions can be woken, and none is busy; after a restart nobody may know that one is idle."""

    def are_idle() -> bool:
        found = sessions(stage)
        return sum(each["can_wake"] for each in found) == count and all(each["presence"] != "busy" for each in found)

    until(are_idle, f"{count} are idle, now {sessions(stage)}", STEP_SECONDS)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return everything in a folder: files with their contents, folders with None."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def arrived(stage: Stage, text: str, *, after: int = 0, seconds: float = ARRIVAL_SECONDS) -> ModelRequest:
    """Return the first request of the conversation that holds a text; fails with what came instead."""
    return stage.model.wait_for(lambda asked: not asked.is_side and asked.count(text) > 0, seconds, after=after)


def so_far(stage: Stage) -> int:
    """Return how many requests there were: a later one is `after` that."""
    return len(stage.model.requests)


def places(asked: ModelRequest, text: str) -> Sequence[ConversationTurn]:
    """Return the pieces of a request that hold a text, the model's own words left out."""
    return [turn for turn in asked.holding(text) if turn.role not in {"assistant", "call"}]


def assert_once(stage: Stage, text: str) -> None:
    """Assert that the model got a text once: the last request holds the whole conversation, and it once in it."""
    asked = [request for request in stage.model.conversation if request.count(text)]
    assert asked, f"{text} never reached the model"
    last = stage.model.conversation[-1]
    assert last.count(text) == 1, f"{text} is in the last request {last.count(text)} times: {places(last, text)!r}"


def assert_never(stage: Stage, text: str) -> None:
    """Assert that no request, side requests included, ever held a text."""
    held = [(request.number, places(request, text)) for request in stage.model.requests if request.count(text)]
    assert held == [], f"{text} reached the model: {held!r}"
