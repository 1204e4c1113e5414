"""The event stream tells programs and pages what happens, misses nothing, and nobody who reads it can hurt others."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.inbox.ticker import TickerEvent, TickerStep
from harken.surfaces.web.app import frames
from harken.testing import EdgeClient, edge_command
from tests.docs.pages import DOCS, fences
from tests.loss.rig import Json, Served, until
from tests.web.rig import SentEvent, Stream, Web

ESTABLISHED = "01"  # as the kernel writes it
PAGES = 100
STALLED = 30
MANY, ROUNDS = 50, 200
MAX_GROWTH_BYTES = 20 * 1024 * 1024  # kept for each, what happens would be 70 MB


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


def send(web: Web, text: str, **more: str) -> str:
    """Send a message; return its id."""
    return str(web.daemon.call("send", text=text, **more)["id"])


def summary(events: list[SentEvent]) -> list[tuple[str, Json]]:
    """What happened to what."""
    return [(event.name, event.data["message_id"]) for event in events]


def memory(web: Web) -> int:
    """How much memory the daemon uses now."""
    status = Path(f"/proc/{web.daemon.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def test_programs_and_pages_are_told_the_same(web: Web) -> None:
    """The page has no way of its own: what it can show, a program can know."""
    with web.stream() as program, web.page_stream() as page:
        message = send(web, "the build is red", sender="ci")
        web.daemon.call("ack", refs=[message])
        told = program.take(2)
        assert summary(told) == [("message.queued", message), ("message.seen", message)]
        assert page.take(2) == told
        assert [event.data["n"] for event in told] == [int(event.id) for event in told]


def test_stream_resumes_across_a_killed_daemon_and_misses_nothing(web: Web) -> None:
    """A reader that was cut off comes back with its last number: with everything that happened meanwhile, once."""
    with web.stream() as stream:
        ids = [send(web, f"before {i}") for i in range(3)]
        told = stream.take(2)
        web.daemon.kill()
        assert stream.is_ended()
    web.daemon.start()
    assert Web(web.daemon).address == web.address
    ids += [send(web, f"meanwhile {i}") for i in range(3)]
    with web.stream(headers={"Last-Event-ID": told[-1].id}) as stream:
        told += stream.take(4)
        ids.append(send(web, "after"))
        told.append(stream.next())
    assert summary(told) == [("message.queued", each) for each in ids]


def test_reader_that_was_told_nothing_yet_misses_nothing_either(web: Web) -> None:
    """A browser whose connection breaks before the first event still says where it was."""
    send(web, "before")
    with web.stream() as stream:
        began = stream.last_id
    assert int(began) > 0
    message = send(web, "while it was away")
    with web.stream("?after=0", {"Last-Event-ID": began}) as stream:
        assert summary([stream.next()]) == [("message.queued", message)]


def test_address_says_where_to_begin(web: Web) -> None:
    """A page follows from the number it was drawn at; a program may want everything there is."""
    ids = [send(web, f"message {i}") for i in range(3)]
    with web.stream("?after=0") as stream:
        assert summary(stream.take(3)) == [("message.queued", each) for each in ids]
    with web.stream("?after=2") as stream:
        assert summary(stream.take(1)) == [("message.queued", ids[2])]


def test_number_of_another_store_begins_now_and_says_so(web: Web) -> None:
    """A reader whose number means nothing here must look again, and not be refused for ever."""
    for number in ["999999999", "9" * 30, "-1", "x", "1.5", "\u00b2"]:
        send(web, "before")
        with web.stream(headers={"Last-Event-ID": number.encode().decode("latin-1")}) as stream:
            assert (first := stream.next()).name == "reset"
            assert first.id == str(first.data["n"]) == stream.last_id
            message = send(web, "after")
            assert summary([stream.next()]) == [("message.queued", message)]


def test_wish_that_cannot_be_met_is_a_user_error(web: Web) -> None:
    """A program that asks for what is not there would else wait for ever."""
    for query in ["?after=x", "?after=-1", "?types=message.nonsense", "?types=message.seen,x"]:
        answer = web.ask("GET", f"/events{query}", web.bearer)
        assert (answer.status, answer.json["error"]["code"]) == (422, "user_error")


def test_looking_at_the_head_of_the_stream_ends(web: Web) -> None:
    """A monitor that only looks must not hold a stream that nobody reads."""
    answer = web.ask("HEAD", "/events", web.bearer)
    assert (answer.status, answer.headers["cache-control"], answer.body) == (200, "no-store", b"")


def test_only_what_was_asked_for_is_told(web: Web, tmp_path: Path) -> None:
    """A program that waits for one thing need not read the rest."""
    with web.stream("?types=message.seen") as seen, web.stream("?mailbox=task:api") as of_task:
        web.daemon.call("task_new", title="The API", id="api", dir=str(tmp_path))
        web.daemon.call("task_new", title="Another", id="other", dir=str(tmp_path / "other"))
        message, to_task = send(web, "for all", sender="ci"), send(web, "for the task", to="task:api")
        web.daemon.call("ack", refs=[message])
        assert summary([seen.next()]) == [("message.seen", message)]
        told = of_task.take(2)
    assert [(event.name, event.data["mailbox"]) for event in told] == [
        ("task.changed", "task:api"),
        ("message.queued", "task:api"),
    ]
    assert (told[0].data["task"], told[0].data["change"], told[1].data["message_id"]) == ("api", "created", to_task)


def test_text_of_messages_is_not_on_the_stream(web: Web) -> None:
    """Events may be logged or shown by programs that must not see mail; what wants the text reads the message."""
    with web.stream() as stream:
        send(web, "a secret between us\n\ndata: {}\nevent: forged", sender="ci\r\nbot", channel="c\u2028i")
        event = stream.next()
        assert "secret" not in json.dumps(event.data)
        assert event.name == "message.queued"
        send(web, "next")
        assert stream.next().name == "message.queued"


def test_session_that_comes_is_told(web: Web) -> None:
    """Who is there is not in the journal; a page must see it all the same, without a number of its own."""
    with web.stream("?types=session.changed") as stream:
        place = stream.last_id
        with EdgeClient(edge_command(web.daemon.home), name="claude-code") as agent:
            agent.tool("inbound_queue_stats")
            event = stream.next()
    assert (event.name, event.data, event.id) == ("session.changed", {}, place)


def test_a_hundred_pages_are_all_told(web: Web) -> None:
    """People leave tabs open; each of them shows what happens, and there is room for requests beside them."""
    with ExitStack() as opened:
        pages = [opened.enter_context(web.stream()) for _ in range(PAGES)]
        message = send(web, "to all")
        for page in pages:
            assert summary([page.next()]) == [("message.queued", message)]
        assert web.ask("GET", "/healthz").status == 200


def test_readers_that_stall_hold_up_nobody_and_cost_no_memory(web: Web) -> None:
    """A laptop that sleeps with many tabs open reads nothing: the daemon keeps its place for it, not its mail."""
    ids = [send(web, f"message {i}") for i in range(MANY)]
    with ExitStack() as opened:
        stalled = [Stream(web.address, "/events", web.bearer, 4096) for _ in range(STALLED)]
        for each in stalled:
            opened.callback(each.close)
        quick = opened.enter_context(web.stream())
        # Each of these has its head before anything happens; from then on it reads nothing.
        places = [each.begin().last_id for each in stalled]
        assert set(places) == {quick.last_id}
        before = memory(web)
        for _ in range(ROUNDS):
            # A connection that ends without proof leaves its messages to be offered once more.
            web.daemon.call("pull", consumer="reader", limit=MANY)
            assert summary(quick.take(MANY)) == [("message.offered", each) for each in ids]
        assert memory(web) - before < MAX_GROWTH_BYTES
        told = stalled[0].take(ROUNDS * MANY)
        assert [event.data["message_id"] for event in told] == ids * ROUNDS
        numbers = [event.data["n"] for event in told]
        assert numbers == sorted(numbers)


def test_clients_that_go_are_forgotten(web: Web) -> None:
    """Each reload of a page leaves a stream behind; none may stay."""
    descriptors = Path(f"/proc/{web.daemon.pid}/fd")
    with web.stream():
        before = len(list(descriptors.iterdir()))
    for _ in range(30):
        with web.stream():
            pass
    until(lambda: len(list(descriptors.iterdir())) <= before, "the streams are closed")


def test_stream_ends_when_the_daemon_stops(web: Web) -> None:
    """Stopping does not wait for pages, and they see the end at once rather than a connection that hangs."""
    with web.stream() as stream:
        web.daemon.stop()
        assert list(stream) == []


def test_program_of_the_reference_misses_nothing(web: Web) -> None:
    """People copy it: it must do what it says, through a daemon that dies."""
    (program,) = fences(DOCS / "reference" / "events.md", "python")
    environment = {**os.environ, "HARKEN_HOME": str(web.daemon.home)}
    command = [sys.executable, "-I", "-c", program]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout
            assert said is not None
            ids: list[str] = []

            def is_told() -> bool:
                # It follows from now, whenever that is.
                ids.append(send(web, "before"))
                return bool(select.select([said], [], [], 0.2)[0])

            until(is_told, "the program tells something")
            told = [said.readline().split()[1]]
            while told[-1] != ids[-1]:
                told.append(said.readline().split()[1])
            assert told == ids[-len(told) :]
            web.daemon.kill()
            web.daemon.start()
            for each in (send(web, "meanwhile"), send(web, "after")):
                assert said.readline().split() == ["message.queued", each]
        finally:
            process.kill()


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.lists(TEXTS, min_size=1, max_size=3)), max_size=5))
def test_whatever_is_said_stays_within_its_event(steps: list[tuple[int, list[str]]]) -> None:
    """Names of senders and channels are hostile: none can end an event, begin another or move a reader's place."""
    told = [
        TickerStep(
            n=n, events=[TickerEvent(name="message.queued", data=msgspec.json.encode({"from": each})) for each in texts]
        )
        for n, texts in steps
    ]
    *found, end = frames(told).decode().split("\n\n")
    assert end == ""
    lines = [dict(line.split(": ", 1) for line in block.split("\n")) for block in found]
    assert [json.loads(line["data"])["from"] for line in lines] == [each for _, texts in steps for each in texts]
    # The number comes with the last event of a step: before that, not all of it was told.
    numbers = [number for n, texts in steps for number in [*[0] * (len(texts) - 1), n]]
    assert [int(line.get("id", "0")) for line in lines] == numbers
    assert all(set(line) <= {"id", "event", "data"} for line in lines)


@pytest.mark.slow
def test_stream_on_which_nothing_happens_shows_that_it_lives(web: Web) -> None:
    """What is silent may be broken: a sign of life comes before proxies and people give up, and the stream goes on."""
    with web.stream() as stream:
        lines = [stream.line() for _ in range(3)]
        assert lines == [": still here", f"id: {stream.last_id}", ""]
        message = send(web, "after a while")
        assert summary([stream.next()]) == [("message.queued", message)]


@pytest.mark.slow
def test_reader_that_stalls_for_a_minute_is_cut_off(web: Web) -> None:
    """A connection that is not read is a file descriptor less for others; its reader comes again with its number."""
    ids = [send(web, f"message {i}") for i in range(MANY)]
    with Stream(web.address, "/events", web.bearer, 4096) as stalled:
        for _ in range(ROUNDS):
            web.daemon.call("pull", consumer="reader", limit=MANY)
        until(lambda: not is_served(web), "the daemon hangs up", 90.0)
        told = [event for event in stalled.rest() if event is not None]
    assert 0 < len(told) < MANY * ROUNDS
    with web.stream(headers={"Last-Event-ID": stalled.last_id}) as again:
        event = again.next()
    assert (event.name, event.data["message_id"]) == ("message.offered", ids[0])
    assert event.data["n"] == int(stalled.last_id) + 1


def is_served(web: Web) -> bool:
    """Whether the daemon has a client that it did not hang up on; the one that asks is not there."""
    host, _, port = web.address.rpartition(":")
    place = f"{int.from_bytes(bytes(map(int, host.split('.'))), 'little'):08X}:{int(port):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == place and row[3] == ESTABLISHED for row in rows)
