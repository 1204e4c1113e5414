"""One exchange between a host and its model, in words that all protocols share.

Pure values. A request becomes a `ModelRequest`, what a script answers is a `ModelAnswer`. Hosts name their tools
differently, so a script names a tool by the ending of its name, or asks for the tool that runs a shell command;
`resolve` finds the tool that this request offers. Protocol modules are beside this one and know nothing of each other;
they look into JSON with the functions at the end, to which what is missing or of another kind is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

SIDE_TEXT: Final = "ok"
NEVER: Final = datetime.min.replace(tzinfo=UTC)
_SHELL: Final = "\x00shell"  # not a name that a tool could have
_DEPTH: Final = 8
_YIELD_MS: Final = 30_000  # the most that Codex allows

# How each host's shell tool is called: its name, and the argument that holds the command.
_SHELLS: Final[Mapping[str, str]] = {
    "Bash": "command",
    "bash": "command",
    "run_shell_command": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "shell": "command",
}
EVENT_STREAM: Final = "text/event-stream"
PLAIN_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One piece of a conversation. Roles: system, developer, user, assistant, call (of a tool), tool (its result)."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool that the model may call."""

    name: str
    namespace: str = ""  # some hosts group the tools of a server
    takes_text: bool = False  # it is called with free text, not with arguments

    @property
    def full_name(self) -> str:
        """The name with the group it belongs to."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request of a host to its model."""

    protocol: str
    model: str
    turns: tuple[ConversationTurn, ...]
    tools: tuple[ModelTool, ...]
    is_side: bool  # not the conversation itself: a title, a summary, a check
    is_stream: bool
    schema: Mapping[str, object] | None = None  # the JSON that the answer has to be, where the host wants JSON
    number: int = 0  # its place in the order of arrival
    arrived_at: datetime = NEVER  # when the model had read it, before anything was answered
    initiator: str = ""  # who caused it, where the host says so
    body: Mapping[str, object] = field(repr=False, default_factory=dict)

    @property
    def last_role(self) -> str:
        """The role of the last piece."""
        return self.turns[-1].role if self.turns else ""

    @property
    def text(self) -> str:
        """Everything the model gets to read, in order."""
        return "\n".join(turn.text for turn in self.turns)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools offered."""
        return tuple(tool.full_name for tool in self.tools)

    def holding(self, marker: str) -> tuple[ConversationTurn, ...]:
        """Return the pieces that contain a marker."""
        return tuple(turn for turn in self.turns if marker in turn.text)

    def count(self, marker: str) -> int:
        """Return how often a marker occurs in what the model gets to read, its own words left out."""
        return sum(turn.text.count(marker) for turn in self.turns if turn.role not in {"assistant", "call"})

    def tool(self, ending: str) -> ModelTool | None:
        """Return the tool with a name that is, or ends with, the given one."""
        exact = [tool for tool in self.tools if ending in {tool.name, tool.full_name}]
        if exact:
            return exact[0]
        fits = re.compile(rf"(?:^|[^A-Za-z0-9]){re.escape(ending)}$")
        return next((tool for tool in self.tools if fits.search(tool.full_name)), None)


OK: Final = 200


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call of the model. `tool` is an ending until `resolve` found the tool."""

    tool: str
    arguments: Mapping[str, object]
    namespace: str = ""
    takes_text: bool = False
    is_literal: bool = False  # made as it stands, also where no such tool is offered


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the model answers: a text, or tool calls, or first the one and then the others; or its service fails."""

    words: str = ""
    calls: tuple[ModelCall, ...] = ()
    status: int = OK

    @classmethod
    def failure(cls, status: int, words: str) -> ModelAnswer:
        """Return what its service answers when it fails, or the host has used up what it may."""
        return cls(words=words, status=status)

    @classmethod
    def text(cls, words: str) -> ModelAnswer:
        """Return an answer that ends the turn."""
        return cls(words=words)

    @classmethod
    def call(cls, tool: str, arguments: Mapping[str, object] | None = None) -> ModelAnswer:
        """Return one tool call; the tool is named by the ending of its name."""
        return cls(calls=(ModelCall(tool, arguments or {}),))

    @classmethod
    def literal(cls, tool: str, arguments: Mapping[str, object] | None = None) -> ModelAnswer:
        """Return a call of a tool by its whole name, whether it is offered or not: what a model may invent."""
        return cls(calls=(ModelCall(tool, arguments or {}, is_literal=True),))

    @classmethod
    def shell(cls, command: str) -> ModelAnswer:
        """Return a call of the host's own shell tool."""
        return cls(calls=(ModelCall(_SHELL, {"command": command}),))

    def beside(self, other: ModelAnswer) -> ModelAnswer:
        """Return an answer with the calls of both, made in parallel."""
        return ModelAnswer(words=self.words or other.words, calls=self.calls + other.calls)


Script: TypeAlias = Callable[[ModelRequest], ModelAnswer]


def in_order(*says: ModelAnswer, then: str = "done") -> Script:
    """Return a script that gives one answer after the other, and a text ever after; side requests use none up."""
    left = iter(says)

    def script(asked: ModelRequest) -> ModelAnswer:
        return side(asked) if asked.is_side else next(left, ModelAnswer.text(then))

    return script


def side(asked: ModelRequest) -> ModelAnswer:
    """Return a harmless answer to a side request, in the form it asks for."""
    return ModelAnswer.text(SIDE_TEXT if asked.schema is None else json.dumps(sample(asked.schema)))


def resolve(say: ModelAnswer, asked: ModelRequest) -> ModelAnswer:
    """Return the answer with the names of the tools that this request offers; a text where it offers none."""
    if say.status != OK:
        return say
    calls = [_resolved(call, asked) for call in say.calls]
    missing = [call.tool for call, found in zip(say.calls, calls, strict=True) if found is None]
    if missing:
        named = ", ".join("a shell" if tool == _SHELL else tool for tool in missing)
        return ModelAnswer.text(f"no such tool here: {named}")
    return ModelAnswer(words=say.words, calls=tuple(call for call in calls if call is not None))


def _resolved(call: ModelCall, asked: ModelRequest) -> ModelCall | None:
    if call.is_literal:
        return call
    if call.tool == _SHELL:
        return _shell_call(call, asked) or _program_call(call, asked)
    # A program that can call all tools comes first: their names may also stand in what the agent is told.
    return _plain_call(call, asked) or _program_call(call, asked) or _hidden_call(call, asked)


def _plain_call(call: ModelCall, asked: ModelRequest) -> ModelCall | None:
    tool = asked.tool(call.tool)
    return None if tool is None else ModelCall(tool.name, call.arguments, tool.namespace, tool.takes_text)


def _hidden_call(call: ModelCall, asked: ModelRequest) -> ModelCall | None:
    """Return a call of a tool that is only named in a text: hosts that hide tools behind a search let it be called."""
    hidden = re.search(rf"\bmcp__[A-Za-z0-9_-]*?{re.escape(call.tool)}\b", asked.text)
    return ModelCall(hidden.group(), call.arguments) if hidden else None


def _shell_call(call: ModelCall, asked: ModelRequest) -> ModelCall | None:
    for name, argument in _SHELLS.items():
        tool = next((tool for tool in asked.tools if tool.name == name), None)
        if tool is not None:
            # Some hosts insist on a description; where none is asked for, it is refused. Codex would return from a
            # command after ten seconds, and go on with it beside the turn.
            extra = {"yield_time_ms": _YIELD_MS} if argument == "cmd" else {"description": "a step of the trial"}
            return ModelCall(tool.name, {argument: call.arguments["command"], **extra}, tool.namespace)
    return None


def _program_call(call: ModelCall, asked: ModelRequest) -> ModelCall | None:
    """Return a call through the tool that takes a program and lets it call all the others."""
    wrapper = next((tool for tool in asked.tools if tool.name == "exec" and tool.takes_text), None)
    if wrapper is None:
        return None
    if call.tool == _SHELL:
        ending, arguments = "exec_command", json.dumps({"cmd": call.arguments["command"], "yield_time_ms": _YIELD_MS})
    else:
        ending, arguments = call.tool, json.dumps(dict(call.arguments))
    program = (
        f"const name = ALL_TOOLS.map((tool) => tool.name).find((name) => name.endsWith({json.dumps(ending)}));\n"
        f"text(await tools[name]({arguments}));"
    )
    return ModelCall(wrapper.name, {"input": program}, wrapper.namespace, takes_text=True)


def sample(schema: object, depth: int = _DEPTH) -> object:
    """Return the plainest value that a JSON schema allows. Schemas come from hosts: anything odd gives a string."""
    if not isinstance(schema, Mapping) or depth == 0:
        return SIDE_TEXT
    options = schema.get("enum")
    if isinstance(options, Sequence) and options and not isinstance(options, str):
        return options[0]
    kind = schema.get("type")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind).lower()
    if kind == "object":
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, Mapping) else ()
        return {str(name): sample(part, depth - 1) for name, part in items}
    plain: Mapping[str, object] = {"array": [], "boolean": False, "integer": 0, "number": 0, "null": None}
    return plain.get(kind, SIDE_TEXT)


def table(value: object) -> Mapping[str, object]:
    """Return an object's members."""
    return {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}


def row(value: object) -> Sequence[object]:
    """Return an array's items."""
    return value if isinstance(value, list | tuple) else ()


def word(value: object) -> str:
    """Return a string."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> str:
    """Return every text in a content, under any name of its blocks; anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(texts(part) for part in value)
    if isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            return str(value["text"])
        if "content" in value:
            return texts(value["content"])
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def events(*parts: tuple[str, object]) -> bytes:
    """Return a stream of named events."""
    return "".join(f"event: {name}\ndata: {compact(data)}\n\n" for name, data in parts).encode()


def lines(*parts: object) -> bytes:
    """Return a stream of events without names."""
    return "".join(f"data: {compact(data)}\n\n" for data in parts).encode()
