"""`harken watch --quiet`: no lines, only toasts on the desktop for what arrives; a burst is one toast.

It is best effort: where there is no desktop it says so once and goes on. In quiet hours nothing is shown until they
are over. What rules tell and ask is shown by the daemon and not a second time here. What is on a toast is from
outside: it is cut, cleaned and no markup.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from time import monotonic, sleep
from typing import Final

import anyio

from harken.automation import QuietHours
from harken.cli.output import note_to_person, sender_of
from harken.cli.watch.news import News
from harken.config.home import Home
from harken.config.load import load
from harken.control.client import Result
from harken.dispatch.toast import NO_SESSION, PAUSE_SECONDS, Desktop, Toast, safe_text
from harken.ingest.sanitise import one_line

LOOK_SECONDS: Final = 1.0
MAX_GATHERED: Final = 1_000
MAX_NAMED: Final = 3
NAME_CHARS: Final = 40
TEXT_CHARS: Final = 100
HINT: Final = 'Tell your agent: "check the inbox"'


def show_toasts(home: Home, news: News) -> None:
    """Show a toast for what arrives, until the person ends it."""
    quiet = load(home, {}, os.environ).settings.toasts.quiet_hours
    gathered = PendingNews(quiet)
    said = NO_SESSION if Desktop(os.environ).state == NO_SESSION else ""
    begin = f"Toasts are not shown: {said}." if said else "Toasts tell what arrives."
    note_to_person(f"{begin} Ctrl-C ends it.")
    while True:
        gathered.add([each["message"] for each in news.look() if each["kind"] == "received"])
        if toast := gathered.take(datetime.now().astimezone(), monotonic()):
            problem = anyio.run(_shown, toast)
            if problem and problem != said:
                note_to_person(f"Toasts are not shown: {problem}.")
            said = problem
        if not news.has_more:
            sleep(LOOK_SECONDS)


class PendingNews:
    """What has arrived and was not told yet. Pure: it is told the time."""

    def __init__(self, quiet: QuietHours | None) -> None:
        self._quiet = quiet
        self._untold: list[Result] = []
        self._left_out = 0
        self._shown_at: float | None = None

    def add(self, records: Sequence[Result]) -> None:
        """Take in messages; those that the person wrote on this machine are no news to them."""
        self._untold += [each for each in records if (each["source"], each["trust"]) != ("local", "owner")]
        over = max(0, len(self._untold) - MAX_GATHERED)
        self._left_out += over
        del self._untold[:over]

    def take(self, now: datetime, seconds: float) -> Toast | None:
        """Return the toast that is due: one at once, and what follows it gathered into one after a while."""
        if not self._untold or (self._quiet is not None and self._quiet.covers(now)):
            return None
        if self._shown_at is not None and seconds - self._shown_at < PAUSE_SECONDS:
            return None
        toast = toast_of(self._untold, len(self._untold) + self._left_out)
        self._untold, self._left_out, self._shown_at = [], 0, seconds
        return toast


def toast_of(records: Sequence[Result], count: int) -> Toast:
    """Return the toast for some messages, of which the newest is last. Pure."""
    newest = records[-1]
    text = f'"{_short(newest["content_text_sanitized"], TEXT_CHARS)}"'
    if count == 1:
        return Toast(_who(newest), f"{text}\n{HINT}")
    counted = Counter(map(_who, records)).most_common()
    named = [f"{who}: {number}" for who, number in counted[:MAX_NAMED]]
    more = [f"others: {others}"] if (others := count - sum(number for _, number in counted[:MAX_NAMED])) else []
    return Toast(f"{count} messages", "\n".join([", ".join([*named, *more]), f"Newest: {text}", HINT]))


def _who(record: Result) -> str:
    sender = _short(sender_of(record), NAME_CHARS)
    return f"{sender} in {_short(record['channel'] or record['source'], NAME_CHARS)}"


def _short(text: str, most: int) -> str:
    return safe_text(one_line(text, most))


async def _shown(toast: Toast) -> str:
    """Show it; return why it is not shown, empty when it is."""
    desktop = Desktop(os.environ)
    is_shown = await desktop.show(toast)
    state = desktop.state
    await desktop.close()
    return "" if is_shown else state
