"""How Magpie's hooks speak: `{"event": …, "session": …}` in, `{"context": …}` out. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harken.hosts.hook import SILENCE, Hello, HookAdapter, HookAnswer, Voice, payload_text
from harken.sessions.turns import HookEvent, HookMoment

MOMENTS: Final = (HookMoment.START, HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.END)
# Magpie marks what hooks say as theirs. What its inbox brings becomes a prompt: to its model that is the user's word.
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(
    {
        HookMoment.PROMPT: Voice.OUTSIDE,
        HookMoment.TOOL: Voice.OUTSIDE,
        HookMoment.STOP: Voice.OUTSIDE,
        HookMoment.BELL: Voice.USER,
    }
)


class MagpieHooks(HookAdapter):
    """The hooks of Magpie."""

    name = "magpie"
    most_chars = dict.fromkeys(_VOICES, 6_000)
    voices = _VOICES
    most_stops = 3

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not Magpie's, or not of this moment."""
        native = payload_text(payload, "session")
        if not native or payload.get("event") != moment.value:
            return None
        return HookEvent(
            moment=moment,
            native=native,
            cwd=hello.cwd,
            prompt=payload_text(payload, "prompt") if moment is HookMoment.PROMPT else "",
        )

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if not text.strip() or moment not in _VOICES or moment is HookMoment.BELL:
            return SILENCE
        return HookAnswer(stdout=json.dumps({"context": text}) + "\n")


HOOKS: Final[HookAdapter] = MagpieHooks()
