"""Payloads of Magpie's hooks as it was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harken.hosts.hook import HookSample
from harken.sessions.turns import HookEvent, HookMoment

from .hooks import MOMENTS

SAMPLES: Final[Sequence[HookSample]] = [
    HookSample(
        moment=moment,
        payload={"event": moment.value, "session": "0b6f", **({"prompt": "go"} if moment is HookMoment.PROMPT else {})},
        event=HookEvent(moment=moment, native="0b6f", cwd="/work", prompt="go" if moment is HookMoment.PROMPT else ""),
    )
    for moment in MOMENTS
]
