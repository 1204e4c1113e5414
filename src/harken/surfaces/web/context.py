"""What the routes of the page, the stream and the API need, joined once by the daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harken.clock import Clock
from harken.inbox.automation import Automation
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Questions
from harken.inbox.tasks import Tasks
from harken.inbox.ticker import Ticker
from harken.inbox.views import Views
from harken.surfaces.web.signin import SignIns
from harken.verbs.verb import CallContext


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """The parts behind HTTP. `call_context` makes that of one request of the person.

    `metrics` returns the daemon's numbers, `unready` in a word why it cannot work now (empty: it can).
    """

    call_context: Callable[[], CallContext]
    inbox: Inbox
    views: Views
    tasks: Tasks
    questions: Questions
    automation: Automation
    ticker: Ticker
    sign_ins: SignIns
    clock: Clock
    metrics: Callable[[], Awaitable[str]]
    unready: Callable[[], Awaitable[str]]
