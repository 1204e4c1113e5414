"""`harken connect --url`: shown, written, tried with the token, seen by `doctor`, and taken back.

Codex stands for any host: a program that says its version, because the host's files are all there is to write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.cli.rig import Rig
from tests.cli.test_connect import NEEDS_FIXING, USER_ERROR, tree, user_of
from tests.remote.rig import PublicDaemon

Json: TypeAlias = Any
CONFIG: Final = b'# mine\nmodel = "x"\n'


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Rig]:
    """Somebody on another machine, with Codex and with no Harken that runs."""
    user, programs = tmp_path / "user", tmp_path / "programs"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/config.toml").write_bytes(CONFIG)
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\necho codex-cli 0.166.0\n")
    (programs / "codex").chmod(0o755)
    rig = Rig(tmp_path / "elsewhere", {"HOME": str(user), "PATH": f"{programs}{os.pathsep}{os.defpath}"})
    yield rig
    assert rig.run("down").code == 0


def holding(person: Rig, public: PublicDaemon, secret: str) -> Rig:
    """Return the same person with a token in their environment, who trusts the authority of the certificate."""
    return Rig(person.home, {**person.extra, "HARKEN_TOKEN": secret, "SSL_CERT_FILE": str(public.main.authority)})


def codex(rig: Rig, *words: str) -> Json:
    """Connect Codex by a command; return what it says of it."""
    [found] = json.loads(rig.run("connect", "codex", *words, "--json").out)["hosts"]
    return found


def failed(found: Json) -> list[str]:
    """Return the hints of what is not as it should be."""
    return [each["hint"] for each in found["findings"] if not each["is_good"]]


def test_host_is_connected_tried_and_taken_back(public: PublicDaemon, person: Rig) -> None:
    """The whole way of a person: what is shown, written, verified, and what is left at the end."""
    secret = public.token()
    here = holding(person, public, secret)
    before = tree(user_of(person))
    shown = here.ok("connect", "codex", "--url", public.url, "--dry-run")
    assert f'+url = "{public.url}/mcp"' in shown
    assert '+bearer_token_env_var = "HARKEN_TOKEN"' in shown
    assert "no hooks, and nothing wakes it" in " ".join(shown.split())
    assert secret not in shown
    assert tree(user_of(person)) == before
    done = here.run("connect", "codex", "--url", public.url, "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "New sessions use it.")
    assert f"{public.url}/mcp takes the token" in done.out
    assert public.call("status")["sessions"] == []
    [codex_health] = here.json("doctor", "codex")["hosts"]
    assert (codex_health["is_connected"], failed(codex_health)) == (True, [])
    assert codex_health["url"] == f"{public.url}/mcp"
    assert f"by URL at {public.url}/mcp" in here.run("doctor", "codex").out
    assert codex(here, "--yes")["state"] == "current"
    assert not [name for name, (_mode, data) in tree(person.home).items() if secret.encode() in data]
    assert here.json("disconnect", "codex", "--yes")["hosts"][0]["state"] == "disconnected"
    assert tree(user_of(person)) == before


def test_what_keeps_the_token_from_working_is_said(public: PublicDaemon, person: Rig) -> None:
    """Not set, not known, not trusted, not there, and not Harken: each with what to do."""
    url = ("--url", public.url, "--yes")
    assert "HARKEN_TOKEN" in codex(person, *url)["findings"][0]["what"]
    assert "harken token new" in failed(codex(person, *url))[0]
    assert "does not know the token" in failed(codex(holding(person, public, "harken_wrong"), *url))[0]
    secret = public.token()
    untrusting = Rig(person.home, {**person.extra, "HARKEN_TOKEN": secret})
    assert "SSL_CERT_FILE" in failed(codex(untrusting, *url))[0]
    here = holding(person, public, secret)
    assert "Something else answers" in failed(codex(here, "--url", f"{public.url}/other", "--yes"))[0]
    public.call("token_revoke", name="elsewhere")
    assert "does not know the token" in failed(codex(here, *url))[0]
    public.main.served.kill()
    done = here.run("connect", "codex", *url)
    assert done.code == NEEDS_FIXING
    assert "cannot be reached" in " ".join(done.out.split())
    assert secret not in done.out + done.err


def test_agent_has_one_inbox(public: PublicDaemon, person: Rig, tmp_path: Path) -> None:
    """Two entries of one name would be mixed up by hosts that merge the settings of a folder and of a person."""
    here, project = holding(person, public, public.token()), tmp_path / "project"
    project.mkdir()
    in_project = ("--project", str(project))
    here.ok("connect", "codex", "--url", public.url, "--yes")
    refused = here.run("connect", "codex", *in_project, "--yes")
    assert refused.code == USER_ERROR
    assert "harken disconnect codex" in refused.err
    assert here.run("connect", "codex", "--wake", "loud").code == USER_ERROR
    assert here.run("connect", "codex", "--approvals").code == USER_ERROR
    here.ok("disconnect", "codex", "--yes")
    here.ok("connect", "codex", "--url", public.url, *in_project, "--yes")
    assert public.url in (project / ".codex/config.toml").read_text()
    refused = here.run("connect", "codex", "--yes")
    assert refused.code == USER_ERROR
    assert f"harken disconnect codex --project {project}" in " ".join(refused.err.split())
    here.ok("disconnect", "--all", "--yes")
    assert not (project / ".codex").exists()


def test_what_is_only_for_this_machine_says_so(public: PublicDaemon, person: Rig, tmp_path: Path) -> None:
    """A trial or a task here would send messages that such an agent never gets. Uninstalling takes the entry out."""
    here, before = holding(person, public, public.token()), tree(user_of(person))
    here.ok("connect", "codex", "--url", public.url, "--yes")
    tried = here.run("doctor", "--live", "codex")
    assert tried.code == NEEDS_FIXING
    assert "connected to a Harken elsewhere" in tried.out
    folder = tmp_path / "work"
    folder.mkdir()
    made = here.run("task", "new", "fix", "--dir", str(folder), "--agent", "codex")
    assert f"is connected to the inbox at {public.url}/mcp" in " ".join((made.out + made.err).split()), made
    assert not (folder / ".codex").exists()
    here.ok("uninstall", "--yes")
    assert tree(user_of(person)) == before


def test_options_that_do_not_belong_together_are_refused(person: Rig) -> None:
    """Before anything is looked for."""
    for words in (("--token-file", "x"), ("--token-variable", "X"), ("--url", "ftp://x"), ("--url", "https://a?b=c")):
        assert person.run("connect", "codex", *words, "--yes").code == USER_ERROR
    refused = person.run("connect", "codex", "--url", "https://a", "--token-file", __file__, "--yes")
    assert refused.code == USER_ERROR
