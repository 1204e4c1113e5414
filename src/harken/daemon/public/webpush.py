"""What waits for you, as notifications of the page on your phones: RFC 8030, 8291 and 8292.

`WebPush` tells each phone that wants it what hosts ask, as soon as they do, and of questions when the ladder of
`dispatch/escalation.py` says that the phone is next. The push service belongs to the maker of the browser: what it gets
is encrypted for that browser (by `http-ece`, an extra), so it learns when something waits, and nothing of what. The
address comes from the browser, so it is posted to like the address of a webhook: see `inbox/posting.py`.

A subscription belongs to a session of the page and ends with it, and when the push service says that it is gone. What
its phone may do is looked at before each notification. The subscriptions, and the key that signs, are in a private file
of the home and in no backup. Above is `phones.py`, which has the routes; the browser's part is `static/push-worker.js`.
"""

from __future__ import annotations

import binascii
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from harken.clock import Clock, Signal
from harken.config.home import disk_error, write_private
from harken.config.settings import Settings
from harken.daemon.public.ntfy import URGENT, PhoneNote, PhoneNotes
from harken.dispatch.toast import HaltNote
from harken.errors import Conflict, Unavailable, UserError
from harken.inbox.caller import Caller, Grant
from harken.inbox.posting import CallbackWire, check_url
from harken.inbox.questions import Approvals
from harken.memory import json_bytes
from harken.model import APPROVALS, Approval, ApprovalId, ApprovalState
from harken.store.contract import Store
from harken.store.contract.questions import Question
from harken.surfaces.web.page_sessions import decoded, encoded

_log = logging.getLogger("harken.push")

LIBRARY: Final = "http_ece"
ENCODING: Final = "aes128gcm"
SURFACE: Final = "web push"
LOOK_EVERY_SECONDS: Final = 30.0
READY_SECONDS: Final = 10.0
MOST_BYTES: Final = 1_500  # of a text; what a push service takes has 4,096, and a lock screen shows less
BLOCK: Final = 512  # what is sent is filled up to a multiple of it: its length tells little
MAX_REQUEST: Final = 4_096
AUTH_BYTES: Final = 16
LASTS: Final = timedelta(days=1)  # so long a push service keeps it for a phone that is off
VOUCHED: Final = timedelta(hours=12)  # RFC 8292 allows a day
FIRST_WAIT: Final = timedelta(seconds=30)
LONGEST_WAIT: Final = timedelta(minutes=10)
MAX_DOUBLINGS: Final = 5
BETWEEN: Final = timedelta(seconds=5)  # two tries to subscribe of one session: each posts to where it says
GONE: Final = (404, 410)
TOPIC_LETTERS: Final = 32
WELCOME: Final = PhoneNote(title="Harken", text="This phone is told what waits for you.", path="/needs")


class PushKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser gives to encrypt with."""

    p256dh: str
    auth: str


class PushRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser says of its subscription."""

    endpoint: str
    keys: PushKeys


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the page, where its notifications are posted, and what they are encrypted with."""

    session: str
    endpoint: str
    keys: PushKeys


class _PushFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept: the private key, as PEM, and the subscriptions."""

    key: str
    subscriptions: list[PushSubscription]


class PushBook:
    """The subscriptions and the key, in a file that only you can read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pem = ""
        self._open: dict[str, PushSubscription] = {}
        self.public_key = ""  # as browsers want it; empty until it was read

    def load(self) -> None:
        """Read the file; make the key if there is none that can be used. A new key ends every subscription."""
        kept = self._read()
        key = _private_key(kept.key)
        if key is None:
            key = generate_private_key(SECP256R1())
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
            kept = _PushFile(key=pem, subscriptions=[])
            self._write(kept)
        self._pem = kept.key
        self._open = {each.session: each for each in kept.subscriptions}
        self.public_key = encoded(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))

    def all(self) -> Sequence[PushSubscription]:
        """Return the subscriptions."""
        return list(self._open.values())

    def has(self, subscription: PushSubscription) -> bool:
        """Whether exactly this one is known."""
        return self._open.get(subscription.session) == subscription

    def add(self, subscription: PushSubscription) -> None:
        """Add one; a session has one, and so has a browser."""
        kept = [each for each in self._open.values() if each.endpoint != subscription.endpoint]
        self._open = {each.session: each for each in (*kept, subscription)}
        self._save()

    def remove(self, session: str) -> None:
        """Remove that of a session, if there is one."""
        if self._open.pop(session, None) is not None:
            self._save()

    def vouch(self, endpoint: str, contact: str, now: datetime) -> str:
        """Return the header that tells a push service who posts."""
        place = urlsplit(endpoint)
        said = {"aud": f"{place.scheme}://{place.netloc}", "exp": int((now + VOUCHED).timestamp()), "sub": contact}
        return f"vapid t={jwt.encode(said, self._pem, algorithm='ES256')}, k={self.public_key}"

    def _read(self) -> _PushFile:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_PushFile)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return _PushFile(key="", subscriptions=[])
        except OSError as exc:
            raise disk_error("read", self._file, exc) from exc

    def _save(self) -> None:
        self._write(_PushFile(key=self._pem, subscriptions=list(self._open.values())))

    def _write(self, kept: _PushFile) -> None:
        write_private(self._file, json_bytes(kept).decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class _PushFailure:
    """How often in a row a phone was not reached, and when it is tried again."""

    count: int
    until: datetime


class WebPush:
    """Pushes what waits to the phones that want it. `holder` returns who a session is, while it is good."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        book: PushBook,
        approvals: Approvals,
        wire: CallbackWire,
        holder: Callable[[str], Awaitable[Caller | None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._contact = settings.http.public_url
        self._quiet = settings.toasts.quiet_hours
        self._notes = PhoneNotes(clock, settings.push.shows, most_bytes=MOST_BYTES)
        self._book = book
        self._approvals = approvals
        self._wire = wire
        self._holder = holder
        self._told: dict[str, Collection[ApprovalId]] = {}  # by session
        self._failures: dict[str, _PushFailure] = {}
        self._tried: dict[str, datetime] = {}
        self._ready = anyio.Event()
        self._trouble = ""  # what was logged last, so that it is logged once

    @property
    def key(self) -> str:
        """The key with which browsers subscribe; empty while there is none."""
        return self._book.public_key

    async def run(self) -> None:
        """Push what hosts ask, for ever."""
        await anyio.to_thread.run_sync(self._begin)
        self._ready.set()
        changed = Signal()
        with self._store.changes.listen(changed.ring, only=[APPROVALS]):
            while True:
                await self.look()
                await changed.wait(LOOK_EVERY_SECONDS)

    def _begin(self) -> None:
        import_module(LIBRARY)  # which takes a while
        self._book.load()

    async def subscribe(self, session: str, body: bytes) -> None:
        """Tell a session from now on; raises `HarkenError` where nothing can be pushed to what its browser named."""
        subscription = self._parsed(session, body)
        now, last = self._clock.now(), self._tried.get(session)
        if self._book.has(subscription):
            return
        if last is not None and abs(now - last) < BETWEEN:
            raise Unavailable("This phone subscribes too often.", "Wait a moment.")
        self._tried[session] = now
        if not await self._push(subscription, WELCOME):
            raise Conflict("The push service of this browser takes nothing.", "Switch notifications off and on again.")
        self._book.add(subscription)

    def forget(self, session: str) -> None:
        """Tell a session nothing any more."""
        self._book.remove(session)
        self._told.pop(session, None)
        self._failures.pop(session, None)
        self._tried.pop(session, None)

    async def look(self) -> None:
        """Push what is asked and was not told yet; what cannot be pushed is tried again later."""
        asked = await self._store.approvals.list([ApprovalState.OPEN], is_own=True)
        is_quiet = self._quiet is not None and self._quiet.covers(self._clock.now().astimezone())
        async with anyio.create_task_group() as tasks:
            for each in self._book.all():
                tasks.start_soon(self._tell_approvals, each, () if is_quiet else asked)

    async def tell(self, questions: Sequence[Question]) -> bool:
        """Push questions, the oldest first; return whether a phone was told."""
        with anyio.move_on_after(READY_SECONDS):  # the first look at questions may be before the file is read
            await self._ready.wait()
        notes, told = self._notes.of_questions(questions), list[bool]()

        async def tell(to: PushSubscription) -> None:
            holder = await self._known(to)
            if holder is not None and holder.may("list", Grant.READ):
                told.append(all([await self._push(to, note) for note in notes]))

        async with anyio.create_task_group() as tasks:
            for each in self._book.all():
                tasks.start_soon(tell, each)
        return any(told)

    async def tell_halt(self, halted: HaltNote) -> bool:
        """Push that a session does not go on; return whether a phone was told."""
        told = list[bool]()

        async def tell(to: PushSubscription) -> None:
            holder = await self._known(to)
            if holder is not None and holder.may("status", Grant.READ):
                told.append(await self._push(to, self._notes.of_halt(halted)))

        async with anyio.create_task_group() as tasks:
            for each in self._book.all():
                tasks.start_soon(tell, each)
        return any(told)

    async def _known(self, to: PushSubscription) -> Caller | None:
        holder = await self._holder(to.session)
        if holder is None:
            self.forget(to.session)
        return holder

    async def _tell_approvals(self, to: PushSubscription, asked: Sequence[Approval]) -> None:
        holder = await self._known(to)
        if holder is None or not holder.may("approve", Grant.APPROVE):
            return
        told = self._told.get(to.session, frozenset())
        self._told[to.session] = frozenset(each.id for each in asked if each.id in told)
        failure = self._failures.get(to.session)
        if failure is not None and self._clock.now() < failure.until:
            return
        for each in asked:
            if each.id in self._told[to.session]:
                continue
            if not await self._push(to, self._notes.of_approval(each)):
                return
            self._told[to.session] = {*self._told[to.session], each.id}
            if self._notes.has_text:
                await self._approvals.show([each], SURFACE)

    async def _push(self, to: PushSubscription, note: PhoneNote) -> bool:
        """Push a notification to a browser; return whether its push service took it."""
        now, topic = self._clock.now(), encoded(sha256(note.path.encode()).digest())[:TOPIC_LETTERS]
        lasts = LASTS if note.until is None else min(LASTS, max(timedelta(0), note.until - now))
        headers = {
            "content-type": "application/octet-stream",
            "content-encoding": ENCODING,
            "ttl": f"{int(lasts.total_seconds())}",
            "urgency": "high" if note.priority == URGENT else "normal",
            "topic": topic,
            "authorization": self._book.vouch(to.endpoint, self._contact, now),
        }
        said = json_bytes({"title": note.title, "text": note.text, "path": note.path, "tag": topic})
        answer = await self._wire.send(to.endpoint, headers, encrypted(said, to.keys))
        if not answer.error:
            self._failures.pop(to.session, None)
            self._trouble = ""
        elif answer.status in GONE:
            self.forget(to.session)
        else:
            self._note_failure(to.session, f"{answer.error} {answer.status or ''}".rstrip(), now)
        return not answer.error

    def _note_failure(self, session: str, trouble: str, now: datetime) -> None:
        count = self._failures[session].count + 1 if session in self._failures else 0
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(count, MAX_DOUBLINGS))
        self._failures[session] = _PushFailure(count=count, until=now + wait)
        if trouble != self._trouble:
            _log.warning("a notification was not pushed: %s", trouble)
        self._trouble = trouble

    def _parsed(self, session: str, body: bytes) -> PushSubscription:
        problem = UserError("This is no subscription of a browser.", "Load the page again.")
        if len(body) > MAX_REQUEST:
            raise problem
        try:
            asked = msgspec.json.decode(body, type=PushRequest)
            if len(decoded(asked.keys.auth)) != AUTH_BYTES:
                raise problem
            _point(asked.keys.p256dh)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error, ValueError) as exc:
            raise problem from exc
        check_url(asked.endpoint, allows_loopback=self._wire.allows_loopback)
        return PushSubscription(session=session, endpoint=asked.endpoint, keys=asked.keys)


def encrypted(text: bytes, keys: PushKeys) -> bytes:
    """Return a text as only the browser can read it that gave the keys."""
    encrypt: Callable[..., bytes] = import_module(LIBRARY).encrypt
    filled, own = text.ljust(-(-len(text) // BLOCK) * BLOCK), generate_private_key(SECP256R1())
    return encrypt(filled, private_key=own, dh=_point(keys.p256dh), auth_secret=decoded(keys.auth), version=ENCODING)


def _point(text: str) -> EllipticCurvePublicKey:
    """Return the public key of a browser; raises `ValueError` for what is none."""
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), decoded(text))


def _private_key(pem: str) -> EllipticCurvePrivateKey | None:
    try:
        found = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, EllipticCurvePrivateKey) else None
