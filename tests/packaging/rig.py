"""Builds the package once and installs it into an empty environment, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

BUILD_SECONDS: Final = 120
REPOSITORY: Final = "https://git.example.org/somebody/harken"


def build(folder: Path, *targets: str, repository: str = REPOSITORY) -> Path:
    """Build the wheel and the source archive, or what is named; return the folder that holds them."""
    wanted = [word for target in targets for word in ("--target", target)]
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *wanted],
        cwd=ROOT,
        env={**os.environ, "HARKEN_REPOSITORY": repository},
        capture_output=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return folder


def link_packages(folder: Path) -> Path:
    """Make a folder with all packages of this environment but Harken, as an installer would find them elsewhere."""
    folder.mkdir(parents=True)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.suffix != ".pth" and not each.name.lower().startswith(("harken", "__editable__", "_editable")):
            (folder / each.name).symlink_to(each)
    return folder


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into an environment that has nothing else but what it depends on; return its commands' folder."""
    packages = link_packages(folder / "packages")
    environment = folder / "environment"
    uv(environment, "venv", "--no-project", "--python", sys.executable, str(environment))
    uv(environment, "pip", "install", "--no-deps", "--python", str(environment), str(wheel))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / version / "site-packages" / "packages.pth").write_text(f"{packages}\n")
    return environment / "bin"


def uv(folder: Path, *arguments: str) -> None:
    """Run uv without a network, with a cache of its own."""
    clean: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(
        [sys.executable, "-m", "uv", "--offline", "--quiet", "--no-config", *arguments],
        env={**clean, "UV_CACHE_DIR": str(folder.parent / "uv-cache")},
        capture_output=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
