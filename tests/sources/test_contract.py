"""Every kind of source passes the suite of `tests/contracts/source.py`: ours, and one of another package."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from harken.errors import NeedsPerson
from harken.model import Draft
from harken.sources.feed import FeedTiming
from harken.sources.imap.source import ImapSource
from harken.sources.microsoft.client import GraphClient, GraphTiming
from harken.sources.microsoft.sent import SentMessages
from harken.sources.outlook.sender import OutlookSender
from harken.sources.outlook.source import OutlookSource
from harken.sources.registry import kinds
from harken.sources.source import SourceKind
from harken.testing import FakeClock
from harken_bulletin.kind import KIND as BULLETIN
from harken_bulletin.settings import BulletinSettings
from harken_bulletin.source import BulletinSource
from tests.contracts import source as suite
from tests.graph.faults import Fault
from tests.graph.service import Graph
from tests.graph.service import serving as graph_serving
from tests.mailserver.dovecot import Dovecot, serving
from tests.mailserver.sink import Sink, sinking
from tests.sources.imap.rig import mail, settings_of, source_of
from tests.sources.microsoft.outlook_rig import Keys, Leaping, at_once
from tests.sources.microsoft.outlook_rig import settings as mail_settings

ID: Final = "66666666-7777-8888-9999-aaaaaaaaaaaa"
ACCOUNT: Final = {"client_id": ID, "tenant": "contoso.example"}
# The least of each kind, with secrets that are nowhere, and the key that a secret might be pasted into.
ENTRIES: Final[Mapping[str, tuple[Mapping[str, object], str]]] = MappingProxyType(
    {
        "bot": ({"app_id": ID, "tenant": ID, "secret": "env:NOWHERE"}, "secret"),
        "bulletin": ({"folder": "/nowhere", "secret": "env:NOWHERE"}, "secret"),
        "imap": ({"host": "imap.example.org", "user": "ann", "password": "env:NOWHERE"}, "password"),
        "mcp": ({"url": "https://ci.example.org/mcp", "headers": {"Authorization": "env:NOWHERE"}}, ""),
        "outlook": (ACCOUNT, ""),
        "teams": (ACCOUNT, ""),
        "webhook": ({"preset": "github", "secret": "env:NOWHERE"}, "secret"),
    }
)
EVERY: Final = (*kinds(), BULLETIN)


def named(kind: SourceKind) -> str:
    """Return how a case is called."""
    return kind.name


@pytest.mark.parametrize("kind", EVERY, ids=named)
def test_everything_is_declared(kind: SourceKind) -> None:
    """Nothing elsewhere knows the kind: what it does not say, nobody is shown."""
    suite.check_declaration(kind)


@pytest.mark.parametrize("kind", EVERY, ids=named)
def test_settings_are_refused_in_one_style(kind: SourceKind) -> None:
    """Whoever has read one error can read all of them, and no secret is in any."""
    suite.check_settings(kind, *ENTRIES[kind.name])


@pytest.mark.parametrize("kind", EVERY, ids=named)
def test_a_secret_that_is_nowhere_keeps_nothing_else_away(kind: SourceKind, tmp_path: Path) -> None:
    """The daemon starts, and the source says what to do."""
    suite.check_unready(kind, ENTRIES[kind.name][0], tmp_path)


def test_listing_the_kinds_loads_nothing_that_talks_to_a_service() -> None:
    """Every command may list them, and people wait for it."""
    heavy = ("anyio", "httpx2", "msal", "imapclient", "aiosmtplib", "jmespath", "msgspec", "ssl")
    code = f"import sys; from harken.sources.registry import kinds; kinds(); print(*set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=suite.SECONDS)
    assert done.stdout.split() == []


class BulletinBench:
    """A folder of notes, and those who write and read there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir()

    def open(self) -> BulletinSource:
        """Return a source over the folder, which looks all the time."""
        settings = BulletinSettings(name="it", folder=str(self._folder), poll=0.01)
        return BulletinSource(settings, FakeClock(), timing=FeedTiming(chance=lambda: 0.0))

    async def say(self, *texts: str) -> None:
        """Write notes."""
        for text in texts:
            self._write(text.encode())

    async def babble(self) -> None:
        """Write what is no text, and put things there that are no notes."""
        self._write(b"\xff\xfe\x00\x80")
        (self._folder / "a-folder").mkdir()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Be somewhere else."""
        elsewhere = self._folder.with_name("elsewhere")
        self._folder.rename(elsewhere)
        yield
        elsewhere.rename(self._folder)

    def said(self, draft: Draft) -> str:
        """Return the note."""
        return draft.text

    def answers(self) -> Sequence[str]:
        """Return what lies beside the notes."""
        return [path.read_text() for path in sorted(self._folder.glob("*.answer"))]

    def _write(self, text: bytes) -> None:
        self._count += 1
        (self._folder / f"{self._count:03}-ann.note").write_bytes(text)


class ImapBench:
    """A mail server, and those who write to the account and get answers."""

    def __init__(self, server: Dovecot, sink: Sink) -> None:
        self._server = server
        self._sink = sink

    def open(self) -> ImapSource:
        """Return the account, of which the mail of the last day is taken."""
        return source_of(settings_of(self._server, self._sink, since="1d", save_sent=True))

    async def say(self, *texts: str) -> None:
        """Deliver mails, one after the other."""
        for text in texts:
            self._server.deliver(mail(text))

    async def babble(self) -> None:
        """Deliver what is no mail."""
        self._server.deliver(b"\xff\xfe\x00 no head\r\n\r\n\x80\r\n")

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Have no server."""
        self._server.kill()
        yield
        self._server.start()

    def said(self, draft: Draft) -> str:
        """Return the last line of the mail."""
        return draft.text.strip().splitlines()[-1]

    def answers(self) -> Sequence[str]:
        """Return the first line of every answer."""
        bodies = [each.get_body(("plain",)) for each in self._sink.read()]
        return [body.get_content().splitlines()[0] for body in bodies if body is not None]


@dataclass
class BenchKeys(Keys):
    """The tokens of a sign-in that can be over."""

    is_over: bool = False

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token while somebody is signed in."""
        if self.is_over:
            raise NeedsPerson("Nobody is signed in.", action="sign in")
        return await super().token(is_fresh=is_fresh)


class BenchOutlook(OutlookSource):
    """Outlook with its own client, which answers without a sign-in of a person."""

    def __init__(self, graph: Graph, keys: BenchKeys, since: datetime) -> None:
        time, sent = Leaping(), SentMessages()
        timing = GraphTiming(wait=time.wait, monotonic=time.monotonic)
        verify = ssl.create_default_context(cafile=str(graph.ca))
        self._client = GraphClient(keys, graph.clock, name="it", base_url=graph.url, verify=verify, timing=timing)
        wanted = mail_settings(graph)
        self._answers = OutlookSender(wanted, self._client, sent, graph.clock)
        super().__init__(
            wanted,
            self._client,
            graph.clock,
            sent,
            lambda: graph.me.id,
            since=lambda: since,
            timing=FeedTiming(wait=at_once),
        )

    @property
    def sender(self) -> OutlookSender:
        """How mail is answered."""
        return self._answers

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class OutlookBench:
    """Microsoft Graph, and those who write to the account and get answers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._since = graph.clock.now() - timedelta(hours=1)
        self._keys = BenchKeys(graph)

    def open(self) -> OutlookSource:
        """Return the account, of which the mail since the sign-in is heard."""
        return BenchOutlook(self._graph, self._keys, self._since)

    async def say(self, *texts: str) -> None:
        """Deliver mails, one after the other."""
        for text in texts:
            self._graph.mail(self._graph.person("Ann"), text, f"<p>{text}</p>")

    async def babble(self) -> None:
        """Deliver what has no text, and answer the next question with half of an answer."""
        self._graph.mail(self._graph.person("Ann"), "", "<p")
        self._graph.fail_next(Fault.TRUNCATED, "/messages")

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Answer nothing but that it is not available."""
        self._graph.faults(unavailable=1.0)
        yield
        self._graph.faults()

    def said(self, draft: Draft) -> str:
        """Return what the mail is about."""
        return draft.meta.get("subject", "")

    def answers(self) -> Sequence[str]:
        """Return the first paragraph of every answer."""
        return [each.html.removeprefix("<p>").partition("</p>")[0] for each in self._graph.sent_mails]

    def be_busy(self) -> None:
        """Throttle the next requests."""
        self._graph.fail_next(Fault.THROTTLED, times=3)

    def end_sign_in(self) -> None:
        """Have no token any more."""
        self._keys.is_over = True


@pytest.fixture(params=["bulletin", "imap", "outlook"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[suite.SourceBench]:
    """The other side of a source."""
    if request.param == "bulletin":
        yield BulletinBench(tmp_path / "notes")
        return
    if request.param == "outlook":
        with graph_serving() as graph:
            yield OutlookBench(graph)
        return
    with serving() as server, sinking() as sink:
        yield ImapBench(server, sink)


async def test_it_goes_on_from_every_checkpoint(bench: suite.SourceBench) -> None:
    """The daemon is stopped at any moment."""
    await suite.check_restarts(bench)


async def test_what_comes_twice_is_known_by_its_id(bench: suite.SourceBench) -> None:
    """The store knows what it has by that alone."""
    await suite.check_repeats(bench)


async def test_garbage_hides_nothing(bench: suite.SourceBench) -> None:
    """Whoever can write there can write anything."""
    await suite.check_garbage(bench)


async def test_an_outage_is_told_and_waited_out(bench: suite.SourceBench) -> None:
    """People see that nothing can arrive, and that it does again."""
    await suite.check_outage(bench)


async def test_an_answer_is_sent_once(bench: suite.SourceBench) -> None:
    """After a crash it is tried again with the same key."""
    await suite.check_answers(bench)


@pytest.fixture
def service() -> Iterator[suite.ServiceBench]:
    """The other side of a source that asks a service."""
    with graph_serving() as graph:
        yield OutlookBench(graph)


async def test_a_service_that_asks_to_wait_is_waited_for(service: suite.ServiceBench) -> None:
    """Throttling is the everyday of a busy account."""
    await suite.check_throttling(service)


async def test_a_sign_in_that_is_over_waits_for_a_person(service: suite.ServiceBench) -> None:
    """Asking again would only lock the account."""
    await suite.check_expired_sign_in(service)
