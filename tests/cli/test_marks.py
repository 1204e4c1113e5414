"""What an agent starts is the agent's also when it has left its parents: its host has marked its environment."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harken.config.home import is_locked
from harken.hosts.registry import host_marks, host_title
from harken.testing import EdgeClient, edge_command
from tests.cli.rig import COMMAND, SECONDS, Rig, serving
from tests.loss.rig import until

REFUSED = 7
MARKS = [(host, variable) for host, marks in host_marks().items() for variable in marks.variables]


@pytest.fixture(scope="module")
def over_tcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Commands on a home whose daemon cannot see who is at the other end."""
    home = tmp_path_factory.mktemp("tcp") / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[daemon]\ntransport = "tcp"\n')
    with serving(home) as served:
        yield served


def in_background(rig: Rig, folder: Path, *words: str) -> str:
    """Run a command as an agent does that wants to go on: nobody waits for it, and it descends from nobody."""
    done = folder / "done"
    line = f"{shlex.join([*COMMAND, *words])} > {folder}/said 2>&1; echo $? > {done}.new; mv {done}.new {done}"
    subprocess.run(
        ["/bin/sh", "-c", f"({line}) &"],
        env=rig.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
        start_new_session=True,
    )
    until(done.exists, "the command has ended", SECONDS)
    return f"{done.read_text().strip()} {(folder / 'said').read_text()}"


def test_a_command_in_the_background_of_an_agents_shell_is_the_agents(rig: Rig, tmp_path: Path) -> None:
    """One `&` must not make an owner of it: whoever talks a model into that could let strangers in."""
    shell = replace(rig, extra={"CLAUDECODE": "1"})
    said = in_background(shell, tmp_path, "allow", "stranger@example.org")
    assert said.startswith(f"{REFUSED} harken: An agent may not allow ")
    assert "stranger@example.org" not in json.dumps(rig.json("status")["senders"])


@pytest.mark.parametrize(("host", "variable"), MARKS, ids=[variable for _, variable in MARKS])
def test_each_mark_makes_an_agent(rig: Rig, host: str, variable: str) -> None:
    """The refusal says by what it was known, so that a person whose shell has inherited it can take it away."""
    shell = replace(rig, extra={variable: "17"})
    done = shell.run("pair")
    assert (done.code, done.out) == (REFUSED, "")
    assert f"{host_title(host)}, because {variable} is set in its environment" in " ".join(done.err.split())
    assert shell.json("stats")["consumer"] == host


@pytest.mark.parametrize("variable", ["CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_API_KEY", "CLAUDE_CODE_SSE_PORT"])
def test_what_people_and_editors_set_is_no_mark(rig: Rig, variable: str) -> None:
    """A person who has chosen a folder for an agent's settings is still the owner."""
    assert replace(rig, extra={variable: "/somewhere"}).json("stats")["consumer"] == "watch"


def test_a_mark_without_a_value_is_none(rig: Rig) -> None:
    """That is how some take a variable away."""
    assert replace(rig, extra={"CLAUDECODE": ""}).json("stats")["consumer"] == "watch"


def test_what_a_marked_command_sends_is_the_agents_word(rig: Rig) -> None:
    """The owner's word is an instruction to every model; that of an agent is not."""
    sent = replace(rig, extra={"GEMINI_CLI": "1"}).json("send", "wire the money")["id"]
    message = rig.json("read", sent)["message"]
    assert (message["sender_id"], message["trust"]) == ("agent:gemini-cli", "known")


def test_the_command_says_itself_what_marks_it(over_tcp: Rig) -> None:
    """Not every system lets the daemon look into the environment of another process, or says whose a connection is."""
    assert over_tcp.json("stats")["consumer"] == "watch"
    done = replace(over_tcp, extra={"QWEN_CODE": "1"}).run("allow", "eve")
    assert done.code == REFUSED
    assert "because QWEN_CODE is set in its environment" in " ".join(done.err.split())


def test_who_is_at_the_other_end_of_a_port_is_known_by_what_it_descends_from(over_tcp: Rig) -> None:
    """The command tells its process, and whoever has started that is an agent over a port too."""
    with EdgeClient(edge_command(over_tcp.home), name="codex-mcp-client") as agent:
        agent.tool("inbound_queue_stats")
        assert over_tcp.json("stats")["consumer"] == "codex"


def test_a_daemon_that_an_agent_has_started_knows_the_person(fresh: Rig) -> None:
    """It is the caller that is judged, by the caller's own environment."""
    shell = replace(fresh, extra={"CLAUDECODE": "1", "OPENCODE": "1"})
    shell.ok("up")
    assert is_locked(fresh.home / "run" / "lock")
    assert fresh.json("stats")["consumer"] == "watch"
    assert "CLAUDECODE" not in _environ(fresh.pid)


def _environ(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text() if Path("/proc/self").is_dir() else ""
