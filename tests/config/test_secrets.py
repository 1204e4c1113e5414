"""References to secrets: they are found, kept private, and never repeated."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import pytest

from harken.config.home import Home
from harken.config.secrets import MAX_SECRET_BYTES, resolve
from harken.errors import HarkenError, NeedsPerson, UserError

PLAIN = "hunter2 & more"
posix = pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")

KEYRING = """
from keyring import errors

def get_password(service, name):
    if service == "locked":
        raise errors.KeyringLocked("hunter2 & more")
    if service == "broken":
        raise errors.NoKeyringError("hunter2 & more")
    return {("harken", "mail"): "from the ring", ("https://x/y", "me"): "by url"}.get((service, name))
"""
KEYRING_ERRORS = """
class KeyringError(Exception): ...
class KeyringLocked(KeyringError): ...
class NoKeyringError(KeyringError): ...
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path)


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that answers like keyring does."""
    folder = tmp_path / "packages" / "keyring"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(KEYRING)
    (folder / "errors.py").write_text(KEYRING_ERRORS)
    for name in ("keyring", "keyring.errors"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(folder.parent))


@pytest.fixture(autouse=True)
def forget_keyring() -> object:
    """Remove the package again, so that no other test finds it."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "keyring"}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        del sys.modules[name]
    sys.modules.update(before)


def private(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write a file with this mode."""
    path.write_bytes(data)
    path.chmod(mode)
    return path


def failure(reference: str, home: Home, environ: dict[str, str] | None = None) -> HarkenError:
    """Resolve a reference that has to fail, and check that the whole traceback is free of the secret."""
    with pytest.raises(HarkenError) as caught:
        resolve(reference, home, environ or {})
    shown = "".join(traceback.format_exception_only(caught.value)) + caught.value.hint
    assert PLAIN not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert caught.value.hint
    return caught.value


def test_variable_of_the_environment_comes_first(home: Home) -> None:
    """What was set for this one start wins over the file."""
    private(home.env_file, b"TOKEN=from file\nOTHER=x\n")
    assert resolve("env:TOKEN", home, {"TOKEN": "from environment"}) == "from environment"
    assert resolve("env:TOKEN", home, {"TOKEN": ""}) == "from file"
    assert resolve("env:OTHER", home, {}) == "x"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=b", "b"),
        ("A = b c ", "b c"),
        ("export A=b", "b"),
        ("A='b # c'", "b # c"),
        ('A="b"', "b"),
        ('A="', '"'),
        ("A=b=c==", "b=c=="),
        ("A=b # c", "b # c"),
        ("# A=x\n\nA=b\r", "b"),
        ("A=a\nA=b", "b"),
        ("\ufeffA=b", "b"),
    ],
)
def test_env_file_holds_a_value_per_line(home: Home, line: str, expected: str) -> None:
    """The form that every other tool reads; a secret may contain any sign, # included."""
    private(home.env_file, line.encode() + b"\n")
    assert resolve("env:A", home, {}) == expected


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_secret_file_that_others_can_open_is_refused(home: Home, mode: int) -> None:
    """Better no start than a password that everyone on the machine can read."""
    private(home.env_file, f"A={PLAIN}".encode(), mode)
    other = private(home.path / "secret", PLAIN.encode(), mode)
    for reference in ("env:A", f"file:{other}"):
        error = failure(reference, home)
        assert "can be read by others" in error.message
        assert "chmod 600" in error.hint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"pass\n", "pass"),
        (b"pass\r\n", "pass"),
        (b" pass word ", " pass word "),
        (b"two\nlines\n", "two\nlines"),
        ("naïve".encode(), "naïve"),
    ],
)
def test_file_gives_its_text_without_the_last_newline(home: Home, data: bytes, expected: str) -> None:
    """Editors end a file with a newline that is not part of the secret; spaces may be."""
    path = private(home.path / "secret", data, 0o400)
    assert resolve(f"file:{path}", home, {}) == expected
    assert resolve("file:secret", home, {}) == expected
    assert resolve("file:~/secret", home, {"HOME": str(home.path)}) == expected


def test_file_that_gives_no_secret_is_a_user_error(home: Home) -> None:
    """Missing, empty, a folder, too large, not text, not a name: always a sentence, never the content."""
    private(home.path / "empty", b"\n")
    private(home.path / "binary", PLAIN.encode() + b"\xff")
    private(home.path / "large", b"x" * (MAX_SECRET_BYTES + 1))
    names = ["missing", "empty", ".", "binary", "large", "nul\0nul"]
    parts = [failure(f"file:{name}", home).message.rpartition(" file ")[2].rpartition(" ")[2] for name in names]
    assert parts == ["directory.", "empty.", "file.", "text.", "large.", "name."]


@posix
def test_named_pipe_is_refused_instead_of_waited_for(home: Home) -> None:
    """Reading one would stop the daemon until somebody writes."""
    os.mkfifo(home.path / "pipe", 0o600)
    assert "not a plain file" in failure("file:pipe", home).message


def test_missing_variable_names_both_places(home: Home) -> None:
    """The daemon does not have the shell's environment; the hint has to say where else to put it."""
    error = failure("env:TOKEN", home)
    assert "env:TOKEN" in error.message
    assert str(home.env_file) in error.hint


def test_broken_line_of_the_env_file_is_named_by_number_only(home: Home) -> None:
    """The line itself may be the secret."""
    private(home.env_file, f"A=b\n{PLAIN}\n".encode())
    assert "line 2" in failure("env:X", home).message


@pytest.mark.parametrize(
    "reference", [PLAIN, "", "env:", "file:", "keyring:", f"env:{PLAIN}", f"vault:{PLAIN}", f"ENV:{PLAIN}"]
)
def test_plain_value_is_refused_and_not_repeated(home: Home, reference: str) -> None:
    """Secrets only by reference; what was written instead is probably the secret."""
    assert isinstance(failure(reference, home), UserError)


@pytest.mark.usefixtures("keyring")
def test_keyring_entry_is_found(home: Home) -> None:
    """The service may be a URL: the entry is what follows the last slash."""
    assert resolve("keyring:harken/mail", home, {}) == "from the ring"
    assert resolve("keyring:https://x/y/me", home, {}) == "by url"


@pytest.mark.usefixtures("keyring")
@pytest.mark.parametrize(
    ("reference", "kind", "part"),
    [
        ("keyring:harken/none", UserError, "no entry"),
        ("keyring:locked/x", NeedsPerson, "locked"),
        ("keyring:broken/x", UserError, "cannot be asked"),
        ("keyring:harken", UserError, "service and an entry"),
        ("keyring:/x", UserError, "service and an entry"),
        ("keyring:x/", UserError, "service and an entry"),
    ],
)
def test_keyring_that_gives_nothing_says_why(home: Home, reference: str, kind: type, part: str) -> None:
    """A locked keyring needs a person, the rest needs a correction."""
    error = failure(reference, home)
    assert type(error) is kind
    assert part in error.message


def test_missing_keyring_package_names_the_extra(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional, so the error has to say how to get it."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "the package keyring" in failure("keyring:harken/mail", home).hint
