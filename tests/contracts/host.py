"""What every declared host keeps, whoever wrote it: run over the registry by `tests/hosts_unit/test_contract.py`.

A host of another package passes it too: see `tests/plugins`. What only the host itself can show, with its real
program, is in `tests/hosts`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.hosts.connect.apply import apply, undo
from harken.hosts.connect.plan import CommandStep, ConnectOptions, Connector, FileEdit, InstallTarget
from harken.hosts.hook import SILENCE, Hello, HookAdapter, HookSample
from harken.hosts.host import Host, find_marks, host_of_program
from harken.hosts.registry import connector, hook_host, host_marks, host_name, host_of_client, hosts, trial_recipe
from harken.hosts.run_environment import held_paths
from harken.runs.sandbox import OutputKind, Sandbox, SandboxRequest, ToolServer
from harken.runs.tools import parse_tool
from harken.sessions.turns import Halt, HookMoment

# What some verb or surface would miss; a record that can be read, a waker and a channel are for those that have them.
NEEDED: Final = (
    "title",
    "client_names",
    "settings_paths",
    "interactive",
    "hooks",
    "samples",
    "connector",
    "sandbox",
    "trial",
)
MAX_RESULT: Final = 200_000
HELLO: Final = Hello(cwd="/work")
VALUES: Final = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())
ODD: Final = st.dictionaries(st.text(max_size=20), VALUES)
TEXTS: Final = st.text(min_size=1, max_size=400).filter(lambda text: bool(text.strip()))
SETTINGS: Final = b'{  "mine" : [ 1,2 ]}'
# Lines that look like those of some host: the words are from all of them.
_KEYS: Final = (
    "type", "subtype", "role", "kind", "id", "name", "tool", "tool_name", "tool_id", "tool_use_id", "toolRequests",
    "message", "messages", "content", "text", "data", "item", "part", "state", "status", "input", "arguments",
    "parameters", "changes", "success", "code", "error", "severity", "result", "is_error", "permission_denials",
)  # fmt: skip
_WORDS: Final = (
    "assistant", "user", "system", "result", "message", "text", "tool_use", "tool_result", "permission_denied",
    "assistant.message", "tool.execution_complete", "session.error", "denied", "step_finish", "error", "invalid",
    "item.started", "item.completed", "turn.failed", "command_execution", "file_change", "mcp_tool_call",
    "agent_message", "failed",
)  # fmt: skip
SHAPES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(_WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS), inner | st.sampled_from(_WORDS), max_size=5)
    ),
    max_leaves=15,
)
LINES: Final = st.lists(st.binary(max_size=30) | SHAPES.map(lambda shape: json.dumps(shape).encode()), max_size=8)
SECRETS: Final = ("do the thing", "s3cret", "NEAR_KEY", "Bearer")
FAST: Final = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class HostSuite:
    """The suite; a subclass says with the fixture `host` which."""

    def test_it_is_declared_whole(self, host: Host) -> None:
        """What a host leaves out, some verb would find missing only when a person runs it."""
        assert [name for name in NEEDED if not getattr(host, name)] == []
        assert host.marks.variables
        assert host.marks.programs
        assert 0 < host.result_bytes < MAX_RESULT

    def test_its_parts_agree_on_its_name(self, host: Host) -> None:
        """The name is stored, and part of commands in other programs' settings."""
        assert hosts()[host.name] is host
        assert {host_name(word) for word in (host.name, *host.aliases)} == {host.name}
        assert connector(host.name).name == hook_host(host.name).name == _sandbox(host).host == host.name
        assert host.name.isascii()
        assert host.name == host.name.lower().strip()
        assert trial_recipe(host.name).headless_argv("go")

    def test_it_is_recognised_by_its_client_and_its_marks(self, host: Host) -> None:
        """Else its agent is a stranger, or taken for the person."""
        for name in host.client_names:
            assert host_of_client(name) is host
            assert host_of_client(f"{name.upper()}-1.2") is host
        assert [mark.host for mark in find_marks({host.marks.variables[0]: "1"}, host_marks())] == [host.name]
        assert host_of_program([f"/usr/bin/{host.marks.programs[0]}"], host_marks()) == host.name
        assert host.interactive is not None
        assert host.interactive.program in host.marks.programs
        assert not host.marks.packages or host.interactive.install.split()[-1] in host.marks.packages
        assert {host.marks.session, host.marks.process} - {""} <= set(host.marks.variables)
        assert host.marks.session in {"", host.session_variable}

    def test_a_person_starts_it_with_a_first_prompt_or_without(self, host: Host) -> None:
        """`task start` needs both, and a person's own arguments after them."""
        command = host.interactive
        assert command is not None
        assert command.command("/x", "", ("--more",)) == ("/x", "--more")
        assert command.command("/x", "go", ())[-1] == "go"
        assert command.command("/x", "go", ("resume",)) == ("/x", "resume")
        assert command.install

    @FAST
    @given(odd=ODD)
    def test_odd_payloads_mean_nothing_and_break_nothing(self, host: Host, odd: dict[str, object]) -> None:
        """A payload comes from another program: whatever it is, no hook may fail over it."""
        hooks = hook_host(host.name)
        for moment in HookMoment:
            assert hooks.event(moment, odd, HELLO) is None

    def test_recorded_payloads_are_understood(self, host: Host) -> None:
        """A session that is not recognised is never reached, and one that is taken for another gets its mail."""
        hooks, samples = hook_host(host.name), _samples(host)
        for sample in samples:
            assert hooks.event(sample.moment, sample.payload, HELLO) == sample.event
        carrying = set(hooks.most_chars) - {HookMoment.BELL}
        assert {HookMoment.END, *carrying} <= {sample.event.moment for sample in samples}

    def test_every_halt_that_it_tells_has_a_sample(self, host: Host) -> None:
        """What is declared and never comes is waited for in vain; what is not declared is in no table."""
        told = {each.event.halt for each in _samples(host) if each.event.halt is not None}
        ends = [each.event for each in _samples(host) if each.event.moment is HookMoment.STOP]
        assert [each for each in ends if not each.is_interrupted and not each.is_subagent and each.halt is None]
        assert told | {Halt.FINISHED} == set(hook_host(host.name).halts)
        answered = [e for e in _samples(host) if e.event.moment is HookMoment.HALT and e.event.halt is None]
        assert bool(answered) == hook_host(host.name).says_when_answered
        assert all(
            each.event.is_interrupted for each in _samples(host) if each.event.halt in (Halt.FAILED, Halt.LIMITED)
        )

    @FAST
    @given(data=st.data())
    def test_a_payload_of_another_version_breaks_nothing(self, host: Host, data: st.DataObject) -> None:
        """Hosts are updated overnight: a field may be gone, or be something else."""
        sample = data.draw(st.sampled_from(_samples(host)))
        name = data.draw(st.sampled_from(sorted(sample.payload)))
        left = {key: value for key, value in sample.payload.items() if key != name}
        hook_host(host.name).event(sample.moment, left, HELLO)
        found = hook_host(host.name).event(sample.moment, {**left, name: data.draw(VALUES)}, HELLO)
        assert found is None or found.native

    @FAST
    @given(text=TEXTS)
    def test_any_text_reaches_the_model_as_it_is(self, host: Host, text: str) -> None:
        """Where a moment carries texts at all, every one of them survives; elsewhere nothing is said."""
        hooks = hook_host(host.name)
        for moment in HookMoment:
            answer = hooks.answer(moment, text)
            if moment not in hooks.most_chars:
                assert answer == SILENCE
            elif answer != SILENCE:
                assert text in (answer.stdout, answer.stderr) or text in _strings(answer.stdout)

    def test_a_bell_is_named_only_to_those_that_watch_it(self, host: Host) -> None:
        """Elsewhere nobody would look at the file, and a text in its place would be lost."""
        named = {moment for moment in HookMoment if hook_host(host.name).context(moment, "/bell") != SILENCE}
        assert named == ({HookMoment.START} if host.watches_bell else set())

    def test_what_it_says_is_within_its_limits(self, host: Host) -> None:
        """Above a limit a host cuts a text, or hides it in a file."""
        hooks = hook_host(host.name)
        assert set(hooks.voices) == set(hooks.most_chars)
        assert all(1_000 <= most <= 50_000 for most in hooks.most_chars.values())
        assert HookMoment.START not in hooks.most_chars
        assert (hooks.most_stops > 0) == (HookMoment.STOP in hooks.most_chars)
        assert _silent(hooks)

    @pytest.mark.parametrize("before", [None, SETTINGS], ids=["without settings", "with settings"])
    def test_connecting_is_undone_to_the_byte(self, host: Host, tmp_path: Path, before: bytes | None) -> None:
        """A person's own files are afterwards what they were, and a second plan changes nothing."""
        place = _place(tmp_path)
        known = _planned(connector(host.name), place)
        if known is None:
            pytest.skip("it is connected by commands of its own, which are not installed here")
        for path in known:
            if before is not None and path.suffix == ".json" and not path.is_relative_to(place.harken):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(before)
        was = _files(place.user)
        apply(connector(host.name).plan(place, ConnectOptions()), place, ConnectOptions())
        assert _files(place.user) != was
        assert not connector(host.name).plan(place, ConnectOptions()).steps
        undo(connector(host.name), place)
        assert _files(place.user) == was

    def test_a_way_to_be_woken_that_it_does_not_have_is_refused(self, host: Host, tmp_path: Path) -> None:
        """A wish that is silently dropped looks as if it had been heard."""
        with pytest.raises(UserError):
            connector(host.name).plan(_place(tmp_path), ConnectOptions(wake="telepathy"))

    def test_settings_that_cannot_be_understood_are_refused_by_name(self, host: Host, tmp_path: Path) -> None:
        """A guess would lose what the person wrote; whoever mends the file is told which."""
        place = _place(tmp_path)
        known = [path for path in _planned(connector(host.name), place) or () if path.is_relative_to(place.user)]
        for path in (path for path in known if path.suffix in {".json", ".jsonc"} or path.name == "config.toml"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"mine": [', encoding="utf-8")
            with pytest.raises(UserError, match=re.escape(path.name)):
                connector(host.name).plan(place, ConnectOptions())
            path.unlink()

    def test_what_it_obeys_is_held_in_every_run(self, host: Host) -> None:
        """A run of another host must not write what this one is set up by."""
        assert set(host.settings_paths) <= set(held_paths().settings)
        assert set(host.instruction_paths) <= set(held_paths().instructions)

    def test_a_run_says_how_it_is_started(self, host: Host, tmp_path: Path) -> None:
        """No prompt or secret is in the list of processes; nothing of the person's environment gets in unasked."""
        work, private = tmp_path / "work", tmp_path / "private"
        work.mkdir()
        private.mkdir()
        sandbox = _sandbox(host)
        wishes = [tuple(map(parse_tool, words)) for words in (("near/note", "far.away/look"), ("read_file",))]
        assert all(not refusal or refusal.endswith((".", "?")) for refusal in map(sandbox.refusal, wishes))
        tools = next(each for each in wishes if not sandbox.refusal(each))
        near = ToolServer(name="near", command=("near", "--serve"), env={"NEAR_KEY": "s3cret"})
        far = ToolServer(name="far.away", url="https://example.org/mcp", headers={"Authorization": "Bearer s3cret"})
        environ = {"HOME": str(tmp_path), "PATH": os.defpath, "SOME_SECRET": "s3cret", "HARKEN_HOME": "/h"}
        command = sandbox.command(
            SandboxRequest(
                prompt="do the thing",
                workdir=work,
                tools=tools,
                servers={tool.server: {"near": near, "far.away": far}[tool.server] for tool in tools if tool.server},
                max_turns=3,
                private=private,
                program=f"/usr/bin/{sandbox.program}",
                environ=environ,
            )
        )
        assert command.argv[0] == f"/usr/bin/{sandbox.program}"
        assert [secret for secret in SECRETS if secret in " ".join(command.argv)] == []
        assert b"do the thing" in command.stdin
        assert {"s3cret", "/h"}.isdisjoint(command.env.values())
        assert all(not Path(file.path).is_absolute() for file in command.files)

    @FAST
    @given(lines=LINES)
    def test_no_output_is_too_odd_to_read(self, host: Host, lines: Sequence[bytes]) -> None:
        """Another version prints other things, and what tools print is anybody's."""
        reader = _sandbox(host).transcript()
        told = [each for line in lines for each in reader.feed(line)]
        assert {each.kind for each in (*told, *reader.finish("", 1))} <= set(OutputKind)

    @FAST
    @given(line=st.binary(max_size=200))
    def test_any_output_can_be_read(self, host: Host, line: bytes) -> None:
        """What a program prints is not ours to trust; a failure always has a reason."""
        reader = _sandbox(host).transcript()
        reader.feed(line)
        assert [each.text for each in reader.finish("it broke", 1) if each.kind is OutputKind.ERROR]


def _sandbox(host: Host) -> Sandbox:
    assert host.sandbox is not None
    return host.sandbox()


def _samples(host: Host) -> Sequence[HookSample]:
    assert host.samples is not None
    return host.samples()


def _silent(hooks: HookAdapter) -> bool:
    return all(hooks.answer(moment, "") == SILENCE for moment in HookMoment)


def _strings(text: str) -> list[str]:
    """Return every text inside of a JSON document."""
    found: list[str] = []
    pending: list[object] = [json.loads(text)] if text.strip() else []
    while pending:
        match pending.pop():
            case str() as value:
                found.append(value)
            case list() as items:
                pending += items
            case dict() as members:
                pending += members.values()
            case _:
                pass
    return found


def _place(folder: Path) -> InstallTarget:
    user = folder / "user"
    user.mkdir(exist_ok=True)
    environ: Mapping[str, str] = {"HOME": str(user), "PATH": str(folder / "no programs")}
    return InstallTarget(
        user=user, environ=environ, project=None, harken=folder / "harken", python=sys.executable, edge=folder / "edge"
    )


def _planned(host: Connector, place: InstallTarget) -> list[Path] | None:
    """Return the files that connecting would change; None where it needs the program, which is not here."""
    try:
        steps = host.plan(place, ConnectOptions()).steps
    except UserError:
        return None
    if any(isinstance(step, CommandStep) for step in steps):
        return None
    return [step.path for step in steps if isinstance(step, FileEdit)]


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
