"""The words between routes and door: a call, a refusal as the service words it, a route, a page token.

No route is here and no rule about chats or mail. A refusal becomes the documented error body at the door, which alone
knows the ids of the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.graph.faults import Fault
from tests.graph.tokens import Grant
from tests.graph.world import Json

_State = TypeVar("_State")


class Refusal(Exception):
    """The service says no: status, code and message of the error body."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Call:
    """One request that has passed the door: who asks, for what, with which preferences."""

    request: Request
    grant: Grant
    parts: tuple[str, ...]
    body: bytes

    @property
    def query(self) -> Mapping[str, str]:
        """The query, by names in lower case: the service does not mind how they are written."""
        return {name.lower(): value for name, value in self.request.query_params.items()}

    @property
    def prefers(self) -> Mapping[str, str]:
        """What the request prefers, by name in lower case; a preference without a value has an empty one."""
        found = {}
        for line in self.request.headers.getlist("prefer"):
            for item in re.split(r"[,;]", line):
                name, _, value = item.strip().partition("=")
                found[name.lower()] = value.strip('"')
        return found

    @property
    def wants_immutable_ids(self) -> bool:
        """Whether ids are to stay when a mail moves."""
        return self.prefers.get("idtype", "").lower() == "immutableid"

    @property
    def fault(self) -> Fault | None:
        """What the door found to go wrong with the list that is asked for."""
        found = self.request.scope.get("fault")
        return found if isinstance(found, Fault) else None

    def json(self) -> Json:
        """The body as an object; an empty body is an empty object."""
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Refusal(400, "BadRequest", "Unable to read JSON request payload.")
        if not self.request.headers.get("content-type", "").lower().startswith("application/json"):
            raise Refusal(415, "UnsupportedMediaType", "Content-Type must be application/json.")
        return value

    def link(self, path: str, **query: str) -> str:
        """An absolute address on this service, for the client to follow as it is."""
        base = f"{self.request.url.scheme}://{self.request.url.netloc}"
        text = "&".join(f"${name}={value}" for name, value in query.items())
        return f"{base}/v1.0{path}?{text}"

    def context(self, text: str) -> str:
        """The address of the metadata that describes the body."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}/v1.0/$metadata#{text}"


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One documented request: its method, its path, and which of the scopes allow it."""

    method: str
    pattern: str
    scopes: Sequence[str]
    handle: Handler

    def match(self, path: str) -> tuple[str, ...] | None:
        """The variable parts of a path, or None; the service does not mind upper and lower case in the fixed ones."""
        found = re.fullmatch(self.pattern, path, re.IGNORECASE)
        return found.groups() if found else None


def answer(body: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. Half of a letter, as a text has it that was cut there, is written as the escape that it is."""
    try:
        return JSONResponse(body, status, dict(headers or {}))
    except UnicodeEncodeError:
        told = {"Content-Type": "application/json", **(headers or {})}
        return Response(json.dumps(body).encode(), status, told)


@dataclass(slots=True)
class Pages(Generic[_State]):
    """Page tokens: opaque to clients, kept by the service, and gone when a test says so."""

    new_id: Callable[[], str]
    held: dict[str, _State] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def keep(self, state: _State) -> str:
        """A new token for a position."""
        token = self.new_id().replace("-", "") + "%3d"
        self.held[token.replace("%3d", "=")] = state
        return token

    def expire(self) -> None:
        """Let every token given out so far be too old."""
        self.gone.update(self.held)

    def find(self, token: str) -> _State:
        """The position behind a token."""
        if token in self.gone or token not in self.held:
            raise Refusal(400, "BadRequest", "The skip token is invalid or has expired.")
        return self.held[token]


def required_text(body: Json, *names: str) -> str:
    """The text at a path in a body; empty when it is missing or no text."""
    value: object = body
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
