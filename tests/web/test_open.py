"""`harken open` brings the page up in the person's browser, and says what to do where there is none."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.rig import Rig, serving
from tests.web.rig import data_of, tag

NOWHERE = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
SECONDS = 20.0
OK = 200


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Commands on a home whose daemon runs, without a display."""
    with serving(tmp_path_factory.mktemp("open") / "home") as served:
        yield replace(served, extra=NOWHERE)


def browser(folder: Path) -> tuple[Mapping[str, str], Path]:
    """Return the environment of a machine whose browser only writes down what it is to open, and where."""
    script, opened = folder / "browser", folder / "opened"
    script.write_text(f'#!/bin/sh\nprintf "%s" "$1" >"{opened}"\n')
    script.chmod(0o700)
    return {**NOWHERE, "BROWSER": f"{script} %s"}, opened


def sign_in(url: str) -> bool:
    """Whether a link signs a browser in."""
    address, _, secret = url.removeprefix("http://").partition("/sign-in#")
    key = data_of(secret)
    said = {"link": tag(key, "harken link 1"), "nonce": "n", "proof": tag(key, "harken page 1", "n", address)}
    with closing(http.client.HTTPConnection(address, timeout=SECONDS)) as there:
        there.request("POST", "/sign-in", json.dumps(said).encode())
        return there.getresponse().status == OK


def test_browser_is_opened_with_a_link_that_works_once(rig: Rig, tmp_path: Path) -> None:
    """One command, and the page is there."""
    extra, opened = browser(tmp_path)
    done = replace(rig, extra=extra).run("open")
    assert (done.code, done.err) == (0, "")
    url = done.out.strip()
    assert opened.read_text() == url
    assert [sign_in(url), sign_in(url)] == [True, False]


def test_without_a_display_the_link_is_printed_and_that_is_said(rig: Rig) -> None:
    """On a server the person opens it elsewhere; a program reads only the link."""
    done = rig.run("open")
    assert done.code == 0
    assert "No browser was found" in done.err
    assert sign_in(done.out.strip())


def test_print_only_prints(rig: Rig, tmp_path: Path) -> None:
    """A person with several browsers chooses."""
    extra, opened = browser(tmp_path)
    done = replace(rig, extra=extra).run("open", "--print")
    assert (done.code, done.err) == (0, "")
    assert not opened.exists()
    assert sign_in(done.out.strip())


def test_json_tells_link_and_whether_it_was_opened(rig: Rig, tmp_path: Path) -> None:
    """Programs are told the same."""
    found = rig.json("open")
    assert set(found) == {"url", "opened"}
    assert not found["opened"]
    extra, opened = browser(tmp_path)
    found = replace(rig, extra=extra).json("open")
    assert found["opened"]
    assert opened.read_text() == found["url"]
