"""The log: one line per record, private, bounded, and gone without a trace when the block ends."""

from __future__ import annotations

import json
import logging
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harken.log import MAX_MESSAGE_CHARS, configure, escape
from tests.examples import examples

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
any_text = st.text(st.characters(), max_size=60)  # lone surrogates included
hostile = st.lists(
    st.sampled_from(
        ["\n", "\r", "\x1b[2J", "\x9b", "\0", "\u2028", "\u202e", "\u200b", "\\", "\\n", "\ud800", "ä", "😀"]
    )
    | any_text,
    max_size=6,
).map("".join)


@dataclass(frozen=True)
class Place:
    """Where the log is kept in these tests."""

    path: Path

    @property
    def logs_dir(self) -> Path:
        """The folder."""
        return self.path / "logs"

    @property
    def daemon_log(self) -> Path:
        """The file."""
        return self.logs_dir / "daemon.log"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A home that has no log yet."""
    return Place(tmp_path)


def lines(place: Place) -> list[str]:
    """The lines of the log, split only where the file really has a new line."""
    return place.daemon_log.read_text(encoding="utf-8").split("\n")[:-1]


def without_time(place: Place) -> list[str]:
    """The lines without their first word."""
    return [line.partition(" ")[2] for line in lines(place)]


def fail(text: str) -> None:
    """Raise with a text from outside."""
    raise ValueError(text)


def test_record_is_one_line_with_utc_time_level_logger_and_message(place: Place) -> None:
    """The form that people grep and that tools parse."""
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken.inbox").info("accepted %d from %s", 3, "teams")
    (line,) = lines(place)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info harken\.inbox accepted 3 from teams", line)


def test_time_is_that_of_the_record_in_utc(place: Place) -> None:
    """A log in local time cannot be compared with the journal."""
    with configure(place, "info", to_stderr=False):
        record = logging.makeLogRecord(
            {"name": "harken", "levelno": 20, "levelname": "INFO", "msg": "x", "created": 0.25}
        )
        logging.getLogger("harken").handle(record)
    assert lines(place) == ["1970-01-01T00:00:00.250Z info harken x"]


@example(text="\\")
@example(text="\\n")
@example(text="\n")
@given(text=hostile)
def test_escaped_text_is_visible_and_can_be_read_back(text: str) -> None:
    """Nothing acts on a terminal, nothing begins a line, and two different texts never look the same."""
    escaped = escape(text)
    assert escaped.isprintable()
    assert len(escaped.splitlines()) <= 1
    assert escaped.encode("latin-1", "backslashreplace").decode("unicode_escape") == text
    assert escaped.encode("utf-8").decode("utf-8") == escaped


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=hostile, name=hostile)
def test_hostile_text_cannot_forge_a_line(place: Place, text: str, name: str) -> None:
    """A message could carry a whole log line of its own, in the text, in the arguments or in a logger's name."""
    place.daemon_log.unlink(missing_ok=True)
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info("got %s", text)
        logging.getLogger("harken").handle(
            logging.makeLogRecord({"name": name, "levelno": 20, "levelname": "INFO", "msg": "x"})
        )
    first, second = without_time(place)
    assert first == f"info harken got {escape(text)}"
    assert second == f"info {escape(name)} x"


def test_plain_text_stays_readable() -> None:
    """Escaping everything that is not ASCII would make half the world's logs unreadable."""
    assert escape("Grüße, 世界 😀: 100 %") == "Grüße, 世界 😀: 100 %"


def test_traceback_is_on_the_same_line(place: Place) -> None:
    """An exception's text is from outside too."""
    with configure(place, "info", to_stderr=False):
        try:
            fail("first\nsecond \x1b[31m")
        except ValueError:
            logging.getLogger("harken").exception("loop %s failed", "mail")
    (line,) = without_time(place)
    assert line.startswith("error harken loop mail failed | Traceback (most recent call last):\\n")
    assert line.endswith("ValueError: first\\nsecond \\x1b[31m")


def test_long_text_is_cut_and_says_so(place: Place) -> None:
    """One hostile message must not push everything else out of the rotating files."""
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info("%s", "x" * (MAX_MESSAGE_CHARS + 5))
        try:
            fail("y" * 1_000_000 + " the end")
        except ValueError:
            logging.getLogger("harken").exception("z")
    cut, trouble = without_time(place)
    assert cut == f"info harken {'x' * MAX_MESSAGE_CHARS} (5 more characters)"
    assert trouble.endswith("the end")
    assert len(trouble) < 20_000


@pytest.mark.parametrize(("message", "args"), [("%d", ("x",)), ("%s %s", (1,)), ("%(a)s", ({"b": 1},)), ("%", (1,))])
def test_arguments_that_do_not_fit_still_make_a_line(place: Place, message: str, args: tuple[object, ...]) -> None:
    """A mistake in a log call must not hide what it was about."""
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info(message, *args)
    assert without_time(place) == [f"info harken {message} (its arguments do not fit)"]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (
            "debug",
            ["debug harken.x", "info harken.x", "warning harken.x", "error harken.x", "warning other", "error other"],
        ),
        ("info", ["info harken.x", "warning harken.x", "error harken.x", "warning other", "error other"]),
        ("warning", ["warning harken.x", "error harken.x", "warning other", "error other"]),
        ("error", ["error harken.x", "error other"]),
    ],
)
def test_level_is_for_harken_and_others_log_from_warning_on(place: Place, level: str, expected: list[str]) -> None:
    """HTTP clients log addresses with tokens at info; debugging Harken must not write those down."""
    with configure(place, level, to_stderr=False):
        for name in ("harken.x", "other"):
            for number in (10, 20, 30, 40):
                logging.getLogger(name).log(number, "m")
    assert [line.removesuffix(" m") for line in without_time(place)] == expected


@posix
def test_log_file_that_was_loose_becomes_private(place: Place) -> None:
    """An older log, or one that was copied back, keeps its lines and loses its readers."""
    place.logs_dir.mkdir()
    place.daemon_log.write_text("old\n")
    place.daemon_log.chmod(0o644)
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info("new")
    assert stat.S_IMODE(place.daemon_log.stat().st_mode) == 0o600
    assert [line.rpartition(" ")[2] for line in lines(place)] == ["old", "new"]


@posix
def test_log_files_are_private_also_after_rotation(place: Place) -> None:
    """Senders and channels are in there, in every one of the files."""
    with configure(place, "info", to_stderr=False, max_bytes=300, backups=2):
        for number in range(40):
            logging.getLogger("harken").info("line %d", number)
    files = sorted(place.logs_dir.iterdir())
    assert [path.name for path in files] == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert all(path.stat().st_size <= 300 for path in files)
    assert lines(place)[-1].endswith("line 39")


def test_stderr_gets_the_same_line_when_asked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """In the foreground a person watches; in the background nothing may be printed."""
    with configure(place, "info", to_stderr=True):
        logging.getLogger("harken").info("a\x1bb")
    assert capsys.readouterr().err == place.daemon_log.read_text()
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info("c")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("level", ["info", "error"])
def test_log_that_cannot_be_opened_is_a_warning_and_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    """A broken log never stops the inbox; what would have been logged is on stderr."""
    place.daemon_log.mkdir(parents=True)
    with configure(place, level, to_stderr=False):
        logging.getLogger("harken").error("still here")
    warning, line = capsys.readouterr().err.splitlines()
    assert "Cannot write the log file" in warning
    assert str(place.daemon_log) in warning
    assert line.endswith("error harken still here")


def test_missing_home_is_not_created_by_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A home made here would not be private."""
    with configure(Place(tmp_path / "no"), "info", to_stderr=False):
        pass
    assert "Cannot write the log file" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def state() -> tuple[object, ...]:
    """Everything global that logging has and that `configure` touches."""
    root, own = logging.getLogger(), logging.getLogger("harken")
    return root.level, own.level, list(root.handlers), list(own.handlers), logging.raiseExceptions


def test_nothing_is_left_behind_when_the_block_ends_or_fails(place: Place) -> None:
    """Tests and embedding programs have a logging set-up of their own."""
    before = state()
    with configure(place, "debug", to_stderr=True):
        assert state() != before
        assert logging.raiseExceptions is False
    assert state() == before
    with pytest.raises(KeyError), configure(place, "debug", to_stderr=True):
        raise KeyError
    assert state() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_prints_nothing_and_stops_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk would otherwise print a traceback for every line, and fail once more when the log is closed."""
    before = state()
    place.logs_dir.mkdir()
    place.daemon_log.symlink_to("/dev/full")
    mode = Path("/dev/full").stat().st_mode
    with configure(place, "info", to_stderr=False):
        logging.getLogger("harken").info("lost")
    assert capsys.readouterr().err == ""
    assert state() == before
    assert Path("/dev/full").stat().st_mode == mode


def objects(place: Place) -> list[dict[str, object]]:
    """The lines of a log of JSON objects."""
    return [json.loads(line) for line in lines(place)]


def test_json_record_has_time_level_logger_message_and_known_extras(place: Place) -> None:
    """Programs that collect logs read fields, and only those that are documented."""
    with configure(place, "info", to_stderr=False, layout="json"):
        record = {"name": "harken.x", "levelno": 30, "levelname": "WARNING", "msg": "loop %s", "args": ("a",)}
        more = {"created": 0.25, "loop": "outbox", "failures": 3, "password": "hunter2"}
        logging.getLogger("harken.x").handle(logging.makeLogRecord(record | more))
    assert objects(place) == [
        {
            "ts": "1970-01-01T00:00:00.250Z",
            "level": "warning",
            "logger": "harken.x",
            "message": "loop a",
            "loop": "outbox",
            "failures": 3,
        }
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile, hostile)
def test_json_line_holds_whatever_text_comes_in_one_line_of_plain_ascii(place: Place, text: str, loop: str) -> None:
    """Text from outside can neither begin a line, nor end a string, nor act on a terminal that shows it."""
    place.daemon_log.unlink(missing_ok=True)
    with configure(place, "info", to_stderr=False, layout="json"):
        logging.getLogger("harken.x").info("%s", text, extra={"loop": loop})
        try:
            fail(text)
        except ValueError:
            logging.getLogger("harken.x").exception("failed")
    written = lines(place)
    assert all(line.isascii() and line.isprintable() for line in written)
    first, second = objects(place)
    assert (first["message"], first["loop"]) == (text, loop)
    assert str(second["traceback"]).startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize("layout", ["text", "json"])
def test_what_has_the_shape_of_a_secret_is_left_out(place: Place, layout: str) -> None:
    """A log is sent to whoever helps; an error of a library may quote what it was given."""
    secret = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
    with configure(place, "info", to_stderr=False, layout=layout):
        logging.getLogger("harken.x").info("refused: %s", secret)
        try:
            fail(f"401 for {secret}")
        except ValueError:
            logging.getLogger("harken.x").exception("failed")
    text = place.daemon_log.read_text()
    assert secret not in text
    assert text.count("[redacted: ") >= 2
