"""A source whose code fails, as another package's may: it is named, and everything else goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.errors import HarkenError, UserError
from tests.cli.rig import SECONDS, Json
from tests.loss.rig import until
from tests.plugins.test_bulletin import PluginRig, python

__all__ = ["python"]

PLUGIN = Path(__file__).with_name("faulty") / "faulty_kind.py"
CLUMSY = """
from dataclasses import replace
from faulty_kind import KIND
from harken.plugins import LazyPart
from harken.sources.settings import SourceOption
from harken.sources.setup import SetupOutcome, SourceSetup, written

class Setup(SourceSetup):
    options = (SourceOption(flag="--fails-at", key="fails_at", help="At what it fails."),)
    def entry(self, name, values, context):
        context.keep_secret(name, "secret")
        if values.get("fails_at"):
            raise RuntimeError("no luck")
        return written("clumsy", values)
    def outcome(self, name, values, entry, context):
        if not context.console.can_ask and name == "one":
            raise RuntimeError("no luck")
        return SetupOutcome()

def read(name, table):
    return table

KIND = replace(
    KIND,
    name="clumsy",
    setup=LazyPart("clumsy_kind:Setup"),
    read_settings=LazyPart("clumsy_kind:read"),
)
"""
GOOD = '[sources.good]\nkind = "faulty"\n'


@pytest.fixture(scope="module")
def faulty(python: Path) -> Path:
    """A Python that has this plugin too."""
    describe(python, "faulty")
    shutil.copy(PLUGIN, site(python))
    return python


@pytest.fixture
def rig(faulty: Path, tmp_path: Path) -> Iterator[PluginRig]:
    """A home of that Python with one good source of the kind."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    rig = PluginRig(home=home, python=faulty)
    write(rig, GOOD)
    try:
        yield rig
    finally:
        rig.run("down")


def site(python: Path) -> Path:
    """Return where a Python has its packages."""
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found


def describe(python: Path, kind: str) -> Path:
    """Describe a package that offers a kind of source, as an installer does."""
    described = site(python) / f"{kind}-1.0.dist-info"
    described.mkdir()
    (described / "entry_points.txt").write_text(f"[harken.sources]\n{kind} = {kind}_kind:KIND\n")
    return described


def write(rig: PluginRig, text: str) -> None:
    """Write config.toml as a person does."""
    (rig.home / "config.toml").write_text(text)


def failing(at: str) -> str:
    """Return the settings of a good source, and of one that fails at something."""
    return f'{GOOD}[sources.bad]\nkind = "faulty"\nfails_at = "{at}"\n'


def sources(rig: PluginRig) -> dict[str, Json]:
    """Return the sources in force by their names."""
    return {each["name"]: each for each in rig.ask("source_list")["sources"]}


def reload(rig: PluginRig, text: str) -> None:
    """Put config.toml in force."""
    write(rig, text)
    rig.ask("reload")


def test_source_that_fails_disturbs_no_other(rig: PluginRig) -> None:
    """All or nothing holds for faults too, at whatever moment they happen, and what failed can be removed."""
    rig.ok("up")
    for at in ("make", "feeds", "health", "doors", "remember"):
        write(rig, failing(at))
        with pytest.raises(HarkenError, match=f"The source bad has failed: RuntimeError: no luck at {at}"):
            rig.ask("reload")
        assert set(sources(rig)) == {"good"}
    assert "The source bad has failed" in rig.run("reload").err
    write(rig, GOOD)
    assert "Nothing has changed" in rig.ok("reload")

    for at in ("aclose", "rest", "can_answer"):  # a fault in what ends a source
        reload(rig, failing(at))
        assert set(sources(rig)) == {"good", "bad"}
        reload(rig, GOOD)
        assert set(sources(rig)) == {"good"}

    # A feed says of itself that it listens; that its loop has failed, only the daemon knows.
    reload(rig, failing("follow"))
    bad = until(lambda: (bad := sources(rig)["bad"])["state"] == "retrying" and bad, "it is told", SECONDS)
    assert "RuntimeError: no luck at follow" in bad["reason"]
    assert sources(rig)["good"]["state"] == "listening"


def test_source_that_answers_with_anything_is_refused(rig: PluginRig) -> None:
    """It fails where its package can be named: later everything that asks all sources would fail with it."""
    rig.ok("up")
    for at in ("name", "address", "sender", "feeds", "health", "doors"):
        write(rig, failing(f"wrong {at}"))
        with pytest.raises(HarkenError, match=r"The source bad has failed: TypeError: .*of no use"):
            rig.ask("reload")
        assert set(sources(rig)) == {"good"}


def test_source_that_answers_with_anything_later_is_named(rig: PluginRig) -> None:
    """It was good when it was made; all others go on, and it can be taken out."""
    rig.ok("up")
    for at in ("address", "feeds", "health", "reason"):
        reload(rig, failing(f"later {at}"))
        found = sources(rig)
        assert (found["bad"]["state"], found["good"]["state"]) == ("needs person", "listening")
        assert "The source bad has failed: " in found["bad"]["reason"]
        reload(rig, GOOD)
        assert set(sources(rig)) == {"good"}


def test_source_speaks_for_no_other(rig: PluginRig) -> None:
    """What comes from this machine is trusted like you: a source that copies a name from outside must not be that."""
    rig.ok("up")
    reload(rig, failing("wrong draft"))
    bad = until(lambda: (bad := sources(rig)["bad"])["state"] == "retrying" and bad, "it is told", SECONDS)
    assert "'local'" in bad["reason"]
    assert rig.json("list")["messages"] == []


def test_daemon_starts_with_a_source_that_fails(rig: PluginRig) -> None:
    """One package's fault is no reason to take no mail at all."""
    write(rig, failing("make"))
    rig.ok("up")
    found = sources(rig)
    assert (found["bad"]["state"], found["good"]["state"]) == ("needs person", "listening")
    assert "no luck at make" in found["bad"]["reason"]
    assert rig.json("send", "hello")["state"] == "queued"


def test_commands_name_a_package_that_lacks_a_part(rig: PluginRig) -> None:
    """Its author has to repair it, and whoever adds a source of another kind is not kept from it."""
    helped = rig.ok("source", "add", "--help")
    assert "A source that fails." in helped
    assert "webhook" in helped
    tries = (("add", "faulty", "--help"), ("add", "faulty", "more", "--word"), ("test", "good"))
    for words in tries:
        refused = rig.run("source", *words)
        assert refused.code == UserError.exit_code
        assert "faulty has failed: AttributeError" in refused.err or "good has failed: AttributeError" in refused.err
    rig.ok("source", "remove", "good")


def test_setup_that_fails_leaves_no_entry(rig: PluginRig) -> None:
    """What was begun is taken back, also when it is the package's code that fails."""
    described = describe(rig.python, "clumsy")
    module = site(rig.python) / "clumsy_kind.py"
    module.write_text(CLUMSY)
    try:
        for options in (("--fails-at", "entry"), ("--json",)):
            refused = rig.run("source", "add", "clumsy", "one", *options)
            assert "The kind of source clumsy has failed: RuntimeError: no luck" in refused.err
            assert "one" not in rig.run("source", "list").err
            assert list((rig.home / "secrets").iterdir()) == []
    finally:
        shutil.rmtree(described)
        module.unlink()


def test_kind_that_was_installed_while_the_daemon_ran_wants_a_restart(rig: PluginRig) -> None:
    """The command knows it and the daemon does not: without a word of that, nobody finds out why."""
    rig.ok("up")
    described = describe(rig.python, "late")
    module = site(rig.python) / "late_kind.py"
    module.write_text(CLUMSY.replace("clumsy", "late"))
    try:
        refused = rig.run("source", "add", "late", "two")
        assert "no sources of kind 'late'" in refused.err
        assert "harken down, harken up" in refused.err
        rig.ok("down")
        rig.ok("up")
        rig.ok("source", "add", "late", "two")
        assert "two" in sources(rig)
    finally:
        shutil.rmtree(described)
        module.unlink()


def test_package_that_fails_when_it_is_imported_is_named(rig: PluginRig) -> None:
    """Whatever it raises, also the end of the program."""
    described = describe(rig.python, "quitter")
    try:
        for raised in ('RuntimeError("no luck")', "SystemExit(3)"):
            (site(rig.python) / "quitter_kind.py").write_text(f"raise {raised}\n")
            listed = rig.run("source", "list")
            assert listed.code == 0
            assert "The kind of source quitter cannot be loaded" in listed.err
    finally:
        shutil.rmtree(described)
