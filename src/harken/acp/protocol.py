"""The nouns of the Agent Client Protocol, in its versions 1 and 2: what is said, as values, and how it is written.

Pure. What comes from the other side is read as far as it can be: a field that is missing, or of another type, is empty,
and words that are not known are kept as they are. What a session says is data, and hostile.

Version 1 answers a prompt at the end of its turn. Version 2 answers it at once, with the id of the message; the agent
reports that message where it was put into the conversation, and says by its state when the turn is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harken import __version__

OLD: Final = 1
NEW: Final = 2
VERSIONS: Final = (OLD, NEW)

Fields = Mapping[str, object]
"""An object of JSON."""

NOTHING: Final[Fields] = MappingProxyType({})


class Method(StrEnum):
    """What one side asks the other, or tells it."""

    INITIALIZE = "initialize"
    AUTHENTICATE = "authenticate"
    NEW = "session/new"
    LOAD = "session/load"
    RESUME = "session/resume"
    LIST = "session/list"
    CLOSE = "session/close"
    PROMPT = "session/prompt"
    CANCEL = "session/cancel"
    STEER = "_session/steering"  # an extension: into the turn that runs
    UPDATE = "session/update"
    ASK = "session/request_permission"
    CANCEL_REQUEST = "$/cancel_request"


class ProxyMethod(StrEnum):
    """What `harken acp`, between an editor and its agent, tells the daemon beside what the agent says."""

    AGENT = "_harken/agent"  # its process, and how it has greeted the editor
    SESSION = "_harken/session"  # a conversation is open
    CLOSED = "_harken/closed"
    TURN = "_harken/turn"  # one that the daemon has not begun begins, or is over
    ANSWERED = "_harken/answered"  # a question, in the editor


class ErrorCode:
    """Numbers of errors."""

    BUSY: Final = -32090  # our own: a turn goes on that the daemon has not begun
    PARSE: Final = -32700
    INVALID: Final = -32600
    NO_METHOD: Final = -32601
    BAD_PARAMS: Final = -32602
    INTERNAL: Final = -32603
    CANCELLED: Final = -32800
    NEEDS_SIGN_IN: Final = -32000
    NOT_FOUND: Final = -32002


class StopReason(StrEnum):
    """Why a turn is over. An agent may say another word."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"
    ERROR = "error"  # version 2


class UpdateKind(StrEnum):
    """What an update of a session is about. An agent may say another word."""

    USER_CHUNK = "user_message_chunk"
    USER = "user_message"
    AGENT_CHUNK = "agent_message_chunk"
    AGENT = "agent_message"
    THOUGHT_CHUNK = "agent_thought_chunk"
    THOUGHT = "agent_thought"
    TOOL = "tool_call"
    TOOL_CHANGE = "tool_call_update"
    TOOL_CHUNK = "tool_call_content_chunk"
    PLAN = "plan"
    PLAN_CHANGE = "plan_update"
    STATE = "state_update"
    COMMANDS = "available_commands_update"
    MODE = "current_mode_update"
    OPTIONS = "config_option_update"
    INFO = "session_info_update"
    USAGE = "usage_update"


class SessionState(StrEnum):
    """What a session of version 2 does."""

    RUNNING = "running"
    IDLE = "idle"
    NEEDS_ACTION = "requires_action"


class OptionKind(StrEnum):
    """What an answer to a permission request means."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"


class SteeringOutcome(StrEnum):
    """What became of a text that was to go into a turn."""

    INJECTED = "injected"
    NEW_TURN = "startedNewTurn"
    PROMPT_REQUIRED = "promptRequired"  # no turn runs: nothing was done with it


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGreeting:
    """What an agent says of itself when it is greeted."""

    version: int  # of the protocol, as the agent chose it
    name: str = ""
    release: str = ""
    can_load: bool = False  # and shows again what was said
    can_resume: bool = False
    can_list: bool = False
    can_close: bool = False
    can_steer: bool = False
    sign_ins: tuple[str, ...] = ()  # ids of the ways to sign in
    raw: Fields = field(default_factory=dict[str, object], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A conversation that an agent has kept."""

    id: str
    cwd: str
    title: str = ""
    updated_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReceipt:
    """The answer to a prompt: how its turn ended (version 1), or the id that its message was given (version 2)."""

    stop: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdate:
    """Something that a session reports."""

    session: str
    kind: str  # an `UpdateKind`, or another word
    message: str = ""  # the id of the message
    text: str = ""
    tool: AcpToolCall | None = None
    state: str = ""  # a `SessionState`, or another word
    stop: str = ""  # of one that is idle now: why
    plan: Sequence[PlanStep] = ()
    raw: Fields = field(default_factory=dict[str, object], repr=False)  # all of it

    @property
    def is_from_user(self) -> bool:
        """Whether it shows what was said to the agent."""
        return self.kind in (UpdateKind.USER, UpdateKind.USER_CHUNK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step of an agent's plan."""

    text: str
    status: str = ""
    priority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDiff:
    """A change of a file, as an agent shows it."""

    path: str
    new: str
    old: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpToolCall:
    """One use of a tool, as far as it was told."""

    id: str
    title: str = ""
    name: str = ""
    kind: str = ""
    status: str = ""
    input: object = None
    text: str = ""
    changes: Sequence[AgentDiff] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionOption:
    """One answer that an agent takes."""

    id: str
    name: str
    kind: str  # an `OptionKind`, or another word


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What an agent asks before it uses a tool."""

    session: str
    tool: AcpToolCall
    title: str = ""
    why: str = ""
    command: str = ""
    cwd: str = ""
    options: Sequence[PermissionOption] = ()
    raw: Fields = field(default_factory=dict[str, object], repr=False)

    def option(self, *kinds: OptionKind) -> PermissionOption | None:
        """Return the only answer of the first kind that has one; None where there are several, or none.

        Of two answers of a kind it is not known which one was meant.
        """
        for kind in kinds:
            found = [each for each in self.options if each.kind == kind]
            if found:
                return found[0] if len(found) == 1 else None
        return None


def hello(version: int) -> dict[str, object]:
    """Return how a client greets an agent: it has no files and no terminals to offer."""
    who = {"name": "harken", "title": "Harken", "version": __version__}
    can = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    # In the words of both versions: which one it will be is the agent's choice.
    old, new = {"clientInfo": who, "clientCapabilities": can}, {"info": who, "capabilities": {}}
    return {"protocolVersion": version, **old, **(new if version >= NEW else {})}


def greeting_of(result: Fields) -> AgentGreeting:
    """Return what an agent has answered to the greeting; a version that is no number is 0."""
    version = result.get("protocolVersion")
    who = fields(result, "info") or fields(result, "agentInfo")
    can = fields(result, "capabilities") or fields(result, "agentCapabilities")
    sessions = fields(can, "sessionCapabilities")
    is_new = isinstance(version, int) and version >= NEW
    has_sessions = is_new and isinstance(can.get("session"), Mapping)

    def has(name: str) -> bool:
        return has_sessions or isinstance(sessions.get(name), Mapping)

    return AgentGreeting(
        version=version if isinstance(version, int) and not isinstance(version, bool) else 0,
        name=text(who, "name"),
        release=text(who, "version"),
        can_load=has_sessions or can.get("loadSession") is True,
        can_resume=has("resume"),
        can_list=has("list"),
        can_close=has("close"),
        can_steer=fields(fields(result, "_meta"), "steering").get("supported") is True,
        sign_ins=tuple(text(each, "id") for each in objects(result, "authMethods") if text(each, "id")),
        raw=result,
    )


def listed_of(result: Fields) -> Sequence[ListedSession]:
    """Return the conversations in the answer to a listing."""
    return [
        ListedSession(
            id=text(each, "sessionId"),
            cwd=text(each, "cwd"),
            title=text(each, "title"),
            updated_at=text(each, "updatedAt"),
        )
        for each in objects(result, "sessions")
        if text(each, "sessionId")
    ]


def text_block(said: str) -> dict[str, object]:
    """Return a text as a part of a prompt."""
    return {"type": "text", "text": said}


def receipt_of(result: Fields) -> PromptReceipt:
    """Return what the answer to a prompt says."""
    return PromptReceipt(stop=text(result, "stopReason"), message=text(result, "messageId"))


def steering_of(result: Fields) -> str:
    """Return what an agent did with a text for its turn: a `SteeringOutcome`, or another word."""
    return text(result, "outcome")


def update_of(params: Fields) -> SessionUpdate | None:
    """Return what a session reports; None where it does not say which one, or what."""
    raw = fields(params, "update")
    session, kind = text(params, "sessionId"), text(raw, "sessionUpdate")
    if not session or not kind:
        return None
    is_tool = kind in (UpdateKind.TOOL, UpdateKind.TOOL_CHANGE, UpdateKind.TOOL_CHUNK)
    steps = objects(raw, "entries") or objects(fields(raw, "plan"), "entries")
    return SessionUpdate(
        session=session,
        kind=kind,
        message=text(raw, "messageId"),
        text="" if is_tool else content_text(raw.get("content")),
        tool=tool_of(raw) if is_tool else None,
        state=text(raw, "state") if kind == UpdateKind.STATE else "",
        stop=text(raw, "stopReason"),
        plan=[_step(each) for each in steps],
        raw=raw,
    )


def permission_of(params: Fields) -> PermissionRequest | None:
    """Return what an agent asks; None for what does not name its session, or cannot be answered."""
    session = text(params, "sessionId")
    subject = fields(params, "subject")
    tool = tool_of(fields(params, "toolCall") or fields(subject, "toolCall") or subject)
    options = [
        PermissionOption(id=text(each, "optionId"), name=text(each, "name"), kind=text(each, "kind"))
        for each in objects(params, "options")
        if text(each, "optionId")
    ]
    if not session or not options:
        return None
    return PermissionRequest(
        session=session,
        tool=tool,
        title=text(params, "title") or tool.title,
        why=text(params, "description"),
        command=text(subject, "command"),
        cwd=text(subject, "cwd"),
        options=options,
        raw=params,
    )


def selected(option: PermissionOption) -> dict[str, object]:
    """Return the answer to a permission request."""
    return {"outcome": {"outcome": "selected", "optionId": option.id}}


def withdrawn() -> dict[str, object]:
    """Return the answer to a permission request that has none: the turn was cancelled."""
    return {"outcome": {"outcome": "cancelled"}}


def chosen_of(result: Fields) -> str:
    """Return the option that an answer to a permission request chose; empty for none."""
    outcome = fields(result, "outcome")
    return text(outcome, "optionId") if text(outcome, "outcome") == "selected" else ""


def tool_of(raw: Fields) -> AcpToolCall:
    """Return the use of a tool that an object tells of."""
    parts = objects(raw, "content")
    changes = [
        AgentDiff(path=text(each, "path"), new=text(each, "newText"), old=text(each, "oldText"))
        for each in parts
        if text(each, "type") == "diff"
    ]
    return AcpToolCall(
        id=text(raw, "toolCallId"),
        title=text(raw, "title"),
        name=text(raw, "name"),
        kind=text(raw, "kind"),
        status=text(raw, "status"),
        input=raw.get("rawInput"),
        text="\n".join(filter(None, (content_text(each.get("content")) for each in parts))),
        changes=changes,
    )


def content_text(content: object) -> str:
    """Return the texts of a part of a message, or of several."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(text(each, "text") for each in parts if isinstance(each, Mapping) and text(each, "type") == "text")


def _step(raw: Fields) -> PlanStep:
    return PlanStep(text=text(raw, "content"), status=text(raw, "status"), priority=text(raw, "priority"))


def text(raw: Fields, name: str) -> str:
    """Return a text of an object; empty where it has none of that name."""
    value = raw.get(name)
    return value if isinstance(value, str) else ""


def fields(raw: Fields, name: str) -> Fields:
    """Return an object of an object; empty where it has none of that name."""
    value = raw.get(name)
    return value if isinstance(value, Mapping) else NOTHING


def objects(raw: Fields, name: str) -> Sequence[Fields]:
    """Return the objects of a list of an object; none where it has no such list."""
    value = raw.get(name)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools that a session is given, which the agent starts."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_fields(self, version: int) -> dict[str, object]:
        """Return it as a session is told of it."""
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        told: dict[str, object] = {"name": self.name, "command": self.command, "args": list(self.args), "env": env}
        return {"type": "stdio", **told} if version >= NEW else told
