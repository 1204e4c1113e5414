"""Times as people write them, in settings and commands: how long, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.times import format_duration, parse_duration, parse_moment

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("24h", 86_400),
        ("365d", 365 * 86_400),
        ("1h30m", 5_400),
        ("1d2h3m4s", 93_784),
        ("0s", 0),
        ("007m", 420),
        ("90m", 5_400),
        ("1w", 604_800),
        ("1.5h", 5_400),
        ("1d 2h", 93_600),
    ],
)
def test_duration_is_read_with_its_units(text: str, seconds: int) -> None:
    """People write what they say."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "15",
        "m",
        "15 m",
        "5min",
        "1.5s",
        "-1m",
        "1m1h",
        "1m2m",
        "15M",
        "1y",
        "1h-",
        "\u0661m",
        "1m\n",
        "\n",
        "9999999999s",
    ],
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    """A guessed unit would be wrong by a factor of sixty, silently."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_duration_too_long_for_the_calendar_is_refused() -> None:
    """An overflow is the user's mistake too, not a crash."""
    with pytest.raises(ValueError, match="too long"):
        parse_duration("999999999d999999999h")


@given(st.integers(min_value=0, max_value=36_500 * 86_400))
def test_shown_duration_is_read_back_as_the_same(seconds: int) -> None:
    """`config show` prints what can be pasted into the file."""
    value = timedelta(seconds=seconds)
    assert parse_duration(format_duration(value)) == value


@given(st.text(alphabet="0123456789dhms .-", max_size=12))
def test_durations_are_read_or_refused_and_never_crash(text: str) -> None:
    """Whatever is typed, the only failure is `ValueError`."""
    try:
        value = parse_duration(text)
    except ValueError:
        return
    assert value >= timedelta(0)
    assert parse_duration(format_duration(value)) == value


def test_usual_durations_are_shown_the_usual_way() -> None:
    """A default of 24h must not be shown as 1d: it is documented as 24h."""
    shown = [format_duration(parse_duration(text)) for text in ("15m", "24h", "365d", "90s", "1h30m", "0s")]
    assert shown == ["15m", "24h", "365d", "1m30s", "1h30m", "0s"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("-2h", NOW - timedelta(hours=2)),
        ("- 1d 30m", NOW - timedelta(days=1, minutes=30)),
        ("2026-01-04T10:00Z", datetime(2026, 1, 4, 10, tzinfo=UTC)),
        ("2026-01-04T10:00:00+01:00", datetime(2026, 1, 4, 9, tzinfo=UTC)),
        ("14:00", datetime(2026, 1, 5, 14).astimezone()),
        ("9:05:30", datetime(2026, 1, 5, 9, 5, 30).astimezone()),
        ("yesterday 14:00", datetime(2026, 1, 4, 14).astimezone()),
        ("Yesterday", datetime(2026, 1, 4).astimezone()),
        ("today 7:00", datetime(2026, 1, 5, 7).astimezone()),
        ("2026-01-04", datetime(2026, 1, 4).astimezone()),
        ("2026-01-04 10:00", datetime(2026, 1, 4, 10).astimezone()),
        ("-1.5h", NOW - timedelta(hours=1, minutes=30)),
        ("25:00", None),
        ("2h", None),
        ("-", None),
        ("-999999w", None),
        ("tomorrow", datetime(2026, 1, 6, 9).astimezone()),
        ("", None),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, moment: datetime | None) -> None:
    """Nobody counts in UTC when they remember when something was."""
    assert _moment(text) == moment


@given(st.text(max_size=30) | st.from_regex(r"(today|yesterday|-)? ?[0-9]{1,6}[:hdmsw]?[0-9]*", fullmatch=True))
def test_any_text_is_a_time_or_none(text: str) -> None:
    """What is typed is not worth a traceback."""
    found = _moment(text)
    assert found is None or found.tzinfo is not None


def _moment(text: str) -> datetime | None:
    try:
        return parse_moment(text, NOW)
    except ValueError:
        return None
