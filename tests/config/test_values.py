"""What values are accepted, and that what is shown can be written back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.config.settings import SCALARS, Setting
from harken.config.values import (
    ValueType,
    choice,
    closest,
    closest_name,
    did_you_mean,
    duration,
    flag,
    has_password,
    is_reference,
    listen_host,
    reference_in,
    sender_ids,
    store_url,
    whole,
)

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("value_type", "text", "expected"),
    [
        (whole(0, 10), "7", 7),
        (whole(0, 10), " 7 ", 7),
        (whole(0, 5_000), "1_000", 1_000),
        (whole(-5, 10), "-5", -5),
        (flag(), "true", True),
        (flag(), "ON", True),
        (flag(), "0", False),
        (duration(timedelta(0)), "1h30m", timedelta(minutes=90)),
        (choice("a", "b"), "b", "b"),
        (listen_host(), "::1", "::1"),
        (listen_host(), "box.example.org", "box.example.org"),
        (store_url(), "sqlite", "sqlite"),
        (store_url(), "postgresql://db.example.org/harken", "postgresql://db.example.org/harken"),
        (store_url(), "env:DATABASE", "env:DATABASE"),
        (sender_ids(), "teams:a@example.org, mail:b", ("teams:a@example.org", "mail:b")),
        (sender_ids(), "mail:b,mail:b,", ("mail:b",)),
        (sender_ids(), "teams:19:x@thread", ("teams:19:x@thread",)),
    ],
)
def test_text_of_a_variable_is_read(value_type: ValueType, text: str, expected: object) -> None:
    """Environment variables hold text only."""
    assert value_type.parse(text) == expected


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (whole(0, 10), "7"),
        (whole(0, 10), True),
        (whole(0, 10), 7.0),
        (whole(0, 10), 11),
        (whole(0, 10), -1),
        (flag(), 1),
        (flag(), "true"),
        (duration(timedelta(0)), 900),
        (duration(timedelta(0)), True),
        (duration(DAY), "1s"),
        (duration(timedelta(0), DAY), "2d"),
        (choice("a", "b"), "A"),
        (choice("a", "b"), 1),
        (listen_host(), ""),
        (listen_host(), "[::1]"),
        (listen_host(), "http://x"),
        (listen_host(), "a b"),
        (listen_host(), "x\n"),
        (store_url(), ""),
        (store_url(), "mysql://x"),
        (store_url(), "postgresql://u:hunter2@h/d"),
        (store_url(), "postgresql://h/d?user=u&password=hunter2"),
        (store_url(), "postgresql://u:hunter2@[h/d"),
        (store_url(), "env:"),
        (sender_ids(), "teams:a"),
        (sender_ids(), ["a"]),
        (sender_ids(), [":a"]),
        (sender_ids(), ["teams:"]),
        (sender_ids(), ["teams: a"]),
        (sender_ids(), [1]),
        (sender_ids(), {"teams": "a"}),
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
        whole(-100, 100).parse(text)


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
