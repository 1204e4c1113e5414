"""What is read without click is read as click reads it: values, errors, exit codes, and what Tab offers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.completion import find_completions
from harken.cli.invocation import BODIES, CommandTable, LightCall, read
from harken.cli.verbs import harken
from tests.cli.rig import SECONDS, Rig

Reading = tuple[str, dict[str, object], str | None, bool]
BY_CLICK = "import sys; from harken.cli.verbs import run_click; sys.exit(run_click(sys.argv[1:]))"
HEAVY = {"click", "re", "json", "typing", "dataclasses", "pathlib", "socket", "datetime", "collections"}

_TABLE = CommandTable()
_ROWS = [row for row in (_TABLE.find(verb) for verb in BODIES) if row is not None]
_FLAGS = sorted({flag for row in _ROWS for parameter in row.parameters for flag in parameter[0]})
_VALUES = st.sampled_from(
    [
        *("", "-", "--", "-1", "0", "1", "7", "20", " 3 ", "1_0", "1.5", "nan", "inf", "1e3", "90000", "high", "High"),
        *("amy", "#3", "m-1", "a b", "é", "x=y", "=", "-n", "/", "/etc/hostname", "/nowhere/at/all", "~", "\udce9"),
    ]
)
_WORDS = st.lists(
    st.one_of(
        st.sampled_from([*_FLAGS, "--version", "--nonsense", "--hom", "-h"]),
        _VALUES,
        st.tuples(st.sampled_from(_FLAGS), _VALUES).map("=".join),
    ),
    max_size=6,
)


def by_click(words: list[str]) -> Reading | None:
    """Return what click reads; None where it refuses, or shows help."""
    try:
        root = harken.make_context("harken", list(words))
        name, command, rest = harken.resolve_command(root, [*vars(root)["_protected_args"], *root.args])
        assert name is not None
        assert command is not None
        values = dict(command.make_context(name, rest, parent=root).params)
    except (click.UsageError, click.exceptions.Exit):
        return None
    inner, outer = values.pop("home"), root.params["home"]
    as_json = bool(values.pop("as_json") or root.params["as_json"])
    return name, values, outer if inner is None else inner, as_json


def as_reading(call: LightCall) -> Reading:
    """Return what was read without click."""
    return call.verb, call.values, call.home, call.as_json


@given(st.sampled_from([[], ["--json"], ["--home", "/nowhere"], ["--home=/etc/hostname"], ["--help"], ["--"]]), _WORDS)
def test_whatever_is_read_is_read_as_click_reads_it(before: list[str], after: list[str]) -> None:
    """A second reader of the same words may know less, and must never understand anything else."""
    for verb in BODIES:
        words = [*before, verb, *after]
        call = read(words)
        if call is not None:
            wanted = by_click(words)
            assert wanted == as_reading(call), words
            assert wanted is not None
            assert {name: type(value) for name, value in wanted[1].items()} == {
                name: type(value) for name, value in call.values.items()
            }


@pytest.mark.parametrize(
    "line",
    [
        *("send hello", "send the build is red --from ci-bot --channel ci", "send x --priority=high --json", "send"),
        *("--home /nowhere send x", "send -", "send x --to task:a --as-file --id 7", "send -- --x --y"),
        *("list", "list --limit 5", "list --mailbox inbox --before 7 --json", "list --channel=ci --sender amy"),
        *("read #3", "read m-1 --offset 0 --limit 100", "--json read 3"),
        *("wait", "wait --timeout 0.5 --limit 1", "wait --consumer me", "status", "status --all", "status --json"),
    ],
)
def test_what_people_type_needs_no_click(line: str) -> None:
    """The light path is for the words of every day: if they were left to click, nothing would fail and all be slow."""
    call = read(line.split())
    assert call is not None
    assert as_reading(call) == by_click(line.split())


@pytest.mark.parametrize("words", [["--help"], ["send", "--help"], ["list", "--limit", "x"], ["read"], ["sned", "x"]])
def test_help_errors_and_other_verbs_are_left_to_click(words: list[str]) -> None:
    """Errors are said in one place."""
    assert read(words) is None


def test_both_ways_print_the_same(rig: Rig) -> None:
    """One place prints: which way the words were read cannot be seen."""
    rig.ok("send", "look at *this*", "--from", "amy", "--id", "light-1")
    for line in ("send again --id light-1 --from amy", "list --limit 3", "list --json", "read #1", "read 1 --json"):
        done = rig.run(*line.split(), prefix=(sys.executable, "-c", BY_CLICK))
        assert (line, done) == (line, rig.run(*line.split()))


@pytest.mark.parametrize("is_named", [False, True], ids=["usual-home", "named-home"])
@pytest.mark.parametrize("line", ["send hello", "list", "read #1", "wait --timeout 0", "status"])
def test_everyday_verbs_load_nothing_that_is_felt(rig: Rig, line: str, *, is_named: bool) -> None:
    """Each of these costs a fifth to the whole of the interpreter's start, at every command."""
    rig.ok("send", "something to read", "--from", "amy")
    code = "import sys; from harken.cli.run import run; run(sys.argv[1:]); print(*sorted(sys.modules), file=sys.stderr)"
    home = ["--home", str(rig.home)] if is_named else []
    done = rig.run(*line.split(), *home, prefix=(sys.executable, "-I", "-c", code))
    assert "harken.cli.invocation" in done.err
    assert set(done.err.splitlines()[-1].split()) & HEAVY == set()


def _lines() -> Iterator[list[str]]:
    """Yield a line for each command, and for each of its options, up to the word that is typed."""
    rows = [row for row in (_TABLE.find(path) for path in _paths("")) if row is not None]
    for row in rows:
        words = row.path.split()
        yield words
        yield [*words, "x"]
        for parameter in row.parameters:
            for flag in parameter[0]:
                yield [*words, flag]
                yield [*words, flag, "x"]


def _paths(path: str) -> Iterator[str]:
    yield path
    for row in _TABLE.below(path):
        yield from _paths(row.path)


def test_tab_offers_what_click_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the help beside each word; what the table does not know is left to click, and that is little."""
    monkeypatch.setenv("HARKEN_HOME", str(tmp_path / "nothing"))
    shell = BashComplete(harken, {}, "harken", "_HARKEN_COMPLETE")
    asked = left = 0
    for words in _lines():
        for begin in ("", "--", "s"):
            found = find_completions(list(words), begin)
            asked += 1
            left += found is None
            if found is not None:
                wanted = [
                    (item.type, item.value, item.help or "") for item in shell.get_completions(list(words), begin)
                ]
                assert (words, begin, found) == (words, begin, wanted)
    assert left < asked / 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", ["harken st", "harken send --ch", "harken list --channel ", "harken 'quo"])
def test_every_shell_is_answered_as_by_click(rig: Rig, shell: str, line: str) -> None:
    """A shell splits what it gets by its own script."""
    rig.ok("send", "x", "--channel", "north:1", "--from", "amy")
    *before, begin = line.split(" ")
    place = begin if shell == "fish" else str(len(before))
    asked = {"COMP_WORDS": line, "COMP_CWORD": place, "_HARKEN_COMPLETE": f"{shell}_complete"}
    asking = Rig(rig.home, asked)
    by_click = subprocess.run(
        [sys.executable, "-c", BY_CLICK], env=asking.environment, capture_output=True, check=True, timeout=SECONDS
    )
    assert asking.run().out == by_click.stdout.decode()
