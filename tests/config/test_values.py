"""What values are accepted, and that what is shown can be written back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.config.settings import SCALARS, Setting
from harken.config.suggest import closest, closest_name, did_you_mean
from harken.config.values import (
    Choice,
    Duration,
    Flag,
    ListenHost,
    SenderIds,
    StoreUrl,
    ValueType,
    Whole,
    has_password,
    is_reference,
    reference_in,
)

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("value_type", "text", "expected"),
    [
        (Whole(0, 10), "7", 7),
        (Whole(0, 10), " 7 ", 7),
        (Whole(0, 5_000), "1_000", 1_000),
        (Whole(-5, 10), "-5", -5),
        (Flag(), "true", True),
        (Flag(), "ON", True),
        (Flag(), "0", False),
        (Duration(timedelta(0)), "1h30m", timedelta(minutes=90)),
        (Choice(("a", "b")), "b", "b"),
        (ListenHost(), "::1", "::1"),
        (ListenHost(), "box.example.org", "box.example.org"),
        (StoreUrl(), "sqlite", "sqlite"),
        (StoreUrl(), "postgresql://db.example.org/harken", "postgresql://db.example.org/harken"),
        (StoreUrl(), "env:DATABASE", "env:DATABASE"),
        (SenderIds(), "teams:a@example.org, mail:b", ("teams:a@example.org", "mail:b")),
        (SenderIds(), "mail:b,mail:b,", ("mail:b",)),
        (SenderIds(), "teams:19:x@thread", ("teams:19:x@thread",)),
    ],
)
def test_text_of_a_variable_is_read(value_type: ValueType, text: str, expected: object) -> None:
    """Environment variables hold text only."""
    assert value_type.parse(text) == expected


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Whole(0, 10), "7"),
        (Whole(0, 10), True),
        (Whole(0, 10), 7.0),
        (Whole(0, 10), 11),
        (Whole(0, 10), -1),
        (Flag(), 1),
        (Flag(), "true"),
        (Duration(timedelta(0)), 900),
        (Duration(timedelta(0)), True),
        (Duration(DAY), "1s"),
        (Duration(timedelta(0), DAY), "2d"),
        (Choice(("a", "b")), "A"),
        (Choice(("a", "b")), 1),
        (ListenHost(), ""),
        (ListenHost(), "[::1]"),
        (ListenHost(), "http://x"),
        (ListenHost(), "a b"),
        (ListenHost(), "x\n"),
        (StoreUrl(), ""),
        (StoreUrl(), "mysql://x"),
        (StoreUrl(), "postgresql://u:hunter2@h/d"),
        (StoreUrl(), "postgresql://h/d?user=u&password=hunter2"),
        (StoreUrl(), "postgresql://u:hunter2@[h/d"),
        (StoreUrl(), "env:"),
        (SenderIds(), "teams:a"),
        (SenderIds(), ["a"]),
        (SenderIds(), [":a"]),
        (SenderIds(), ["teams:"]),
        (SenderIds(), ["teams: a"]),
        (SenderIds(), [1]),
        (SenderIds(), {"teams": "a"}),
    ],
)
def test_value_of_the_file_that_does_not_fit_is_refused(value_type: ValueType, value: object) -> None:
    """Types are not converted: what was meant would be a guess. The refusal never repeats the value."""
    with pytest.raises(ValueError, match=r"^(?!.*hunter2)"):
        value_type.read(value)


@pytest.mark.parametrize("text", ["", "seven", "7.0", "0x7", "\u0667", "1__0", "_1", "9" * 5_000, "--1"])
def test_text_that_is_no_number_is_refused(text: str) -> None:
    """Also texts that `int` would take, such as other scripts' digits."""
    with pytest.raises(ValueError, match=r"^$"):
        Whole(-100, 100).parse(text)


@given(st.sampled_from(SCALARS), st.text(max_size=30))
def test_every_setting_reads_or_refuses_any_text(setting: Setting, text: str) -> None:
    """An environment variable cannot crash the start; it fits or it is a `ValueError`."""
    value_type = setting.type
    assert value_type is not None
    try:
        value = value_type.parse(text)
    except ValueError:
        return
    assert value_type.read(value_type.show(value)) == value


@pytest.mark.parametrize("setting", SCALARS, ids=lambda setting: setting.name)
def test_every_default_is_a_value_that_could_be_written(setting: Setting) -> None:
    """`config show` prints defaults; pasted into the file they have to load."""
    assert setting.type is not None
    assert setting.type.read(setting.type.show(setting.default)) == setting.default


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/d", True),
        ("https://u:@h/", True),
        ("postgresql://u@h/d", False),
        ("https://h/?password=x", True),
        ("https://h/path:with@signs", False),
        ("mail:x@y", False),
    ],
)
def test_password_in_a_url_is_noticed(*, url: str, expected: bool) -> None:
    """Secrets come by reference only, also inside a URL."""
    assert has_password(url) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("env:A", True), ("file:/x", True), ("keyring:a/b", True), ("env:", False), ("Env:A", False), ("vault:a", False)],
)
def test_reference_has_one_of_three_forms(*, text: str, expected: bool) -> None:
    """Anything else is taken for the secret itself."""
    assert is_reference(text) is expected


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("env:TOKEN", "env:TOKEN"),
        ("Bearer env:TOKEN", "env:TOKEN"),
        ("Basic file:~/secret", "file:~/secret"),
        ("keyring:a service/b", "keyring:a service/b"),
        ("Bearer abc", ""),
        ("Bearer abc env:TOKEN", ""),
        ("s3cret env:TOKEN", ""),
        ("", ""),
    ],
)
def test_reference_may_stand_after_one_word(text: str, reference: str) -> None:
    """Many programs keep a token without the word that a header has before it; a secret is no such word."""
    assert reference_in(text) == reference


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("prot", ["port", "host"], "port"),
        ("INFO", ["info", "debug"], "info"),
        ("max-age", ["max_age"], "max_age"),
        ("zzz", ["port"], ""),
        ("", ["port"], ""),
        ("x" * 1_000_000, ["port"], ""),
    ],
)
def test_closest_word_is_suggested(word: str, known: list[str], expected: str) -> None:
    """A suggestion helps only when it is near."""
    assert closest(word, known) == expected


def test_key_in_the_wrong_table_is_found_by_its_last_part() -> None:
    """`port` outside of [http] is the usual mistake."""
    assert closest_name("prt", ["http.port", "store.max_age"]) == "http.port"
    assert closest_name("server.port", ["http.port", "store.max_age"]) == "http.port"
    assert did_you_mean("") == ""
