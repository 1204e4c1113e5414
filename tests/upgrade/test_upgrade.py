"""What an earlier version stored, connected and set up is there for this one, and goes on working."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from harken.config.home import Home, ensure
from harken.errors import Conflict
from harken.sessions.turns import HookMoment
from harken.testing import DaemonProcess, EdgeClient
from tests.cli.rig import SECONDS, Rig, serving
from tests.hooks.rig import CLAUDE, KINDS, Conversation, Kind, Printed
from tests.loss.rig import until
from tests.upgrade.make_home import MINE, PROGRAMS, Json
from tests.upgrade.rig import UpgradedMachine, upgraded_machine
from tests.web.rig import NAVIGATION, Web


@pytest.fixture(scope="module")
def machine() -> Iterator[UpgradedMachine]:
    """The machine, for all tests in their order: the first looks, the last takes everything away."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder, upgraded_machine(Path(folder)) as machine:
        yield machine


def contains(new: Json, old: Json) -> bool:
    """Whether an answer says at least what an older one said."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and contains(new[name], old[name]) for name in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(contains, new, old))
    return bool(new == old)


def test_every_command_answers_as_the_earlier_version_did(machine: UpgradedMachine) -> None:
    """Messages, deliveries in every state, replies, tasks, channels, rules: nothing is lost or told differently."""
    for words, old in machine.answers.items():
        command = "channel names" if words == "channel list" else words  # which lists messages now
        said = machine.rig.ok(*command.split(), *([] if words == "export" else ["--json"]))
        new = [json.loads(line) for line in said.splitlines()] if words == "export" else json.loads(said)
        parts = ("rules",) if words == "rules list" else ()  # not when they were read, and what waits for an answer
        assert contains(new, {name: old[name] for name in parts} or old), words


@contextmanager
def earlier_daemon(folder: Path, answer: Mapping[str, object]) -> Iterator[Home]:
    """Yield a home whose daemon answers one question like this, as one of an earlier version would."""
    home = Home(folder)
    ensure(home)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(folder / "s"))
        listener.listen()
        home.address_file.write_text(f"unix:{folder / 's'}")

        def reply() -> None:
            with listener.accept()[0] as connection, connection.makefile("rwb") as stream:
                stream.readline()
                asked = json.loads(stream.readline())
                stream.write(json.dumps({"id": asked["id"], **answer}).encode() + b"\n")

        pool.submit(reply)
        yield home


REFUSED: Final = {"code": "user_error", "hint": ""}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": {**REFUSED, "message": "There is no verb 'read'."}}, "has no 'read'"),
        (
            {"error": {**REFUSED, "message": "read: Object contains unknown field `ref`."}},
            "has other arguments of 'read'",
        ),
        ({"error": {**REFUSED, "message": "read: it has no argument 'ref'."}}, "has other arguments of 'read'"),
        ({"error": {**REFUSED, "message": "read: the argument 'id' is missing."}}, "has other arguments of 'read'"),
        ({"result": {"message": {"id": "m-1"}}}, "does not say "),
        ({"result": {}}, "does not say 'message'"),
    ],
)
def test_a_daemon_of_an_earlier_version_that_still_runs_is_named(
    tmp_path: Path, answer: Mapping[str, object], said: str
) -> None:
    """It was there before the upgrade and knows or tells less: you must start it anew, not look for a mistake."""
    with earlier_daemon(tmp_path, answer) as home:
        done = Rig(home.path).run("read", "m-1")
    assert done.code == Conflict.exit_code
    assert done.err.startswith("harken: The running daemon is of another version and ")
    assert said in done.err
    assert "Restart it: harken down && harken up" in done.err


def test_what_you_had_not_seen_is_what_is_left_to_sort(machine: UpgradedMachine) -> None:
    """A list of everything that ever came would be sorted by nobody."""
    counts = machine.rig.json("conversations", "--view", "unread")
    unread = [each["newest"]["content_text_sanitized"] for each in counts["conversations"]]
    assert unread
    assert counts["counts"]["open"] == len(unread)


def test_the_page_shows_it(machine: UpgradedMachine) -> None:
    """Each of its views, with what the earlier version stored."""
    web = Web(DaemonProcess(machine.rig.home))
    session = web.signed_in()
    shown = {
        "/m/inbox": "build 7 failed", "/m/replies": "almost", "/t/api": "Faster!", "/tasks?all=1": "Old work",
        "/c/local/ci%2Fmain": "build 7 failed", "/sources": "/hooks/deploy", "/rules": "incident",
        "/sessions": "gemini-cli", "/search?q=site": "is down", "/pulse": "", "/waiting": "", "/runs": "",
    }  # fmt: skip
    for path, words in shown.items():
        answer = web.ask("GET", path, {**NAVIGATION, **session})
        assert (answer.status, words in answer.text) == (200, True), path


def test_a_source_of_every_kind_is_heard_as_before(machine: UpgradedMachine) -> None:
    """Its entry is read as it was written, and a service that posts needs no new address or secret."""
    rig = machine.rig
    listed = {each["name"]: (each["kind"], each["state"]) for each in rig.json("source", "list")["sources"]}
    assert {name: kind for name, (kind, _) in listed.items()} == {
        "ci": "mcp", "program": "mcp", "gh": "webhook", "deploy": "webhook", "mail": "imap", "teams": "teams",
        "outlook": "outlook", "helper": "bot",
    }  # fmt: skip
    assert {name for name, (_, state) in listed.items() if state == "listening"} == {"gh", "deploy", "helper"}
    body = json.dumps({"text": "deployed"})
    signature = hmac.new(b"0123456789abcdef", body.encode(), hashlib.sha256).hexdigest()
    port = int((rig.home / "run" / "hooks-port").read_text())
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request(
            "POST", "/hooks/deploy", body, {"X-Signature": signature, "Content-Type": "application/json"}
        )
        assert connection.getresponse().status == 202
    assert [each["source"] for each in rig.json("search", "deployed")["messages"]] == ["deploy"]
    assert rig.json("source", "remove", "program")["in_force"]
    assert "program" not in {each["name"] for each in rig.json("source", "list")["sources"]}


def test_the_mcp_server_of_a_connected_host_offers_again_what_was_not_proven(machine: UpgradedMachine) -> None:
    """A session of the earlier version was told, and went away with its daemon; the next one is told it again."""
    server = json.loads((machine.user / ".gemini" / "settings.json").read_text())["mcpServers"]["harken"]
    with EdgeClient([server["command"], *server["args"]], name="gemini-cli-mcp-client") as agent:
        pulled = agent.tool("inbox_pull", limit=1)
        assert [(each["content_text_sanitized"], "repeat" in each) for each in pulled["messages"]] == [("late", True)]


def test_tasks_go_on_in_their_worktrees(machine: UpgradedMachine) -> None:
    """Started, ended and forgotten; a new one is made beside them."""
    rig = machine.rig
    folder = str(machine.root / "shop.worktrees" / "api")
    assert rig.ok("task", "start", "api", "--print").startswith(f"cd {folder} && claude ")
    rig.ok("task", "new", "Third", "--dir", str(machine.root / "shop"), "--agent", "qwen", "--link", "api")
    rig.ok("task", "done", "web-page")
    rig.ok("task", "rm", "web-page")
    rig.ok("task", "rm", "old-work")
    assert {each["id"] for each in rig.json("task", "list", "--all")["tasks"]} == {"api", "third"}


def test_rules_go_on(machine: UpgradedMachine) -> None:
    """Those in force count on, and what was asked is over by now: it cannot be accepted any more."""
    rig = machine.rig
    rig.ok("send", "build 8 failed", "--channel", "ci/main")
    until(lambda: rig.ask("rules")["rules"][0]["fired"] == 2, "the rule has fired again", SECONDS)
    rig.ok("rules", "check")
    rig.ok("rules", "reload")
    rig.ok("rules", "test")


def test_doctor_finds_every_host_connected(machine: UpgradedMachine) -> None:
    """As this version would do it; where it would do it differently, it says how to connect again."""
    found = json.loads(machine.rig.run("doctor", "--json").out)["hosts"]
    assert len(found) == len(PROGRAMS)
    for host in found:
        findings = {each["what"]: each for each in host["findings"]}
        current = findings["connected and current"]
        assert current["is_good"] or f"harken connect {host['host']}" in current["hint"], host


def test_a_copy_and_the_journal_give_the_same_messages(machine: UpgradedMachine, tmp_path: Path) -> None:
    """Lines of the journal that the earlier version wrote are read by this one."""
    rig, copy = machine.rig, tmp_path / "copy"
    rig.ok("backup", str(tmp_path / "backup.tar.gz"))
    rig.ok("restore", str(tmp_path / "backup.tar.gz"), "--home", str(copy), "--yes")
    (copy / "harken.db").unlink()
    rig.ok("recover", "--home", str(copy), "--yes")
    with serving(copy) as recovered:
        assert recovered.json("list", "--limit", "50") == rig.json("list", "--limit", "50")
        shown = [[each.json("conversations", "--view", view) for view in ("open", "done")] for each in (recovered, rig)]
        assert shown[0] == shown[1]
        assert recovered.json("task", "list", "--all") == rig.json("task", "list", "--all")


def run_command(machine: UpgradedMachine, guest: Conversation, moment: HookMoment, **more: str) -> Printed:
    """Run the command of a hook as the host does: by a shell."""
    done = subprocess.run(
        ["/bin/sh", "-c", machine.hook_command(guest.kind.name, guest.argument(moment))],
        input=guest.payload(moment, **more), env={"PATH": os.defpath, **guest.env}, cwd=machine.user,
        capture_output=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    return Printed(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_hooks_of_a_connected_host_bring_messages_and_prove_them(machine: UpgradedMachine, kind: Kind) -> None:
    """The commands in its settings are those that the earlier version wrote there."""
    guest = Conversation(kind=kind, home=machine.rig.home, cwd=str(machine.user))
    text = f"for {kind.name}"
    machine.rig.ok("pull", "--consumer", kind.name)
    message = machine.rig.json("send", text)["id"]
    assert text in run_command(machine, guest, HookMoment.PROMPT, prompt="go on").text
    assert run_command(machine, guest, HookMoment.STOP).code == 0

    def state() -> str:
        ledger = machine.rig.ask("read", ref=message)["ledger"]
        return next((str(each["state"]) for each in ledger if each["consumer"] == kind.name), "")

    assert state() == "seen"
    run_command(machine, guest, HookMoment.END)


def test_an_idle_session_of_a_connected_host_is_woken(machine: UpgradedMachine) -> None:
    """By the bell that its hook tells Claude Code to watch, and the command that is run then."""
    guest = Conversation(kind=CLAUDE, home=machine.rig.home, native="idle", cwd=str(machine.user))
    (bell,) = json.loads(run_command(machine, guest, HookMoment.START).out)["hookSpecificOutput"]["watchPaths"]
    before = Path(bell).read_text()
    assert machine.rig.json("send", "wake up")["forecast"]["outlook"] == "wake"
    until(lambda: Path(bell).read_text() != before, "the bell rings", SECONDS)
    woken = run_command(machine, guest, HookMoment.BELL)
    assert (woken.code, "wake up" in woken.err) == (2, True)
    run_command(machine, guest, HookMoment.END)


def test_disconnecting_leaves_what_was_there_before(machine: UpgradedMachine) -> None:
    """The record of what was written is read as the earlier version kept it."""
    for host in ("copilot-cli", "codex", "gemini", "opencode", "qwen"):
        machine.rig.ok("disconnect", host, "--yes")
    left = {path for path in machine.user.rglob("*") if path.is_file() and ".claude" not in str(path)}
    assert {str(path.relative_to(machine.user)): path.read_text() for path in left} == MINE
