"""Actions become runs, one per host and folder, and every run has an end that is told."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from harken.automation import Action, ActionState, RunState
from harken.daemon.callers import run_of
from harken.errors import Conflict
from harken.runs.runner import TRIED_AGAIN_AFTER
from harken.testing.clock import FakeClock
from tests.loss.rig import until
from tests.runs.rig import Disk, Rig, StandIn, Wish, places, running


async def refused(rig: Rig, action: Action) -> Action:
    """Return an action, once it is refused."""
    return await rig.until(action, lambda found, _: found.state is ActionState.REFUSED)


async def appeared(path: Path) -> str:
    """Return what a file holds, once it is there."""
    return await anyio.to_thread.run_sync(lambda: str(until(path.exists, f"{path} to be there") and path.read_text()))


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    await anyio.to_thread.run_sync(lambda: until(lambda: not is_running(pid), f"process {pid} to end"))


def mode_of(path: str | Path) -> int:
    """Return who may do what with a file."""
    return stat.S_IMODE(Path(path).stat().st_mode)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its number."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_run_keeps_what_the_agent_said_and_was_denied(tmp_path: Path) -> None:
    """The record is what people have to judge a run by."""
    async with running(tmp_path) as rig:
        action = await rig.ask("say=looking deny=Bash@ls turns=2 deny=Bash@ls deny=Write@/etc/x answer=fixed")
        run = await rig.ended(action)
        assert (run.state, run.answer, run.turns) == (RunState.DONE, "fixed", 2)
        assert run.denied == ("Bash ls", "Bash ls", "Write /etc/x")
        told = [(line.tool, line.text) for line in rig.runner.outputs.read(run.id, 0).lines if line.kind == "denied"]
        assert told == [("Bash", "ls: no"), ("Bash", "ls: no"), ("Write", "/etc/x: no")]
        assert (run.agent, run.tools, run.leftover, run.exit_code) == ("stand-in", ("read_file",), ("todo_write",), 0)
        kinds = [line.kind for line in rig.runner.outputs.read(run.id, 0).lines]
        assert kinds == ["begin", "text", "denied", "turn", "turn", "denied", "denied", "answer", "end"]
        assert (await rig.store.actions.get(action.id)).state is ActionState.STARTED


async def test_record_of_denials_is_long_and_has_an_end(tmp_path: Path) -> None:
    """All of them are told, and an agent that tries for ever fills neither memory nor store."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask(f"deny=Bash@{'x' * 5_000} " + "deny=Read@/a " * 509))
    assert len(run.denied) == 501
    assert (run.denied[499], run.denied[-1]) == ("Read /a", "and 10 more")
    assert len(run.denied[0]) == 301


async def test_run_sees_its_folder_and_nothing_of_the_daemons_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret in the daemon's environment is not the run's business."""
    monkeypatch.setenv("CI_TOKEN", "secret")
    work = tmp_path / "project"
    work.mkdir()
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask(f"cwd env={tmp_path / 'env'} file=sub/note", workdir=work))
    assert run.workdir == str(work)
    assert set(json.loads((tmp_path / "env").read_text())) <= {"PATH", "PRIVATE", "LC_CTYPE", "HARKEN_RUN"}
    assert run.answer == "furnished"
    assert not any(places(tmp_path).private.glob("*"))


async def test_rule_without_a_folder_works_in_one_of_its_own(tmp_path: Path) -> None:
    """Without a folder an agent would work wherever the daemon was started."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("cwd"))
    assert run.workdir == run.answer
    assert Path(run.workdir).parent == places(tmp_path).work
    assert mode_of(run.workdir) == 0o700


@pytest.mark.parametrize("named", [".", "home", "home/journal"])
async def test_folder_with_harkens_own_files_is_refused(tmp_path: Path, named: str) -> None:
    """Whoever works there could change the rules."""
    (tmp_path / "home" / "journal").mkdir(parents=True)
    async with running(tmp_path) as rig:
        action = await refused(rig, await rig.ask("answer=x", workdir=tmp_path / named))
    assert "Harken's own files" in action.reason


async def test_folder_with_a_file_that_harken_reads_through_a_link_is_refused(tmp_path: Path) -> None:
    """Many people keep such files in one folder and link them; whoever works there could change the rules."""
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "triggers.json").write_text("{}")
    home = places(tmp_path).kept_out[0]
    (home / "triggers.json").symlink_to(dotfiles / "triggers.json")
    async with running(tmp_path) as rig:
        assert "own files" in (await refused(rig, await rig.ask("answer=x", workdir=dotfiles))).reason


async def test_link_to_harkens_own_folder_is_refused_too(tmp_path: Path) -> None:
    """A link is only another name."""
    places(tmp_path)
    (tmp_path / "innocent").symlink_to(tmp_path / "home")
    async with running(tmp_path) as rig:
        assert "own files" in (await refused(rig, await rig.ask("answer=x", workdir=tmp_path / "innocent"))).reason


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(workdir=Path("/nowhere/at/all")), "is not there"),
        (Wish(tools=("shell",)), "stand-in: it cannot be fenced to a shell"),
        (Wish(tools=("ci/log",)), "no MCP server 'ci'"),
        (Wish(tools=("shell:git",)), "shell:git allows any command"),
        (Wish(tools=("read_file", "edit_instructions")), "name edit_file too"),
        (Wish(agent="codex"), "there is no way to fence codex"),
        (Wish(prompt="unready"), "nobody has signed in"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_the_reason(tmp_path: Path, wish: Wish, why: str) -> None:
    """An action that waits for ever would say nothing."""
    async with running(tmp_path) as rig:
        action = await refused(rig, await rig.wish(wish))
        assert why in action.reason
        assert not await rig.store.runs.list()


async def test_one_run_per_folder_and_per_host_at_a_time(tmp_path: Path) -> None:
    """Two agents in one folder would trip over each other."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, two = StandIn("one"), StandIn("two")
    go = tmp_path / "go"
    async with running(tmp_path, one, two) as rig:
        first = await rig.ask(f"until={go}", workdir=tmp_path / "a", agent="one")
        same_folder = await rig.ask("answer=x", workdir=tmp_path / "a", agent="two")
        same_host = await rig.ask("answer=x", workdir=tmp_path / "b", agent="one")
        beside = await rig.ask("answer=x", workdir=tmp_path / "b", agent="two")
        await rig.running(first)
        await rig.ended(beside)
        for action in (same_folder, same_host):
            assert (await rig.store.actions.get(action.id)).state is ActionState.QUEUED
        go.touch()
        for action in (first, same_folder, same_host):
            assert (await rig.ended(action)).state is RunState.DONE


async def test_folder_inside_another_runs_folder_is_not_free(tmp_path: Path) -> None:
    """They would trip over each other as much as in one folder."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    go = tmp_path / "go"
    async with running(tmp_path, StandIn("one"), StandIn("two")) as rig:
        first = await rig.ask(f"until={go}", workdir=inner, agent="one")
        await rig.running(first)
        outer = await rig.ask("answer=x", workdir=inner.parent, agent="two")
        go.touch()
        begun = (await rig.ended(outer)).started_at
        ended = (await rig.ended(first)).ended_at
    assert ended is not None
    assert begun >= ended


async def test_abort_ends_the_whole_group_and_what_it_started(tmp_path: Path) -> None:
    """A person who aborts wants it to stop, not only to be out of sight."""
    child = tmp_path / "child"
    async with running(tmp_path) as rig:
        action = await rig.ask(f"stubborn child={child} hang")
        run = await rig.running(action)
        pid = int(await appeared(child))
        assert rig.noted.agents == {run.id: run.pid}
        ended = await rig.runner.abort(run, "you")
        assert (ended.state, ended.reason) == (RunState.ABORTED, "aborted by you")
        await gone(pid)
        await gone(run.pid)
        assert rig.noted.agents == {}
        with pytest.raises(Conflict):
            await rig.runner.abort(ended, "you")


async def test_process_that_left_the_group_and_its_parents_is_ended_too(tmp_path: Path) -> None:
    """A daemon that a run's shell started must not outlive it; nor may it pass for the person."""
    escaped = tmp_path / "escaped"
    async with running(tmp_path) as rig:
        action = await rig.ask(f"escape={escaped} hang")
        run = await rig.running(action)
        pid = int(await appeared(escaped))
        assert run_of(pid) == run.id
        await rig.runner.abort(run, "you")
        await gone(pid)


async def test_what_is_said_on_standard_error_is_told_where_the_host_tells_there(tmp_path: Path) -> None:
    """One host says only there what it denied."""
    async with running(tmp_path, StandIn(has_told_errors=True), StandIn("quiet")) as rig:
        said = 'stderr={"kind":"denied","text":"","tool":"Bash"}'
        told = await rig.ended(await rig.ask(f"{said} answer=x", agent="stand-in"))
        quiet = await rig.ended(await rig.ask(f"{said} answer=x", agent="quiet"))
    assert (told.denied, quiet.denied) == (("Bash",), ())


@pytest.mark.parametrize("above", ["", ".."])
async def test_folder_with_the_persons_home_is_refused(tmp_path: Path, above: str) -> None:
    """Sign-ins are there."""
    person, elsewhere = tmp_path / "home-of" / "person", tmp_path / "elsewhere"
    person.mkdir(parents=True)
    elsewhere.mkdir()
    async with running(elsewhere, home=person) as rig:
        assert "your home" in (await refused(rig, await rig.ask("answer=x", workdir=person / above))).reason
        inside = person / "code"
        inside.mkdir()
        assert (await rig.ended(await rig.ask("cwd", workdir=Path("~/code")))).answer == str(inside)


@pytest.mark.parametrize("named", ["x" * 300, "a\0b"])
async def test_one_that_cannot_be_started_holds_up_no_other(tmp_path: Path, named: str) -> None:
    """A folder whose name no disk takes must cost its own run, not everybody's."""
    async with running(tmp_path, StandIn("one"), StandIn("two")) as rig:
        going = await rig.running(await rig.ask("hang", agent="one"))
        bad = await rig.ask("answer=x", workdir=tmp_path / named, agent="two")
        good = await rig.ask("answer=x", agent="two", workdir=tmp_path.parent)
        await refused(rig, bad)
        await rig.until(good, lambda found, _: found.state is not ActionState.QUEUED)
        assert (await rig.store.runs.get(going.id)).state is RunState.RUNNING


async def test_fault_of_a_jail_costs_its_own_run_only(tmp_path: Path) -> None:
    """A host's settings may be anything, and what reads them may have a bug."""
    async with running(tmp_path) as rig:
        faulty = await rig.ask("faulty")
        run = await rig.ended(await rig.ask("answer=x"))
        assert run.state is RunState.DONE
        assert "Harken itself failed" in (await refused(rig, faulty)).reason


async def test_run_whose_words_cannot_be_kept_is_run_all_the_same(tmp_path: Path) -> None:
    """A full disk must not leave a run that never ends."""
    places(tmp_path).outputs.write_text("in the way")
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("say=hello answer=x"))
    assert (run.state, run.answer) == (RunState.DONE, "x")


async def test_run_is_over_when_its_program_is_whatever_holds_its_output_open(tmp_path: Path) -> None:
    """Something it left behind must not keep it, its agent and its folder busy until the time is up."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("linger answer=x", seconds=50))
    assert (run.state, run.answer, run.exit_code) == (RunState.DONE, "x", 0)


async def test_nothing_that_a_rule_queued_starts_while_rules_are_paused(tmp_path: Path) -> None:
    """Whoever presses pause because something goes wrong must not see more of it begin."""
    async with running(tmp_path) as rig:
        await rig.store.rules.pause(is_on=True)
        by_rule = await rig.by_rule("answer=x")
        assert (await rig.ended(await rig.ask("answer=hand"))).answer == "hand"
        assert (await rig.store.actions.get(by_rule.id)).state is ActionState.QUEUED
        await rig.store.rules.pause(is_on=False)
        assert (await rig.ended(by_rule)).answer == "x"


async def test_full_disk_neither_ends_a_run_nor_costs_what_waits(tmp_path: Path) -> None:
    """What was accepted survives a full disk: it is started when there is room again."""
    work, disk = tmp_path / "work", Disk()
    work.mkdir()
    async with running(tmp_path, StandIn("one"), StandIn("two", disk=disk)) as rig:
        going = await rig.running(await rig.ask("hang", agent="one"))
        waiting = await rig.ask("answer=x", agent="two", workdir=work)
        await disk.tried()
        assert (await rig.store.actions.get(waiting.id)).state is ActionState.QUEUED
        assert (await rig.store.runs.get(going.id)).state is RunState.RUNNING
        disk.is_full = False
        await rig.ask("answer=y", agent="two", workdir=work)  # somebody rings
        assert (await rig.ended(waiting)).answer == "x"
        assert (await rig.store.runs.get(going.id)).state is RunState.RUNNING


async def test_time_is_up(tmp_path: Path) -> None:
    """A run that hangs must not hold its folder for ever."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("say=begun hang", seconds=3))
    assert (run.state, run.answer) == (RunState.TIMED_OUT, "begun")
    assert "3 seconds" in run.reason


async def test_turns_are_counted_where_the_host_does_not(tmp_path: Path) -> None:
    """A budget that nobody keeps is none."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("turns=6 hang", max_turns=5))
        within = await rig.ended(await rig.ask("turns=5 answer=x", max_turns=5))
    assert (run.state, run.reason) == (RunState.FAILED, "it took more than 5 turns")
    assert within.state is RunState.DONE


async def test_host_that_limits_turns_itself_is_not_counted(tmp_path: Path) -> None:
    """It ends by itself, with its own reason."""
    async with running(tmp_path, StandIn(is_turn_limited=True)) as rig:
        run = await rig.ended(await rig.ask("turns=9 answer=x", max_turns=5))
    assert (run.state, run.turns) == (RunState.DONE, 9)


async def test_failure_says_why(tmp_path: Path) -> None:
    """`failed` alone helps nobody."""
    async with running(tmp_path) as rig:
        spoken = await rig.ended(await rig.ask("stderr=unauthorized exit=3"))
        silent = await rig.ended(await rig.ask("exit=4"))
        lines = rig.runner.outputs.read(spoken.id, 0).lines
    assert (spoken.state, spoken.reason, spoken.exit_code) == (RunState.FAILED, "unauthorized", 3)
    assert (silent.state, silent.reason) == (RunState.FAILED, "its program ended with 4")
    assert ("stderr", "unauthorized") in [(line.kind, line.text) for line in lines]


async def test_flood_and_garbage_are_bounded(tmp_path: Path) -> None:
    """What an agent prints must fill neither memory nor disk."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("garbage=1 lines=3000 answer=end"))
        path = rig.runner.outputs.path(run.id)
        assert path.stat().st_size < 1_100_000
        assert mode_of(path) == 0o600
        last = path.read_bytes().splitlines()[-2:]
        assert (run.state, run.answer) == (RunState.DONE, "end")
    assert [json.loads(line)["kind"] for line in last] == ["cut", "end"]


async def test_half_a_character_does_not_end_a_run(tmp_path: Path) -> None:
    """JSON may hold half of a pair of surrogates, where a model's text was cut; neither files nor databases can."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("say=half%HALF deny=Ba%HALFsh answer=end%HALF"))
        assert (run.state, run.answer, run.denied) == (RunState.DONE, "end?", ("Ba?sh",))


async def test_output_is_followed_while_it_grows(tmp_path: Path) -> None:
    """A person watches a run live."""
    go = tmp_path / "go"
    async with running(tmp_path) as rig:
        action = await rig.ask(f"say=one until={go} say=two")
        run = await rig.running(action)
        seen, after = [], 0
        with anyio.fail_after(30):
            while "one" not in seen:
                part = await rig.runner.output(run.id, after, 10)
                seen += [line.text for line in part.lines]
                after = part.following
        go.touch()
        with anyio.fail_after(30):
            while "done" not in seen:
                part = await rig.runner.output(run.id, after, 10)
                seen += [line.text for line in part.lines]
                after = part.following
        assert seen[-2:] == ["two", "done"]
        assert (await rig.runner.output(run.id, after, 0)).lines == []


async def test_run_of_an_earlier_daemon_is_interrupted_and_not_begun_again(tmp_path: Path) -> None:
    """Nobody knows how far it came: doing it twice may do harm."""
    async with running(tmp_path) as rig:
        action = await rig.ask("hang")
        first = await rig.running(action)
    async with running(tmp_path) as rig:
        assert (await rig.ended(action)).state is RunState.INTERRUPTED
        await rig.ended(await rig.ask("answer=later"))
        assert len(await rig.store.runs.list()) == 2
    await gone(first.pid)


async def test_answer_is_sent_back_where_the_rule_says_so(tmp_path: Path) -> None:
    """Only a run that came to an end has an answer."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("answer=fixed", has_reply=True))
        await rig.ended(await rig.ask("answer=quiet"))
        await rig.ended(await rig.ask("answer=half exit=1", has_reply=True))
        assert rig.noted.answers == [run.id]


async def test_agent_without_a_sign_in_is_tried_again_by_rules_once_an_hour(tmp_path: Path) -> None:
    """A sign-in in a keychain changes no file: without another try, its rules would never run again."""
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as rig:
        assert (await rig.ended(await rig.by_rule("stderr=401 exit=1"))).state is RunState.FAILED
        [held] = rig.runner.held()
        clock.advance(TRIED_AGAIN_AFTER.total_seconds())
        assert (await rig.ended(await rig.by_rule("stderr=401 exit=1"))).state is RunState.FAILED
        assert rig.runner.held() == [held], "it is the same occasion"
        waiting = await rig.by_rule("answer=x")
        await rig.ended(await rig.ask("stderr=no exit=1"))
        assert (await rig.store.actions.get(waiting.id)).state is ActionState.QUEUED
        clock.advance(TRIED_AGAIN_AFTER.total_seconds())
        await rig.ask("answer=y")  # now the runner looks
        assert (await rig.ended(waiting)).state is RunState.DONE
        assert rig.runner.held() == []
