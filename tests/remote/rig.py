"""What the tests of programs elsewhere share: requests to the public listener, and the official SDK as an agent."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import httpx2
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, TextContent

from tests.loss.rig import WAIT_SECONDS
from tests.satellite.rig import MainDaemon

Json: TypeAlias = Any
Mode: TypeAlias = Literal["legacy", "auto"]
ACCEPT: Final = "application/json, text/event-stream"


@dataclass(frozen=True, slots=True)
class PublicDaemon:
    """A daemon that programs elsewhere reach."""

    main: MainDaemon

    @property
    def url(self) -> str:
        """Its public address."""
        return self.main.url

    def call(self, verb: str, **arguments: object) -> Json:
        """Do a verb as you, on its machine."""
        return self.main.served.call(verb, **arguments)

    def token(self, name: str = "elsewhere", **asked: object) -> str:
        """Make a token; return its secret."""
        return str(self.call("token_new", name=name, **asked)["secret"])

    def ask(
        self, path: str, secret: str = "", body: object = None, *, method: str = "", **headers: str
    ) -> tuple[int, Mapping[str, str], Json]:
        """Send a request; return the status, the headers and the JSON of the answer."""
        said = {"Authorization": f"Bearer {secret}"} if secret else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        with closing(self.connection()) as client:
            client.request(method or ("GET" if body is None else "POST"), path, data, said)
            answer = client.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, _json(answer.read())

    def connection(self) -> http.client.HTTPSConnection:
        """Return a connection on which nothing was asked yet."""
        context = self.main.client_context()
        return http.client.HTTPSConnection("localhost", self.main.port, context=context, timeout=WAIT_SECONDS)

    def api(self, verb: str, secret: str, **arguments: object) -> tuple[int, Json]:
        """Do a verb with a token; return the status and the answer."""
        status, _headers, answer = self.ask(f"/api/{verb}", secret, arguments)
        return status, answer

    @asynccontextmanager
    async def agent(
        self, secret: str, mode: Mode = "auto", name: str = "", extensions: Sequence[ClientExtension] = ()
    ) -> AsyncIterator[Client]:
        """Connect the official SDK's client with a token."""
        context: ssl.SSLContext = self.main.client_context()
        headers = {"Authorization": f"Bearer {secret}"}
        # A wait is longer than the usual patience.
        async with httpx2.AsyncClient(verify=context, headers=headers, timeout=70.0) as web:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=web)
            info = Implementation(name=name or f"sdk-{mode}", version="1")
            async with Client(transport, mode=mode, client_info=info, extensions=list(extensions)) as client:
                yield client


def _json(data: bytes) -> Json:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode()


def block(result: CallToolResult) -> Json:
    """Return the JSON of a result's first block."""
    first = result.content[0]
    assert isinstance(first, TextContent)
    return json.loads(first.text)


async def tool(client: Client, name: str, /, **arguments: object) -> Json:
    """Call a tool that succeeds; return its JSON."""
    result = await client.call_tool(name, arguments)
    assert result.is_error is False, result
    return block(result)
