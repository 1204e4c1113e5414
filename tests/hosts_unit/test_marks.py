"""What a process tells of the host that has started it, or that it is."""

from __future__ import annotations

import pytest

from harken.hosts.host import FoundMark, find_marks, host_of_program, names_of_marks, without_marks
from harken.hosts.registry import host_marks

NODE = "/usr/bin/node"


def test_a_mark_says_which_conversation_and_which_process() -> None:
    """The command acts as that session, if it is here."""
    environ = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "0b6f", "CLAUDE_PID": "4711", "PATH": "/bin"}
    assert find_marks(environ, host_marks()) == [
        FoundMark(host="claude-code", variable="CLAUDECODE", native="0b6f", pid=4711)
    ]


@pytest.mark.parametrize("pid", ["", "x", "-1", "١٢", "1 2"])
def test_a_process_that_is_no_number_is_none(pid: str) -> None:
    """Whoever writes into an environment must not end a connection with an error."""
    assert [mark.pid for mark in find_marks({"OPENCODE": "1", "OPENCODE_PID": pid}, host_marks())] == [0]


def test_an_agent_in_the_shell_of_another_has_the_marks_of_both() -> None:
    """Which of them it is, only the sessions that are here can tell."""
    both = find_marks({"CODEX_THREAD_ID": "01a1", "GEMINI_CLI": "1"}, host_marks())
    assert [mark.host for mark in both] == ["codex", "gemini-cli"]


def test_an_environment_for_a_person_has_no_marks_and_everything_else() -> None:
    """A terminal that an agent opens is used by the person for weeks."""
    environ = dict.fromkeys(names_of_marks(host_marks()), "1")
    assert without_marks({**environ, "CODEX_HOME": "/c", "PATH": "/bin"}, host_marks()) == {
        "CODEX_HOME": "/c",
        "PATH": "/bin",
    }


@pytest.mark.parametrize(
    ("argv", "host"),
    [
        (["claude", "-p", "hi"], "claude-code"),
        (["/x/node_modules/@anthropic-ai/claude-code/bin/claude.exe"], "claude-code"),
        ([NODE, "/x/.bin/copilot", "-p", "hi"], "copilot-cli"),
        (["/x/@github/copilot-linux-x64/copilot"], "copilot-cli"),
        (["/x/codex-linux-x64/codex", "exec"], "codex"),
        ([NODE, "--max-old-space-size=12052", "/x/.bin/gemini"], "gemini-cli"),
        (["/x/opencode-ai/bin/opencode.exe", "run"], "opencode"),
        ([NODE, "--expose-gc", "/x/@qwen-code/qwen-code/cli.js"], "qwen-code"),
        ([], ""),
        (["-bash"], ""),
        (["/bin/sh", "-c", "claude"], ""),
        (["vim", "claude"], ""),
        (["/usr/bin/python3", "/home/me/claude"], ""),
        ([NODE], ""),
        ([NODE, "/x/server.js", "claude"], ""),
        (["/Applications/Claude.app/Contents/MacOS/Claude"], ""),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else str(value),
)
def test_a_hosts_program_is_known_by_the_words_that_it_was_started_with(argv: list[str], host: str) -> None:
    """As the real ones were seen in the list of processes; a shell, an editor or another program is none."""
    assert host_of_program(argv, host_marks()) == host
