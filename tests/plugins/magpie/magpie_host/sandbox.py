"""Magpie run headless and fenced: only the tools of the rule, in a home that is made anew. Reads what it prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harken.hosts.run_environment import entry, environment, first_line, held_parts, unfit, word
from harken.runs.sandbox import (
    OutputEvent,
    OutputKind,
    OutputReader,
    RunFile,
    RunFileKind,
    Sandbox,
    SandboxCommand,
    SandboxRequest,
)
from harken.runs.tools import Ability, Tool

_ABLE: Final = frozenset({Ability.READ_FILE, Ability.LIST_FILES, Ability.SEARCH_FILES})


@dataclass(frozen=True, slots=True)
class MagpieSandbox:
    """How Magpie runs fenced."""

    host: str = "magpie"
    program: str = "magpie"
    variables: Sequence[str] = ("MAGPIE_KEY", "PYTHONPATH")  # it is a Python program itself

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why Magpie cannot be fenced to these tools; empty when it can."""
        other = [tool.text for tool in tools if tool.ability not in _ABLE]
        return unfit("Magpie", tools, ()) or (f"Magpie can only read files, not {other[0][:60]!r}." if other else "")

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        fence = {"tools": [tool.text for tool in work.tools], "untouched": held_parts(work.tools)}
        return SandboxCommand(
            argv=(work.program, "--headless", "--settings", str(work.private / "fence.json")),
            env=environment(work, self.variables, {"HOME": str(work.private)}),
            stdin=work.prompt.encode("utf-8", "replace"),
            files=(RunFile("fence.json", RunFileKind.FILE, json.dumps(fence)),),
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return MagpieOutput()


class MagpieOutput:
    """The output of one run: one object in JSON on each line."""

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        event = entry(line)
        if "denied" in event:
            return (OutputEvent(OutputKind.DENIED, word(event.get("why")), word(event["denied"])),)
        if "answer" in event:
            return (OutputEvent(OutputKind.TURN), OutputEvent(OutputKind.ANSWER, word(event["answer"])))
        return ()

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        return (OutputEvent(OutputKind.ERROR, first_line(stderr) or "Magpie failed."),) if exit_code else ()


SANDBOX: Final[Sandbox] = MagpieSandbox()
