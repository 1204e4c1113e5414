"""How much of a result each host really shows its model, and that long mail arrives whole all the same.

The sizes in the table of hosts are promises about programs of others: each is tried here on the model's wire, with
letters of one byte and of more, with many lines, and with text that takes more room as JSON inside of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from harken.hosts.registry import host_named
from harken.hosts.trial_recipe import MODEL
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, ModelRequest, Script, resolve, side
from tests.hosts.observer import Observer
from tests.hosts.stage import Stage
from tests.hosts.story import eventually, is_seen, send
from tests.hosts.wire import is_whole, new_prompt

ALPHABETS: Final = {
    "plain": "the build is red ",
    "cjk": "今天构建失败了",
    "lines": "a line\n",
    "quotes": '"\\',
    "emoji": "😀",
}
LONG_CHARS, LONG_BYTES = 60_000, 100_000  # as long as a message may be, and as an argument of a command
# Codex offers tools to this model from inside a program, whose output is written as JSON once more.
PROGRAMMING: Final = "gpt-6.1-sol"
MAX_CALLS: Final = 60
PIECE, PULLED = "message_id", "unread_remaining"  # what results of `inbox_read` and `inbox_pull` begin with
PILE, PILE_CHARS = 40, 3_000
_DECODER: Final = json.JSONDecoder(strict=False)


def body(alphabet: str) -> str:
    """Return a long text, no part of which is like another."""
    parts = [f"{number:05} {ALPHABETS[alphabet] * 10}" for number in range(LONG_CHARS)]
    count = min(LONG_CHARS // len(parts[0]), LONG_BYTES // len(parts[0].encode()))
    return "".join(parts[:count]) + "end"


def results(asked: ModelRequest, key: str) -> Iterator[Json]:
    """Yield the JSON of each result of ours that a request holds whole, by the key that it begins with."""
    for turn in asked.turns:
        if turn.role != "tool":
            continue
        text = turn.text
        if re.search(rf'\\"(?:{key})\\"', text):
            # The output of a program: a document whose text is ours.
            outer, _ = _DECODER.raw_decode(text[text.index('{"content"') :])
            text = "".join(str(part["text"]) for part in outer["content"] if part["type"] == "text")
        if found := re.search(rf'\{{"(?:{key})"', text):
            yield _DECODER.raw_decode(text[found.start() :])[0]


def reader(message: str) -> Script:
    """Return a model that reads a message to its end, piece after piece."""

    def script(asked: ModelRequest) -> ModelAnswer:
        if asked.is_side:
            return side(asked)
        pieces = list(results(asked, PIECE))
        if pieces and pieces[-1]["next_offset"] is None:
            return ModelAnswer.text("done")
        offset = pieces[-1]["next_offset"] if pieces else 0
        return once_offered(ModelAnswer.call("inbox_read", {"message_id": message, "offset": offset}), asked)

    return script


def follower(texts: Mapping[str, str]) -> Script:
    """Return a model that does what results say until nothing waits: it reads one that is cut, and pulls the next."""

    def script(asked: ModelRequest) -> ModelAnswer:
        if asked.is_side:
            return side(asked)
        given = list(results(asked, f"{PIECE}|{PULLED}"))
        last = given[-1] if given else {}
        if last.get("next_offset") is not None:
            return ModelAnswer.call("inbox_read", {"message_id": last["message_id"], "offset": last["next_offset"]})
        cut = [each["id"] for each in last.get("messages", ()) if each.get("truncated")]
        # A hook may have told one whole beside the result that lists it.
        if cut := [each for each in cut if not is_whole(asked, texts[each])]:
            return ModelAnswer.call("inbox_read", {"message_id": cut[0]})
        if last.get("unread_remaining") == 0:
            return ModelAnswer.text("done")
        # Each with a limit of its own: hosts stop a model that makes the same call again and again.
        return once_offered(ModelAnswer.call("inbox_pull", {"limit": 20 + len(given)}), asked)

    return script


def once_offered(call: ModelAnswer, asked: ModelRequest) -> ModelAnswer:
    """Return a call, or a moment's work while its tool is not offered: some hosts begin before their servers have."""
    calls = sum(turn.role == "call" for turn in asked.turns)
    if calls >= MAX_CALLS:
        return ModelAnswer.text("this goes on for ever")
    return call if resolve(call, asked).calls else ModelAnswer.shell(f"sleep 0.{calls % 9 + 1}")


def read_to_the_end(stage: Stage, text: str) -> list[Json]:
    """Send a text, let the host's model read it in pieces, and return those that its last request holds."""
    message = send(stage, text, "--from", "ann")
    stage.model.follow(reader(message))
    stage.ask("read it")
    pieces = list(results(stage.model.conversation[-1], PIECE))
    assert "".join(piece["text"] for piece in pieces) == text
    assert eventually(stage, message, is_seen)["surface"] == "inbox_read"
    return pieces


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_result_that_uses_the_budget_is_shown_whole(stage: Stage, alphabet: str) -> None:
    """Were it cut, the JSON would not end, and the next offset would not be known."""
    stage.harken("connect", stage.host.name, "--yes")
    pieces = read_to_the_end(stage, body(alphabet))
    largest = max(len(json.dumps(piece, ensure_ascii=False).encode()) for piece in pieces)
    assert largest > host_named(stage.host.name).result_bytes * 0.85


def test_pile_of_long_mail_is_read_by_doing_what_the_results_say(stage: Stage) -> None:
    """No result, prompt or hook holds all of it: each text has to come whole, once, and be seen after that."""
    stage.harken("connect", stage.host.name, "--yes")
    observer = Observer(stage)
    pile = [observer.send("before the host", "--from", "ann", about_chars=PILE_CHARS) for _ in range(PILE)]
    stage.model.follow(follower({message.id: message.text for message in pile}))
    stage.ask(f"{new_prompt()} read what waits")
    observer.settle()
    observer.check()
    observer.expect_plain(*pile)
    wrong = observer.report()
    assert not wrong, wrong
    last = stage.model.conversation[-1]
    assert [last.count(message.text) for message in pile] == [1] * PILE


@pytest.mark.parametrize("host", ["codex"], indirect=True)
@pytest.mark.parametrize("alphabet", ["plain", "quotes"])
def test_result_in_a_program_of_the_model_is_shown_whole(stage: Stage, alphabet: str) -> None:
    """What it prints is JSON that holds ours as a string: quotes and backslashes are written twice."""
    file = stage.user / ".codex" / "config.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(f'"{MODEL}"', f'"{PROGRAMMING}"'), encoding="utf-8")
    stage.harken("connect", "codex", "--yes")
    read_to_the_end(stage, body(alphabet))
