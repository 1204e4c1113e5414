"""What every sandbox refuses, and what it tells of a failure: without the programs, as their words were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pytest

from harken.hosts.registry import sandboxes
from harken.runs.sandbox import OutputEvent, OutputKind, Sandbox
from harken.runs.tools import parse_tool

ALL: Final = "read_file, list_files, search_files, edit_file, shell, shell:git log, near/note"
UNFENCED: Final = (
    "list_files", "search_files", "edit_file", "edit_instructions", "shell", "shell:git log", "web_fetch",
)  # fmt: skip
TURNS: Final = "It was ended: it took all the turns that it has."
# Tools, and a part of what is said to them; nothing where they can be given.
REFUSALS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "claude-code": {
            f"{ALL}, Grep": "",
            "Bash": "Claude Code has no tool 'Bash' that a run can be given: did you mean",
            "Grepp": "Claude Code has no tool 'Grepp' that a run can be given: did you mean Grep?",
            "shell:a,b": "name plain words",
            "shell:x)": "name plain words",
            "a/b__x, a__b/y": "cannot tell the servers a, a__b apart",
        },
        "copilot-cli": {
            f"{ALL}, grep": "",
            "task": "Copilot CLI has no tool 'task' that a run can be given",
            "creat": "did you mean create?",
        },
        "codex": {
            "shell, read_file, edit_file, near/note": "",
            "exec_command, read_file": "",
            "read_file": "name `shell`",
            "list_files, edit_file": "name `shell`",
            "search_files": "name `shell`",
            "shell:git log": "cannot limit its shell",
            "view_image": "no tool 'view_image'",
            "aply_patch": "did you mean apply_patch",
        },
        "gemini-cli": {
            f"{ALL}, web_fetch": "",
            "run_shell_command": "shell",
            "read_files": "read_file",
            "invoke_agent": "no tool",
        },
        "opencode": {
            f"{ALL}, read": "",
            "bash": "write `shell`",
            "task": "no tool 'task'",
            "red": "did you mean read",
            "a/b_c, a_b/c": "rename one",
        },
        "qwen-code": {
            "read_file, near/note": "",
            **dict.fromkeys((f"read_file, {tool}" for tool in UNFENCED), "Qwen Code "),
        },
    }
)
COMMANDS: Final = {"shell:": "plain words", "shell:git log; rm": "plain words"}
APART: Final = {"a.b/x, a_b/x": "a.b, a_b apart"}
# What a host printed, what it complained of, how it ended, and what the person reads.
FAILURES: Final[Sequence[tuple[str, bytes, str, int, str]]] = (
    (
        "claude-code",
        b'{"type":"result","subtype":"error_max_turns","is_error":true}',
        "",
        1,
        "It used all the turns that it was given.",
    ),
    ("claude-code", b'{"type":"result","is_error":true,"result":"Not logged in"}', "", 1, "Not logged in"),
    ("claude-code", b'{"type":"result","subtype":"error_other"}', "", 1, "Claude Code failed: error_other."),
    ("claude-code", b"", "\nClaude Code could not start.\nmore\n", 1, "Claude Code could not start."),
    ("claude-code", b"", "", 3, "Claude Code ended with 3 and said nothing."),
    ("copilot-cli", b'{"type":"session.error","data":{"message":"Could not connect."}}', "", 1, "Could not connect."),
    ("copilot-cli", b"", "Error: No authentication.\n\nTo authenticate,\n", 1, "Error: No authentication."),
    ("copilot-cli", b"", "", 3, "Copilot CLI ended with 3 and said nothing."),
    ("codex", b'{"type":"turn.failed","error":{"message":"no credit"}}', "x", 1, "no credit"),
    ("codex", b'{"type":"error","message":"Reconnecting... 2/5"}', "x", 1, "Reconnecting... 2/5"),
    ("codex", b"", "first\nlast words\n", 1, "last words"),
    ("codex", b"", "", 1, "Codex ended with 1."),
    (
        "gemini-cli",
        b'{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"Reached max"}}',
        "noise",
        53,
        TURNS,
    ),
    ("gemini-cli", b"", "a\nlast words\n", 1, "last words"),
    ("gemini-cli", b"", "last words {\n  }\n}\n", 1, "last words {"),
    (
        "opencode",
        b'{"type":"error","error":{"name":"APIError","data":{"message":"no credit"}}}',
        "x",
        1,
        "no credit",
    ),
    ("opencode", b'{"type":"error","error":{"name":"Unknown"}}', "x", 1, "Unknown"),
    ("opencode", b"", "first\nlast words\n", 1, "last words"),
    ("opencode", b"", "", 1, "opencode ended with 1."),
    (
        "qwen-code",
        b'{"type":"result","message":{"content":[]},"is_error":true,"error":{"message":"Missing API key"}}',
        "noise",
        1,
        "Missing API key",
    ),
    ("qwen-code", b"", "", 53, TURNS),
)


def sandbox_of(host: str) -> Sandbox:
    """Return the sandbox of a host."""
    return next(each for each in sandboxes() if each.host == host)


def refusals() -> list[tuple[str, str, str]]:
    """Return each host with tools that it is asked for, and a part of what it says."""
    found = []
    for host, rows in REFUSALS.items():
        shared = {} if host == "qwen-code" else APART if host == "codex" else {**COMMANDS, **APART}
        found += [(host, tools, part) for tools, part in {**rows, **shared}.items()]
    return found


@pytest.mark.parametrize(("host", "tools", "part"), refusals())
def test_what_cannot_be_fenced_is_refused_in_one_sentence(host: str, tools: str, part: str) -> None:
    """A rule that would get more than it names must not run at all; its author reads why when it is loaded."""
    said = sandbox_of(host).refusal([parse_tool(tool) for tool in tools.split(", ")])
    assert part in said
    assert bool(said) is bool(part)
    assert "\n" not in said


@pytest.mark.parametrize(("host", "line", "stderr", "exit_code", "reason"), FAILURES)
def test_failure_has_one_reason(host: str, line: bytes, stderr: str, exit_code: int, reason: str) -> None:
    """The best that was said is what the person sees; two reasons for one end would leave them guessing."""
    transcript = sandbox_of(host).transcript()
    told = [*transcript.feed(line), *transcript.finish(stderr, exit_code)]
    assert told == [OutputEvent(OutputKind.ERROR, reason)]
