"""The steps of the container's recipe run: in a private folder, as nothing here can build an image."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import pytest

from harken.cli.verbs import harken
from harken.config.settings import SCALARS
from harken.surfaces.web.guard import PROBES
from tests.docs.pages import ROOT
from tests.loss.rig import until
from tests.packaging.rig import link_packages

STEP_SECONDS: Final = 120
PORT: Final = "8780"


@dataclass
class ImageStage:
    """What one part of the recipe, from FROM to FROM, does."""

    steps: list[tuple[str, str]] = field(default_factory=list)  # instruction and arguments, in their order

    def last(self, instruction: str) -> str:
        """Return the arguments of the last instruction of a kind."""
        return [arguments for name, arguments in self.steps if name == instruction][-1]


def recipe() -> list[ImageStage]:
    """Read the recipe as a builder would."""
    stages: list[ImageStage] = []
    for line in (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines():
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            stages.append(ImageStage())
        elif line and not line.startswith("#"):
            stages[-1].steps.append((instruction, arguments))
    return stages


def privately(text: str, root: Path) -> str:
    """Return a command with the folders of an image below a private one, for the account that runs the test."""
    text = text.replace("-o 1000 -g 1000", f"-o {os.getuid()} -g {os.getgid()}")
    return re.sub(r"(?<![\w/.-])/(?=(?:etc|home|opt|src|var)\b)", f"{root}/", text)


def test_the_image_runs_without_root_keeps_its_data_and_says_its_health() -> None:
    """Whoever takes it gets these without knowing that they have to be asked for."""
    *_, image = recipe()
    assert image.last("USER") == "1000:1000"
    assert image.last("VOLUME") == "/var/lib/harken"
    assert "HARKEN_HOME=/var/lib/harken" in image.last("ENV")
    assert "/readyz" in image.last("HEALTHCHECK")


def test_everything_that_is_copied_is_there_and_let_through() -> None:
    """A file that `.dockerignore` hides is missing only when a person builds the image."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    build, *_ = recipe()
    copied = [each for name, arguments in build.steps if name == "COPY" for each in arguments.split()[:-1]]
    assert copied
    for each in copied:
        assert (ROOT / each).exists(), each
        assert each in allowed, each


@pytest.fixture
def image() -> Iterator[Path]:
    """The files of the image, made by the steps of the recipe; packages come from this environment.

    Its path is short: a socket is made in it.
    """
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        root = Path(folder) / "image"
        make_image(root, link_packages(root.parent / "packages"))
        yield root


def make_image(root: Path, packages: Path) -> None:
    """Do what the recipe says, below a folder."""
    (root / "etc").mkdir(parents=True)
    (root / "src").mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "HOME": str(root.parent),
    }
    for stage in recipe():
        for instruction, arguments in stage.steps:
            if instruction == "RUN":
                run(privately(arguments, root), root / "src", environment)
            elif instruction == "COPY" and not arguments.startswith("--from"):
                *names, target = arguments.split()
                for name in names:
                    place = root / "src" / target
                    is_folder = target.endswith("/") and not (ROOT / name).is_dir()
                    place = place / Path(name).name if is_folder else place
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.symlink_to(ROOT / name)


def run(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a step as a builder would, in a shell."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout.decode()}{done.stderr.decode()}"


def free_port() -> str:
    """Return a port that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_what_the_image_runs_and_sets_exists() -> None:
    """The steps themselves take long to run; a renamed command or setting is found here, too."""
    *_, image = recipe()
    command = json.loads(image.last("CMD"))
    assert command[0] in harken.list_commands(click.Context(harken))
    known = {setting.variable for setting in SCALARS} | {"HARKEN_HOME"}
    assert set(re.findall(r"HARKEN_\w+", image.last("ENV"))) <= known
    (path,) = re.findall(r":8780(/\w+)", image.last("HEALTHCHECK"))
    assert path in PROBES


@pytest.mark.slow
def test_the_steps_give_a_harken_that_serves_and_says_its_health(image: Path) -> None:
    """A recipe that nobody builds rots with the first renamed file, setting or command."""
    *_, last = recipe()
    port = free_port()
    settings = dict(each.split("=", 1) for each in privately(last.last("ENV"), image).split())
    environment = {**settings, "HARKEN_HTTP_PORT": port, "PYTHONPATH": str(image.parent / "packages")}
    assert settings["HARKEN_HTTP_PORT"] == PORT
    command = [*json.loads(last.last("ENTRYPOINT")), *json.loads(last.last("CMD"))]
    program = image / "opt" / "harken" / "bin" / command[0]
    check = json.loads(last.last("HEALTHCHECK").partition("CMD ")[2].replace(PORT, port))
    with subprocess.Popen([str(program), *command[1:]], env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            until(lambda: is_healthy(check, image, environment), "the image says that it is healthy")
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
    assert not is_healthy(check, image, environment)


def is_healthy(check: list[str], image: Path, environment: dict[str, str]) -> bool:
    """Ask as the recipe says."""
    program = image / "opt" / "harken" / "bin" / check[0]
    done = subprocess.run([str(program), *check[1:]], env=environment, capture_output=True, check=False)
    return done.returncode == 0
