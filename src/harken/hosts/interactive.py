"""How a person starts each host in a terminal, with a first prompt where one is wanted.

Facts and the command that follows from them; nothing is started here. What the prompt says is the caller's business:
it stands in the list of processes, where everybody on the machine can read it, so it never holds a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Interactive:
    """How one host is started."""

    program: str
    install: str  # the command that installs it
    opening: tuple[str, ...] = ()  # the option before a first prompt; none where the prompt is an argument
    # In a worktree it reads the settings of a folder from there, from the main checkout, or some from each.
    reads: tuple[Literal["folder", "main"], ...] = ("folder",)

    def command(self, program: str, prompt: str, extra: Sequence[str]) -> tuple[str, ...]:
        """Return the whole command; `extra` are the person's own arguments.

        The prompt comes first: an option with many values would swallow it. With a command of the host's own, such as
        `resume`, there is no place for one.
        """
        has_verb = bool(extra) and not extra[0].startswith("-")
        first = (*self.opening, prompt) if prompt and not has_verb else ()
        return (program, *first, *extra)


INTERACTIVE: Final[Mapping[str, Interactive]] = MappingProxyType(
    {
        "claude-code": Interactive(
            program="claude", install="npm install -g @anthropic-ai/claude-code", reads=("main",)
        ),
        "copilot-cli": Interactive(program="copilot", install="npm install -g @github/copilot", opening=("-i",)),
        # Its MCP servers are the worktree's own, its hooks those of the main checkout.
        "codex": Interactive(program="codex", install="npm install -g @openai/codex", reads=("folder", "main")),
        "gemini-cli": Interactive(program="gemini", install="npm install -g @google/gemini-cli", opening=("-i",)),
        "opencode": Interactive(program="opencode", install="npm install -g opencode-ai", opening=("--prompt",)),
        "qwen-code": Interactive(program="qwen", install="npm install -g @qwen-code/qwen-code", opening=("-i",)),
    }
)
