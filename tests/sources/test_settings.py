"""What every source lets people write: read as it is meant, or refused with the key and what would do."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.sources.settings import REFERENCES, SHARED_KEYS, SettingsTable

PASTED = "hunter2-hunter2"
DEFAULT = "https://service.example/v1.0"


def written(value: object) -> SettingsTable:
    """A table in which one key has a value."""
    return SettingsTable("ci", {"x": value})


READERS: dict[str, Callable[[SettingsTable], object]] = {
    "choice": lambda table: table.choice("x", ("tls", "starttls"), "tls"),
    "text": lambda table: table.text("x", "a text"),
    "verbatim": lambda table: table.verbatim("x", "a text"),
    "texts": lambda table: table.texts("x", "a list"),
    "lines": lambda table: table.lines("x", "a list", "folder"),
    "flag": lambda table: table.flag("x"),
    "number": lambda table: table.number("x", 5, 1, 26_214_400),
    "seconds": lambda table: table.seconds("x", 5, 1, 600),
    "reference": lambda table: table.reference("x", "where it is kept"),
    "url": lambda table: table.url("x", DEFAULT),
}


@pytest.mark.parametrize(
    ("reader", "value", "read"),
    [
        ("choice", "starttls", "starttls"),
        ("text", " a b ", "a b"),
        ("verbatim", "sha256= ", "sha256= "),
        ("texts", ["", " a ", "b\nc"], ("", " a ", "b\nc")),
        ("texts", [], ()),
        ("lines", [" a ", "b"], (" a ", "b")),
        ("flag", True, True),
        ("number", 26_214_400, 26_214_400.0),
        ("seconds", 0.5 + 0.5, 1.0),
        ("reference", " env:CI ", "env:CI"),
        ("url", "https://other.example:8443/a/", "https://other.example:8443/a/"),
        ("url", "http://localhost:80", "http://localhost:80"),
        ("url", "http://[::1]:80/a", "http://[::1]:80/a"),
    ],
)
def test_what_is_written_well_is_read_as_it_is_meant(reader: str, value: object, read: object) -> None:
    """Whoever asks relies on the type, and on what is taken away: the spaces around a text and nothing else."""
    found = READERS[reader](written(value))
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("reader", "read"),
    [
        *(("choice", "tls"), ("text", ""), ("verbatim", ""), ("texts", ()), ("lines", ())),
        *(("flag", False), ("number", 5.0), ("seconds", 5.0), ("url", DEFAULT)),
    ],
)
def test_what_is_left_out_has_a_default(reader: str, read: object) -> None:
    """A source needs little to be said about it."""
    assert READERS[reader](SettingsTable("ci", {})) == read


@pytest.mark.parametrize(
    ("reader", "value", "message", "hint"),
    [
        ("choice", "TLSS", "sources.ci.x is 'TLSS'.", "Use one of tls, starttls. Did you mean tls?"),
        ("choice", "zzz", "sources.ci.x is 'zzz'.", "Use one of tls, starttls."),
        ("choice", "", "sources.ci.x is ''.", "Use one of tls, starttls."),
        ("choice", ["tls"], "sources.ci.x is ['tls'].", "Use one of tls, starttls."),
        ("text", " ", "sources.ci.x is not a text of one line.", "Use a text."),
        ("text", "a\x1b[2J", "sources.ci.x is not a text of one line.", "Use a text."),
        ("verbatim", 5, "sources.ci.x is not a text of one line.", "Use a text."),
        ("texts", "a", "sources.ci.x is not a list of texts.", "Use a list."),
        ("texts", ["a", 5], "sources.ci.x is not a list of texts.", "Use a list."),
        ("lines", {"a": "b"}, "sources.ci.x is not a list of folders.", "Use a list."),
        ("lines", ["a", ""], "sources.ci.x holds something that is not a folder.", "Use a list."),
        ("flag", "yes", "sources.ci.x is 'yes'.", "Use true or false."),
        ("flag", 1, "sources.ci.x is 1.", "Use true or false."),
        ("number", 0.5, "sources.ci.x is 0.5.", "Use a number from 1 to 26214400."),
        ("seconds", 601, "sources.ci.x is 601.", "Use a number of seconds from 1 to 600."),
        ("seconds", True, "sources.ci.x is True.", "Use a number of seconds from 1 to 600."),
        ("seconds", nan, "sources.ci.x is nan.", "Use a number of seconds from 1 to 600."),
        ("seconds", inf, "sources.ci.x is inf.", "Use a number of seconds from 1 to 600."),
        ("seconds", "5", "sources.ci.x is '5'.", "Use a number of seconds from 1 to 600."),
        ("flag", "y" * 500, f"sources.ci.x is '{'y' * 59}.", "Use true or false."),
        ("reference", None, "sources.ci.x is missing.", "Set it to where it is kept."),
        ("reference", PASTED, "sources.ci.x does not say where it is kept.", "Set it to where it is kept."),
    ],
)
def test_a_mistake_is_named_with_what_would_do(reader: str, value: object, message: str, hint: str) -> None:
    """Somebody corrects it in a file, without a manual."""
    with pytest.raises(UserError) as caught:
        READERS[reader](written(value))
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_number_that_python_cannot_write_out_is_refused_like_any_other() -> None:
    """TOML has numbers of any length in hexadecimal; one must not end in a traceback."""
    with pytest.raises(UserError) as caught:
        written(1 << 20_000).seconds("x", 5, 1, 600)
    assert caught.value.message == "sources.ci.x is too large a number."


@pytest.mark.parametrize(
    "url",
    [
        "http://service.example/v1.0",
        "http://localhost.example/",
        f"https://ann:{PASTED}@service.example/",
        f"https://service.example/?key={PASTED}",
        f"https://service.example/#{PASTED}",
        f"https://service.example/{PASTED} x",
        "https://service.example:0/",
        "https://service.example:99999/",
        "https:///v1.0",
        "https://[x",
        "file:///etc/passwd",
        "service.example",
    ],
)
def test_an_address_that_would_give_a_secret_away_is_refused_and_not_repeated(url: str) -> None:
    """A token is sent there, or what is said there is believed; and it may hold a password itself."""
    with pytest.raises(UserError) as caught:
        written(url).url("x", DEFAULT)
    assert caught.value.message == "sources.ci.x is not an https address of only a host and a path."
    assert caught.value.hint == f"Use one such as {DEFAULT}."


def test_an_address_on_this_machine_is_refused_where_only_https_will_do() -> None:
    """Sign-in pages are opened in a browser, which asks for more than that nobody else can listen."""
    with pytest.raises(UserError):
        written("http://127.0.0.1:80").url("x", DEFAULT, can_be_local=False)


def test_a_word_that_has_to_be_there_is_missed() -> None:
    """Without it nobody knows which other keys there are."""
    for entry in ({}, {"preset": ""}, {"preset": None}):
        with pytest.raises(UserError) as caught:
            SettingsTable("ci", entry).choice("preset", ("github", "generic"))
        assert caught.value.message == "sources.ci.preset is missing."
        assert caught.value.hint == "Use one of github, generic."


def test_a_text_that_has_to_be_there_is_missed() -> None:
    """What is wanted is said, not only that something is."""
    with pytest.raises(UserError) as caught:
        SettingsTable("ci", {}).text("user", "the name you sign in with", is_required=True)
    assert (caught.value.message, caught.value.hint) == (
        "sources.ci.user is missing.",
        "Set it to the name you sign in with.",
    )


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_secret_is_only_named(reference: str) -> None:
    """Settings are shown and sent to others; what they name is not."""
    assert SettingsTable("ci", {}).kept("secret", f"{reference}CI", "a reference") == f"{reference}CI"


@pytest.mark.parametrize("found", [PASTED, f" env:{PASTED}", 5, None, [f"env:{PASTED}"]])
def test_a_secret_that_was_pasted_is_not_repeated(found: object) -> None:
    """The error is shown on a screen and may be sent to somebody for help."""
    with pytest.raises(UserError) as caught:
        SettingsTable("ci", {}).kept("secret", found, "a reference")
    assert (caught.value.message, caught.value.hint) == (
        "sources.ci.secret does not say where it is kept.",
        "Set it to a reference.",
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [("MAX-BYTES", "Did you mean max_bytes?"), ("zzz", "Known keys: attention, enabled, kind, max_bytes, trust.")],
)
def test_an_unknown_key_is_refused_with_a_guess(key: str, hint: str) -> None:
    """A key with a slip in it would otherwise be a setting that silently does nothing."""
    with pytest.raises(UserError) as caught:
        SettingsTable("ci", {"max_bytes": 1, key: 1}).refuse_unknown({"max_bytes"}, "a webhook")
    assert (caught.value.message, caught.value.hint) == (f"sources.ci.{key} is not a setting of a webhook.", hint)


def test_what_may_be_said_of_every_source_is_known_to_each() -> None:
    """Others read these keys, so a source must not take them for a mistake."""
    SettingsTable("ci", dict.fromkeys(SHARED_KEYS, "x")).refuse_unknown((), "a webhook")


def test_a_key_that_says_nothing_beside_another_is_refused() -> None:
    """It is a setting, so a guess would mislead: what is told is which of the two has to go."""
    table = SettingsTable("ci", {"transport": "http", "command": "npx"})
    with pytest.raises(UserError) as caught:
        table.refuse_meaningless({"command"}, 'transport = "http"', "Remove it.")
    assert (caught.value.message, caught.value.hint) == (
        'sources.ci.command has no meaning with transport = "http".',
        "Remove it.",
    )
    table.refuse_meaningless({"url"}, 'transport = "http"', "Remove it.")


def test_a_table_shows_nothing_that_stands_in_it() -> None:
    """Some of it may be secret, and what is in a `repr` ends up in a log."""
    assert PASTED not in repr(written(PASTED))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["env:A", DEFAULT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(reader=st.sampled_from(sorted(READERS)), value=_VALUES)
def test_whatever_is_written_is_read_or_refused_by_its_key(reader: str, value: object) -> None:
    """Settings are typed by hand: nothing may come of them but what was asked for, or an error that names the line."""
    said = ""
    found: object = None
    try:
        found = READERS[reader](written(value))
    except UserError as error:
        said = f"{error.message} {error.hint}"
    assert isinstance(found, str | bool | float | tuple) or said.startswith("sources.ci.x ")


@given(url=st.text() | st.builds("{}://{}{}".format, st.sampled_from(["http", "https"]), st.text(), st.text()))
def test_an_address_that_is_read_keeps_a_secret(url: str) -> None:
    """For any text: what is accepted is encrypted, or stays on this machine."""
    try:
        found = written(url).url("x", DEFAULT)
    except UserError:
        return
    assert found.lower().startswith(("https://", "http://localhost", "http://127.", "http://[::1]"))
