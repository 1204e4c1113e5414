"""The live view of `harken watch`: looks, draws, and does what the keys say, until the person leaves.

What a key does is asked of the daemon like any verb; what comes of it, and what is in the way, stands in the banner.
Looking is in `news`, the lines are made in `show`. Things come and go by themselves while a key is on its way down: so
what Harken has chosen for the person is acted on only after it stood there for a while. The canvas needs no second
screen of the terminal: what has scrolled away can be scrolled back to, also after the end.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from io import StringIO
from time import monotonic
from typing import Final, Self

from harken.cli.output import Screen, cut, width_of
from harken.cli.watch.keyboard import GONE, RESIZED, Keyboard
from harken.cli.watch.news import OWN_MAILBOXES, News
from harken.cli.watch.show import HELP, banner, event_line, message_line
from harken.control.client import Result
from harken.errors import HarkenError

LOOK_SECONDS: Final = 1.0
NOTE_SECONDS: Final = 8.0
MAX_KNOWN: Final = 500
ACK_BATCH: Final = 100
LEAVING: Final = frozenset({"q", GONE})
SETTLE_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 2.0
COLUMNS, ROWS = 80, 24
_KEPT: Final = 200
_TO_END: Final = "\x1b[J"
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_CLEAR: Final = "\x1b[H\x1b[2J"
# A line that is wider than was thought, which differs between terminals, is cut and takes no second row.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class LiveView:
    """What one person sees, and what their keys do."""

    def __init__(self, news: News, keyboard: Keyboard, *, has_colour: bool) -> None:
        self._news = news
        self._keyboard = keyboard
        self._has_colour = has_colour
        self._canvas = Canvas()
        self._choice = MessageChoice()
        self._known: dict[str, Result] = {}
        self._unmarked: dict[str, None] = {}  # shown, and not marked as seen
        self._note, self._note_until = "", 0.0
        self._acts: Mapping[str, Callable[[], None]] = {
            "up": lambda: self._move(-1),
            "k": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "j": lambda: self._move(1),
            "y": lambda: self._answer(is_yes=True),
            "n": lambda: self._answer(is_yes=False),
            "escape": self._end_run,
            "enter": self._show_whole,
            "r": self._write_answer,
            "d": self._settle,
            "u": self._show_unread,
            "m": self._mark,
            "p": self._pause,
            "?": lambda: self._draw([self._screen().fit(line) for line in HELP]),
        }

    def run(self, unread: list[Result]) -> None:
        """Show everything until the person leaves."""
        self._remember(unread)
        screen = self._screen()
        lines = [message_line(screen, each) for each in unread]
        try:
            # Nobody can have meant what was not there to be seen.
            self._keyboard.forget()
            if before := self._news.printed_before:
                self._say(f"{before} more {'is' if before == 1 else 'are'} unread: press u to see them.")
            self._draw(lines)
            self._go_on()
        finally:
            self._canvas.close()

    def _go_on(self) -> None:
        next_look = monotonic() + LOOK_SECONDS
        while True:
            keys = self._keyboard.wait(next_look - monotonic())
            if any(key in LEAVING for key in keys):
                return
            for key in keys:
                self._press(key)
            if self._news.is_stale or monotonic() >= next_look:
                self._look()
                next_look = monotonic() + (0.0 if self._news.has_more else LOOK_SECONDS)

    def _look(self) -> None:
        events = self._news.look()
        self._remember([each["message"] for each in events if each["kind"] == "received"])
        screen = self._screen()
        self._draw([event_line(screen, each, self._known) for each in events])

    def _remember(self, records: list[Result]) -> None:
        for each in records:
            self._known[each["id"]] = each
            if each["mailbox"] in OWN_MAILBOXES:
                self._unmarked[each["id"]] = None
        for kept in (self._known, self._unmarked):
            while len(kept) > MAX_KNOWN:
                kept.pop(next(iter(kept)))

    def _screen(self) -> Screen:
        # One column stays free: what a terminal does after its last one differs.
        return Screen(max(1, size_of_terminal()[0] - 1), has_colour=self._has_colour)

    def _banner(self) -> list[str]:
        view, now = self._news.view, monotonic()
        self._choice = self._choice.among(view.ids, now)
        note = self._note if now < self._note_until else ""
        rows = max(1, size_of_terminal()[1] - 1)
        now_here = datetime.now().astimezone()
        return banner(self._screen(), view, self._choice.chosen, note=note, rows=rows, now=now_here)

    def _draw(self, lines: list[str]) -> None:
        self._canvas.draw(lines, self._banner())

    def _press(self, key: str) -> None:
        if key == RESIZED:
            self._canvas.redraw(self._banner())
            return
        act = self._acts.get(key)
        if act is None:
            return
        self._note = ""
        try:
            act()
        except HarkenError as exc:
            self._say(f"{exc.message} {exc.hint}".strip())
        self._draw([])

    def _say(self, text: str) -> None:
        self._note, self._note_until = text, monotonic() + NOTE_SECONDS

    def _move(self, by: int) -> None:
        self._choice = self._choice.moved(self._news.view.ids, by, monotonic())

    def _answer(self, *, is_yes: bool) -> None:
        name, key = self._choice.chosen, "y" if is_yes else "n"
        if name not in [each["id"] for each in self._news.view.asked]:
            self._say("No question is chosen." if self._news.view.asked else "No question is waiting.")
        elif not self._choice.is_settled(monotonic()):
            self._choice = self._choice.held(monotonic())
            self._say(f"{name} has just arrived. Look at it, and press {key} again.")
        else:
            told = self._news.act("confirm", action=name, yes=is_yes)
            self._say(f"{name}: {'yes' if is_yes else 'no'}, it is {told['state']}.")

    def _end_run(self) -> None:
        runs = [each["id"] for each in self._news.view.runs]
        if not runs:
            self._say("Nothing runs.")
            return
        name = runs[0] if len(runs) == 1 else self._choice.chosen
        now = monotonic()
        if name not in runs:
            self._say(f"{len(runs)} are running. Choose one with up and down, then press Esc.")
        elif (len(runs) > 1 or self._choice.is_careful(now)) and not self._choice.ends(name, now):
            self._choice = self._choice.ending_soon(name, now)
            self._say(f"Press Esc again to end {name}.")
        else:
            self._choice = self._choice.ended(now)
            self._news.act("run_abort", run=name)
            self._say(f"{name} was ended.")

    def _show_whole(self) -> None:
        view, name, screen = self._news.view, self._choice.chosen, self._screen()
        if name in [each["id"] for each in view.runs]:
            from harken.cli.run_show import show_run

            run = self._news.ask("run", run=name)
            self._draw(_printed(lambda: show_run(screen, run)))
            return
        ref = self._chosen_question() or next(
            (each["message_id"] for each in view.asked if each["id"] == name), next(reversed(self._known), "")
        )
        if not ref:
            self._say("There is no message yet.")
            return
        record = self._news.ask("read", ref=ref)["message"]
        self._draw(_printed(lambda: screen.message(record)))
        self._read(record)

    def _chosen_question(self) -> str:
        """Return the message that is chosen and waits for an answer; empty for none."""
        name = self._choice.chosen
        return name if name in [each["message"]["id"] for each in self._news.view.questions] else ""

    def _meant_question(self, key: str) -> str:
        """Return the message that a key is meant for; empty, and the reason in the banner, when there is none."""
        name = self._chosen_question()
        if not name:
            has_any = bool(self._news.view.questions)
            self._say(
                "Choose a message that waits, with up and down." if has_any else "No message waits for an answer."
            )
        elif not self._choice.is_settled(monotonic()):
            self._choice = self._choice.held(monotonic())
            self._say(f"{name} has just arrived. Look at it, and press {key} again.")
            return ""
        return name

    def _write_answer(self) -> None:
        if name := self._meant_question("r"):
            self._canvas.close()
            text = self._keyboard.line(f"Your answer to {name}, Enter sends it: ").strip()
            if text:
                self._news.act("reply", ref=name, body=text, key=os.urandom(12).hex())
            self._say(f"{name} is answered." if text else "Nothing was sent.")

    def _settle(self) -> None:
        if name := self._meant_question("d"):
            self._news.act("question_done", refs=[name])
            self._read(self._news.ask("read", ref=name)["message"])
            self._say(f"{name} needs no answer.")

    def _read(self, record: Result) -> None:
        """Mark a message as seen: a key was pressed on it, so it was read and not only printed."""
        if record["mailbox"] in OWN_MAILBOXES:
            self._news.act("ack", refs=[record["id"]])
            self._unmarked.pop(record["id"], None)

    def _show_unread(self) -> None:
        unread = self._news.unread()
        self._remember(unread)
        screen = self._screen()
        self._draw([message_line(screen, each) for each in unread])
        if not unread:
            self._say("Nothing is unread.")

    def _mark(self) -> None:
        names = list(self._unmarked)
        for begin in range(0, len(names), ACK_BATCH):
            batch = names[begin : begin + ACK_BATCH]
            self._news.act("ack", refs=batch)
            for name in batch:
                del self._unmarked[name]
        self._say(f"{len(names)} marked as seen." if names else "Everything shown is marked; u shows what is unread.")

    def _pause(self) -> None:
        verb = "rules_resume" if self._news.view.is_paused else "rules_pause"
        found = self._news.act(verb)
        self._say("Rules are paused; p lets them go on." if found["is_paused"] else "Rules go on.")


def _printed(show: Callable[[], None]) -> list[str]:
    """Return the lines that something prints."""
    with redirect_stdout(StringIO()) as text:
        show()
    return text.getvalue().splitlines()


def can_draw(environment: Mapping[str, str]) -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return sys.stdout.isatty() and environment.get("TERM", "dumb") not in ("", "dumb")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChoice:
    """Which question or run is chosen, since when, and by you or by itself."""

    chosen: str = ""
    since: float = 0.0
    is_own: bool = False  # the person's own, not one that was made for them
    ending: str = ""  # the run that a second Esc ends
    ending_until: float = 0.0
    careful_until: float = 0.0  # a run has just been ended: one Esc too many must not end another

    def among(self, ids: Sequence[str], now: float) -> Self:
        """Return the choice when these are what there is: the same, else the first."""
        if self.chosen in ids:
            return self
        return replace(self, chosen=ids[0] if ids else "", since=now, is_own=False)

    def moved(self, ids: Sequence[str], by: int, now: float) -> Self:
        """Return the choice after the person went up or down."""
        if not ids:
            return self
        place = ids.index(self.chosen) + by if self.chosen in ids else 0
        return replace(self, chosen=ids[min(max(place, 0), len(ids) - 1)], since=now, is_own=True)

    def is_settled(self, now: float) -> bool:
        """Whether a key that is pressed now is meant for what is chosen."""
        return self.is_own or now - self.since >= SETTLE_SECONDS

    def held(self, now: float) -> Self:
        """Return the choice after a key came too early: one that is held down never gets through."""
        return replace(self, since=now)

    def ending_soon(self, run: str, now: float) -> Self:
        """Return the choice after a first Esc."""
        return replace(self, ending=run, ending_until=now + AGAIN_SECONDS)

    def ends(self, run: str, now: float) -> bool:
        """Whether an Esc now is the second one for this run."""
        return self.ending == run and now < self.ending_until

    def ended(self, now: float) -> Self:
        """Return the choice after a run was ended."""
        return replace(self, ending="", careful_until=now + AGAIN_SECONDS)

    def is_careful(self, now: float) -> bool:
        """Whether also the only run needs a second Esc."""
        return now < self.careful_until


def size_of_terminal() -> tuple[int, int]:
    """Return columns and rows of stdout, as they are now."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return COLUMNS, ROWS
    return size.columns or COLUMNS, size.lines or ROWS


class Canvas:
    """Lines and a banner. Writes only what changes, and each change at once."""

    def __init__(self) -> None:
        self._banner: tuple[str, ...] = ()
        self._kept: deque[str] = deque(maxlen=_KEPT)

    def draw(self, lines: Sequence[str], banner: Sequence[str]) -> None:
        """Add lines, and show the banner below them."""
        wanted = tuple(banner)
        if not lines and wanted == self._banner:
            return
        self._kept.extend(lines)
        begin = "" if self._banner else _PASTE_ON
        self._write(begin + self._up() + _TO_END + "\n".join([*lines, *wanted]))
        self._banner = wanted

    def redraw(self, banner: Sequence[str]) -> None:
        """Show the last lines and the banner on a screen that has another size now."""
        # How a terminal moves lines when it is resized differs, so nothing on it can be relied on.
        columns, rows = size_of_terminal()
        room = max(0, rows - len(banner))
        last = [_shortened(line, columns - 1) for line in list(self._kept)[-room:]] if room else []
        self._write(_PASTE_ON + _CLEAR + "\n".join([*last, *banner]))
        self._banner = tuple(banner)

    def close(self) -> None:
        """Take the banner away; the lines stay."""
        self._write(self._up() + _TO_END + _PASTE_OFF)
        self._banner = ()

    def _up(self) -> str:
        return "\r" + (f"\x1b[{len(self._banner) - 1}A" if len(self._banner) > 1 else "")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(f"{_CUT}{text}{_WRAP}")
        sys.stdout.flush()


def _shortened(line: str, width: int) -> str:
    """Return a line that was made for a wider screen, with its colours."""
    parts: list[str] = []
    for part in _COLOUR.split(line):
        if _COLOUR.fullmatch(part):
            parts.append(part)
        elif width > 0:
            parts.append(cut(part, width))
            width -= width_of(part)
    return "".join(parts)
