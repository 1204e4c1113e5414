"""A server on the official Python SDK that announces something every now and then, for the tests of listeners.

Started as a program: `stdio`, `http` (both eras) or `modern` (what the SDK answers to the 2026 era only). Over HTTP it
prints its port.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.types import ASGIApp, Receive, Scope, Send

Context = ServerRequestContext[Any, Any]

TICK_SECONDS: Final = 0.1
MODERN: Final = b"2026-07-28"


class Vendor(types.Notification[dict[str, Any], str]):
    """A notification that the protocol does not know."""

    method: str
    params: dict[str, Any]


class Announcer(Server):
    """Says in both eras that its tools may change."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Return them with changes of tools."""
        return super().get_capabilities(
            notification_options or NotificationOptions(tools_changed=True),
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )


async def list_tools(*_: object) -> types.ListToolsResult:
    """Return no tools; only that they may change matters."""
    return types.ListToolsResult(tools=[])


async def main(how: str) -> None:
    """Serve until ended."""
    bus = InMemorySubscriptionBus()
    sessions: list[Any] = []
    server: Any = Announcer(
        "announcer", version="1", on_list_tools=list_tools, on_subscriptions_listen=ListenHandler(bus)
    )

    async def remember(context: Context, call_next: Callable[[Context], Awaitable[Any]]) -> object:
        result: object = await call_next(context)
        if all(context.session is not session for session in sessions):
            sessions.append(context.session)
        return result

    async def tick() -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            await bus.publish(ToolsListChanged())
            for session in sessions[:1]:
                params = {"channel": "ci", "content": "build is green"}
                await session.send_notification(Vendor(method="channel/message", params=params))
                await session.send_notification(Vendor(method="notifications/deploys", params={"version": 7}))

    server.middleware.append(remember)
    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        if how == "stdio":
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
        else:
            await serve_http(server.streamable_http_app(), is_modern=how == "modern")
        group.cancel_scope.cancel()


async def serve_http(app: ASGIApp, *, is_modern: bool) -> None:
    """Serve on a free port and print it."""

    async def only_modern(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"mcp-protocol-version") != MODERN:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body"})
            return
        await app(scope, receive, send)

    config = uvicorn.Config(only_modern if is_modern else app, host="127.0.0.1", port=0, log_level="error")
    with config.bind_socket() as listening:
        sys.stdout.write(f"port {listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await uvicorn.Server(config).serve(sockets=[listening])


anyio.run(main, sys.argv[1])
