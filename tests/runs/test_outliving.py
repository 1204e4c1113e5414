"""What a run with a shell tries to leave behind: all of it ends with the run, and none of it passes for the person.

The daemon is real; the agent is a program that prints what Gemini CLI prints and runs the attack in a shell.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil
import pytest

from harken.automation import RunId
from harken.config.home import Home, socket_path
from harken.daemon.callers import AgentProcesses
from harken.processes import identity_of
from harken.testing.daemon import Json
from tests.fake_host import Machine, machine_with_host
from tests.loss.rig import DaemonStarter, Served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a run is known by group, descent and marks")

END_SECONDS: Final = 30.0
REFUSED: Final = "7"  # the exit code of what is refused
BOMB: Final = 150  # processes

# Does what the prompt says: `sh COMMAND` runs it in a shell, `await FILE` waits for a file, `die` ends by a signal.
PROGRAM = f"""#!{sys.executable}
import json, os, signal, subprocess, sys, time
for line in sys.stdin.read().splitlines():
    word, _, rest = line.partition(" ")
    if word == "sh": subprocess.run(["bash", "-c", rest])
    if word == "await":
        while not os.path.exists(rest): time.sleep(0.01)
    if word == "hold": signal.pause()
    if word == "die": os.kill(os.getpid(), signal.SIGABRT)
print(json.dumps(dict(type="result", status="success")), flush=True)
"""

DAEMONISE = """\
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
os.execve("/bin/bash", ["bash", sys.argv[1]], {})
"""
BURST = f"""\
import os, signal, sys
for each in range({BOMB}):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        if each + 1 == {BOMB}: os.execve("/bin/bash", ["bash", sys.argv[1]], {{}})
        while True: signal.pause()
"""
# Asks over HTTP with the person's own token, as whoever runs it: a sender, a file for what became of it, the home.
ASK = """\
import ctypes, http.client, os, sys
how, note, home = sys.argv[1:]
if how == "hidden": ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
link = http.client.HTTPConnection("127.0.0.1", int(open(home + "/run/port").read()), timeout=20)
headers = {"Authorization": "Bearer " + open(home + "/token").read().strip(), "Content-Type": "application/json"}
for _ in range(2):
    link.request("POST", "/api/send", b'{"text": "over HTTP"}', headers)
    answer = link.getresponse()
    answer.read()
with open(note + "~", "w") as file: file.write(str(answer.status))
os.rename(note + "~", note)
"""
# Connects to the socket, and leaves the connection to a child: the one whom the system names is gone then.
HAND_OVER = """\
import json, os, select, socket, sys
address, note = sys.argv[1:3]
link = socket.socket(socket.AF_UNIX)
link.connect(address)
parent = os.getpid()
if os.fork(): os._exit(0)
while os.path.exists(f"/proc/{parent}"): select.select([], [], [], 0.01)
kind = sys.argv[3]
hello = b'{"harken":1,"kind":"%s"}\\n' % kind.encode()
initialize = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
ask = {"method": "send", "params": {"text": "hi"}} if kind == "call" else {"method": "initialize", "params": initialize}
link.sendall(hello + json.dumps({"jsonrpc": "2.0", "id": 1, **ask}).encode() + b"\\n")
answer = link.recv(65536)
with open(note + "~", "wb") as file: file.write(answer)
os.rename(note + "~", note)
"""
REAPER = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # of whoever has started this shell

# How a script is left behind. Each of them leaves the group and the session of the run, and has none of its variables.
ATTACKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a session of its own": "setsid -f env -i bash {script}",
        "in the background": "(env -i setsid nohup bash {script} >/dev/null 2>&1 &)",
        "deaf to signals": "trap '' TERM HUP INT; (env -i setsid bash {script} &)",
        "daemonised, without descriptors": "{python} -I -S {folder}/daemonise.py {script}",
        "one of very many": "{python} -I -S {folder}/burst.py {script}",
        "its reaper is stopped": "setsid -f env -i bash {script}; kill -STOP {reaper}",
        "its reaper is killed": "setsid -f env -i bash {script}; until test -e {folder}/pid; do sleep 0.05; done; "
        "kill -KILL {reaper}",
    }
)


@pytest.fixture(scope="module")
def machine(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Daemons on a machine where Gemini CLI seems to be installed."""
    return machine_with_host(starter, tmp_path_factory.mktemp("machine"), PROGRAM)


@contextmanager
def ruled(machine: Machine, home: Path, *lines: str) -> Iterator[Served]:
    """Serve a home with one rule, whose agent does these things for every message on the channel `ci`."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text("[toasts]\nenabled = false\n", encoding="utf-8")
    shell = {"name": "shell", "mode": "auto", "agent": "gemini-cli", "tools": ["shell"], "channel": "ci"}
    file = home / "triggers.json"
    file.write_text(json.dumps({"rules": [{**shell, "prompt": "\n".join(lines)}]}))
    file.chmod(0o600)
    with machine.daemon(home) as daemon:
        yield daemon.start()


def harken(home: Path, words: str) -> str:
    """Return a command that runs Harken as a person would, whatever its environment is."""
    return f"{shlex.join([sys.executable, '-I', '-m', 'harken', '--home', str(home)])} {words}"


def set_up(folder: Path, home: Path, attack: str) -> str:
    """Make the script that is left behind: it says who it is, waits for a file, and sends. Return the attack's line."""
    script = folder / "left.sh"
    script.write_text(
        f"trap '' TERM HUP INT; echo $$ > {folder}/pid~; mv {folder}/pid~ {folder}/pid\n"
        f"until test -e {folder}/go; do sleep 0.05; done\n{harken(home, 'send outlived')}\n"
    )
    (folder / "daemonise.py").write_text(DAEMONISE)
    (folder / "burst.py").write_text(BURST)
    return "sh " + attack.format(folder=folder, script=script, python=sys.executable, reaper=REAPER)


def left_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that name a folder among their arguments, and are more than a number."""
    found = psutil.process_iter(["cmdline", "status"])
    return [
        each
        for each in found
        if each.info["status"] != psutil.STATUS_ZOMBIE and str(folder) in " ".join(each.info["cmdline"] or ())
    ]


def fire(daemon: Served) -> None:
    """Let the rule fire."""
    daemon.call("send", text="red", sender="bot", channel="ci")


def the_run(daemon: Served, *states: str) -> Json:
    """Return the run, once it is in one of these states."""
    return until(
        lambda: next((each for each in daemon.call("runs")["runs"] if each["state"] in states), None),
        f"a run that is {' or '.join(states)}",
        END_SECONDS,
    )


def over(daemon: Served) -> Json:
    """Return the run, once it is over."""
    return the_run(daemon, "done", "failed", "aborted", "timed out", "interrupted")


def noted_agents(home: Path) -> Json:
    """Return the processes that a daemon has noted as agents', once there is one."""
    file = home / "run" / "agents.json"
    return until(lambda: file.exists() and json.loads(file.read_text()), "a note")


def reaper_of(home: Path) -> psutil.Process:
    """Return the process that the only run of a home has, next to the daemon."""
    (agent,) = noted_agents(home)
    return psutil.Process(agent["pid"])


def senders(daemon: Served) -> set[str]:
    """Return by whom what is stored was sent."""
    return {each["sender_id"] for each in daemon.call("list", limit=50)["messages"]}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nothing_that_a_run_has_started_outlives_it(machine: Machine, home: Path, tmp_path: Path, attack: str) -> None:
    """What is left behind would be nobody's, so it would be taken for the person, whatever it then asks for."""
    line = set_up(tmp_path, home, attack)
    with ruled(machine, home, line, f"await {tmp_path}/pid") as daemon:
        fire(daemon)
        over(daemon)
        assert (tmp_path / "pid").exists()
        assert left_in(tmp_path) == []
        (tmp_path / "go").touch()
        assert senders(daemon) == {"bot"}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_a_run_has_started_is_its_agents_while_it_goes_on(
    machine: Machine, home: Path, tmp_path: Path, attack: str
) -> None:
    """Taken for the person, it could put other rules in force, and speak in their name."""
    (tmp_path / "go").touch()
    line = set_up(tmp_path, home, attack)
    script = tmp_path / "left.sh"
    reload = f"\n{harken(home, 'rules reload')} >{tmp_path}/said 2>&1; echo $? >{tmp_path}/code~\n"
    script.write_text(f"{script.read_text()}{reload}mv {tmp_path}/code~ {tmp_path}/code\n")
    with ruled(machine, home, line, f"await {tmp_path}/never") as daemon:
        fire(daemon)
        if "KILL" in attack:
            over(daemon)
            assert not (tmp_path / "code").exists() or (tmp_path / "code").read_text().strip() == REFUSED
        else:
            until((tmp_path / "code").exists, "an answer", END_SECONDS)
            assert ((tmp_path / "code").read_text().strip(), senders(daemon) - {"bot"}) == (
                REFUSED,
                {f"run:{the_run(daemon, 'running')['id']}"},
            )
            daemon.call("run_abort", run=the_run(daemon, "running")["id"])
        assert "owner" not in senders(daemon)
        assert left_in(tmp_path) == []


@pytest.mark.parametrize("how", ["plain", "hidden"])
def test_what_a_run_has_started_is_refused_over_http_with_the_token(
    machine: Machine, home: Path, tmp_path: Path, how: str
) -> None:
    """A shell can read the token. What is refused to it on the socket, it must not do at the port beside it."""
    (tmp_path / "ask.py").write_text(ASK)
    asking = [sys.executable, "-I", str(tmp_path / "ask.py"), how]
    attack = f"sh setsid -f env -i {shlex.join(asking)} {tmp_path}/theirs {home}"
    with ruled(machine, home, attack, "hold") as daemon:
        fire(daemon)
        until((tmp_path / "theirs").exists, "an answer", END_SECONDS)
        subprocess.run([*asking, tmp_path / "ours", home], check=True, timeout=END_SECONDS)
        assert ((tmp_path / "theirs").read_text(), (tmp_path / "ours").read_text()) == ("403", "200")
        assert senders(daemon) == {"bot", "owner"}
        daemon.call("run_abort", run=the_run(daemon, "running")["id"])
        over(daemon)


@pytest.mark.parametrize(
    ("kind", "said"), [("call", "is only counted: run unknown"), ("mcp", "A run has no session of its own.")]
)
def test_connection_that_outlives_its_process_is_not_the_persons_while_a_run_lives(
    machine: Machine, home: Path, tmp_path: Path, kind: str, said: str
) -> None:
    """Of a process that has ended nobody can tell what it was of: it is neither the person nor an agent for that."""
    (tmp_path / "hand_over.py").write_text(HAND_OVER)
    home.mkdir(mode=0o700)
    address = socket_path(Home(home), os.environ)
    handing = shlex.join([sys.executable, "-I", str(tmp_path / "hand_over.py"), str(address)])
    with ruled(machine, home, f"sh env -i {handing} {tmp_path}/answer {kind}", "hold") as daemon:
        fire(daemon)
        until((tmp_path / "answer").exists, "an answer", END_SECONDS)
        assert said in (tmp_path / "answer").read_text()
        daemon.call("run_abort", run=the_run(daemon, "running")["id"])
        over(daemon)


def test_everything_of_a_run_is_gone_soon_after_its_daemon_was_killed(
    machine: Machine, home: Path, tmp_path: Path
) -> None:
    """Nobody would end it, and the next daemon may be started by the person hours later, or by the run itself."""
    line = set_up(tmp_path, home, ATTACKS["deaf to signals"])
    with ruled(machine, home, line, "hold") as daemon:
        fire(daemon)
        run = the_run(daemon, "running")
        until((tmp_path / "pid").exists, "the script", END_SECONDS)
        reaper = reaper_of(home)
        daemon.kill()
        until(lambda: left_in(tmp_path) == [] and not reaper.is_running(), "its end", END_SECONDS)
        daemon.start()
        assert the_run(daemon, "interrupted")["id"] == run["id"]
        assert senders(daemon) == {"bot"}


def test_what_stayed_of_a_killed_daemons_run_is_an_agents_and_ended_by_the_next(
    machine: Machine, home: Path, tmp_path: Path
) -> None:
    """A reaper that was killed first cannot end anything; who is left must not be the person for that."""
    line = set_up(tmp_path, home, ATTACKS["a session of its own"])
    with ruled(machine, home, line, "hold") as daemon:
        fire(daemon)
        run = the_run(daemon, "running")
        left = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the script"))
        reaper = reaper_of(home)
        reaper.suspend()
        daemon.kill()
        reaper.kill()
        reaper.wait(END_SECONDS)
        assert AgentProcesses(home / "run" / "agents.json").run_of(left) == run["id"]
        daemon.start()
        the_run(daemon, "interrupted")
        until(lambda: left_in(tmp_path) == [], "its end", END_SECONDS)


def test_program_that_dies_by_a_signal_is_seen_to(machine: Machine, home: Path) -> None:
    """Whoever stands between must not make another end of it."""
    with ruled(machine, home, "die") as daemon:
        fire(daemon)
        assert over(daemon)["exit_code"] == -6


def test_another_process_with_the_number_of_a_run_is_left_alone(machine: Machine, home: Path, tmp_path: Path) -> None:
    """Clocks are set, numbers are used again: only what the system counts from its own start tells who it is."""
    with ruled(machine, home, "hold") as daemon:
        fire(daemon)
        run = the_run(daemon, "running")
        (agent,) = noted_agents(home)
        assert agent["identity"] == identity_of(agent["pid"])
        known = AgentProcesses(home / "run" / "agents.json")
        assert known.left_over(run["id"]) == agent["pid"]
        (tmp_path / "agents.json").write_text(json.dumps([{**agent, "identity": agent["identity"] + "1"}]))
        assert AgentProcesses(tmp_path / "agents.json").left_over(run["id"]) == 0
        assert known.left_over(RunId("r-000000")) == 0
