"""The door of a bot: judges what was posted, has it stored, and answers only then.

The token comes first and the body after it: nothing of a body is read that nobody vouches for. Every refusal looks the
same from outside; the reason is in our log and in the source's health. Above is `surfaces/doors.py`.
"""

from __future__ import annotations

from typing import Final

from harken.clock import Clock
from harken.errors import HarkenError, Refused, Unavailable
from harken.sources.bot.activity import Activity, draft_of, read_activity
from harken.sources.bot.bearer import check_place, read_bearer, verify
from harken.sources.bot.keys import Keys
from harken.sources.bot.settings import PATH, TEAMS, BotSettings
from harken.sources.bot.standing import Standing
from harken.sources.door import Accept, DoorAnswer, Posted

MAX_BYTES: Final = 262_144
TAKEN: Final = 200


class BotDoor:
    """Where the Bot Connector posts activities."""

    def __init__(self, settings: BotSettings, keys: Keys, standing: Standing, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._standing = standing
        self._clock = clock

    @property
    def path(self) -> str:
        """Its path."""
        return PATH

    @property
    def max_bytes(self) -> int:
        """How long an activity may be: Teams sends at most about 100 KB."""
        return MAX_BYTES

    async def take(self, posted: Posted, accept: Accept) -> DoorAnswer:
        """Store what somebody said to the bot; what is no message is counted, and answered all the same."""
        try:
            activity = await self._believed(posted)
            draft = draft_of(activity, self._settings.name)
            if draft is None:
                self._standing.left_out(activity.type)
                return DoorAnswer(status=TAKEN)
            (is_new,) = await accept([draft])
        except Unavailable as exc:
            self._standing.failed(exc.message)
            raise
        except HarkenError as exc:
            self._standing.refused(exc.message)
            raise
        self._standing.stored(draft.channel, is_new=is_new)
        return DoorAnswer(status=TAKEN)

    async def _believed(self, posted: Posted) -> Activity:
        settings, now = self._settings, self._clock.now()
        bearer = read_bearer(posted.headers.get("authorization", ""), settings, now)
        key = await self._keys.find(bearer.kid)
        claims = verify(bearer, key, settings, now)
        activity = read_activity(posted.body)
        check_place(claims, key, service_url=activity.service_url, channel_id=activity.channel_id)
        self._check_allowed(activity)
        return activity

    def _check_allowed(self, activity: Activity) -> None:
        if activity.channel_id not in self._settings.channels:
            raise Refused(f"The bot is not open for the channel {activity.channel_id[:40]!r}.")
        # Where nobody names a tenant, as on a web page, only an empty list lets it in.
        is_named = bool(activity.tenants) and activity.tenants <= self._settings.tenants
        if self._settings.tenants and not is_named:
            raise Refused("The bot is not open for this tenant.")
        if activity.channel_id == TEAMS and len(activity.tenants) > 1:
            raise Refused("The activity names two tenants.")
