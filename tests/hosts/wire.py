"""What the model's wire carried: which conversations there were, and where a message appeared in them. Pure.

A host sends the whole conversation with every request, so a text that is there again is history unless there are more
of it than before. Every text and every prompt has a word of its own, and the words in a request tell which
conversation it belongs to. The same text may appear a second time only with the mark of a repeat beside it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from harken.trial.exchange import ModelRequest

# How a text is marked that was offered before: in a frame before it, in the result of a tool after it.
FRAME_MARK: Final = "Repeat: offered before"
RECORD_MARK: Final = re.compile(r'\\*"repeat\\*"\s*:\s*true')
FILLER: Final = " word"
_PROMPT: Final = "PROMPT"
_WORD: Final = re.compile(rf"(?:MARK|{_PROMPT})[0-9A-F]{{12}}[BE]?")
_OWN: Final = frozenset({"assistant", "call"})  # what the model said itself has not arrived from anywhere
_LEFT_OUT: Final = _OWN | {"system"}


def new_prompt() -> str:
    """Return a prompt that occurs nowhere else."""
    return f"{_PROMPT}{secrets.token_hex(6).upper()}"


def new_text(about_chars: int = 0) -> tuple[str, str]:
    """Return a mark that occurs nowhere else, and a text on one line that has it at its beginning and its end."""
    mark = f"MARK{secrets.token_hex(6).upper()}"
    return mark, f"{mark}B is sent to see whether it arrives{FILLER * (about_chars // len(FILLER))} {mark}E"


def is_whole(asked: ModelRequest, text: str) -> bool:
    """Whether a request of the conversation holds a text from its beginning to its end."""
    return not asked.is_side and asked.count(text) > 0


def words(asked: ModelRequest) -> Sequence[str]:
    """Return the words of prompts and texts in a request, in their order, the model's own and the system's left out."""
    return [word for turn in asked.turns if turn.role not in _LEFT_OUT for word in _WORD.findall(turn.text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """A text that came into a conversation."""

    request: ModelRequest
    conversation: int
    role: str
    is_marked: bool  # as a repeat


@dataclass(slots=True)
class WireLog:
    """The requests so far, by conversation. It is told of new ones and looks at each once."""

    conversations: list[list[ModelRequest]] = field(default_factory=list[list[ModelRequest]])
    _known: int = 0
    _words: dict[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    _found: dict[tuple[int, str], Sequence[tuple[str, bool]]] = field(
        default_factory=dict[tuple[int, str], Sequence[tuple[str, bool]]]
    )

    def take(self, requests: Sequence[ModelRequest]) -> None:
        """Learn of all requests so far, in their order."""
        for asked in requests[self._known :]:
            self._known += 1
            if asked.is_side:
                continue
            self._words[asked.number] = words(asked)
            mine = self._continued(self._words[asked.number])
            if mine is None:
                self.conversations.append([asked])
            else:
                mine.append(asked)

    def appearances(self, text: str) -> Sequence[Appearance]:
        """Return where a text came into a conversation, whole and not as history, in order of arrival."""
        found: list[Appearance] = []
        for number, requests in enumerate(self.conversations):
            before = 0
            for asked in requests:
                places = self._places(asked, text)
                found += [
                    Appearance(request=asked, conversation=number, role=role, is_marked=is_marked)
                    for role, is_marked in places[before:]
                ]
                # Hosts ask things beside a turn too, with a history that lacks its end: fewer is not a new count.
                before = max(before, len(places))
        return sorted(found, key=lambda appearance: appearance.request.number)

    def _continued(self, mine: Sequence[str]) -> list[ModelRequest] | None:
        """Return the conversation that a request with some words goes on with: the one it shares most words with."""
        best, shared = None, 0
        for each in self.conversations:
            before = self._words[each[-1].number]
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, mine, strict=False)))
            # One that was taken back has fewer words than before; its first prompt is still the same.
            goes_on = same == len(before) or before[0].startswith(_PROMPT)
            if goes_on and same > shared:
                best, shared = each, same
        return best

    def _places(self, asked: ModelRequest, text: str) -> Sequence[tuple[str, bool]]:
        """Return for each time that a request holds a text its role, and whether it is marked as a repeat."""
        key = asked.number, text
        if key not in self._found:
            self._found[key] = [
                (turn.role, _is_marked(before, after))
                for turn in asked.turns
                if turn.role not in _OWN and text in turn.text
                for before, after in _around(turn.text, text)
            ]
        return self._found[key]


def _around(where: str, text: str) -> Sequence[tuple[str, str]]:
    """Return what stands before and after each occurrence of a text, up to the word of another."""
    found = []
    for match in re.finditer(re.escape(text), where):
        before, after = where[: match.start()], where[match.end() :]
        others_before = list(_WORD.finditer(before))
        other_after = _WORD.search(after)
        start = others_before[-1].end() if others_before else 0
        found.append((before[start:], after[: other_after.start() if other_after else None]))
    return found


def _is_marked(before: str, after: str) -> bool:
    return FRAME_MARK in before or RECORD_MARK.search(after) is not None
