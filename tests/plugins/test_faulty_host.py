"""A host whose code fails, as another package's may: it is named, and every other host goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.errors import UserError
from tests.cli.rig import Rig

PLUGIN = """
import os
from pathlib import Path

from harken.hosts.connect.plan import ConnectPlan, FileEdit, InstalledProgram
from harken.hosts.host import Host


class Connector:
    name = "clumsy"
    wakes = {}

    def __init__(self):
        self._at("making it")

    def _at(self, what):
        if os.environ["CLUMSY_FAILS_AT"] == what:
            raise RuntimeError(f"no luck at {what}")

    def find(self, place):
        self._at("find")
        return InstalledProgram(program=Path("/bin/sh"), version="1.0")

    def plan(self, place, options):
        self._at("plan")
        file = place.user / ".clumsy"
        before = file.read_bytes() if file.exists() else None
        return ConnectPlan(host="clumsy", steps=[FileEdit(path=file, before=before, after=b"harken", why="all of it")])

    def removal(self, place):
        self._at("removal")
        return ConnectPlan(host="clumsy", steps=[])

    def check(self, place):
        self._at("check")
        return []


HOST = Host(name="clumsy", title="Clumsy", connector=lambda: Connector())
"""


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A home, and the package of a host beside Harken."""
    site, user = tmp_path / "site", tmp_path / "user"
    (site / "clumsy_host-1.0.dist-info").mkdir(parents=True)
    (site / "clumsy_host-1.0.dist-info" / "entry_points.txt").write_text("[harken.hosts]\nclumsy = clumsy_host:HOST\n")
    (site / "clumsy_host.py").write_text(PLUGIN)
    user.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("CLUMSY_FAILS_AT", "nothing")
    return Rig(home=tmp_path / "home")


@pytest.mark.parametrize("at", ["making it", "find", "plan", "check"])
def test_doctor_names_a_host_that_fails_and_looks_at_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """One package's fault must not hide what is wrong elsewhere: doctor is what people run then."""
    rig.ok("connect", "clumsy", "--yes")
    monkeypatch.setenv("CLUMSY_FAILS_AT", at)
    looked = rig.run("doctor")
    assert looked.code == 1
    assert f"The host clumsy has failed: RuntimeError: no luck at {at}. Where another package" in looked.out
    assert "Codex" in looked.out


@pytest.mark.parametrize("at", ["find", "plan", "check"])
def test_connecting_a_host_that_fails_names_it(rig: Rig, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """The person can do nothing about a fault of Harken, and something about one of a package."""
    monkeypatch.setenv("CLUMSY_FAILS_AT", at)
    refused = rig.run("connect", "clumsy", "--yes")
    assert refused.code == UserError.exit_code
    assert f"The host clumsy has failed: RuntimeError: no luck at {at}." in refused.err


def test_host_without_a_trial_says_so(rig: Rig) -> None:
    """A part that a declaration leaves out is no fault of this version of Harken."""
    refused = rig.run("probe", "clumsy")
    assert "Clumsy has no way to be tried, as it is declared." in refused.err
