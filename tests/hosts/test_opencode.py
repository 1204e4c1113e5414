"""opencode, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, in_order
from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
    arrived,
    assert_once,
    eventually,
    is_seen,
    line_of,
    marker,
    places,
    send,
    sessions,
    tree,
    until_idle,
)

pytestmark = pytest.mark.parametrize("host", ["opencode"], indirect=True)

# The plugin leaves a daemon alone this long that let it wait in vain.
QUIET_SECONDS: Final = 15

# A server of somebody else's, with one tool that reads a named pipe to its end and then says more than opencode keeps.
OTHER_SERVER: Final = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            info = {"name": "other", "version": "1"}
            version = asked["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            schema = {"type": "object", "properties": {"pipe": {"type": "string"}}}
            result = {"tools": [{"name": "report", "description": "A long report.", "inputSchema": schema}]}
        case "tools/call":
            open(asked["params"]["arguments"]["pipe"]).read()
            result = {"content": [{"type": "text", "text": "word " * 60_000}]}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def settings_of(stage: Stage) -> Path:
    """Return the settings of the private home."""
    return stage.user / ".config" / "opencode" / "opencode.json"


def test_home_of_a_trial_needs_no_packages(connected: Stage) -> None:
    """A run that ends while opencode installs leaves a lock behind, and the next one begins a minute late."""
    connected.ask("hello")
    log = connected.user / ".local" / "share" / "opencode" / "log" / "opencode.log"
    assert "dependency install" not in log.read_text()


@contextmanager
def idle(stage: Stage, prompt: str = "") -> Iterator[TerminalProgram]:
    """A terminal with one conversation, which has had its first turn and does nothing."""
    prompt = prompt or marker()
    with stage.screen() as screen:
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        screen.submit(prompt)
        arrived(stage, prompt)
        until_idle(stage)
        yield screen


def test_message_is_not_cut_off_with_the_long_result_of_somebody_elses_tool(offline: Stage) -> None:
    """What MCP tools return is shortened after our plugin had it; the message must not go with the rest."""
    server = offline.folder / "other.py"
    server.write_text(OTHER_SERVER)
    settings = settings_of(offline)
    entry = {"type": "local", "command": ["python3", str(server)], "timeout": 60_000}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "mcp": {"other": entry}}))
    offline.harken("connect", "opencode", "--yes")
    body = marker()
    with offline.gate() as gate:
        pipe = gate.command.removeprefix("cat ")
        offline.model.follow(in_order(ModelAnswer.call("report", {"pipe": pipe}), ModelAnswer.shell("true")))
        with offline.headless("work") as running:
            gate.wait(STEP_SECONDS)
            message = send(offline, body, "--from", "ann")
            gate.open()
            assert running.finish().returncode == 0
    second = offline.model.conversation[1]
    (result,) = places(second, body)
    assert result.role == "tool"
    assert "truncated" in result.text
    assert_once(offline, body)
    assert (line_of(offline, message)["state"], line_of(offline, message)["surface"]) == ("seen", "hook: tool")


def test_wake_keeps_to_the_agent_that_the_person_chose(connected: Stage) -> None:
    """In plan mode nothing may be changed; a message must not be a way out of it."""
    planned, body = marker(), marker()
    with idle(connected) as screen:
        screen.press("tab")
        screen.wait_for("Plan", STEP_SECONDS)
        screen.submit(planned)
        arrived(connected, planned)
        until_idle(connected)
        send(connected, body)
        woken = arrived(connected, body)
    last = woken.text[woken.text.index(body) :]
    assert "Plan mode ACTIVE" in last


def test_tool_that_the_person_stopped_takes_no_message_along(connected: Stage) -> None:
    """Our plugin is run after a stopped tool too, but no model is waiting for that result."""
    work, body = marker(), marker()
    with idle(connected) as screen, connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command)))
        screen.submit(work)
        gate.wait(STEP_SECONDS)
        message = send(connected, body)
        screen.press("escape")
        screen.wait_for("again to interrupt", STEP_SECONDS)
        screen.press("escape")
        woken = arrived(connected, body)
        assert [turn.role for turn in places(woken, body)] == ["user"]
        assert eventually(connected, message, is_seen)["surface"] == "wake: plugin"
    assert_once(connected, body)


def test_new_conversation_takes_the_place_of_the_old_one(connected: Stage) -> None:
    """A person sees one conversation at a time: an answer in another one would go unread."""
    first, second, body = marker(), marker(), marker()
    with idle(connected, first) as screen:
        screen.submit("/new")
        screen.wait_for(connected.recipe.ready, STEP_SECONDS)
        screen.submit(second)
        arrived(connected, second)
        until_idle(connected)
        message = send(connected, body)
        woken = arrived(connected, body)
        assert (woken.count(first), woken.count(second)) == (0, 1)
        assert eventually(connected, message, is_seen)["surface"] == "wake: plugin"
        assert len(sessions(connected)) == 1
    assert_once(connected, body)


@contextmanager
def server(stage: Stage) -> Iterator[str]:
    """The host without a terminal, for other programs; where it listens."""
    argv = [str(stage.program), "serve", "--port", "0"]
    with subprocess.Popen(
        argv, cwd=stage.project, env=stage.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield next(found[1] for line in process.stdout if (found := re.search(r"http://(127\.0\.0\.1:\d+)", line)))
        finally:
            process.kill()


def post(address: str, path: str, body: Json) -> Json:
    """Return what opencode answers to a program."""
    with closing(http.client.HTTPConnection(address, timeout=STEP_SECONDS)) as connection:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
    assert answer.status in {200, 204}, said
    return json.loads(said or b"null")


def test_two_conversations_of_one_process_get_each_their_own(connected: Stage) -> None:
    """Programs keep several conversations in one opencode, with one MCP connection for all of them."""
    names, words, to_first, to_second = [], [marker(), marker()], marker(), marker()
    with server(connected) as address, connected.gate() as gate:
        for word in words:
            names.append(post(address, "/session", {})["id"])
            post(address, f"/session/{names[-1]}/message", {"parts": [{"type": "text", "text": word}]})
        until_idle(connected, len(words))
        first = send(connected, to_second)
        woken = arrived(connected, to_second)
        assert [woken.count(word) for word in words] == [0, 1]
        assert eventually(connected, first, is_seen)["session"] == f"opencode:{names[1]}"
        until_idle(connected, len(words))
        connected.model.follow(in_order(ModelAnswer.shell(gate.command)))
        post(address, f"/session/{names[0]}/prompt_async", {"parts": [{"type": "text", "text": "work"}]})
        gate.wait(STEP_SECONDS)
        second = send(connected, to_first)
        gate.open()
        told = arrived(connected, to_first)
        assert [told.count(word) for word in words] == [1, 0]
        line = eventually(connected, second, is_seen)
        assert (line["session"], line["surface"]) == (f"opencode:{names[0]}", "hook: tool")
    for body in (to_first, to_second):
        assert max(asked.count(body) for asked in connected.model.conversation) == 1


def test_restarted_harken_still_wakes(connected: Stage) -> None:
    """An update of Harken must not cost the conversations that are open their messages."""
    body = marker()
    with idle(connected):
        connected.harken("down")
        connected.harken("up")
        until_idle(connected)
        message = send(connected, body)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: plugin"
    assert_once(connected, body)


def test_host_that_did_not_run_is_left_byte_for_byte_as_it_was(offline: Stage) -> None:
    """Trying Harken must cost nothing."""
    settings = settings_of(offline)
    settings.write_text('{\n  // mine\n  "share": "disabled", "autoupdate": false,\n}\n')
    before = tree(offline.user)
    offline.harken("connect", "opencode", "--yes")
    assert tree(offline.user) != before
    offline.harken("disconnect", "opencode", "--yes")
    assert tree(offline.user) == before


def test_connecting_one_folder_leaves_what_git_tracks_alone(offline: Stage) -> None:
    """A team's settings are not one person's to change; connecting everywhere as well tells nothing twice."""
    shared = offline.project / "opencode.json"
    shared.write_text('{"instructions": []}\n')
    before = tree(offline.user)
    offline.harken("connect", "opencode", "--yes", "--project", str(offline.project))
    assert tree(offline.user) == before
    made = {name for name, content in tree(offline.project).items() if content is not None}
    ours = {".opencode/opencode.json", ".opencode/plugins/harken.js", ".opencode/harken.md"}
    assert {name for name in made if not name.startswith(".git/")} == {"opencode.json", *ours}
    offline.harken("connect", "opencode", "--yes")
    body = marker()
    message = send(offline, body)
    offline.ask("hello")
    assert_once(offline, body)
    assert line_of(offline, message)["state"] == "seen"
    offline.harken("disconnect", "opencode", "--yes", "--project", str(offline.project))
    assert ours.isdisjoint(tree(offline.project))


def test_stopped_or_removed_harken_is_not_noticed(connected: Stage) -> None:
    """An inbox that is not there may cost the agent its messages, but never a turn or an error."""
    connected.harken("down")
    # The MCP server would start it again; what is looked at here is the plugin.
    settings = settings_of(connected)
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "mcp": {}}))
    for is_removed in (False, True):
        if is_removed:
            shutil.rmtree(connected.harken_home)
        answer = marker()
        connected.model.follow(in_order(ModelAnswer.shell("true"), then=answer))
        done = connected.ask("work")
        assert done.stdout.strip() == answer
        assert "Harken" not in done.stderr
    # What the agent is told about Harken stays in its instructions; nothing else is said.
    said = [turn for request in connected.model.requests for turn in places(request, "Harken")]
    assert {turn.role for turn in said} <= {"system"}


def moments_told(listener: socket.socket) -> list[str]:
    """The moments that hooks have told a daemon that accepts and never answers, in order."""
    moments = []
    listener.settimeout(0)
    with suppress(BlockingIOError):
        while True:
            with listener.accept()[0] as connection, connection.makefile("rb") as lines:
                moments.append(json.loads(lines.readline())["moment"])
    return moments


def test_hanging_harken_holds_no_turn_up(connected: Stage, folder: Path) -> None:
    """A daemon that accepts and never answers costs a moment once, not a moment at every tool."""
    connected.harken("down")
    settings = settings_of(connected)
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "mcp": {}}))
    run = connected.harken_home / "run"
    (run / "bells").mkdir(exist_ok=True)
    (run / "bells" / "opencode").write_text("1")
    answer = marker()
    connected.model.follow(in_order(*[ModelAnswer.shell("true")] * 5, then=answer))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "silent"))
        silent.listen(64)
        (run / "address").write_text(f"unix:{folder / 'silent'}\n")
        began = time.monotonic()
        assert connected.ask("work").stdout.strip() == answer
        took = time.monotonic() - began
        # The end of the turn is told too, and keeps nobody waiting.
        waited = [moment for moment in moments_told(silent) if moment != "stop"]
        assert waited[0] == "prompt"
        assert len(waited) <= 1 + took // QUIET_SECONDS
