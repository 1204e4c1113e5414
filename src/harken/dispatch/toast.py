"""Toasts: the person is told on the desktop what a rule tells or asks, and what has come back; and how it gets there.

What has come back are conversations that were put off until now. What a host asks before its agent uses a tool is told
by the names of the host and the tool alone: the rest is for a place that shows all of it.

Looks whenever actions change, and shows the first at once. What follows is gathered: at most one toast in a while,
which then says how many more there are, of which rules. In quiet hours nothing is shown until they are over. What an
earlier daemon told is not told again; what still waits for an answer is. Best effort: whether a toast was shown changes
nothing, and nothing on one can be pressed to any effect: one that appears under the pointer must not answer a question.

`desktop-notifier` and Apprise are imported with the first notification, because most daemons never show one. Without a
desktop, a bus or the permission nothing happens: the log says so once, and `state` says so when asked. Apprise knows
the services (Pushover, ntfy, Telegram, …) by an address that holds a secret. What is said to a phone passes through a
service of others: it never holds the text of a message.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import anyio
import anyio.to_thread

from harken.automation import ACTIONS, MAX_WAITING, Action, ActionId, ActionState, Order, QuietHours
from harken.clock import Clock, Signal
from harken.errors import NeedsPerson, Unavailable, UserError
from harken.ingest.sanitise import one_line
from harken.model import APPROVALS, Approval, ApprovalChoice, ApprovalId, ApprovalState, Message, MessageId
from harken.store.contract import Store

if TYPE_CHECKING:
    from desktop_notifier.backends.base import DesktopNotifierBackend

SURFACE: Final = "toast"
PAUSE_SECONDS: Final = 10.0
LOOK_EVERY_SECONDS: Final = 30.0
AT_ONCE: Final = 500  # more than can wait for an answer: some of a page stay in it, and tell what is new
MAX_RULES: Final = 4
RULE_CHARS: Final = 32
TEXT_CHARS: Final = 80
MAY_CHARS: Final = 300
WHO_CHARS: Final = 40

_TOLD_OF: Final = (ActionState.TOLD, ActionState.WAITING)
# Desktops take markup in a toast: pictures and links of a stranger must stay text, also where nothing is unescaped.
_NO_MARKUP: Final = str.maketrans({"<": "\u2039", ">": "\u203a", "&": "\uff06"})


@dataclass(frozen=True, slots=True)
class Toast:
    """What is shown: two short texts, safe on any desktop."""

    title: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltNote:
    """That a session does not go on: one line, what its host says of it, and where the page shows it."""

    title: str
    reason: str
    path: str


ConsentTo = Callable[[Order], str]
"""Says what a yes to an order lets happen: which agent runs, in which folder, with which tools."""

Show = Callable[[Toast], Awaitable[bool]]
"""Puts a toast on the screen; returns whether somebody may have seen it. Takes a bounded time and does not raise."""


class Toasts:
    """The loop that shows toasts, for one daemon."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        show: Show,
        *,
        quiet: QuietHours | None = None,
        consent_to: ConsentTo | None = None,
    ) -> None:
        self._quiet = quiet
        self._consent_to = consent_to
        self._store = store
        self._clock = clock
        self._show = show
        self._began_at = clock.now()
        self._shown_at = self._began_at
        self._is_burst = False
        self._seen: Collection[ActionId] | None = None
        self._untold: list[Action] = []  # the oldest first
        self._asked: Collection[ApprovalId] = ()  # what hosts ask and the person was told of

    async def run(self) -> None:
        """Show what comes, for ever."""
        changed = Signal()
        with self._store.changes.listen(changed.ring, only=[ACTIONS, APPROVALS]):
            while True:
                await self.look()
                if self._rest() > 0:
                    await anyio.sleep(self._rest())
                    continue
                await changed.wait(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Show what is new, unless something was shown a moment ago."""
        if self._rest() > 0:
            return
        self._untold = await self._still_true([*self._untold, *await self._fresh()])
        if self._quiet is not None and self._quiet.covers(self._clock.now().astimezone()):
            # What comes in the night is told in the morning, in one toast.
            self._is_burst = len(self._untold) > 1
            return
        if await self._show_asked():
            self._is_burst = True
            return
        if not self._untold:
            self._is_burst = await self._show_returned()
            return
        if self._is_burst and len(self._untold) > 1:
            told, self._untold = self._untold, []
        else:
            # A question has an end: it goes first.
            first = next((each for each in self._untold if _is_question(each)), self._untold[0])
            told = [first]
            self._untold.remove(first)
        self._is_burst = True
        self._shown_at = self._clock.now()
        messages = await self._store.messages.get_many([action.message for action in told])
        order = told[0].order if len(told) == 1 and _is_question(told[0]) else None
        may = await anyio.to_thread.run_sync(self._consent_to, order) if order and self._consent_to else ""
        await self._show(toast_of(told, messages, may=may))

    async def _show_asked(self) -> bool:
        """Show what hosts ask and was not told yet, in one toast; return whether there was something."""
        asked = await self._store.approvals.list([ApprovalState.OPEN])
        fresh = [each for each in asked if each.id not in self._asked]
        self._asked = frozenset(each.id for each in asked)
        if fresh:
            self._shown_at = self._clock.now()
            if await self._show(asked_toast(fresh)):
                for each in fresh:
                    await self._store.approvals.show(each.id, SURFACE)
        return bool(fresh)

    async def _show_returned(self) -> bool:
        """Show which conversations have come back after the person had put them off; return whether there are some."""
        returned = await self._store.conversations.take_returned(self._clock.now(), AT_ONCE)
        if returned:
            self._shown_at = self._clock.now()
            await self._show(returned_toast([each.newest for each in returned]))
        return bool(returned)

    def _rest(self) -> float:
        """Return for how many seconds nothing more is shown. A clock that was set back does not make it longer."""
        if not self._is_burst:
            return 0.0
        return max(0.0, PAUSE_SECONDS - abs((self._clock.now() - self._shown_at).total_seconds()))

    async def _fresh(self) -> Sequence[Action]:
        """Return the messages without a toast, the oldest first."""
        newest = await self._store.actions.list(_TOLD_OF, limit=1)
        if self._seen is not None and (not newest or newest[0].id in self._seen):
            return ()
        page = await self._store.actions.list(_TOLD_OF, limit=AT_ONCE)
        seen, self._seen = self._seen, frozenset(action.id for action in page)
        if seen is None:
            fresh = [each for each in page if _is_question(each) or each.created_at >= self._began_at]
        else:
            fresh = list(takewhile(lambda action: action.id not in seen, page))
        return fresh[::-1]

    async def _still_true(self, actions: Sequence[Action]) -> list[Action]:
        """Return the actions without questions that were answered meanwhile."""
        if not any(map(_is_question, actions)):
            return list(actions)
        waiting = {action.id for action in await self._store.actions.list([ActionState.WAITING], limit=MAX_WAITING)}
        return [action for action in actions if not _is_question(action) or action.id in waiting]


def safe_text(text: str) -> str:
    """Return a text in which nothing is markup on any desktop."""
    return text.translate(_NO_MARKUP)


def toast_of(actions: Sequence[Action], messages: Mapping[MessageId, Message], *, may: str = "") -> Toast:
    """Return the toast for one action, where `may` says what a yes lets happen, or for several. Pure."""
    newest = actions[-1]
    if len(actions) == 1:
        return _single(newest, messages.get(newest.message), may)
    counted = Counter(action.rule for action in actions).most_common()
    named = [f"{_short(rule, RULE_CHARS)} {count}" for rule, count in counted[:MAX_RULES]]
    if others := sum(count for _, count in counted[MAX_RULES:]):
        named.append(f"others {others}")
    number = f"{len(actions)}+" if len(actions) >= AT_ONCE else f"{len(actions)}"
    lines = [f"Newest: {_headline(newest, messages.get(newest.message))}"]
    if asked := sum(map(_is_question, actions)):
        lines.append(f"{asked} wait{'s' if asked == 1 else ''} for your answer: harken channel confirm")
    return Toast(f"{number} more: {', '.join(named)}", "\n".join(lines))


def asked_toast(asked: Sequence[Approval]) -> Toast:
    """Return the toast for what hosts ask, the oldest first. Pure."""
    first = asked[0]
    others = f", and {len(asked) - 1} more" if len(asked) > 1 else ""
    what = f"asks to use {_short(first.request.tool, RULE_CHARS)}"
    if ApprovalChoice.ANSWER in first.request.choices:
        what = "asks you a question"
    title = f"{_short(first.request.host, WHO_CHARS)} {what}{others}"
    which = f" {first.id}" if len(asked) == 1 else ""
    return Toast(title, f"Answer in its terminal, on the page (harken open), or: harken approve{which}")


def returned_toast(newest: Sequence[Message]) -> Toast:
    """Return the toast for conversations that have come back, from the newest message of each. Pure."""
    first = newest[0]
    if len(newest) == 1:
        return Toast(f"Back: {_short(first.text, TEXT_CHARS)}", _who(first))
    return Toast(f"{len(newest)} conversations are back", f"{_who(first)}: {_short(first.text, TEXT_CHARS)}")


def _single(action: Action, message: Message | None, may: str) -> Toast:
    lines = [_who(message)] if message else []
    if may:
        lines.append(f"Would run {_short(may, MAY_CHARS)}")
    if action.expires_at and _is_question(action):
        until = action.expires_at.astimezone().strftime("%H:%M")
        lines.append(f"Waits for your answer until {until}: harken channel confirm {action.id}")
    return Toast(_headline(action, message), "\n".join(lines))


def _headline(action: Action, message: Message | None) -> str:
    return f"{_short(action.rule, RULE_CHARS)}: {_short(message.text if message else '', TEXT_CHARS)}"


def _who(message: Message) -> str:
    sender, channel = _short(message.sender.label, WHO_CHARS), _short(message.channel or message.source, WHO_CHARS)
    return f"{sender} in {channel}"


def _short(text: str, most: int) -> str:
    return safe_text(one_line(text, most))


def _is_question(action: Action) -> bool:
    return action.state is ActionState.WAITING


_log = logging.getLogger("harken.toasts")

SHOW_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
MAX_KEPT: Final = 20  # toasts that stay on the desktop until they are dismissed
BUS: Final = "DBUS_SESSION_BUS_ADDRESS"

NOT_TRIED: Final = "not tried yet"
SHOWN: Final = "shown"
NO_SESSION: Final = "no desktop session"
NO_SERVICE: Final = "the desktop shows no notifications: no service for them answers"
NO_PERMISSION: Final = "the desktop does not permit them"
NO_WAY: Final = "this Python cannot show any on this system"


class Desktop:
    """Shows toasts. `environ` is the process's own: the library looks for the bus there, and nowhere else."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._backend: DesktopNotifierBackend | None = None
        self._said = NOT_TRIED

    @property
    def state(self) -> str:
        """Whether toasts are shown, or why not, in words for people."""
        return self._said if self._has_session() else NO_SESSION

    async def show(self, toast: Toast) -> bool:
        """Put a toast on the screen; return whether the desktop took it."""
        said = NO_SERVICE
        if not self._has_session():
            said = NO_SESSION
        else:
            with anyio.move_on_after(SHOW_SECONDS):
                said = await self._send(toast)
        if said != SHOWN:
            # The next toast begins anew: a connection that once failed may never work again.
            await self.close()
        if said != self._said:
            _log.info("toasts: %s", said)
        self._said = said
        return said == SHOWN

    async def close(self) -> None:
        """Leave the bus, if there is one; what is on the screen stays there."""
        backend, self._backend = self._backend, None
        if (bus := getattr(backend, "bus", None)) is None:
            return
        bus.disconnect()
        with anyio.move_on_after(CLOSE_SECONDS), suppress(OSError, EOFError, ValueError):  # it was broken before
            await bus.wait_for_disconnect()

    def _has_session(self) -> bool:
        """Whether there seems to be a desktop; where the bus is in its usual place, that place is noted."""
        if sys.platform != "linux":
            return True
        if self._environ.get(BUS):
            return True
        folder = self._environ.get("XDG_RUNTIME_DIR")
        if folder and (usual := Path(folder) / "bus").is_socket():
            self._environ[BUS] = f"unix:path={quote(str(usual))}"
            return True
        return bool(self._environ.get("DISPLAY"))  # by which the library finds the bus of old desktops

    async def _send(self, toast: Toast) -> str:
        library = await anyio.to_thread.run_sync(import_module, "desktop_notifier.main")
        if self._backend is None:
            # It logs every failure with a traceback. We say it once.
            logging.getLogger("desktop_notifier").setLevel(logging.CRITICAL)
            self._backend = library.get_backend_class()("Harken", None)
            if not await self._backend.request_authorisation():
                return NO_PERMISSION
        backend, taken = self._backend, list[bool]()
        note = library.Notification(toast.title, toast.body, on_dispatched=lambda: taken.append(True))
        await backend.send(note)
        if not taken:
            return NO_SERVICE
        # The library's answer to systems it knows nothing of is a backend that can do nothing.
        if not await backend.get_capabilities():
            return NO_WAY
        shown = await backend.get_current_notifications()
        for oldest in shown[:-MAX_KEPT]:
            with suppress(KeyError):  # dismissed in this moment
                await backend.clear(oldest)
        return SHOWN


SEND_SECONDS: Final = 30.0
LIBRARY: Final = "apprise"


class Notifier(Protocol):
    """What is used of Apprise."""

    def add(self, servers: str) -> bool:
        """Add a service by its address."""
        ...

    def notify(self, body: str, title: str) -> bool | None:
        """Tell every service."""
        ...


class Phone:
    """A phone behind one address. The address is a secret: it is in no error and no log."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def tell(self, title: str, body: str) -> bool:
        """Send a text; return whether the service took it. Raises `NeedsPerson` and `UserError` for what is missing."""
        with anyio.move_on_after(SEND_SECONDS):
            return await anyio.to_thread.run_sync(self._send, title, body, abandon_on_cancel=True)
        raise Unavailable("The service for your phone does not answer.", "Harken tries again.")

    def _send(self, title: str, body: str) -> bool:
        # All of it in a thread: the library takes a second to load what it knows.
        return bool(self._notifier().notify(body=body, title=title))

    def _notifier(self) -> Notifier:
        try:
            library = import_module(LIBRARY)
        except ImportError as exc:
            raise NeedsPerson(
                "The library for phones is not installed.", f"Install the package {LIBRARY} where Harken is."
            ) from exc
        # What it logs about an address that it cannot use holds parts of that address.
        logging.getLogger(LIBRARY).disabled = True
        notifier: Notifier = library.Apprise()
        if not notifier.add(self._address):
            raise UserError("Apprise cannot use waiting.phone.", "Use an address that Apprise supports.")
        return notifier
