"""`TrialRecipe`: how one agent host is started for a trial, what replaces its model, and how it is asked something.

`overrides` are the arguments and variables that replace the model and nothing else; they write nothing into a person's
settings. `prepare` writes what a new, private home needs so that the host starts without asking who you are; it is
never used on a person's own. Both were found by running the hosts, and are run by the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KEY: Final = "trial-key-that-opens-nothing"
MODEL: Final = "mock-model"
TERMINAL: Final = "xterm-256color"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverrides:
    """What replaces the model of a host, and only that."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()  # variables that would lead to another model

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the model replaced in it."""
        kept = {name: value for name, value in environ.items() if name not in self.without}
        return {**kept, **self.env}


def _nothing(_project: Path) -> None:
    """Write nothing: most hosts need no folder for a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecipe:
    """How one host is started for a trial."""

    overrides: Callable[[str], ModelOverrides]  # from the model's address: for a home that knows nothing of the trial
    prepare: Callable[[Path, Path, str], None]  # writes into a private home, for a project folder and a model
    headless_argv: Callable[[str], tuple[str, ...]]  # from a prompt
    private: Callable[[str], ModelOverrides] | None = None  # what a prepared home still needs; None: all of `overrides`
    # Writes into a folder of the trial's own, for a host that reads it there.
    prepare_folder: Callable[[Path], None] = _nothing
    interactive_argv: tuple[str, ...] = ()
    fed_argv: tuple[str, ...] = ()  # with these it stays idle without a terminal, and reads prompts from stdin
    verb: tuple[str, ...] = ()  # comes before the overrides when headless
    quiet: Mapping[str, str] = field(default_factory=dict)  # keeps a private host off the network
    ready: str = ""  # what the screen shows once a prompt can be typed

    @property
    def needs_folder(self) -> bool:
        """Whether the model is only replaced in a folder of the trial's own, which was prepared."""
        return self.prepare_folder is not _nothing

    def for_private(self, model_url: str) -> ModelOverrides:
        """Return what replaces the model in a home that was prepared."""
        return (self.private or self.overrides)(model_url)

    def environment(self, model_url: str, user: Path, path: str) -> dict[str, str]:
        """Return a whole environment for a prepared home; nothing of the person's own gets in."""
        base = {"HOME": str(user), "PATH": path, "TERM": TERMINAL, "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
        return {**base, **self.quiet, **self.for_private(model_url).env}

    def headless(self, program: Path, prompt: str, overrides: ModelOverrides, *extra: str) -> tuple[str, ...]:
        """Return the command that asks one thing and ends."""
        return (str(program), *self.verb, *overrides.argv, *extra, *self.headless_argv(prompt))

    def interactive(self, program: Path, overrides: ModelOverrides, *extra: str) -> tuple[str, ...]:
        """Return the command for a terminal."""
        return (str(program), *overrides.argv, *self.interactive_argv, *extra)


def write_file(path: Path, content: object) -> None:
    """Write a text, or anything else as JSON, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n", encoding="utf-8")
