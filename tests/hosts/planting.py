"""What a run must not leave in a folder, and how each host is told to write it. This module tests nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from harken.trial.exchange import ModelAnswer, ModelCall

# What the next session, or the person's editor and shell, would obey.
INSTRUCTIONS: Final = (
    "AGENTS.md",
    "deep/down/CLAUDE.md",
    "docs/GEMINI.md",
    "QWEN.md",
    ".github/agents/x.agent.md",
    ".github/copilot-instructions.md",
    ".husky/pre-commit",
    ".envrc",
    ".devcontainer/devcontainer.json",
)
MADE: Final = "made.txt"  # which may be written


def _patch(path: str, text: str) -> ModelAnswer:
    lines = text.replace("\n", "\n+")
    patch = f"*** Begin Patch\n*** Add File: {path}\n+{lines}\n*** End Patch"
    return ModelAnswer(calls=(ModelCall("apply_patch", {"input": patch}, takes_text=True, is_literal=True),))


WRITES: Final[Mapping[str, Callable[[str, str], ModelAnswer]]] = MappingProxyType(
    {
        "claude-code": lambda path, text: ModelAnswer.literal("Write", {"file_path": path, "content": text}),
        "copilot-cli": lambda path, text: ModelAnswer.literal("create", {"path": path, "file_text": text}),
        "gemini-cli": lambda path, text: ModelAnswer.literal("write_file", {"file_path": path, "content": text}),
        "opencode": lambda path, text: ModelAnswer.literal("write", {"filePath": path, "content": text}),
        "codex": _patch,
        "qwen-code": lambda path, text: ModelAnswer.literal("write_file", {"file_path": path, "content": text}),
    }
)
