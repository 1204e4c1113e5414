"""The official conformance suite, of both revisions, against `/mcp`: what it may not pass is in `conformance.toml`.

It knows no tokens and no authorities, so every request of it is given a token (`bearer.mjs`), on a listener behind a
proxy that is named and has made TLS already: the one that this machine is itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.test_remote_clients import HERE, NODE, home, no_runtime_folder
from tests.loss.rig import DaemonStarter, until
from tests.satellite.rig import free_port

__all__ = ["home", "no_runtime_folder"]

SUITE: Final = HERE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
EXCLUDED: Final = tomllib.loads((HERE / "conformance.toml").read_text())["excluded"]
SECONDS: Final = 120.0
REVISIONS: Final = {"2025-11-25": 50, "2026-07-28": 115}  # and how many checks are passed: none may fall away unnoticed
FOLDER: Final = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


def settings(port: int) -> str:
    """Return the configuration of a daemon that lets in what this machine's proxy passes on."""
    listen, url = f'public_listen = "127.0.0.1:{port}"', f'public_url = "http://localhost:{port}"'
    return f'[http]\n{listen}\n{url}\nproxy = ["127.0.0.1"]\n'


def checks(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every check that was made, with its name."""
    for file in sorted(folder.glob("*/checks.json")):
        scenario = FOLDER.fullmatch(file.parent.name)
        assert scenario, file
        for check in json.loads(file.read_text()):
            yield f"{scenario[1]}/{check['id']}", check


@pytest.fixture(scope="module")
def failed() -> dict[str, set[str]]:
    """What failed, by revision."""
    return {}


@pytest.mark.parametrize("revision", REVISIONS)
def test_suite_is_passed_but_for_what_is_excluded(
    starter: DaemonStarter, home: Path, tmp_path: Path, revision: str, failed: dict[str, set[str]]
) -> None:
    """With the scenarios that the revision required when it was released."""
    assert SUITE.is_file(), "the suite is not installed: run `make test` once"
    port = free_port()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text(settings(port))
    with starter.daemon(home) as served:
        served.start()
        until(lambda: served.call("status")["daemon"]["public_url"], "other machines are let in")
        token = str(served.call("token_new", name="suite")["secret"])
        # The suite ends with 1 when anything fails: what did is in its files.
        subprocess.run(
            [
                *(NODE, "--import", "./bearer.mjs", str(SUITE), "server", "--url", f"http://localhost:{port}/mcp"),
                *("--requirements", revision, "--output-dir", str(tmp_path / "out")),
            ],
            capture_output=True,
            check=False,
            cwd=HERE,
            env={"HOME": str(tmp_path), "PATH": str(Path(NODE).parent), "HARKEN_TOKEN": token},
            timeout=SECONDS,
        )
    found = list(checks(tmp_path / "out"))
    failed[revision] = {name for name, check in found if check["status"] == "FAILURE"}
    wrong = [
        f"{name}: {check.get('errorMessage')}"
        for name, check in found
        if check["status"] == "FAILURE" and not any(fnmatchcase(name, known) for known in known_failures())
    ]
    assert wrong == []
    assert sum(check["status"] == "SUCCESS" for _name, check in found) >= REVISIONS[revision]


def test_nothing_is_excluded_without_need(failed: dict[str, set[str]]) -> None:
    """An exclusion that nothing needs would hide the next failure."""
    if failed.keys() != REVISIONS.keys():
        pytest.skip("the suite was not run whole")
    names = set().union(*failed.values())
    assert [known for known in known_failures() if not any(fnmatchcase(name, known) for name in names)] == []
    assert all(each["reason"] for each in EXCLUDED)


def known_failures() -> list[str]:
    """Return the names of the checks that may fail."""
    return [check for each in EXCLUDED for check in each["checks"]]
