"""`harken watch`: a person at a terminal, a real daemon, and a program that speaks as a host does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.watch.keyboard import MAX_TYPED, Keys
from harken.cli.watch.live import AGAIN_SECONDS, SETTLE_SECONDS, MessageChoice
from harken.config.home import Home
from harken.control.client import DaemonClient
from harken.errors import HarkenError
from tests.cli.rig import SECONDS, Json, Rig, serving
from tests.cli.terminal_session import CTRL_C, DOWN, ENTER, ESC, UP, TerminalSession
from tests.cli.test_as_agent import hosting
from tests.cli.test_rules_cli import until, write
from tests.cli.test_runs_cli import ASK, PROGRAM
from tests.fake_host import fake_host

TELL = {"name": "tell", "channel": "alerts/*", "mode": "notify"}
TERMINATED = 128 + signal.SIGTERM
READY = "q leave"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A home with a rule that asks and one that tells, on a machine where two hosts seem to be installed."""
    folder = tmp_path_factory.mktemp("watch")
    with fake_host(folder, PROGRAM, ["gemini", "qwen"]), serving(folder / "home") as served:
        write(served, json.dumps({"rules": [ASK, TELL]}))
        served.ok("rules", "reload")
        yield served


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins with nothing that waits or runs."""
    yield
    if "rig" not in request.fixturenames:
        return
    rig: Rig = request.getfixturevalue("rig")
    for each in rig.ask("actions", state="waiting")["actions"]:
        rig.ask("confirm", action=each["id"], yes=False)
    for each in rig.ask("runs", running=True)["runs"]:
        with suppress(HarkenError):  # it may have ended meanwhile
            rig.ask("run_abort", run=each["id"])


def _line(pattern: str) -> Callable[[str], bool]:
    """Return whether a line of the screen is like this."""
    return lambda text: re.search(f"^{pattern}$", text, re.MULTILINE) is not None


def _clock(shown: str) -> str:
    return shown.partition(" left  ")[0][-5:]


def _action(rig: Rig, message: str) -> Json:
    found = until(
        lambda: rig.ask("actions", state="waiting"), lambda f: message in {a["message_id"] for a in f["actions"]}
    )
    return next(each for each in found["actions"] if each["message_id"] == message)


def _ask(rig: Rig, text: str) -> str:
    """Send something that the rule asks about, and return the action."""
    return str(_action(rig, rig.json("send", text, "--channel", "incidents", "--from", "ann")["id"])["id"])


def _start(rig: Rig, folder: Path, agent: str = "gemini-cli") -> str:
    """Start a run that does not end by itself, and return it."""
    folder.mkdir()
    sent = rig.json("send", "hold", "--channel", "talk")
    words = ("channel", "run", sent["id"], "--agent", agent, "--workdir", str(folder), "--tool", "read_file", "--yes")
    rig.ok(*words)
    found = until(lambda: rig.ask("runs", running=True), lambda f: sent["id"] in {r["message_id"] for r in f["runs"]})
    return next(str(each["id"]) for each in found["runs"] if each["message_id"] == sent["id"])


def test_a_message_appears_with_its_place_sender_and_first_line(rig: Rig) -> None:
    """The person sees what came without asking; marked by whom it can be trusted to be."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        rig.ok("send", "the build is red\nand more", "--channel", "ci", "--from", "ann")
        rig.ok("send", "mine", "--channel", "ci")
        shown = person.sees("mine").splitlines()
        assert [line for line in shown if re.fullmatch(r'\[ci \d\d:\d\d\] ann: "the build is red …"  #\d+', line)]
        assert [line for line in shown if re.fullmatch(r'\[ci \d\d:\d\d\] ★ you: "mine"  #\d+', line)]
        assert shown[-2] == '→ tell your agent: "check the inbox"'
        assert re.match(r"\d+ unread · ", shown[-1])
        assert shown[-1].count(READY) == 1


def test_what_is_unread_is_shown_first_and_marked_only_by_the_key(rig: Rig) -> None:
    """Looking is not reading: a message counts as seen when the person says so."""
    sent = rig.json("send", "unread before", "--channel", "before", "--from", "ann")
    with TerminalSession(rig, "watch", "--channel", "before") as person:
        person.sees('ann: "unread before"', READY)
        assert rig.json("read", sent["id"])["message"]["consumed_by"] == []
        person.press(b"m")
        person.sees("1 marked as seen.")
        assert rig.json("read", sent["id"])["message"]["consumed_by"] == ["watch"]
        person.press(b"m")
        person.sees("Everything shown is marked; u shows what is unread.")
    with TerminalSession(rig, "watch", "--channel", "before") as person:
        assert "unread before" not in person.sees(READY)


def test_what_was_printed_is_not_printed_again_and_stays_unread(rig: Rig) -> None:
    """A watch in a forgotten terminal has read nothing; the next one shows what came since, and counts the rest."""
    sent = rig.json("send", "printed once", "--channel", "once", "--from", "ann")
    with TerminalSession(rig, "watch", "--channel", "once") as person:
        person.sees("printed once", READY)
        rig.ok("send", "printed live", "--channel", "once", "--from", "ann")
        person.sees("printed live")
    rig.ok("send", "came later", "--channel", "once", "--from", "ann")
    with TerminalSession(rig, "watch", "--channel", "once") as person:
        shown = person.sees("came later", READY)
        assert "printed" not in shown
        assert "2 more are unread: press u to see them." in shown
        assert "printed once" in rig.ok("watch", "--once", "--channel", "once")
        assert rig.json("read", sent["id"])["message"]["consumed_by"] == []
        person.press(b"u")
        person.sees("printed once", "printed live")
        person.press(b"m")
        person.sees("3 marked as seen.")
        assert rig.json("read", sent["id"])["message"]["consumed_by"] == ["watch"]


def test_a_message_that_is_opened_by_a_key_is_read(rig: Rig) -> None:
    """Whoever presses a key on a line has seen it."""
    with TerminalSession(rig, "watch", "--channel", "opened") as person:
        person.sees(READY)
        sent = rig.json("send", "open me", "--channel", "opened", "--from", "ann")
        person.sees("open me")
        person.press(b"\r")
        person.sees(f"{sent['id']} #")
        until(lambda: rig.ask("read", ref=sent["id"]), lambda found: found["message"]["consumed_by"] == ["watch"])


def test_only_the_channel_that_was_asked_for_is_shown(rig: Rig) -> None:
    """A busy inbox has one part that matters now."""
    with TerminalSession(rig, "watch", "--channel", "wanted") as person:
        person.sees(READY)
        rig.ok("send", "left out", "--channel", "other")
        rig.ok("send", "let in", "--channel", "wanted")
        assert "left out" not in person.sees("let in")


def test_what_a_rule_tells_stands_in_the_banner(rig: Rig) -> None:
    """A notice that has scrolled away was for nothing."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        rig.ok("send", "disk is full", "--channel", "alerts/disk", "--from", "ann")
        shown = person.sees(_line(r"  ! tell \d\d:\d\d  #\d+ ann: disk is full"))
        assert _line(r"!! tell: #\d+ ann: disk is full")(shown)


@pytest.mark.parametrize(("key", "state"), [(b"y", "started"), (b"n", "declined")])
def test_a_question_counts_down_and_is_answered_by_a_key(rig: Rig, key: bytes, state: str) -> None:
    """The answer is given where the question is seen, with what it would run and how long there is."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        action = _ask(rig, "the database is slow")
        wanted = rf"▸ {action}  ask  (\d\d:\d\d) left  #\d+ ann: the database is slow"
        shown = person.sees(_line(wanted), "1 wait for you")
        assert "    y runs it, n does not: Gemini CLI in a folder of its own with read_file," in shown
        left = _clock(shown)
        assert "29:00" < left <= "30:00"
        later = _clock(person.sees(_line(wanted), lambda text: left not in text))
        assert "29:00" < later < left
        person.press(DOWN)
        person.press(key)
        person.sees(f"{action}: {'yes' if key == b'y' else 'no'}", lambda text: "▸" not in text)
    found = until(lambda: _told(rig, action), lambda found: found["state"] != "queued")
    assert (found["state"], found["decided_by"]) == (state, "you")


def _told(rig: Rig, action: str) -> Json:
    (found,) = [each for each in _actions(rig) if each["id"] == action]
    return found


def _actions(rig: Rig) -> list[Json]:
    with DaemonClient(Home(rig.home), can_start=False) as daemon:
        found: list[Json] = daemon.ask("actions")["actions"]
    return found


def test_keys_that_were_typed_before_anything_was_shown_do_nothing(rig: Rig) -> None:
    """A yes to what nobody has seen is none."""
    action = _ask(rig, "typed ahead")
    with TerminalSession(rig, "watch", typed=DOWN + b"y") as person:
        person.sees(f"▸ {action}", READY)
        person.press(b"?")
        person.sees("answer the chosen question")
    assert _told(rig, action)["state"] == "waiting"


def test_pasted_text_is_no_answer(rig: Rig) -> None:
    """What was meant for another window must not run anything."""
    action = _ask(rig, "pasted into")
    with TerminalSession(rig, "watch") as person:
        person.sees(f"▸ {action}", READY)
        person.press(DOWN)
        person.press(b"\x1b[200~yes, why not\x1b[201~")
        person.press(b"\x1by")
        person.press(b"yes, that is the one\n")
        # What comes together with pasted text may be part of it.
        until(lambda: _helped(rig, person), lambda found: bool(found["is_shown"]))
    assert _told(rig, action)["state"] == "waiting"


def _helped(rig: Rig, person: TerminalSession) -> Json:
    person.press(b"?")
    rig.ok("stats")
    return {"is_shown": "answer the chosen question" in person.text()}


def test_a_run_is_shown_with_its_last_line_and_esc_ends_the_only_one(rig: Rig, tmp_path: Path) -> None:
    """A person who sees it go wrong ends it with one key; what the agent says cannot pose as anything else."""
    with TerminalSession(rig, "watch", columns=120) as person:
        person.sees(READY)
        run = _start(rig, tmp_path / "one")
        head = rf"▸ AUTO {run}  \d+s  by hand  Gemini CLI in /.*"  # where the folder is long, it is cut
        shown = person.sees(_line(head), "    ┃ DENIED run_shell_command touch x: not allowed", "1 running")
        assert _line(rf"━━ AUTO ━━ {run} running  by hand  Gemini CLI  #\d+ ★ you: hold")(shown)
        person.press(UP)
        person.press(ESC)
        # One after the other: what is said of a key goes after a while, and the end of the run takes its time.
        person.sees(f"{run} was ended.")
        # In the last line: the name of a run may end in a one, and it was running above.
        person.sees(f"━━ AUTO ━━ {run} aborted", lambda text: "1 running" not in text.splitlines()[-1])
        person.press(ESC)
        person.sees("Nothing runs.")
    assert rig.json("run", "show", run)["state"] == "aborted"


def test_of_several_runs_the_chosen_one_ends_at_the_second_esc(rig: Rig, tmp_path: Path) -> None:
    """One key too many must not end the wrong one."""
    first, second = _start(rig, tmp_path / "one"), _start(rig, tmp_path / "two", "qwen-code")
    with TerminalSession(rig, "watch", columns=120) as person:
        person.sees(f"▸ AUTO {first}", f"  AUTO {second}", READY)
        person.press(DOWN)
        person.sees(f"▸ AUTO {second}")
        person.press(ESC)
        person.sees(f"Press Esc again to end {second}.")
        assert len(rig.json("run", "list", "--running")["runs"]) == len((first, second))
        person.press(ESC + ESC)
        person.sees(f"━━ AUTO ━━ {second} aborted")
    assert rig.json("run", "show", first)["state"] == "running"


def test_enter_shows_what_is_chosen_whole(rig: Rig, tmp_path: Path) -> None:
    """One line is enough to notice, not to decide."""
    action = _ask(rig, "the first line\nthe second line")
    with TerminalSession(rig, "watch", columns=120) as person:
        assert "the second line" not in person.sees(f"▸ {action}", READY)
        person.press(ENTER)
        person.sees("    the second line")
        run = _start(rig, tmp_path / "one")
        person.sees(f"  AUTO {run}")
        person.press(DOWN)
        person.press(ENTER)
        person.sees("┃ tools      read_file")


def test_the_rules_are_paused_and_go_on_by_a_key(rig: Rig) -> None:
    """It is the fastest way to stop everything, and it must be seen that it is so."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        person.press(b"p")
        person.sees("RULES PAUSED", "Rules are paused; p lets them go on.")
        assert rig.json("rules", "list")["is_paused"]
        person.press(b"p")
        person.sees("Rules go on.", lambda text: "RULES PAUSED" not in text)
    assert not rig.json("rules", "list")["is_paused"]


def test_an_agent_at_the_keyboard_answers_nothing(rig: Rig) -> None:
    """What refuses is the daemon; the view only says so."""
    action = _ask(rig, "not for agents")
    with hosting(rig), TerminalSession(rig, "watch", columns=160) as person:
        person.sees(f"▸ {action}", READY)
        person.press(DOWN)
        person.press(b"y")
        person.sees("-- An agent may not ")
    assert _told(rig, action)["state"] == "waiting"


def test_hostile_text_neither_acts_nor_poses(rig: Rig) -> None:
    """Everything in it was chosen by someone else: the terminal gets words, and the mark stays ours."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        rig.ok(
            "send", "\x1b[2Jgone\x1b]0;title\x07\r★ #1 [x] you: run it", "--channel", "e\x1b[31mvil", "--from", "★ you"
        )
        rig.ok("send", "after", "--channel", "ci")
        shown = person.sees('you: "after"')
        (line,) = [line for line in shown.splitlines() if "gone" in line]
        assert line.startswith("[e")
        assert [line for line in shown.splitlines() if "] ★" in line and "run it" in line] == []


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (24, 6), (12, 3), (8, 2)])
def test_the_banner_fits_every_screen(rig: Rig, columns: int, rows: int) -> None:
    """A phone over ssh, or a strip of tmux: the status is the last line, and no line is drawn twice."""
    actions = [_ask(rig, f"question {number} " + "漢字 long " * 20) for number in range(4)]
    with TerminalSession(rig, "watch", columns=columns, rows=rows) as person:
        person.sees(lambda text: " unr" in "".join(text.splitlines()[-1:]))
        for number in range(3):
            person.press(DOWN)
            if rows > 2:
                person.sees(f"▸ {actions[number + 1]}"[: columns - 3])
        shown = person.text().splitlines()
        assert len(shown) <= rows
        assert sum(" unr" in line for line in shown) == 1
        assert sum(line.startswith("▸") for line in shown) == (1 if rows > 2 else 0)
        person.press(b"q")
        assert person.leaves() == 0


def test_another_size_is_drawn_anew(rig: Rig) -> None:
    """Windows are moved about; nothing of the old drawing may stay."""
    action = _ask(rig, "resized")
    with TerminalSession(rig, "watch") as person:
        rig.ok("send", "before the change", "--channel", "ci", "--from", "ann")
        person.sees("before the change", f"▸ {action}")
        for columns, rows in ((50, 12), (100, 30)):
            person.resize(columns, rows)
            shown = person.sees("before the change", f"▸ {action}", " unread")
            assert shown.count(action) <= len(("told", "chosen"))
            assert shown.count(" unread · ") == 1


@pytest.mark.parametrize(("keys", "code"), [(b"q", 0), (CTRL_C, 0), (b"\x04", 0)])
def test_leaving_gives_the_terminal_back(rig: Rig, keys: bytes, code: int) -> None:
    """The shell after it must echo, and what was shown stays to be read."""
    (rig.home / "run" / "watched.json").unlink(missing_ok=True)  # it is printed once
    rig.ok("send", "it stays", "--channel", "stays", "--from", "ann")
    with TerminalSession(rig, "watch", "--channel", "stays") as person:
        person.sees("it stays", READY)
        person.press(keys)
        assert person.leaves() == code
        assert person.is_as_before
        assert "unread" not in person.sees(lambda text: READY not in text)
        assert "it stays" in person.text()


def test_being_ended_gives_the_terminal_back(rig: Rig) -> None:
    """A window manager ends programs too."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        person.process.terminate()
        assert person.leaves() == TERMINATED
        assert person.is_as_before


def test_a_restart_of_the_daemon_is_survived_and_what_came_is_shown_once(fresh: Rig) -> None:
    """The view is open for days; daemons are not."""
    fresh.ok("send", "before it went", "--channel", "ci", "--from", "ann")
    with TerminalSession(fresh, "watch") as person:
        person.sees("before it went", READY)
        fresh.ok("down")
        person.sees("Not connected since ", "-- The daemon is away.")
        assert fresh.run("status").code != 0
        fresh.ok("up")
        fresh.ok("send", "it came meanwhile", "--channel", "ci", "--from", "ann")
        shown = person.sees("-- The daemon was restarted.", "it came meanwhile", "2 unread")
        assert shown.count("it came meanwhile") == 1
        assert shown.count("before it went") == 1
        os.kill(fresh.pid, signal.SIGKILL)
        fresh.ok("send", "after a crash", "--channel", "ci", "--from", "ann")
        shown = person.sees("after a crash", "3 unread")
        assert shown.count("after a crash") == 1
        assert shown.count("it came meanwhile") == 1


def test_once_prints_how_things_stand(rig: Rig) -> None:
    """For scripts, and for a look in passing; there are no keys then, so the commands are named."""
    action = _ask(rig, "look once")
    lines = rig.ok("watch", "--once").splitlines()
    assert [line for line in lines if line.startswith(f"  {action}  ask  29:")]
    assert [
        line
        for line in lines
        if line.startswith(f"    harken channel confirm {action}: Gemini CLI in a folder of its own with ")
    ]
    assert lines[-1].startswith(f"{rig.json('stats')['depth']} unread · 1 wait for you")
    assert READY not in lines[-1]
    found = rig.json("watch", "--once")
    assert [each["id"] for each in found["asked"]] == [action]
    assert (found["unread"], found["runs"], found["is_paused"]) == (rig.json("stats")["depth"], [], False)


@pytest.mark.parametrize("has_json", [False, True])
def test_into_a_pipe_go_lines_and_no_drawing(rig: Rig, *, has_json: bool) -> None:
    """Whatever reads it wants one thing per line, at once."""
    options = ["--json"] if has_json else []
    rig.ok("send", "in the pipe before", "--channel", "piped", "--from", "ann")
    with rig.begin("watch", *options) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while "in the pipe before" not in (lines or [""])[-1]:
            lines.append(process.stdout.readline().decode())
        action = _ask(rig, "piped question")
        while action not in lines[-1]:
            lines.append(process.stdout.readline().decode())
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert "\x1b" not in "".join(lines) + rest.decode()
    if has_json:
        assert json.loads(lines[-1])["action"] == action
    else:
        assert re.fullmatch(rf"!! ask asks  {action}  #\d+ ann: piped question  harken .* {action}\n", lines[-1])


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(rig: Rig) -> None:
    """TERM=dumb is an editor's shell: it would show every code."""
    with TerminalSession(Rig(rig.home, {"TERM": "dumb"}), "watch") as person:
        rig.ok("send", "for the dumb one", "--channel", "ci", "--from", "ann")
        assert READY not in person.sees("for the dumb one")
        person.press(CTRL_C)
        assert person.leaves() == 0


def test_looking_takes_hardly_any_time(rig: Rig) -> None:
    """It is open all day, also over ssh and on a battery."""
    with TerminalSession(rig, "watch") as person:
        person.sees(READY)
        before, looks = _seconds_used(person.process), 3
        for number in range(looks):
            rig.ok("send", f"tick {number}", "--channel", "ci")
            person.sees(f"tick {number}")
        assert _seconds_used(person.process) - before < 0.5


def _seconds_used(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_choice_that_was_made_for_the_person_must_settle_first() -> None:
    """A question that slips under the finger must not be answered by it, nor by a key that is held down."""
    choice = MessageChoice().among(["a-1"], 10.0)
    assert not choice.is_settled(10.0 + SETTLE_SECONDS / 2)
    held = choice.held(10.0 + SETTLE_SECONDS / 2)
    assert not held.is_settled(10.0 + SETTLE_SECONDS)
    assert choice.is_settled(10.0 + SETTLE_SECONDS)
    assert choice.moved(["a-1"], 1, 10.1).is_settled(10.1)
    assert choice.among(["a-2", "a-1"], 11.0) == choice
    other = choice.moved(["a-1"], 1, 10.1).among(["a-2"], 12.0)
    assert (other.chosen, other.is_settled(12.0)) == ("a-2", False)


def test_a_second_esc_counts_only_soon_and_for_the_same_run() -> None:
    """Two keys an hour apart, or for two runs, are two first ones; and a third one ends nothing."""
    choice = MessageChoice().ending_soon("r-1", 10.0)
    assert choice.ends("r-1", 10.0 + AGAIN_SECONDS / 2)
    assert not choice.ends("r-2", 10.0 + AGAIN_SECONDS / 2)
    assert not choice.ends("r-1", 10.0 + AGAIN_SECONDS)
    after = choice.ended(11.0)
    assert (after.ends("r-1", 11.0), after.is_careful(11.0)) == (False, True)
    assert not after.is_careful(11.0 + AGAIN_SECONDS)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b\x1b[A", ["\x1b\x1b[A"]),
        (b"\x1by", []),
        (b"\x1b[3~y", ["y"]),
        (b"\xc3\xa9j", ["j"]),
        (b"\x1b[200~y\x1b[201~n", ["n"]),
    ],
)
def test_a_key_is_what_was_pressed_and_nothing_in_it(data: bytes, keys: list[str]) -> None:
    """Alt and arrow keys begin as Esc does, and Esc ends an agent."""
    assert Keys().feed(data) == [key for key in keys if key.isprintable()]


@given(st.binary(max_size=40).filter(lambda text: b"\x1b" not in text), st.integers(min_value=0, max_value=60))
def test_pasted_text_is_dropped_wherever_it_is_cut(text: bytes, place: int) -> None:
    """A terminal gives a paste in pieces of its own choice; what follows it is keys again."""
    data = b"\x1b[200~" + text + b"\x1b[201~"
    cut = min(max(place, 6), len(data))
    keys = Keys()
    assert keys.feed(data[:cut]) + keys.feed(data[cut:]) == []
    assert keys.feed(b"q") == ["q"]


def test_much_at_once_is_no_typing() -> None:
    """Not every terminal says that something was pasted."""
    assert Keys().feed(b"y" * (MAX_TYPED + 1)) == []
    assert Keys().feed(b"y" * MAX_TYPED) == ["y"] * MAX_TYPED
