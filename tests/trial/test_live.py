"""The live check without a real host: what is judged, what is said about it, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.registry import host_named
from harken.trial.exchange import ConversationTurn, ModelRequest, ModelTool, resolve
from harken.trial.live import asks, entered, in_a_turn
from harken.trial.model import MockModel
from harken.trial.outcome import TrialCircumstances, TrialLedgerLine, TrialSession, TrialVerdict, diagnose
from harken.trial.screen import HeadlessProgram, TerminalPicture, TerminalProgram, last_lines
from harken.trial.turn import LAST_WORD, STATS, HostFailed, Trial, is_last, new_prompt, script
from tests.trial.rig import MAILBOX, trial_in

SECONDS = 10.0
PROMPT = "hello HARKENMARK1"


def verdicts(trial: Trial) -> dict[str, str]:
    """What came of each surface."""
    return {outcome.surface: outcome.verdict.value for outcome in in_a_turn(trial)}


def test_a_host_that_passes_everything_on_is_good(tmp_path: Path) -> None:
    """One turn tries every surface that a turn has, and times it."""
    with MockModel() as model:
        trial = trial_in(tmp_path, model, "prompt,tool,stop")
        outcomes = in_a_turn(trial)
    assert {outcome.surface: outcome.verdict for outcome in outcomes} == {
        "hook: prompt": TrialVerdict.ARRIVED,
        "hook: tool": TrialVerdict.ARRIVED,
        "hook: stop": TrialVerdict.ARRIVED,
        "tool": TrialVerdict.ARRIVED,
    }
    assert all((outcome.seconds is None) == (outcome.surface == "tool") for outcome in outcomes)
    assert len(trial.sent) == 3
    assert list(trial.folder.iterdir()) == []


@pytest.mark.parametrize("missing", ["prompt", "tool", "stop"])
def test_only_the_hook_that_does_not_run_is_missing(tmp_path: Path, missing: str) -> None:
    """A message that comes later by another hook must not make the broken one look sound."""
    left = ",".join({"prompt", "tool", "stop"} - {missing})
    with MockModel() as model:
        found = verdicts(trial_in(tmp_path, model, left))
    assert found == {
        f"hook: {moment}": "missing" if moment == missing else "arrived" for moment in ("prompt", "tool", "stop")
    } | {"tool": "arrived"}


@pytest.mark.parametrize(("obstacle", "why"), [("no shell", "offered no shell"), ("refusal", "refused by policy")])
def test_a_policy_against_shells_hides_only_what_needs_one(tmp_path: Path, obstacle: str, why: str) -> None:
    """Many people deny shell commands; their other surfaces work, and can be shown to."""
    with MockModel() as model:
        by_prompt, by_tool_hook, by_stop, by_tool = in_a_turn(trial_in(tmp_path, model, f"prompt,tool,stop,{obstacle}"))
    assert by_prompt.verdict is by_stop.verdict is by_tool.verdict is TrialVerdict.ARRIVED
    assert by_tool_hook.verdict is TrialVerdict.NOT_TRIED
    assert why in by_tool_hook.reason


def test_a_host_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """Whoever reads the report cannot see the host's own output."""
    with MockModel() as model:
        trial = trial_in(tmp_path, model, "", "/bin/sh", "-c", "echo no licence >&2; exit 3")
        with pytest.raises(HostFailed, match="did not ask") as failed:
            in_a_turn(trial)
    assert "no licence" in failed.value.hint


def request(*, tools: int, is_ours: bool = True, names: Sequence[str] = ("Bash", STATS)) -> ModelRequest:
    """A request after so many tool results."""
    turns = [
        ConversationTurn("user", PROMPT if is_ours else "suggest something"),
        *(ConversationTurn("tool", "ok") for _ in range(tools)),
    ]
    offered = tuple(ModelTool(name) for name in names)
    return ModelRequest(
        protocol="anthropic", model="m", turns=tuple(turns), tools=offered, is_side=False, is_stream=False
    )


@given(tools=st.integers(0, 9), is_ours=st.booleans(), names=st.lists(st.sampled_from(["Bash", STATS, "other"])))
def test_what_ends_the_turn_is_known_before_it_is_said(*, tools: int, is_ours: bool, names: list[str]) -> None:
    """The answer that is kept back must be the last one, with whatever tools a host offers."""
    asked = request(tools=tools, is_ours=is_ours, names=names)
    said = resolve(script(PROMPT, "true")(asked), asked)
    assert is_last(PROMPT, "true")(asked) == (is_ours and not said.calls)
    assert said.calls or said.words


def test_requests_that_a_host_makes_on_its_own_use_up_no_step() -> None:
    """Some ask for suggestions between two turns, with all their tools."""
    say = script(PROMPT, "true")
    assert [call.tool for call in resolve(say(request(tools=0)), request(tools=0)).calls] == ["Bash"]
    assert [call.tool for call in say(request(tools=1)).calls] == [STATS]
    assert say(request(tools=2)).words == say(request(tools=0, is_ours=False)).words == LAST_WORD


KNOWN = TrialCircumstances(
    host="codex",
    title="Codex",
    hook_hint=host_named("codex").hook_hint,
    is_connected=True,
    guest=TrialSession(
        key="codex:1",
        host="codex",
        cwd="/x",
        presence="idle",
        mailboxes=(MAILBOX,),
        surfaces=("hook: prompt", "tool"),
        can_wake=True,
    ),
)


@pytest.mark.parametrize(
    ("known", "surface", "line", "why", "hint"),
    [
        (replace(KNOWN, is_connected=False), "hook: tool", TrialLedgerLine(), "not connected", "harken connect codex"),
        (replace(KNOWN, guest=None), "hook: tool", TrialLedgerLine(), "No session", "harken doctor codex"),
        (KNOWN, "hook: tool", TrialLedgerLine(), "This hook did not run", "trust"),
        (KNOWN, "hook: prompt", TrialLedgerLine(), "still queued", "harken doctor codex"),
        (
            KNOWN,
            "hook: prompt",
            TrialLedgerLine(state="offered", surface="hook: prompt"),
            "did not pass it on",
            "harken doctor codex",
        ),
        (
            KNOWN,
            "hook: tool",
            TrialLedgerLine(state="seen", surface="hook: stop"),
            "another way",
            "harken doctor codex",
        ),
        (
            KNOWN,
            "wake",
            TrialLedgerLine(state="offered", surface="wake: bell"),
            "did not pass it on",
            "harken doctor codex",
        ),
    ],
)
def test_what_is_wrong_and_what_to_do_is_said(
    known: TrialCircumstances, surface: str, line: TrialLedgerLine, why: str, hint: str
) -> None:
    """A report without a next step leaves people where they were."""
    reason, next_step = diagnose(surface, line, known)
    assert why in reason
    assert hint in next_step


def test_a_host_whose_hooks_never_ran_is_told_from_one_that_lacks_one() -> None:
    """The first is a matter of trust or of a switch, the second of an old connection."""
    assert KNOWN.guest is not None
    bare = replace(KNOWN, guest=replace(KNOWN.guest, surfaces=("tool",)))
    assert diagnose("hook: tool", TrialLedgerLine(), bare)[0] == "None of its hooks ran."


@pytest.mark.parametrize(
    "screen",
    [
        "│ Do you trust the files in this folder?\n│ \N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} 1. Yes",
        "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} No, exit\n  Yes, I trust this folder",
        "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} 1. Yes, continue",
        "│ \N{BLACK CIRCLE} 1. Trust folder (x)",
        "> Yes",
    ],
)
def test_a_question_is_recognised(screen: str) -> None:
    """A key that is meant as a prompt would answer it, in the person's name."""
    assert asks(screen)


@pytest.mark.parametrize(
    "screen",
    [
        '\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} Try "fix the tests"',
        "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} Ask Codex to do anything",
        "> Type your message or @path/to/file",
        "What is new:\n 1. Yes, it is faster",
        "\N{BLACK CIRCLE} No instructions were found.",
    ],
)
def test_a_prompt_is_not_taken_for_a_question(screen: str) -> None:
    """Otherwise no host would ever be tried."""
    assert not asks(screen)


@pytest.mark.parametrize(("shown", "is_taken"), [("> Type your message", True), ("> 2. Trust all", False)])
def test_enter_is_pressed_only_where_nothing_is_asked(tmp_path: Path, shown: str, *, is_taken: bool) -> None:
    """A question may come up between a prompt's first letter and its end; Enter would answer it."""
    environ = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color"}
    argv = ("/bin/sh", "-c", f"echo '{shown}'; read line; echo pressed")
    with TerminalProgram(argv, environ, tmp_path) as screen:
        screen.wait_for(shown, SECONDS)
        assert entered(screen, new_prompt()) is is_taken
        if is_taken:
            screen.wait_for("pressed", SECONDS)
        else:
            assert not screen.seen("pressed")


def test_no_letter_of_a_prompt_answers_a_question() -> None:
    """Dialogs take digits and single letters at once, without Enter."""
    assert not set("".join(new_prompt() for _ in range(50)).lower()) & set("0123456789yntaeq")


def test_a_screen_remembers_what_is_gone() -> None:
    """A notice that a host takes away after a second was shown all the same; a word that was never whole was not."""
    picture = TerminalPicture(40, 4)
    for part in (b"a NOTICE here", b"\x1b[2J\x1b[H", b"half a WO", b"\x1b[2J\x1b[HRD", b"\r\n" * 9):
        picture.feed(part)
    assert picture.text() == ""
    assert picture.seen("NOTICE here")
    assert not picture.seen("WORD")


@given(text=st.text())
def test_last_lines_are_one_line(text: str) -> None:
    """They become part of a sentence."""
    assert "\n" not in last_lines(text)


def test_a_program_is_fed_and_its_end_is_kept(tmp_path: Path) -> None:
    """Hosts that are driven over a pipe stay idle until the next line."""
    with HeadlessProgram(("/bin/sh", "-c", 'read line; echo "got $line"'), {}, tmp_path, is_fed=True) as running:
        assert running.is_running
        running.feed("something")
        assert running.wait(SECONDS)
        running.feed("too late")
    assert running.text() == "got something\n"
