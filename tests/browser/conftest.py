"""A browser for the folder, a daemon for each test. Without a browser the tests are skipped and say how to get one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.rig import WAIT_MS, SignedInBrowser, Site, new_context
from tests.loss.conftest import daemon, home, no_runtime_folder
from tests.loss.rig import DaemonStarter, Served
from tests.second_account import account_name, second_account

__all__ = [
    "account_name",
    "browser",
    "chromium",
    "daemon",
    "home",
    "no_runtime_folder",
    "second_account",
    "signed_in",
    "site",
]

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH. On Debian: apt-get install chromium")
    return found


# While it runs there is an event loop in this thread: it must end with the folder, or no test after it can have one.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """A browser without a screen."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        # The sandbox wants more rights than a container has; what is opened here are our own pages.
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def signed_in(browser: Browser, starter: DaemonStarter) -> Iterator[SignedInBrowser]:
    """A browser that every daemon of the folder knows."""
    with (
        tempfile.TemporaryDirectory(prefix="harken-") as folder,
        starter.daemon(Path(folder) / "home") as daemon,
        closing(new_context(browser)) as context,
    ):
        known = SignedInBrowser(context, daemon.start())
        daemon.stop()
        yield known


@pytest.fixture
def site(browser: Browser, signed_in: SignedInBrowser | None, daemon: Served, tmp_path: Path) -> Iterator[Site]:
    """A daemon in which nothing has happened, and windows that are closed at the end."""
    if signed_in is not None:
        signed_in.introduce(daemon.home)
    daemon.start()
    with ExitStack() as stack:
        yield Site(browser, daemon, tmp_path, stack, signed_in)
