"""The door of notifications: anybody can post there, and only the service is heard."""

from __future__ import annotations

import json
import logging
from typing import Final

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import HarkenError
from harken.sources.microsoft.notifications import MAX_BYTES, MAX_TOKEN_CHARS, NoticeDoor, NoticeListener
from harken.sources.source import PostedRequest
from tests.graph.service import Graph
from tests.sources.microsoft.notices_rig import refuse_all, rigged, until

STATE: Final = "the secret of the subscription"
UNREADABLE: Final = 422

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["value", "clientState", "resource", "x"]), inner),
)


pytestmark = pytest.mark.usefixtures("running")


async def test_the_handshake_is_said_back_as_plain_text(graph: Graph) -> None:
    """The token comes from whoever posts: it must be nothing but text to a browser that was made to post it."""
    async with rigged(graph) as rig:
        said = await rig.post(b"", validationToken="<script>alert(1)</script> & é")

    assert (said.status_code, said.text) == (200, "<script>alert(1)</script> & é")
    assert said.headers["content-type"] == "text/plain; charset=utf-8"
    assert said.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("token", ["", "x" * (MAX_TOKEN_CHARS + 1), "two\nlines", "a\u202eb"])
async def test_a_token_that_microsoft_would_not_send_is_not_said_back(graph: Graph, token: str) -> None:
    """Nobody should be able to make this machine say what they like at any length."""
    async with rigged(graph) as rig:
        said = await rig.post(b"", validationToken=token)

    assert said.status_code == UNREADABLE
    assert "x" * 100 not in said.text


@pytest.mark.parametrize("state", [None, "", "forged", "the secret of another"])
async def test_what_does_not_carry_the_secret_does_nothing(
    graph: Graph, state: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A forged notification costs no request to Graph, else anybody could have us use up what Microsoft allows."""
    chat = graph.chat(graph.person("Ann Example"))
    about = {"resource": f"chats('{chat.id}')/messages('1')", "changeType": "created", "clientState": state}
    caplog.set_level(logging.DEBUG)
    async with rigged(graph) as rig, rig.told():
        before, looks = len(graph.requests), len(rig.looking.asked)

        said = [await rig.post({"value": [about]}), await rig.post({"value": [{**about, "lifecycleEvent": "missed"}]})]

        assert [each.status_code for each in said] == [401, 401]
        assert (len(graph.requests), len(rig.looking.asked)) == (before, looks)
        assert rig.notices.reason == "Refused at the door, because nothing proved that Microsoft sent it: 2."
        assert rig.secret() not in caplog.text
        assert rig.works


async def test_of_a_mixed_post_only_the_genuine_part_counts(graph: Graph) -> None:
    """Microsoft puts several notifications into one post; one that is not ours must not silence the others."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        (held,) = graph.subscriptions.held.values()
        held.is_paused = True
        graph.say(chat, ann, "hello")
        forged, genuine = {"clientState": "forged"}, {"clientState": rig.secret(), "resource": "of a form to come"}

        said = await rig.post({"value": [forged, genuine]})

        assert (said.status_code, said.text) == (202, "")
        await until(lambda: rig.kept.texts() == ["hello"], "the message")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", UNREADABLE),
        (b"\xff\xfe", UNREADABLE),
        (b"[]", UNREADABLE),
        (b'{"value": {}}', UNREADABLE),
        (b'{"value": [{"clientState": 5}]}', UNREADABLE),
        (b'{"value": []}', 401),
        (b'{"value": [' + b"[" * 100_000, UNREADABLE),
        (b'{"value": [{"x": ' + b'{"x": ' * 30_000 + b"1" + b"}" * 30_000 + b"}]}", UNREADABLE),
        (b"x" * (MAX_BYTES + 1), 413),
    ],
)
async def test_what_is_no_notification_is_refused(graph: Graph, body: bytes, status: int) -> None:
    """Whatever is posted, the door stays open for the next one."""
    async with rigged(graph) as rig:
        assert (await rig.post(body)).status_code == status
        assert (await rig.post(b"", validationToken="still here")).text == "still here"


@given(body=st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
def test_nothing_but_the_secret_opens_the_door(body: bytes) -> None:
    """For any body: it is refused with an error of ours, and nobody is told."""
    told: list[str] = []
    door = NoticeDoor("work", [NoticeListener(lambda: STATE, told.append, told.append)])

    async def post() -> None:
        with pytest.raises(HarkenError):
            await door.take(PostedRequest(body=body), refuse_all)

    anyio.run(post)
    assert told == []


@given(chat=st.text(st.characters(exclude_characters="'/", exclude_categories=["Cs"]), min_size=1, max_size=100))
def test_the_chat_is_taken_from_the_resource(chat: str) -> None:
    """Its id is what the feed reads, so it has to be the whole id and nothing around it."""
    told: list[str] = []
    door = NoticeDoor("work", [NoticeListener(lambda: STATE, told.append, told.append)])
    entry = {"clientState": STATE, "resource": f"chats('{chat}')/messages('1616965872395')"}

    anyio.run(door.take, PostedRequest(body=json.dumps({"value": [entry]}).encode()), refuse_all)
    assert told == [chat]
