"""A webhook as a source: one door, and no feed. What is posted is judged, read, stored, and only then answered.

The order is fixed: who signed, on the bytes as they came; what kind of body; what it says; whether the settings want to
hear it; the store. Above is `surfaces/doors.py`, which bounds a post before it gets here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError
from harken.model import Draft
from harken.sources.check import CheckContext, CheckReport
from harken.sources.feed import HealthRecorder, RefusalCount
from harken.sources.source import (
    Accept,
    Door,
    DoorAnswer,
    NamedSource,
    PostedRequest,
    SourceEntry,
    SourceHealth,
    SourceState,
)
from harken.sources.webhook.preset import (
    FORM,
    JSON,
    LARGE_BYTES,
    EchoAnswer,
    Keys,
    Reading,
    SignatureCheck,
    SkippedPost,
    WebhookEvent,
    body_id,
    media_type,
    payload_of,
    shell_line,
    shell_secret,
)
from harken.sources.webhook.settings import KIND, WebhookSettings, read_settings

LARGE_THREADS: Final = 2
MAX_LEFT_OUT: Final = 10_000
UNREADY_SECONDS: Final = 60.0
MIN_SECRET_CHARS: Final = 8
MIN_KEY_BYTES: Final = 8

UNAUTHORIZED: Final = 401

ANSWER_SECONDS: Final = 5.0


REFUSED: Final = "An unsigned post is refused, as it must be. `harken source list` counts it as not taken."
ACCEPTED, TAKEN, NOT_JSON = 202, 200, 415

_STORED: Final = DoorAnswer(status=ACCEPTED, body=b'{"status":"accepted"}')
_KNOWN: Final = DoorAnswer(status=TAKEN, body=b'{"status":"known"}')
_SKIPPED: Final = DoorAnswer(status=TAKEN, body=b'{"status":"skipped"}')
_NOT_JSON: Final = DoorAnswer(status=NOT_JSON, body=b'{"error":"Only JSON is taken here."}')


class WebhookSource(NamedSource):
    """One webhook that is posted to. Without keys it has a door that asks to try again later."""

    def __init__(self, settings: WebhookSettings, keys: Keys, clock: Clock, problem: str = "") -> None:
        super().__init__(settings.name, KIND, settings.path)  # below the address of the listener
        self.settings = settings
        self._health = HealthRecorder(clock, state=SourceState.LISTENING)
        self._refusals = RefusalCount()
        if problem:
            self._health.waits_for(problem)
        self._door = WebhookDoor(settings, keys, clock, self._health, self._refusals)

    def doors(self) -> Sequence[Door]:
        """Return its only door."""
        return (self._door,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        health, refused = self._health.read(), self._refusals
        if health.reason or refused.at is None:
            return health
        times = "1 post was" if refused.count == 1 else f"{refused.count} posts were"
        return replace(health, reason=f"{times} not taken, the last one at {refused.at:%H:%M} UTC: {refused.why}")


class WebhookDoor:
    """Where one service posts."""

    def __init__(
        self, settings: WebhookSettings, keys: Keys, clock: Clock, health: HealthRecorder, refusals: RefusalCount
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._health = health
        self._refusals = refusals
        # Anybody may post what is large: it must not take the threads that others need.
        self._threads = anyio.CapacityLimiter(LARGE_THREADS)
        self._media = frozenset({JSON, FORM} if settings.preset.has_form else {JSON})
        self._left_out: dict[str, None] = {}  # bodies that were skipped: what names their event may not be signed

    @property
    def path(self) -> str:
        """Its path."""
        return self._settings.path

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        return self._settings.max_bytes

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Judge a post, have it stored, and answer."""
        if not self._keys:
            # The service keeps it: what it posts now is not lost when the secret is there.
            raise Unavailable("The secret is missing.", retry_after=UNREADY_SECONDS)
        try:
            if len(posted.body) < LARGE_BYTES:
                reading = self._judge(posted)
            else:
                # It takes long enough that others would notice: several keys may have to be tried on it.
                reading = await anyio.to_thread.run_sync(self._judge, posted, limiter=self._threads)
        except HarkenError as exc:
            self._refusals.add(exc.message, self._clock.now())
            # Its traceback leads back to itself through the thread's future, and on the way to the whole body: anybody
            # could fill the memory until the collector looks.
            raise exc.with_traceback(None) from None
        answer = _SKIPPED if body_id(posted) in self._left_out else await self._answer(reading, accept)
        if answer is _SKIPPED:
            self._leave_out(body_id(posted))
        return answer

    def _leave_out(self, body: str) -> None:
        """Remember a body that was skipped: under another name it is no news either."""
        if len(self._left_out) >= MAX_LEFT_OUT:
            del self._left_out[next(iter(self._left_out))]
        self._left_out[body] = None

    async def _answer(self, reading: Reading | None, accept: Accept) -> DoorAnswer:
        match reading:
            case WebhookEvent() as event:
                return await self._store(event, accept)
            case SkippedPost(why):
                self._health.dropped(why)
                return _SKIPPED
            case EchoAnswer(body):
                return DoorAnswer(status=TAKEN, body=body)
            case None:
                self._refusals.add("It is not JSON.", self._clock.now())
                return _NOT_JSON

    def _judge(self, posted: PostedRequest) -> Reading | None:
        """Return what a post says that is shown to be genuine, None when it is not JSON."""
        judging = SignatureCheck(keys=self._keys, now=self._clock.now().timestamp(), window=self._settings.window)
        preset = self._settings.preset
        preset.check(posted, judging)
        return preset.read(posted, payload_of(posted)) if media_type(posted) in self._media else None

    async def _store(self, event: WebhookEvent, accept: Accept) -> DoorAnswer:
        wanted = self._settings.channels
        if wanted and event.channel not in wanted:
            self._health.dropped(event.channel)
            return _SKIPPED
        (is_new,) = await accept([self._draft(event)])
        self._health.stored([event.channel] if is_new else [], known=not is_new)
        return _STORED if is_new else _KNOWN

    def _draft(self, event: WebhookEvent) -> Draft:
        return Draft(
            source=self._settings.name,
            sender=event.sender,
            text=event.text,
            upstream_id=event.id,
            channel=event.channel,
            conversation=event.conversation,
            thread=event.thread,
            sent_at=event.sent_at,
            priority=event.priority,
            meta=event.meta,
        )


def make_source(entry: SourceEntry) -> WebhookSource:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return WebhookSource(settings, keys_of(settings, entry.secret), entry.clock)
    except (UserError, NeedsPerson) as exc:
        # What is kept elsewhere is missing or no secret; what is written here may be right.
        return WebhookSource(settings, (), entry.clock, f"{exc.message} {exc.hint}")


def keys_of(settings: WebhookSettings, resolve: Callable[[str], str]) -> Keys:
    """Return the keys that may have signed; raises `UserError` or `NeedsPerson` when a secret cannot be had."""
    keys: list[bytes] = []
    for reference in settings.secrets:
        secret = resolve(reference)
        if len(secret) < MIN_SECRET_CHARS:
            raise UserError(
                f"A secret of sources.{settings.name} has fewer than {MIN_SECRET_CHARS} characters.",
                "Use a longer one: this one could be guessed.",
            )
        keys += settings.preset.keys(secret)
    # The text may be long and the key in it short.
    if any(len(key) < MIN_KEY_BYTES for key in keys):
        raise UserError(
            f"A secret of sources.{settings.name} has a key of fewer than {MIN_KEY_BYTES} bytes.",
            "Use a longer one: this one could be guessed.",
        )
    return tuple(keys)


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Post something unsigned to the running daemon, which must refuse it."""
    settings = read_settings(entry.name, entry.table)
    running = context.running()
    state, reason, found = SourceState.RETRYING, "", ""
    if entry.name not in running.states or not running.hooks_url:
        reason = "The daemon does not know it yet: harken reload"
    elif running.states[entry.name][0] is not SourceState.LISTENING:
        state, reason = running.states[entry.name]
    else:
        status = _post(running.hooks_url, settings.path)
        if status == UNAUTHORIZED:
            state, found = SourceState.LISTENING, REFUSED
        else:
            reason = f"An unsigned post was answered with {status or 'nothing'} instead of {UNAUTHORIZED}."
    signature = settings.preset.shell(shell_secret(settings.secrets[0], entry.locate))
    line = shell_line(signature, settings.preset.sample, f"{running.hooks_url}{settings.path}")
    return CheckReport(
        state=state,
        address=context.post_address(settings.path),
        reason=reason,
        server=settings.preset.title,
        found=found,
        shell_line=line if found else "",
    )


def _post(base: str, path: str) -> int:
    """Return the status of an unsigned post, 0 when there was no answer."""
    parts = urlsplit(base)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
