"""A source of another package beside Harken: added, tried, listed, shown, judged, answered and removed as any other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

import pytest

from harken.testing import DaemonProcess
from tests.cli.rig import SECONDS, Json, Outcome, Rig
from tests.loss.rig import until
from tests.web.rig import NAVIGATION, Web

PLUGIN = Path(__file__).with_name("bulletin")
INSTALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PluginRig(Rig):
    """A home, and commands of a Python that has the plugin too."""

    python: Path = Path()

    def run(
        self,
        *words: str,
        stdin: str = "",
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        prefix: tuple[str, ...] = (),
        cwd: Path | None = None,
    ) -> Outcome:
        """Run a command to its end."""
        command = prefix or (str(self.python), "-m", "harken")
        return Rig.run(self, *words, stdin=stdin, stdout=stdout, stderr=stderr, prefix=command, cwd=cwd)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all that this one has, and the plugin, installed as a package of its own."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    words = (
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
        str(PLUGIN),
    )
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=INSTALL_SECONDS)
    return folder / "bin" / "python"


@pytest.fixture
def rig(python: Path, tmp_path: Path) -> PluginRig:
    """A home of that Python."""
    return PluginRig(home=tmp_path / "home", python=python)


def test_a_source_of_another_package_works_like_any_other(rig: PluginRig, tmp_path: Path) -> None:
    """Its folder is all there is of it: nothing in Harken knows its name."""
    notes = tmp_path / "notes"
    notes.mkdir()
    rig.home.mkdir(mode=0o700)
    rule = {"name": "noted", "server": "board", "mode": "notify"}
    (rig.home / "triggers.json").write_text(json.dumps({"rules": [rule]}))
    try:
        rig.ok("up")
        assert "A folder of notes" in rig.ok("source", "add", "--help")
        shown = rig.ok("source", "add", "bulletin", "--help")
        assert "--folder DIR" in shown
        assert "--client-id" not in shown
        missing = rig.run("source", "add", "bulletin")
        assert "Missing option '--folder'." in missing.err
        options = ("--folder", str(notes), "--poll", "0.05", "--trust", "known")
        added = rig.json("source", "add", "bulletin", "board", *options)
        assert (added["state"], added["in_force"]) == ("added", True)
        assert rig.json("source", "test", "board", "--seconds", "0.5")["state"] == "listening"
        (notes / "001-ann.note").write_text("Is the release out?")

        def heard() -> Json | None:
            found = rig.json("list", "--limit", "10")["messages"]
            return next((each for each in found if each["source"] == "board"), None)

        message = until(heard, "the note is stored", SECONDS)
        assert (message["sender_id"], message["channel"], message["attention"]) == ("ann", "notes", "wake")
        rig.ok("reply", message["id"], "Yes, since noon.")

        def answered() -> set[str]:
            return {path.read_text() for path in notes.glob("*.answer")}

        assert until(answered, "the answer lies beside the note", SECONDS) == {"Yes, since noon."}
        until(lambda: rig.ask("rules")["rules"][0]["fired"], "the rule about the source has fired", SECONDS)
        web = Web(DaemonProcess(rig.home))
        session = web.signed_in()
        pages = {path: web.ask("GET", path, {**NAVIGATION, **session}).text for path in ("/sources", "/c/board/notes")}
        assert (str(notes) in pages["/sources"], "Is the release out?" in pages["/c/board/notes"]) == (True, True)
        form = {**session, "Origin": web.origin, "HX-Request": "true"}
        form["Content-Type"] = "application/x-www-form-urlencoded"
        fields = urlencode({"ref": message["id"], "text": "And it is signed."}).encode()
        assert "Answered." in web.ask("POST", "/do/send", form, fields).text
        until(lambda: "And it is signed." in answered(), "the answer of the page lies there too", SECONDS)
        (source,) = rig.json("source", "list")["sources"]
        assert (source["name"], source["kind"], source["state"]) == ("board", "bulletin", "listening")
        rig.ok("source", "remove", "board")
        assert rig.json("source", "list")["sources"] == []
        shown = web.ask("GET", "/sources/new/bulletin", {**NAVIGATION, **session}).text
        assert "The folder of notes, such as /srv/notes." in shown
        assert re.search(r'id="set-secret"[^>]*type="password"', shown)
        filled = {
            "kind": "bulletin",
            "name": "wall",
            "set-folder": str(notes),
            "set-poll": "0.05",
            "set-secret": "over",
        }
        answer = web.ask("POST", "/do/source", form, urlencode(filled).encode()).text
        assert "Harken is listening to it." in answer
        assert (rig.home / "secrets" / "wall.secret").read_text() == "over\n"
        assert [each["state"] for each in rig.json("source", "list")["sources"]] == ["listening"]
    finally:
        rig.run("down")


def test_a_broken_package_is_named_and_keeps_nothing_away(python: Path, rig: PluginRig) -> None:
    """Whoever installed it is told, and everybody's mail goes on."""
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    broken = site / "broken_kind-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-kind\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[harken.sources]\nbroken = no_such_package:KIND\n")
    try:
        rig.ok("up")
        listed = rig.run("source", "list")
        assert listed.code == 0
        assert "The kind of source broken cannot be loaded: ModuleNotFoundError" in listed.err
        assert rig.json("send", "hello")["state"] == "queued"
    finally:
        rig.run("down")
        for file in broken.iterdir():
            file.unlink()
        broken.rmdir()
