"""What the routes of the page, the stream and the API need, joined once by the daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harken.clock import Clock
from harken.inbox.automation import Automation
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Questions
from harken.inbox.subscriptions import EventSubscriptions
from harken.inbox.tasks import Tasks
from harken.inbox.ticker import Ticker
from harken.inbox.views import Views
from harken.sources.check import CheckReport
from harken.sources.setup import AddedSource, RemovedSource, SetupValues, SignInProgress, SourceSetup
from harken.surfaces.web.signin import SignIns
from harken.verbs.verb import CallContext


class SourceAdmin(Protocol):
    """Changes the sources of config.toml, as `harken source` does. Each call is made in a thread."""

    def setup_of(self, kind: str) -> SourceSetup:
        """Return the options of a kind."""
        ...

    def add(self, kind: str, name: str, values: SetupValues, secrets: Mapping[str, str]) -> AddedSource:
        """Add a source; `secrets` are what was typed for its keys, or where that is kept."""
        ...

    def remove(self, name: str) -> RemovedSource:
        """Take a source out."""
        ...

    def put_back(self, removed: RemovedSource) -> bool:
        """Put back what was taken out; return whether it is in force."""
        ...

    def check(self, name: str, seconds: float) -> CheckReport:
        """Try a source, with nothing stored."""
        ...

    def shown(self, name: str) -> str:
        """Return what is written of a source."""
        ...

    def can_sign_in(self, name: str) -> bool:
        """Whether people sign in to a source."""
        ...


class SignInBook(Protocol):
    """Signs people in to sources, while their page looks on."""

    def begin(self, name: str) -> None:
        """Begin to sign a person in by a code."""
        ...

    def progress(self, name: str) -> SignInProgress | None:
        """Return how far that is; None: none was begun."""
        ...

    def give_up(self, name: str) -> None:
        """End a sign-in that goes on."""
        ...

    async def sign_out(self, name: str) -> bool:
        """Remove the sign-in from this machine; return whether there was one."""
        ...


class CallContextOf(Protocol):
    """Makes the context of a call."""

    def __call__(self, verb: str = "") -> CallContext:
        """Return it, for doing a verb; raises `Forbidden` for one that the reader of the page may not do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """The parts behind HTTP. `call_context` makes that of one request, of the person or of a phone of theirs.

    `can` says whether the reader may do a verb, or look at a page: what is refused is not shown either.
    `metrics` returns the daemon's numbers, `unready` in a word why it cannot work now (empty: it can).
    """

    call_context: CallContextOf
    inbox: Inbox
    views: Views
    tasks: Tasks
    questions: Questions
    automation: Automation
    ticker: Ticker
    subscriptions: EventSubscriptions
    sign_ins: SignIns
    source_admin: SourceAdmin
    source_sign_ins: SignInBook
    clock: Clock
    metrics: Callable[[], Awaitable[str]]
    unready: Callable[[], Awaitable[str]]
    can: Callable[[str], bool] = lambda _what: True
