"""Durations are those of Go, and what is nearly one is answered with what was meant."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.rules.fields import DurationFault, format_duration, parse_duration

NOT_NEGATIVE = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=90_000))


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        ("5m", timedelta(minutes=5)),
        ("+5m", timedelta(minutes=5)),
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(minutes=90)),
        ("30m1h", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("1.h", timedelta(hours=1)),
        (".5s", timedelta(milliseconds=500)),
        ("300ms", timedelta(milliseconds=300)),
        ("1us", timedelta(microseconds=1)),
        ("1\u00b5s", timedelta(microseconds=1)),
        ("1\u03bcs", timedelta(microseconds=1)),
        ("1500ns", timedelta(microseconds=2)),
        ("1ns", timedelta(microseconds=1)),
        ("2562047h", timedelta(hours=2562047)),
    ],
)
def test_a_duration_of_go_is_read(text: str, duration: timedelta) -> None:
    """Older files are full of them, and each must mean what it meant; the shortest must not become none."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("5min", "5m"),
        ("30sec", "30s"),
        ("30 seconds", "30s"),
        ("1 hour", "1h"),
        ("2hrs", "2h"),
        ("1d", "24h"),
        ("1.5 days", "36h"),
        ("1w", "168h"),
        ("1h 30m", "1h30m"),
        ("1 hour, 5 minutes", "1h5m"),
        ("5M", "5m"),
        ("5", "5s or 5m"),
        ("-5m", "5m"),
        ("250 millis", "250ms"),
        (" 5m", "5m"),
        ("5m\n", "5m"),
        ("", ""),
        ("soon", ""),
        ("5x", ""),
        ("m", ""),
        (".s", ""),
        ("99999999h", ""),
        ("1" * 5000 + "s", ""),
        ("\u0661s", ""),
    ],
)
def test_what_is_no_duration_is_refused_with_what_was_meant(text: str, suggestion: str) -> None:
    """The person sees at once what to write."""
    with pytest.raises(DurationFault) as caught:
        parse_duration(text)
    assert caught.value.suggestion == suggestion


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), ""),
        (timedelta(minutes=5), "5m"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=1), "24h"),
        (timedelta(seconds=61.5), "1m1.5s"),
        (timedelta(milliseconds=1.5), "1.5ms"),
        (timedelta(microseconds=7), "7us"),
    ],
)
def test_a_duration_is_written_the_shortest_way(duration: timedelta, text: str) -> None:
    """It is shown in lists, where `5m0s` is noise; none is shown as nothing."""
    assert format_duration(duration) == text


@given(NOT_NEGATIVE)
def test_what_is_written_is_read_as_the_same(duration: timedelta) -> None:
    """A rule that is shown and typed in again must not change."""
    assert parse_duration(format_duration(duration) or "0") == duration


@given(st.text(alphabet="0123456789.hmsun\u00b5 +-dayminsec", max_size=20) | st.text())
def test_any_text_is_read_or_refused_and_a_suggestion_can_be_used(text: str) -> None:
    """Whatever a file holds, there is no third way; and nobody is told to write what is refused in turn."""
    try:
        assert parse_duration(text) >= timedelta(0)
    except DurationFault as fault:
        for suggestion in filter(None, fault.suggestion.split(" or ")):
            assert parse_duration(suggestion) >= timedelta(0)
