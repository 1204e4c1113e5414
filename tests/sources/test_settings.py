"""What every source lets people write: read as it is meant, or refused with the key and what would do."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.sources.settings import (
    REFERENCES,
    SHARED_KEYS,
    SettingKey,
    SourceSettings,
    any_text,
    https_url,
    options_of,
    private_url,
    shaped,
    verbatim,
)
from harken.sources.setup import written

PASTED = "hunter2-hunter2"
DEFAULT = "https://service.example/v1.0"
BY_STARTTLS = ("choice", ("starttls",))


class SampleSettings(SourceSettings, frozen=True, kw_only=True):
    """A key of every kind."""

    what = "a sample"

    choice: Annotated[Literal["tls", "starttls"], SettingKey("How.", flag="--choice")] = "tls"
    text: Annotated[str, SettingKey("A text.", wanted="a text", flag="--text", metavar="TEXT")] = ""
    verbatim: Annotated[str, SettingKey("A text.", wanted="a text", read=verbatim)] = ""
    texts: Annotated[tuple[str, ...], SettingKey("Texts.", wanted="a list", read=any_text)] = ()
    lines: Annotated[tuple[str, ...], SettingKey("Folders.", wanted="a list", noun="folder")] = ()
    names: Annotated[frozenset[str], SettingKey("Names.", wanted="a list", read=str.strip)] = frozenset()
    pairs: Annotated[dict[str, str] | None, SettingKey("Pairs.", wanted="a table", is_secret=True, read=any_text)] = (
        None
    )
    flag: Annotated[bool, SettingKey("Whether.")] = False
    number: Annotated[int, SettingKey("How many.", least=1, most=26_214_400)] = 5
    seconds: Annotated[float, SettingKey("How long.", least=1, most=600)] = 5.0
    secret: Annotated[str, SettingKey("A secret.", wanted="where it is kept", is_secret=True)] = ""
    url: Annotated[str, SettingKey("An address.", wanted=f"one such as {DEFAULT}", read=private_url)] = DEFAULT
    page: Annotated[str, SettingKey("An address.", wanted=f"one such as {DEFAULT}", read=https_url)] = DEFAULT
    shape: Annotated[str, SettingKey("A word.", wanted="letters", read=shaped(re.compile("[a-z]+"), "is no word."))] = (
        ""
    )
    port: Annotated[int | None, SettingKey("A port.", wanted="a port", least=1, only=BY_STARTTLS, is_needed=True)] = (
        None
    )


def read(key: str, value: object) -> object:
    """Return what one key is read as."""
    return getattr(SampleSettings.read("ci", {key: value}), key)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("text", " a b ", "a b"),
        ("verbatim", "sha256= ", "sha256= "),
        ("texts", ["", " a ", "b\nc", ""], ("", " a ", "b\nc", "")),
        ("texts", [], ()),
        ("lines", [" a ", "b"], ("a", "b")),
        ("names", [" a ", "b", "", "a"], frozenset({"a", "b"})),
        ("pairs", {"A": " b"}, {"A": " b"}),
        ("flag", True, True),
        ("number", 26_214_400, 26_214_400),
        ("seconds", 1, 1.0),
        ("secret", " env:CI ", "env:CI"),
        ("url", "https://other.example:8443/a/", "https://other.example:8443/a/"),
        ("url", "http://localhost:80", "http://localhost:80"),
        ("url", "http://[::1]:80/a", "http://[::1]:80/a"),
        ("shape", " word ", "word"),
    ],
)
def test_what_is_written_well_is_read_as_it_is_meant(key: str, value: object, expected: object) -> None:
    """Whoever asks relies on the type, and on what is taken away: the spaces around a text and nothing else."""
    found = read(key, value)
    assert (found, type(found)) == (expected, type(expected))


def test_what_is_left_out_has_the_default_of_its_declaration() -> None:
    """A source needs little to be said about it."""
    assert SampleSettings.read("ci", dict.fromkeys(SHARED_KEYS, "x")) == SampleSettings(name="ci")


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("choice", "TLSS", "is 'TLSS'.", "Use one of tls, starttls. Did you mean tls?"),
        ("choice", "zzz", "is 'zzz'.", "Use one of tls, starttls."),
        ("choice", ["tls"], "is ['tls'].", "Use one of tls, starttls."),
        ("text", " ", "is not a text of one line.", "Use a text."),
        ("text", "a\x1b[2J", "is not a text of one line.", "Use a text."),
        ("verbatim", 5, "is not a text of one line.", "Use a text."),
        ("texts", "a", "is not a list of texts.", "Use a list."),
        ("texts", ["a", 5], "is not a list of texts.", "Use a list."),
        ("lines", {"a": "b"}, "is not a list of folders.", "Use a list."),
        ("lines", ["a", ""], "holds something that is not a folder.", "Use a list."),
        ("pairs", {"a": 5}, "is not a table of texts.", "Set it to a table."),
        ("flag", "yes", "is 'yes'.", "Use true or false."),
        ("flag", 1, "is 1.", "Use true or false."),
        ("flag", "y" * 500, f"is '{'y' * 59}.", "Use true or false."),
        ("number", 0, "is 0.", "Use a number from 1 to 26214400."),
        ("seconds", 601, "is 601.", "Use a number of seconds from 1 to 600."),
        ("seconds", True, "is True.", "Use a number of seconds from 1 to 600."),
        ("seconds", nan, "is nan.", "Use a number of seconds from 1 to 600."),
        ("seconds", inf, "is inf.", "Use a number of seconds from 1 to 600."),
        ("seconds", "5", "is '5'.", "Use a number of seconds from 1 to 600."),
        ("secret", PASTED, "does not say where it is kept.", "Set it to where it is kept."),
        ("secret", [f"env:{PASTED}"], "does not say where it is kept.", "Set it to where it is kept."),
        ("shape", "A1", "is no word.", "Use letters."),
        (
            "page",
            "http://127.0.0.1:80",
            "is not an https address of only a host and a path.",
            f"Use one such as {DEFAULT}.",
        ),
        ("MAX-number", 1, "is not a setting of a sample.", "Did you mean number?"),
        ("port", 5, 'has no meaning with choice = "tls".', "Remove it, or set choice to starttls."),
    ],
)
def test_a_mistake_is_named_with_what_would_do(key: str, value: object, message: str, hint: str) -> None:
    """Somebody corrects it in a file, without a manual."""
    with pytest.raises(UserError) as caught:
        read(key, value)
    assert (caught.value.message, caught.value.hint) == (f"sources.ci.{key} {message}", hint)


class OpenSettings(SourceSettings, frozen=True, kw_only=True):
    """Numbers with a fraction for a limit, and with a limit on one side or none."""

    fraction: Annotated[float, SettingKey("It.", least=0.01, most=3_600)] = 1.0
    least: Annotated[int, SettingKey("It.", least=1)] = 1
    most: Annotated[int, SettingKey("It.", most=9)] = 1
    any: Annotated[int, SettingKey("It.")] = 1


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("fraction", "Use a number of seconds from 0.01 to 3600."),
        ("least", "Use a number from 1 on."),
        ("most", "Use a number up to 9."),
        ("any", "Use a number."),
    ],
)
def test_the_numbers_that_would_do_are_said_as_they_are(key: str, hint: str) -> None:
    """A limit that is rounded names a number that is refused, and no limit is no number."""
    with pytest.raises(UserError) as refused:
        OpenSettings.read("one", {"kind": "sample", key: "x"})
    assert refused.value.hint == hint


def test_a_zero_that_was_given_is_written() -> None:
    """Left out, it would not be judged, and the default would be in force instead of what a person said."""
    given: dict[str, object] = {"poll": 0.0, "most": 0, "text": "", "list": (), "is_off": False}
    assert written("sample", given) == {"kind": "sample", "poll": 0.0, "most": 0}


def test_a_number_that_python_cannot_write_out_is_refused_like_any_other() -> None:
    """TOML has numbers of any length in hexadecimal; one must not end in a traceback."""
    with pytest.raises(UserError, match=r"sources\.ci\.seconds is too large a number\."):
        read("seconds", 1 << 20_000)


def test_a_key_that_is_needed_with_another_is_missed() -> None:
    """What is wanted is said, not only that something is."""
    with pytest.raises(UserError) as caught:
        read("choice", "starttls")
    assert (caught.value.message, caught.value.hint) == ("sources.ci.port is missing.", "Set it to a port.")
    assert SampleSettings.read("ci", {"choice": "starttls", "port": 143}).port == 143


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
def test_an_address_that_could_give_a_secret_away_is_refused(url: str) -> None:
    """What is sent there is believed or secret; the address may hold a password, so it is not repeated."""
    with pytest.raises(UserError) as caught:
        read("url", url)
    assert PASTED not in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint == f"Use one such as {DEFAULT}."


@pytest.mark.parametrize("kept", REFERENCES)
def test_a_secret_is_only_named(kept: str) -> None:
    """Settings are shown and sent to others; what they name is not."""
    assert read("secret", f"{kept}CI") == f"{kept}CI"


def test_settings_show_nothing_that_stands_in_them() -> None:
    """Some of it may be secret, and what is in a `repr` ends up in a log."""
    assert PASTED not in repr(SampleSettings.read("ci", {"text": PASTED, "pairs": {"KEY": PASTED}}))


def test_an_option_is_made_of_what_is_declared() -> None:
    """The command line shows what the settings say, and nothing is said twice."""
    choice, text = options_of(SampleSettings)
    assert (choice.flag, choice.key, choice.choices) == ("--choice", "choice", ("tls", "starttls"))
    assert (text.flag, text.metavar, text.help) == ("--text", "TEXT", "A text.")


_KEYS = [key for key in SampleSettings.__struct_fields__ if key not in ("name", "port")]
_VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["env:A", DEFAULT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(key=st.sampled_from(_KEYS), value=_VALUES)
def test_whatever_is_written_is_read_or_refused_by_its_key(key: str, value: object) -> None:
    """Settings are typed by hand: nothing may come of them but what was asked for, or an error that names the line."""
    said, found = "", object()
    try:
        found = getattr(SampleSettings.read("ci", {"choice": "tls", key: value}), key)
    except UserError as error:
        said = error.message
    assert isinstance(found, str | bool | int | float | tuple | frozenset | dict) or said.startswith(
        f"sources.ci.{key} "
    )


@given(url=st.text() | st.builds("{}://{}{}".format, st.sampled_from(["http", "https"]), st.text(), st.text()))
def test_an_address_that_is_read_keeps_a_secret(url: str) -> None:
    """For any text: what is accepted is encrypted, or stays on this machine."""
    try:
        found = str(read("url", url))
    except UserError:
        return
    assert found.lower().startswith(("https://", "http://localhost", "http://127.", "http://[::1]"))
