"""What the command line prints, made safe and fitted to the terminal.

All text of messages is hostile: it was cleaned on the way in, and still nothing that could act on a terminal is
printed raw. Colours and cutting happen only on a terminal; a pipe gets plain, whole text. It knows the JSON of the
verbs and nothing of how it came here.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from contextvars import ContextVar
from time import localtime, strftime
from types import MappingProxyType

from harken.control.client import encode
from harken.display import YOU, one_line, passes_for_you, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from time import struct_time
    from typing import Any, Final

    Record = dict[str, Any]
    """A message as the verbs give it."""

MIN_WIDTH = 20
DEFAULT_WIDTH = 80
STAMP = "2026-01-05T09:00:00.000Z"  # a time as every verb gives it
MARCH, DAYS_TO_1970 = 3, 719_469
MAX_PIPED = 1_000  # columns of a line in a list that a program reads; `--json` has all
LINE_END = " ⏎ "
NARROW = 70
MIN_COLUMN = 8
THOUSAND = 1000
INDENT = "    "
DIM, BOLD, RED, CYAN = "2", "1", "31", "36"

HOME_OPTION: Final[ContextVar[tuple[str, ...]]] = ContextVar("home_option", default=())
"""How the command that runs now was told its home: the option and its value, or nothing."""

MARKS: Final[Mapping[str, str]] = MappingProxyType({"owner": "★ ", "known": "", "unknown": "? "})
_OTHERS_MARK: Final = "☆"  # what a name has in the place of ours
_NO_BRACKETS: Final = str.maketrans("[]\uff3b\uff3d", "()()")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return JSON that keeps letters of every script and escapes what could act on a terminal."""
    if indent is None:
        text = encode(value, is_ascii=False)
    else:
        import json

        text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else encode(c)[1:-1] if c > "\x7f" else "\\u007f" for c in text)


def human(size: float) -> str:
    """Return a size as people say it."""
    for unit in ("bytes", "KB", "MB"):
        if size < THOUSAND:
            return f"{size:.0f} {unit}"
        size /= THOUSAND
    return f"{size:.1f} GB"


def width_of(text: str) -> int:
    """Return about how many columns a text takes."""
    return len(text) if text.isascii() else sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return the text, shortened with an ellipsis where it would take more columns."""
    if width_of(text) <= width:
        return text
    used = 0
    for place, char in enumerate(text):
        used += _columns(char)
        if used > width - 1:
            return text[:place].rstrip() + "…"
    return text


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield the text in lines of at most this many columns, broken at spaces where there are any."""
    line, used = "", 0
    for word in text.split(" "):
        rest = word
        while rest:
            gap = 1 if line else 0
            size = _size_within(rest, width - used - gap)
            if size is not None:
                line, used, rest = f"{line}{' ' * gap}{rest}", used + gap + size, ""
            elif line:
                yield line
                line, used = "", 0
            else:
                head = _head(rest, width)
                yield head
                rest = rest[len(head) :]
        if not word and used < width:
            line, used = line + " ", used + 1
    yield line.rstrip()


def _size_within(text: str, room: int) -> int | None:
    """Return how many columns a text takes, None if more than there are: then the rest of it is not looked at."""
    used = 0
    for char in text:
        used += _columns(char)
        if used > room:
            return None
    return used if room >= 0 else None


def _head(text: str, width: int) -> str:
    used = 0
    for place, char in enumerate(text):
        used += _columns(char)
        if used > width and place:
            return text[:place]
    return text


def clock_time(
    stamp: str | None, now: float | None = None, clock: Callable[[float | None], struct_time] = localtime
) -> str:
    """Return a time as people here say it, short: today the hour, else the day too; a dash for none."""
    if not stamp:
        return "-"
    moment, today = clock(_seconds(stamp)), clock(now)
    if moment[:3] == today[:3]:
        return strftime("%H:%M", moment)
    return strftime("%m-%d %H:%M" if moment.tm_year == today.tm_year else "%Y-%m-%d %H:%M", moment)


def _seconds(stamp: str) -> float:
    """Return the seconds since 1970 of a time as ISO 8601."""
    if len(stamp) != len(STAMP) or stamp[-1] != "Z":
        from datetime import datetime

        return datetime.fromisoformat(stamp).timestamp()
    # As the daemon writes it. `datetime` would cost every command a tenth of the interpreter's start.
    year, month, day = int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])
    of_march = year - (month < MARCH)  # a year that begins in March has its leap day at the end
    days = 365 * of_march + of_march // 4 - of_march // 100 + of_march // 400
    days += (153 * ((month - MARCH) % 12) + 2) // 5 + day - DAYS_TO_1970
    return days * 86_400 + int(stamp[11:13]) * 3_600 + int(stamp[14:16]) * 60 + int(stamp[17:19])


def terminal_columns() -> int:
    """Return how wide the terminal is: COLUMNS if it is set, else what the terminal says, else 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size().columns or DEFAULT_WIDTH
    except OSError:
        return DEFAULT_WIDTH


class Screen:
    """Where output goes. `width` is 0 for a pipe: nothing is wrapped, and only what is very long is cut in a list."""

    __slots__ = ("has_colour", "width")

    def __init__(self, width: int, *, has_colour: bool) -> None:
        self.width = width
        self.has_colour = has_colour

    @classmethod
    def of_stdout(cls) -> Screen:
        """Return what stdout is."""
        if not sys.stdout.isatty():
            return cls(0, has_colour=False)
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(max(MIN_WIDTH, terminal_columns()), has_colour=colour)

    def json(self, value: object) -> None:
        """Print one JSON document: on one line for programs, indented for people."""
        print(json_text(value, indent=2 if self.width else None))

    def line(self, text: str = "") -> None:
        """Print a line that is safe already."""
        print(text)

    def hint(self, text: str) -> None:
        """Print a line of our own that names commands: about the home that the person named."""
        print(at_home(text))

    def paint(self, text: str, style: str) -> str:
        """Return safe text in a colour, where there are colours."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.has_colour and text else text

    def fit(self, text: str, taken: int = 0) -> str:
        """Return one line that fits into what is left of the width."""
        return cut(one_line(text), max(1, (self.width or MAX_PIPED) - taken))

    def short(self, text: str, part: int) -> str:
        """Return one line that takes at most that part of the width: a fourth, an eighth."""
        safe = one_line(text)
        return cut(safe, self.width // part) if self.width else safe

    def row(self, record: Record, note: str = "") -> None:
        """Print a message on one line: where it is, when, who and the beginning of what."""
        head, plain = self._head(record, note)
        room = self.width - width_of(plain)
        said = LINE_END.join(line for each in record["content_text_sanitized"].split("\n") if (line := each.strip()))
        if self.width and room < MIN_WIDTH // 2:
            print(self.fit(plain + said))
        else:
            print(head + self.fit(said, width_of(plain)))

    def message(self, record: Record, note: str = "") -> None:
        """Print a message whole. Its later lines are indented, so that none can pose as another message."""
        head, plain = self._head(record, note)
        first, *rest = visible(record["content_text_sanitized"]).split("\n")
        if self.width and self.width - width_of(plain) < MIN_WIDTH // 2:
            head, more = self.fit(plain), self._lines(first)
            print(head)
        else:
            begin, *more = self._lines(first, width_of(plain))
            print(head + begin)
        for text in [*more, *(piece for line in rest for piece in self._lines(line))]:
            print((INDENT + text).rstrip())

    def text(self, text: str) -> None:
        """Print text of people, indented and wrapped; what goes on is indented as its line is."""
        for line in visible(text).split("\n"):
            words = line.lstrip(" ")
            lead = INDENT + " " * min(len(line) - len(words), MIN_WIDTH // 2)
            room = max(MIN_WIDTH // 2, self.width - len(lead))
            for piece in wrapped(words, room) if self.width else [words]:
                print((lead + piece).rstrip())

    def flow(self, text: str, head: str = INDENT, taken: int = len(INDENT), style: str = "") -> None:
        """Print one line after a head of that many columns; what does not fit goes on below it, and nothing is cut."""
        safe = one_line(text)
        pieces = wrapped(safe, max(MIN_WIDTH // 2, self.width - taken)) if self.width else [safe]
        for piece in pieces:
            print(head + self.paint(piece, style))
            head = " " * taken

    def table(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Print rows of safe or unsafe words in columns; where they do not fit, the widest are cut."""
        safe = [tuple(one_line(word) for word in row) for row in rows]
        sizes = self._sizes([max(width_of(row[i]) for row in safe) for i in range(len(safe[0]))] if safe else [])
        for row in safe:
            *heads, last = (cut(word, sizes[i]) if i < len(row) - 1 else word for i, word in enumerate(row))
            text = "  " + "".join(f"{w}{' ' * (sizes[i] - width_of(w) + 2)}" for i, w in enumerate(heads))
            line = (text + last).rstrip()
            print(cut(line, self.width) if self.width else line)

    def _sizes(self, sizes: list[int]) -> list[int]:
        """Return how wide each column may be, so that a third of the width is left to the last one if it needs it."""
        *heads, last = sizes or [0]
        room = self.width - 2 - 2 * len(heads) - min(last, self.width // 3)
        most = max(heads, default=0)
        while self.width and sum(min(size, most) for size in heads) > room and most > MIN_COLUMN:
            most -= 1
        return [*(min(size, most) for size in heads), last]

    def _lines(self, text: str, taken: int = 0) -> list[str]:
        if not self.width:
            return [text]
        room = self.width - len(INDENT)
        if not taken:
            return list(wrapped(text, room))
        first = next(wrapped(text, max(MIN_WIDTH // 2, self.width - taken)))
        rest = text[len(first) :].lstrip(" ")
        return [first, *(wrapped(rest, room) if rest else ())]

    def _head(self, record: Record, note: str) -> tuple[str, str]:
        # On a narrow terminal the number has to do: it names the message too.
        place = f"{one_line(record['id'])} {place_of(record)}" if not 0 < self.width < NARROW else place_of(record)
        stamp = in_brackets(record["channel"] or record["source"], clock_time(record["ts"]))
        who = sender_of(record) + ":"
        note = f"{note} " if note else ""
        plain = f"{place} {stamp} {note}{who} "
        return f"{self.paint(place, DIM)} {self.paint(stamp, CYAN)} {note}{self.paint(who, BOLD)} ", plain


def sender_of(record: Record) -> str:
    """Return who said a message, after a mark of trust that no name can carry."""
    return MARKS.get(record["trust"], MARKS["unknown"]) + name_of(record)


def unmarked(name: str) -> str:
    """Return a name on one line, without the mark that only the owner has."""
    return one_line(name).replace(MARKS["owner"].strip(), _OTHERS_MARK)


def in_brackets(place: str, when: str = "") -> str:
    """Return where a message came from, and when, in brackets that the name of a channel cannot close."""
    return f"[{f'{unmarked(place).translate(_NO_BRACKETS)} {when}'.strip()}]"


def name_of(record: Record) -> str:
    """Return who said a message, for a place that has the mark already; a name that misleads has its id beside it."""
    if is_yours(record):
        return YOU
    name = unmarked(record["from"] or record["sender_id"])
    return f"{name} ({one_line(record['sender_id'])})" if _misleads(name) else name


def _misleads(name: str) -> bool:
    if name.isascii():
        return passes_for_you(name)
    from harken.ingest.sanitise import bare  # on use: its tables cost time at each start

    return passes_for_you(bare(name))


def is_yours(record: Record) -> bool:
    """Whether you said a message here yourself; somebody whose word counts as yours has another id."""
    return bool(record["trust"] == "owner" and record["sender_id"] == "owner")


def place_of(record: Record) -> str:
    """Return the mailbox and number of a message; the person's own mailbox goes without saying."""
    name = "" if record["mailbox"] == "inbox" else one_line(record["mailbox"]) + " "
    return f"{name}#{record['seq']}"


def note_to_person(text: str) -> None:
    """Print a remark that is not a result, on stderr; after the results so far, which a pipe or file gets later."""
    sys.stdout.flush()
    print(visible(at_home(text)), file=sys.stderr)


def at_home(text: str) -> str:
    """Return a hint with commands about the home of the command that runs now."""
    option = HOME_OPTION.get()
    if not option:
        return text
    first, *others = text.split("harken ")
    if not others:
        return text
    from harken.cli.invocation import CommandTable

    table = CommandTable()
    prefix = " ".join(["harken", *(_quoted(word) for word in option)])
    said = [first]
    for part in others:
        verb = part[: next((at for at, sign in enumerate(part) if not _is_of_name(sign)), len(part))]
        is_command = verb and not _is_of_name(said[-1][-1:]) and table.find(verb) is not None
        said += [f"{prefix} " if is_command else "harken ", part]
    return "".join(said)


def _is_of_name(sign: str) -> bool:
    return sign.isalnum() or sign in ("-", "_")


def _quoted(word: str) -> str:
    """Return a word for a shell; `shlex` costs a quarter of a command's start, so only odd words get there."""
    if word.isascii() and word.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum():
        return word
    import shlex

    return shlex.quote(word)
