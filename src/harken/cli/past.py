"""What happened, in order, for whoever wants to know how things stood: the journal's files, and the store's events.

The files have everything as long as nobody removed them; what they lack is asked of the daemon, which has the newest
events. Nothing is held in memory. It does not know what the events come to: that is `harken.inbox.replay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harken.config.home import disk_error
from harken.control.client import DaemonClient
from harken.inbox.replay import ReplayLine, read_line
from harken.memory import json_bytes

PAGE = 500
DAY_FILES = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl"
_REMOVAL = b'"kind":"pruned"'


def events(folder: Path, daemon: DaemonClient, until: str) -> Iterator[tuple[ReplayLine, bool]]:
    """Yield the events up to a time, each with True, and what retention removed later, each with False."""
    last = 0
    later: list[ReplayLine] = []
    for line in _of_files(folder, until):
        if line.at > until:
            later.append(line)
            continue
        if line.n > last + 1:
            yield from ((each, True) for each in _of_store(daemon, last, until) if each.n < line.n)
        last = max(last, line.n)
        yield line, True
    for each in _of_store(daemon, last, until):
        last = each.n
        yield each, True
    yield from ((each, False) for each in later)


def _of_files(folder: Path, until: str) -> Iterator[ReplayLine]:
    """Yield the lines of the files, day by day; of what is later than a time only what was removed."""
    for path in sorted(folder.glob(DAY_FILES)):
        is_later_day = path.stem > until[:10]
        try:
            with path.open("rb") as stream:
                for data in stream:
                    if is_later_day and _REMOVAL not in data:
                        continue
                    line = read_line(data)
                    if line is not None and (line.at <= until or line.kind == "pruned"):
                        yield line
        except OSError as exc:
            raise disk_error("read", path, exc) from exc


def _of_store(daemon: DaemonClient, after: int, until: str) -> Iterator[ReplayLine]:
    """Yield the events of the store that follow a number, up to a time."""
    while page := daemon.ask("journal", after=after, limit=PAGE)["events"]:
        for event in page:
            # The verb gives the message as a record too; replay reads both as they stand in the files.
            line = read_line(json_bytes(event))
            if line is not None and line.at <= until:
                yield line
        after = page[-1]["n"]
        if page[-1]["at"] > until:
            return
