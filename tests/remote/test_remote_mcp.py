"""Agents elsewhere by Streamable HTTP, in both eras: the tools, the proof and the end of what they were given."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.shared.exceptions import MCPError
from mcp_types import NotificationParams, Request, Result

from harken.surfaces.mcp.events import EXTENSION
from harken.verbs.table import TOOLS
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost, asked, one
from tests.loss.rig import WAIT_SECONDS, until
from tests.remote.rig import Mode, PublicDaemon, block, tool

ERAS = pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])

WAITING: Final = "approval.waiting"


async def state_of(public: PublicDaemon, message: str, consumer: str = "elsewhere") -> str:
    """Return how far a message got with a consumer."""
    found = await anyio.to_thread.run_sync(partial(public.call, "read", ref=message))
    return next((entry["state"] for entry in found["ledger"] if entry["consumer"] == consumer), "queued")


async def send(public: PublicDaemon, text: str, **more: object) -> str:
    """Send a message as a program on the daemon's machine; return its id."""
    asked = partial(public.call, "send", text=text, sender="ci-bot", **more)
    return str((await anyio.to_thread.run_sync(asked))["id"])


@ERAS
async def test_agent_elsewhere_has_the_same_tools_and_proof(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """What a result carried is seen when a later call came, and not before."""
    secret = public.token()
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with public.agent(secret, mode) as client:
            assert client.protocol_version == protocol
            assert "At the end of a substantive turn, call wait_for_inbound_message" in (client.instructions or "")
            assert [each.name for each in (await client.list_tools()).tools] == [each.name for each in TOOLS]
            assert [each.name for each in (await client.list_prompts()).prompts] == ["inbox", "channel"]
            (resource,) = (await client.list_resources()).resources
            assert str(resource.uri) == "harken://inbox"
            first = await send(public, "first")
            pulled = await tool(client, "inbox_pull")
            assert [each["id"] for each in pulled["messages"]] == [first]
            assert await state_of(public, first) == "offered"
            second = await send(public, "second")
            waited = await tool(client, "wait_for_inbound_message", timeout_s=5)
            assert [each["message_id"] for each in waited] == [second]
            assert (await state_of(public, first), await state_of(public, second)) == ("seen", "offered")
            assert (await tool(client, "reply", message_id=second, body="on it"))["message_id"] == second
            assert await state_of(public, second) == "answered"
            found = await tool(client, "inbox_search", query="first")
            assert [each["id"] for each in found["messages"]] == [first]


@ERAS
async def test_wait_is_answered_when_a_message_arrives(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """An agent elsewhere waits as one here does, and counts as waiting."""
    del protocol
    secret = public.token()
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with public.agent(secret, mode) as client, anyio.create_task_group() as tasks:
            got: list[str] = []

            async def wait() -> None:
                waited = await tool(client, "wait_for_inbound_message", timeout_s=30)
                got.extend(each["message_id"] for each in waited)

            tasks.start_soon(wait)
            await _until_presence(public, "waiting")
            sent = await send(public, "here it is")
        assert got == [sent]


async def _until_presence(public: PublicDaemon, wanted: str) -> None:
    def is_there() -> bool:
        return any(each["presence"] == wanted for each in public.call("status")["sessions"])

    await anyio.to_thread.run_sync(partial(until, is_there, f"an agent is {wanted}"))


@ERAS
async def test_token_says_what_an_agent_reads_and_may_do(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """Its consumer and mailbox are the token's, not the client's word; the tools are those it may use."""
    del protocol
    secret = public.token("reader", may=["read"], mailboxes=["project:shop"], consumer="shop-agent")
    shop, inbox = await send(public, "for the shop", to="project:shop"), await send(public, "for you")
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with public.agent(secret, mode, name="claude-code") as client:
            names = {each.name for each in (await client.list_tools()).tools}
            assert {"inbox_pull", "ack"} <= names
            assert not {"reply", "send_to_task", "send_to_peer"} & names
            pulled = await tool(client, "inbox_pull")
            assert [each["id"] for each in pulled["messages"]] == [shop]
            refused = await client.call_tool("reply", {"message_id": shop, "body": "no"})
            assert refused.is_error
            assert "may not do 'reply'" in block(refused)["message"]
            missing = await client.call_tool("inbox_read", {"message_id": inbox})
            assert missing.is_error
    assert (await state_of(public, shop, "shop-agent"), await state_of(public, inbox, "shop-agent")) == (
        "seen",
        "queued",
    )


async def test_session_ends_with_the_client_of_2025(public: PublicDaemon) -> None:
    """What it was given without proof goes to the next one, marked as a repeat."""
    secret = public.token()
    message = await send(public, "once more")
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with public.agent(secret, "legacy") as client:
            assert [each["id"] for each in (await tool(client, "inbox_pull"))["messages"]] == [message]
        async with public.agent(secret, "legacy") as client:
            (again,) = (await tool(client, "inbox_pull"))["messages"]
            assert (again["id"], again["repeat"]) == (message, True)


@ERAS
async def test_revoked_token_ends_what_is_open(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """A wait ends at once, and the next request is refused; what was waited for is lost to nobody."""
    del protocol
    secret = public.token()
    with anyio.fail_after(WAIT_SECONDS * 2):
        # However the client takes it that its wait was cut off, and that it cannot say goodbye.
        with suppress(Exception):
            async with public.agent(secret, mode) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "wait_for_inbound_message", {"timeout_s": 50})
                await _until_presence(public, "waiting")
                await anyio.to_thread.run_sync(partial(public.call, "token_revoke", name="elsewhere"))
                await anyio.to_thread.run_sync(
                    partial(until, lambda: not public.call("status")["sessions"], "it ended")
                )
                tasks.cancel_scope.cancel()
    assert public.api("stats", secret)[0] == 401
    assert public.call("status")["sessions"] == []


class AnyResult(Result, extra="allow"):
    """Whatever the server answers."""


class AnyParams(NotificationParams, extra="allow"):
    """Whatever the server says."""


async def events(client: Client, what: str, **params: object) -> dict[str, Any]:
    """Ask for events; return the answer."""
    asked = Request[dict[str, object], str](method=f"events/{what}", params=params)
    return (await client.session.send_request(asked, AnyResult)).model_dump()


@ERAS
async def test_events_are_polled_and_pushed(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """As on stdio: a cursor, a page, and a stream that tells at once."""
    del protocol
    secret = public.token()
    to_test, heard = anyio.create_memory_object_stream[tuple[str, dict[str, Any]]](20)

    def told(what: str) -> NotificationBinding[AnyParams]:
        async def hear(params: AnyParams) -> None:
            await to_test.send((what, params.model_dump()))

        return NotificationBinding(method=f"notifications/events/{what}", params_type=AnyParams, handler=hear)

    class Events(ClientExtension):
        identifier = EXTENSION

        def notifications(self) -> list[NotificationBinding[Any]]:
            return [told(each) for each in ("active", "event")]

    with anyio.fail_after(WAIT_SECONDS * 2), to_test, heard:
        async with public.agent(secret, mode, extensions=[Events()]) as client, anyio.create_task_group() as tasks:
            ask = partial(events, client)
            cursor = (await ask("poll", name="message.received"))["cursor"]
            first = await send(public, "first")
            page = await ask("poll", name="message.received", cursor=cursor)
            assert [each["data"]["message_id"] for each in page["events"]] == [first]
            tasks.start_soon(partial(ask, "stream", name="message.received"))
            assert (await heard.receive())[0] == "active"
            second = await send(public, "second")
            what, said = await heard.receive()
            assert (what, said["data"]["message_id"]) == ("event", second)
            tasks.cancel_scope.cancel()


@ERAS
async def test_who_may_approve_is_told_what_waits_for_it(public: PublicDaemon, mode: Mode, protocol: str) -> None:
    """What a host asks is in no mailbox, so it is for tokens of every one; what it would do is read by the verb."""
    del protocol
    secrets = {
        "all": public.token("all", may=["read", "approve"], mailboxes=["*"]),
        "inbox": public.token("inbox", may=["read", "approve"]),
        "reader": public.token("reader", may=["read"], mailboxes=["*"]),
    }
    told = dict[str, list[dict[str, Any]]]()
    rig = DaemonFixture(public.main.served)
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with public.agent(secrets["all"], mode) as every, public.agent(secrets["inbox"], mode) as some:
            clients = {"all": every, "inbox": some}
            for client in clients.values():
                assert WAITING in [each["name"] for each in (await events(client, "list"))["events"]]
            cursors = {name: (await events(it, "poll", name=WAITING))["cursor"] for name, it in clients.items()}
            with await anyio.to_thread.run_sync(AskingHost, rig, asked("make test")):
                approval = await anyio.to_thread.run_sync(one, rig)
            for name, client in clients.items():
                told[name] = (await events(client, "poll", name=WAITING, cursor=cursors[name]))["events"]
        async with public.agent(secrets["reader"], mode) as reader:
            assert WAITING not in [each["name"] for each in (await events(reader, "list"))["events"]]
            with pytest.raises(MCPError, match="may not approve"):
                await events(reader, "poll", name=WAITING)
    (found,) = told["all"]
    assert (found["data"]["approval"], found["data"]["host"], found["data"]["tool"]) == (
        approval["id"],
        "opencode",
        "bash",
    )
    assert "make test" not in str(found)
    assert told["inbox"] == []
