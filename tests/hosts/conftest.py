"""Every agent host, installed by `make test-hosts` in the version that package.json names.

A host that is not there fails its tests and says so: a skipped host would look like one that works.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.hosts.host import Host
from harken.hosts.registry import host_named, host_names, interactive, sandboxes
from harken.runs.sandbox import Sandbox
from harken.testing import DaemonProcess, running_daemon
from harken.trial.model import MockModel
from tests.hosts.baits import AROUND
from tests.hosts.matrix import Matrix, rows, table
from tests.hosts.sandboxes import put_files
from tests.hosts.stage import PROGRAMS, Stage
from tests.hosts.words import WORDS, Words
from tests.process_check import end_all_naming

pytest.register_assert_rewrite("tests.hosts.story")

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder, so that only `make test-hosts` runs it, or `make soak`."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.hosts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each host's sandbox was seen to do."""
    reports = [each for some in terminalreporter.stats.values() for each in some if isinstance(each, pytest.TestReport)]
    if found := rows(reports):
        terminalreporter.section("what a run may do, by host")
        for line in table(found):
            terminalreporter.write_line(line)


@pytest.fixture
def matrix(request: pytest.FixtureRequest) -> Matrix:
    """Where a test of a sandbox notes what it saw."""
    return Matrix(request.node)


@pytest.fixture(params=host_names())
def host(request: pytest.FixtureRequest) -> Host:
    """Each host; one of them with `@pytest.mark.parametrize("host", ["codex"], indirect=True)`."""
    found = host_named(request.param)
    if not (PROGRAMS / interactive(found.name).program).exists():
        pytest.fail(f"{found.name} is not installed: run `make test-hosts` once, it installs every host")
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets are made below it, and their paths are limited."""
    with tempfile.TemporaryDirectory(prefix="harken-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()
        end_all_naming(Path(name).resolve())


@pytest.fixture
def model() -> Iterator[MockModel]:
    """The model, which says a word to everything until a test gives it a script."""
    with MockModel() as running:
        yield running


@pytest.fixture
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    """A real daemon with nothing configured."""
    with running_daemon(folder / "harken") as running:
        yield running


@pytest.fixture
def bare_stage(host: Host, folder: Path, model: MockModel) -> Iterator[Stage]:
    """The host in a private home, with a model and no Harken."""
    here = Stage(host=host, folder=folder, model=model)
    here.prepare()
    try:
        yield here
    finally:
        here.end_everything()


@pytest.fixture
def stage(bare_stage: Stage, daemon: DaemonProcess) -> Stage:
    """The same beside a running Harken, to which it is not connected yet."""
    assert bare_stage.harken_home == daemon.home
    return bare_stage


@pytest.fixture
def offline(stage: Stage) -> Stage:
    """The same without a network: where there is a plugin, opencode would fetch a package for it."""
    (stage.user / ".npmrc").write_text("offline=true\n")
    return stage


@pytest.fixture
def connected(offline: Stage) -> Stage:
    """The host, connected the way people connect it."""
    offline.harken("connect", offline.host.name, "--yes")
    return offline


@pytest.fixture
def lived_in(bare_stage: Stage) -> Stage:
    """A person with hooks, a server and instructions of their own, in a folder that has such things too."""
    put_files(bare_stage)
    AROUND[bare_stage.host.name](bare_stage)
    return bare_stage


@pytest.fixture
def sandbox(bare_stage: Stage) -> Sandbox:
    """The host's sandbox."""
    return next(each for each in sandboxes() if each.host == bare_stage.host.name)


@pytest.fixture
def words(bare_stage: Stage) -> Words:
    """How the host calls its tools."""
    return WORDS[bare_stage.host.name]
