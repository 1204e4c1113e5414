"""Every host, the real one: connected by `harken connect`, reached at every moment it has, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards. `FACTS` says what
differs from host to host; what only one of them does is in that host's own file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pytest

from harken.testing.agent import Json
from harken.trial.exchange import ConversationTurn, ModelAnswer, ModelRequest, Script, in_order, side
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
    arrived,
    assert_never,
    assert_once,
    eventually,
    is_seen,
    marker,
    places,
    send,
    sessions,
    so_far,
    tree,
    until_idle,
)

LONG: Final = "\n".join(["line of a long message"] * 260)
# Whatever a later version of a host may write to its hooks.
BROKEN: Final = (
    b"",
    b"{",
    b"[]",
    b"[1,2]",
    b"null",
    b'{"session_id": 1}',
    b'{"sessionId": 1}',
    b'{"hook_event_name":"Nonsense","session_id":"x"}',
    b"x" * (1 << 20),
    b"\xff" * 1_000_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a request a host puts what it was told."""

    role: str = ""
    word: str = ""  # which the host writes beside it

    def holds(self, turn: ConversationTurn) -> bool:
        """Whether a turn of the conversation is such a place."""
        return self.role in {"", turn.role} and self.word in turn.text


ANYWHERE: Final = Place()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """One way to wake an idle session."""

    surface: str
    place: Place
    connect: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """How one host differs from the others."""

    after_tool: Place = ANYWHERE
    with_prompt: Place = ANYWHERE
    at_stop: Place = ANYWHERE
    helper: tuple[str, Mapping[str, object]] = (
        "",
        MappingProxyType({}),
    )  # the tool that starts a subagent, and what else it wants
    errand: str = "prompt"  # the argument of it that says what to do
    helper_requests: int = 3  # that a subagent makes which runs two commands
    long: str = LONG
    hooks: str = ""  # the file that names the commands of the hooks, below the folder of the stage
    connects: tuple[tuple[str, ...], ...] = ((),)  # the ways to connect it; the last with the most hooks
    complaint: str = "hook"  # what it would say of a hook that fails
    settings: str = ""  # a file of its own, below the person's home, which people edit
    told: tuple[str, ...] = ()  # where it keeps conversations, below the folder of those settings


CLAUDE_HELPER: Final = {"description": "an errand", "subagent_type": "general-purpose"}
FACTS: Final[Mapping[str, Facts]] = MappingProxyType(
    {
        "claude-code": Facts(
            hooks="harken/plugins/claude-code/harken/hooks/hooks.json",
            settings=".claude/settings.json",
            told=("projects/", "session-env/", "backups/"),
        ),
        "copilot-cli": Facts(
            helper=("task", {**CLAUDE_HELPER, "agent_type": "general-purpose", "name": "errand", "mode": "sync"}),
            hooks="harken/plugins/copilot-cli/harken/hooks/hooks.json",
            connects=(("--wake", "extension"), ("--wake", "default"), ("--wake", "waiter")),
            complaint="Hook",
        ),
        "codex": Facts(
            after_tool=Place(role="developer"),
            at_stop=Place(word="<hook_prompt"),
            helper=("spawn_agent", {}),
            errand="message",
            helper_requests=1,
            # Codex cuts the middle out of what hooks say, by bytes, unless a hook is written so that it does not.
            long="\N{CJK UNIFIED IDEOGRAPH-6F22}" * 6_000,
            hooks="user/.codex/hooks.json",
            complaint="Failed",
        ),
        "gemini-cli": Facts(
            after_tool=Place(role="tool", word="<hook_context>"),
            helper=("invoke_agent", {"agent_name": "generalist"}),
            helper_requests=2,
            hooks="user/.gemini/settings.json",
            settings=".gemini/settings.json",
            told=("tmp/",),
        ),
        "opencode": Facts(
            after_tool=Place(role="tool"),
            helper=("task", {"description": "an errand", "subagent_type": "general"}),
            settings=".config/opencode/opencode.json",
        ),
        "qwen-code": Facts(
            after_tool=Place(word="<qwen:user-prompt-submit-context>"),
            with_prompt=Place(role="user"),  # never as part of the system prompt
            helper=("agent", CLAUDE_HELPER),
            helper_requests=2,
            hooks="user/.qwen/settings.json",
            settings=".qwen/settings.json",
            told=("projects/", "tmp/", "debug/", "todos/"),
        ),
    }
)
BESIDE: Final = pytest.mark.parametrize("host", ["gemini-cli", "qwen-code"], indirect=True)
HOOKED: Final = [name for name, facts in FACTS.items() if facts.hooks]
STOPPING: Final = [name for name in FACTS if name != "opencode"]  # the end of its turns runs nothing of ours
# The subagent of Claude Code works beside its agent, which is woken meanwhile: see its own file.
HELPED: Final = [name for name, facts in FACTS.items() if facts.helper[0]]
OWNED: Final = [name for name, facts in FACTS.items() if facts.settings]
CLEARED: Final = ["claude-code", "gemini-cli", "qwen-code"]  # Copilot CLI begins another session then
WAKES: Final = [
    ("claude-code", Wake(surface="wake: bell", place=Place(word="NOT USER INPUT"))),
    (
        "copilot-cli",
        Wake(surface="wake: extension", place=Place(word="<system_notification>"), connect=("--wake", "extension")),
    ),
    # With the background server that Codex starts for all terminals, and by itself.
    ("codex", Wake(surface="wake: app server", place=Place(role="user"))),
    ("codex", Wake(surface="wake: app server", place=Place(role="user"), start=("--no-daemon",))),
    ("opencode", Wake(surface="wake: plugin", place=Place(role="user"))),
    ("qwen-code", Wake(surface="wake: peer inbox", place=Place(word='origin="own-process"'))),
]
# Codex offers tools differently to these: plainly, behind a search, and from inside a program that the model writes.
MODELS: Final = ("mock-model", "gpt-5.5", "gpt-6.1-sol")
STARTS: Final = [(name, ()) for name in FACTS if name != "codex"] + [("codex", ("--model", each)) for each in MODELS]


def facts_of(stage: Stage) -> Facts:
    """Return how the host differs from the others."""
    return FACTS[stage.host.name]


def assert_seen(stage: Stage, message: str, surface: str) -> None:
    """Assert that the ledger says soon that a message was seen, and through what."""
    assert eventually(stage, message, is_seen)["surface"] == surface


@pytest.mark.parametrize(("host", "start"), STARTS, indirect=["host"])
def test_message_sent_while_a_tool_runs_is_in_the_next_request(connected: Stage, start: tuple[str, ...]) -> None:
    """A working agent that does not think of its inbox must still get what cannot wait, whatever its model is."""
    body = marker()
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")))
        with connected.headless("work", *start) as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, f"<b>{body}</b>")
            gate.open()
            assert running.finish().returncode == 0
    first, second, _third = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
    assert [facts_of(connected).after_tool.holds(turn) for turn in places(second, body)] == [True]
    assert_once(connected, body)
    assert_seen(connected, message, "hook: tool")


@BESIDE
def test_message_comes_once_when_tools_run_side_by_side(connected: Stage) -> None:
    """Each of them may run the same hook at the same moment."""
    body = marker()
    with connected.gate("one") as one, connected.gate("two") as two:
        both = ModelAnswer.shell(one.command).beside(ModelAnswer.shell(two.command))
        connected.model.follow(in_order(both, ModelAnswer.shell("true")))
        with connected.headless("work") as running:
            one.wait(STEP_SECONDS)
            message = send(connected, body)
            one.open()
            two.wait(STEP_SECONDS)
            two.open()
            assert running.finish().returncode == 0
    assert connected.model.conversation[1].count(body) == 1
    assert_once(connected, body)
    eventually(connected, message, is_seen)


def test_long_message_that_waits_goes_whole_with_the_next_prompt(connected: Stage) -> None:
    """Nobody should have to tell an agent to look; and what a host cuts off without a word would be lost.

    The hooks of the start and of the prompt both run then, one after the other: it must not be told by both.
    """
    facts = facts_of(connected)
    body = f"{marker()} {facts.long} {marker()}"
    message = send(connected, body)
    connected.ask("good morning")
    first = connected.model.conversation[0]
    assert first.count(body) == 1
    assert [facts.with_prompt.holds(turn) for turn in places(first, body)] == [True]
    assert_once(connected, body)
    assert_seen(connected, message, "hook: prompt")


@pytest.mark.parametrize("host", STOPPING, indirect=True)
def test_message_at_the_end_of_a_turn_keeps_the_agent_going(connected: Stage) -> None:
    """Otherwise it would wait for the person, who may be away, although the agent is still there."""
    body, last = marker(), marker()
    connected.model.follow(in_order(ModelAnswer.text("first"), then=last))
    with connected.model.hold(lambda asked: not asked.is_side) as hold, connected.headless("one question") as running:
        hold.wait(STEP_SECONDS)
        message = send(connected, body)
        hold.release()
        done = running.finish()
    first, second = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
    assert facts_of(connected).at_stop.holds(places(second, body)[0])
    assert last in done.stdout
    assert_once(connected, body)
    assert_seen(connected, message, "hook: stop")


@pytest.mark.parametrize(("host", "wake"), WAKES, indirect=["host"])
def test_idle_session_in_tmux_is_woken_and_told_once(offline: Stage, wake: Wake) -> None:
    """A message to an idle agent starts its next turn, and the hooks of that turn and the next do not repeat it."""
    stage = offline
    stage.harken("connect", stage.host.name, "--yes", *wake.connect)
    asked, body, later = marker(), marker(), marker()
    with stage.tmux(*wake.start) as tmux:
        tmux.wait_for(stage.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(stage, asked)
        until_idle(stage)
        message = send(stage, body)
        woken = arrived(stage, body)
        assert [wake.place.holds(turn) for turn in places(woken, body)] == [True]
        assert_seen(stage, message, wake.surface)
        until_idle(stage)
        tmux.submit(later)
        arrived(stage, later)
    assert_once(stage, body)


@pytest.mark.parametrize("host", ["codex", "opencode"], indirect=True)
def test_session_is_woken_by_a_notice_when_somebody_else_wrote(connected: Stage) -> None:
    """A wake speaks as the user here: it says that something waits, and the words come by the tool."""
    asked, body = marker(), marker()
    connected.harken("allow", "ann")
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        until_idle(connected)
        connected.model.follow(in_order(ModelAnswer.call("inbox_pull")))
        message = send(connected, body, "--from", "ann")
        read = arrived(connected, body)
        assert [turn.role for turn in places(read, body)] == ["tool"]
        assert [turn.role for turn in places(read, "call inbox_pull")][:1] == ["user"]
        assert_seen(connected, message, "inbox_pull")
    assert_once(connected, body)


@pytest.mark.parametrize("host", CLEARED, indirect=True)
def test_cleared_conversation_is_the_same_session(connected: Stage) -> None:
    """After /clear the host has another id for it and the same process; whoever wrote to the session still reaches it.

    Gemini CLI cannot be woken: there the next prompt brings what waits.
    """
    asked, body, later = marker(), marker(), marker()
    surface = {name: wake.surface for name, wake in WAKES}.get(connected.host.name, "")
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit(asked)
        arrived(connected, asked)
        screen.wait_quiet()
        (before,) = sessions(connected)
        screen.submit("/clear")
        screen.wait_for(lambda shown: asked not in shown, STEP_SECONDS)
        screen.wait_quiet()
        after = so_far(connected)
        message = send(connected, body)
        if not surface:
            screen.submit(later)
        told = arrived(connected, body, after=after)
        assert (told.count(asked), told.count(later)) == (0, 0 if surface else 1)
        assert_seen(connected, message, surface or "hook: prompt")
        (now,) = sessions(connected)
        assert now["pid"] == before["pid"]
        assert now["session"] == before["session"] or connected.host.name != "claude-code"


def errand(asked_for: str, facts: Facts, gate: str) -> Script:
    """Return a model that gives a subagent an errand, and runs a command that takes long where that goes on beside."""
    tool, more = facts.helper
    beside = (ModelAnswer.shell(gate), ModelAnswer.shell("true"))
    own = in_order(ModelAnswer.call(tool, {**more, facts.errand: marker()}), *(beside if not more else beside[1:]))
    its = in_order(*beside)

    def script(asked: ModelRequest) -> ModelAnswer:
        if asked.is_side:
            return side(asked)
        return (own if asked_for in asked.text else its)(asked)

    return script


@pytest.mark.parametrize("host", HELPED, indirect=True)
def test_helper_of_the_agent_gets_nothing(connected: Stage) -> None:
    """A subagent runs the same hooks, but what it is told never reaches the agent that could answer."""
    prompt, body = marker(), marker()
    with connected.gate() as gate:
        connected.model.follow(errand(prompt, facts_of(connected), gate.command))
        with connected.headless(prompt) as running:
            connected.model.wait_for(lambda asked: prompt not in asked.text and not asked.is_side, STEP_SECONDS)
            gate.wait(STEP_SECONDS)
            message = send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert len(its_own) >= facts_of(connected).helper_requests
    assert sum(asked.count(body) for asked in its_own) == 0
    assert max(asked.count(body) for asked in connected.model.conversation) == 1
    assert eventually(connected, message, is_seen)["surface"] in {"hook: tool", "hook: stop"}


def hook_commands(found: Json) -> Iterator[str]:
    """Yield the commands of all hooks that a document names."""
    for key, value in found.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from hook_commands(each)
            elif key in {"command", "bash"}:
                yield str(each)


@pytest.mark.parametrize("host", HOOKED, indirect=True)
def test_broken_input_of_a_hook_does_nothing(stage: Stage) -> None:
    """Whatever a host does to a hook, the hook ends well, says nothing and holds up nobody."""
    facts = facts_of(stage)
    stage.harken("connect", stage.host.name, "--yes", *facts.connects[-1])
    hooks = json.loads((stage.folder / facts.hooks).read_text(encoding="utf-8"))["hooks"]
    # The rest only prints what the host is to allow, or what its agent is told of Harken.
    lines = [line for line in hook_commands(hooks) if str(stage.harken_home) in line]
    assert len(lines) >= len(hooks) - 1 > 3
    for line in lines:
        for said in BROKEN:
            done = subprocess.run(
                ["/bin/sh", "-c", line], input=said, capture_output=True, check=False, timeout=STEP_SECONDS
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), (line, said[:40])
    assert sessions(stage) == []


@pytest.mark.parametrize("host", HOOKED, indirect=True)
def test_stopped_or_removed_harken_is_not_noticed(connected: Stage) -> None:
    """An inbox that is not there may cost the agent its messages, but never a turn or an error."""
    connected.harken("down")
    for is_removed in (False, True):
        if is_removed:
            shutil.rmtree(connected.harken_home)
        answer = marker()
        connected.model.follow(in_order(ModelAnswer.shell("true"), then=answer))
        done = connected.ask("work")
        assert answer in done.stdout
        assert facts_of(connected).complaint not in done.stderr
        assert_never(connected, "hook error")


def test_host_that_did_not_run_is_left_byte_for_byte_as_it_was(stage: Stage) -> None:
    """Trying Harken must cost nothing, and what is connected already is not written again."""
    before = tree(stage.user)
    for way in facts_of(stage).connects:
        stage.harken("connect", stage.host.name, "--yes", *way)
        assert tree(stage.user) != before
        assert "Nothing to change" in stage.harken("connect", stage.host.name, "--yes", *way)
    stage.harken("disconnect", stage.host.name, "--yes")
    assert tree(stage.user) == before
    assert not (stage.harken_home / "plugins").exists()


@pytest.mark.parametrize("host", OWNED, indirect=True)
def test_host_that_ran_keeps_nothing_of_ours(connected: Stage) -> None:
    """What the host and the person wrote meanwhile is theirs; our entries are gone from all of it."""
    facts = facts_of(connected)
    settings = connected.user / facts.settings
    connected.ask("hello")
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "username": "ann"}))
    connected.harken("disconnect", connected.host.name, "--yes")
    assert json.loads(settings.read_text())["username"] == "ann"
    files = {name: content for name, content in tree(settings.parent).items() if not name.startswith(facts.told)}
    own = str(connected.folder).encode()
    named = [
        name for name, content in files.items() if "harken" in name or b"arken" in (content or b"").replace(own, b"")
    ]
    assert named == []
    seen = so_far(connected)
    connected.ask("hello again")
    assert not any("inbox_pull" in name for asked in connected.model.requests[seen:] for name in asked.tool_names)


@pytest.mark.parametrize("host", ["claude-code", "copilot-cli"], indirect=True)
def test_connecting_one_folder_leaves_what_git_tracks_alone(stage: Stage) -> None:
    """A team's settings are not one person's to change; other folders are not connected."""

    def shared() -> set[str]:
        return {name for name, content in tree(stage.project).items() if content and not name.startswith(".git/")}

    before = shared()
    where = (stage.host.name, "--yes", "--project", str(stage.project))
    stage.harken("connect", *where)
    body = marker()
    send(stage, body)
    stage.ask("hello")
    assert_once(stage, body)
    git = ["/usr/bin/env", "git", "status", "--porcelain"]
    done = subprocess.run(git, cwd=stage.project, env=stage.environment, capture_output=True, check=True)
    assert done.stdout == b""
    stage.harken("disconnect", *where)
    assert shared() == before
