"""How the model of each host calls what tests ask for: its shell, its tools for files, and the tools of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.trial.exchange import ModelAnswer, ModelCall

_LOOK: Final = (("description", "look"),)


def patch(*lines: str) -> ModelAnswer:
    """Return a call of the tool that changes files by patches, as Codex's models make it."""
    text = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
    return ModelAnswer(calls=(ModelCall("apply_patch", {"input": text}, takes_text=True, is_literal=True),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How a host calls what its model asks for."""

    execute: str
    command: str = "command"  # the argument of `execute` that holds the command
    beside: tuple[tuple[str, object], ...] = ()  # what else it wants to be told; some refuse a call with more
    read: str
    path: str  # the argument of `read` and `write` that names the file
    write: str
    content: str = "content"  # the argument of `write` that holds the text
    edit: str = ""
    old: str = ""  # the arguments of `edit`
    new: str = ""
    server: str  # the name of a server's tool, from both of theirs
    is_grouped: bool = False  # tools of a server are offered in a group, by their short names

    def run(self, line: str) -> ModelAnswer:
        """Return a call that runs a command."""
        return ModelAnswer.literal(self.execute, {self.command: line, **dict(self.beside)})

    def look(self, path: Path | str) -> ModelAnswer:
        """Return a call that reads a file."""
        return ModelAnswer.literal(self.read, {self.path: str(path)})

    def put(self, path: Path | str, text: str) -> ModelAnswer:
        """Return a call that makes a file."""
        if self.write == "apply_patch":
            added = text.replace("\n", "\n+")
            return patch(f"*** Add File: {path}", f"+{added}")
        return ModelAnswer.literal(self.write, {self.path: str(path), self.content: text})

    def change(self, path: Path | str, old: str, new: str) -> ModelAnswer:
        """Return a call that changes a file."""
        given = {self.path: str(path), self.old: old, self.new: new}
        return ModelAnswer.literal(
            self.edit, {**given, "instruction": "change it"} if self.edit == "replace" else given
        )

    @property
    def note(self) -> str:
        """What the tool of the server `lab` is called that rules allow."""
        return self.of_server("lab", "note")

    @property
    def other(self) -> str:
        """What the other tool of that server is called."""
        return self.of_server("lab", "other")

    def of_server(self, server: str, tool: str) -> str:
        """Return what a tool of a server is called."""
        return self.server.format(server, tool)

    def mark(self, server: str = "lab") -> ModelAnswer:
        """Return a call of the tool `note` of a server."""
        if self.is_grouped:
            return ModelAnswer.call("note", {"text": "x"})
        return ModelAnswer.literal(self.of_server(server, "note"), {"text": "x"})


WORDS: Final[Mapping[str, Words]] = MappingProxyType(
    {
        "claude-code": Words(
            execute="Bash",
            beside=_LOOK,
            read="Read",
            path="file_path",
            write="Write",
            edit="Edit",
            old="old_string",
            new="new_string",
            server="mcp__{}__{}",
        ),
        "copilot-cli": Words(
            execute="bash",
            beside=_LOOK,
            read="view",
            path="path",
            write="create",
            content="file_text",
            edit="edit",
            old="old_str",
            new="new_str",
            server="{}-{}",
        ),
        "codex": Words(
            execute="exec_command",
            command="cmd",
            read="view_image",
            path="path",
            write="apply_patch",
            server="mcp__{}__{}",
            is_grouped=True,
        ),
        "gemini-cli": Words(
            execute="run_shell_command",
            read="read_file",
            path="file_path",
            write="write_file",
            edit="replace",
            old="old_string",
            new="new_string",
            server="mcp_{}_{}",
        ),
        "opencode": Words(
            execute="bash",
            beside=_LOOK,
            read="read",
            path="filePath",
            write="write",
            edit="edit",
            old="oldString",
            new="newString",
            server="{}_{}",
        ),
        "qwen-code": Words(
            execute="run_shell_command",
            beside=(("is_background", False),),
            read="read_file",
            path="file_path",
            write="write_file",
            edit="edit",
            old="old_string",
            new="new_string",
            server="mcp__{}__{}",
        ),
    }
)
READERS: Final = tuple(name for name in WORDS if name != "codex")  # which has a shell to read with
EDITORS: Final = tuple(name for name in WORDS if name != "qwen-code")  # which cannot be fenced to edits
