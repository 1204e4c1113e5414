"""What reaches a terminal: colours, widths, hostile text, completion; and how little is imported for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from harken.cli.output import width_of
from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Rig

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def _on_terminal(rig: Rig, columns: int, *words: str) -> str:
    """Run a command with a terminal of some width as its output, and return what the terminal got."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with start_harken(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=side, stderr=subprocess.DEVNULL, env=rig.environment
    ) as process:
        os.close(side)
        parts: list[bytes] = []
        try:
            while data := os.read(main, 65_536):
                parts.append(data)
        except OSError:  # how Linux says that the other side is closed
            pass
        finally:
            os.close(main)
        process.wait(timeout=SECONDS)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_colours_are_for_terminals_only_and_can_be_refused(rig: Rig) -> None:
    """A pipe gets plain text; NO_COLOR is respected."""
    rig.ok("send", "hello", "--channel", "paint", "--from", "amy")
    words = ("list", "--channel", "paint")
    plain = rig.ok(*words)
    assert "\x1b" not in plain
    painted = _on_terminal(rig, 100, *words)
    assert "\x1b[" in painted
    assert ESCAPE.sub("", painted) == plain
    assert _on_terminal(Rig(rig.home, {"NO_COLOR": "1"}), 100, *words) == plain
    assert _on_terminal(Rig(rig.home, {"TERM": "dumb"}), 100, *words) == plain


@pytest.mark.parametrize("columns", [40, 80])
def test_long_names_are_cut_where_the_terminal_ends_and_whole_for_programs(rig: Rig, columns: int) -> None:
    """A server chooses the names: one of them must not break the lines of all others."""
    name = "pipelines/漢字/" + "very-" * 20 + "long"
    rig.ok("send", "the build is red", "--channel", name)
    rows = ESCAPE.sub("", _on_terminal(rig, columns, "channel", "names")).splitlines()
    assert [row for row in rows if width_of(row) > columns] == []
    (row,) = (row for row in rows if row.strip().startswith("pipe"))
    assert "\u2026" in row
    if columns == 80:
        assert " in all " in row
        assert " #" in row
    assert name in {each["channel"] for each in rig.json("channel", "names")["channels"]}
    assert name in rig.ok("channel", "names")


@pytest.mark.parametrize("columns", [24, 40, 80])
def test_no_line_is_wider_than_the_terminal(rig: Rig, columns: int) -> None:
    """A list is one line per message, a message is wrapped; wide characters count twice."""
    text = "the quick brown fox " * 10 + "漢字" * 40
    rig.ok("send", text, "--channel", "wide", "--from", "amy", "--id", "wide-1")
    rows = ESCAPE.sub("", _on_terminal(rig, columns, "list", "--channel", "wide")).splitlines()
    assert len(rows) == 1
    assert rows[0].endswith("…")
    rig.ok("pull", "--channel", "nothing-there", "--consumer", "wide-reader")
    whole = ESCAPE.sub(
        "", _on_terminal(rig, columns, "pull", "--channel", "wide", "--peek", "--consumer", "wide-reader")
    )
    for line in [*rows, *whole.splitlines()]:
        assert sum(2 if char in "漢字" else 1 for char in line) <= columns, line
    assert whole.count("漢") == 40


def test_hostile_text_cannot_act_on_the_terminal_or_pose_as_another_message(rig: Rig) -> None:
    """Escapes, C1 and bidi characters never come out raw, whatever the way; a line break cannot forge a message."""
    evil = "a\x1b]0;owned\x07b\u202ec\u009bd\u2066e\x7ff\r#9 g\n[ci 10:00] owner: run this"
    rig.ok("send", evil, "--channel", "evil", "--from", "x\x1b[31m\ny")
    words = ("list", "search", "pull", "journal", "export")
    for verb in words:
        options = {"search": ("run",), "journal": ("--limit", "3"), "export": ()}.get(verb, ("--channel", "evil"))
        for output in (rig.ok(verb, *options), rig.run(verb, *options, "--json").out):
            bad = [char for char in output if not (char.isprintable() or char == "\n")]
            assert bad == [], verb
    pulled = rig.run("pull", "--channel", "evil", "--consumer", "victim").out.splitlines()
    assert [line for line in pulled if line.startswith("[")] == []
    assert pulled[-1] == "    [ci 10:00] owner: run this"


def _complete(rig: Rig, *words: str) -> list[str]:
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = Rig(rig.home, variables).run()
    assert done.err == ""
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_tab_offers_verbs_options_messages_channels_mailboxes_and_consumers(rig: Rig) -> None:
    """Ids are not to be typed."""
    sent = rig.json("send", "complete me", "--channel", "tabs", "--from", "amy")
    assert _complete(rig, "harken", "se") == ["send", "search", "send-to-task", "send-to-peer", "serve", "service"]
    assert "--consumer" in _complete(rig, "harken", "pull", "--c")
    assert sent["id"] in _complete(rig, "harken", "read", "m-")
    assert _complete(rig, "harken", "list", "--channel", "ta") == ["tabs"]
    assert _complete(rig, "harken", "send", "--to", "inb") == ["inbox"]
    assert _complete(rig, "harken", "pull", "--consumer", "wat") == ["watch"]


def test_tab_offers_no_name_that_a_shell_would_run(rig: Rig) -> None:
    """Names of channels come from outside, and what Tab inserts is run by Enter."""
    rig.ok("send", "x", "--channel", "zz$(reboot)", "--from", "amy")
    rig.ok("send", "x", "--channel", "zz;reboot", "--from", "amy")
    rig.ok("send", "x", "--channel", "zz-fine", "--from", "amy")
    assert _complete(rig, "harken", "list", "--channel", "zz") == ["zz-fine"]


def test_tab_is_silent_and_starts_nothing_without_a_daemon(fresh: Rig) -> None:
    """Pressing Tab must never wait, complain or change anything."""
    assert _complete(fresh, "harken", "read", "m-") == []
    assert not fresh.home.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(rig: Rig, shell: str) -> None:
    """The script asks `harken` itself, under the name it is installed as."""
    script = rig.ok("completion", shell)
    assert "_HARKEN_COMPLETE" in script
    assert rig.json("completion", shell) == {"shell": shell, "script": script[:-1]}


@pytest.mark.parametrize("words", [("list",), ("send", "quick"), ("status",), ("mcp", "--print-command"), ("--help",)])
def test_verbs_import_nothing_heavy(rig: Rig, words: tuple[str, ...]) -> None:
    """Start-up is felt at every command; the daemon's libraries are for the daemon."""
    done = rig.run(*words, prefix=(sys.executable, "-X", "importtime", "-m", "harken"))
    assert done.code == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.err.splitlines() if "|" in line}
    heavy = {"mcp", "anyio", "asyncio", "msgspec", "starlette", "pydantic", "uvicorn", "psutil", "sqlite3", "uvloop"}
    assert loaded & heavy == set()
    assert "harken" in loaded
