"""How Magpie's hooks speak: `{"event": …, "session": …}` in, `{"context": …}` out. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harken.hosts.hook import SILENCE, Hello, HookAdapter, HookAnswer, Voice
from harken.sessions.events import HookEvent, HookMoment

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


@dataclass(frozen=True, slots=True)
class MagpieHooks:
    """The hooks of Magpie."""

    name: str = "magpie"
    most_stops: int = 3

    @property
    def most_chars(self) -> Mapping[HookMoment, int]:
        """How many characters each moment can carry."""
        return dict.fromkeys(_VOICES, 6_000)

    @property
    def voices(self) -> Mapping[HookMoment, Voice]:
        """Whose word a text is to the model."""
        return _VOICES

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not Magpie's, or not of this moment."""
        native = payload.get("session")
        if not isinstance(native, str) or not native or payload.get("event") != moment.value:
            return None
        prompt = payload.get("prompt")
        return HookEvent(
            moment=moment,
            native=native,
            cwd=hello.cwd,
            prompt=prompt if moment is HookMoment.PROMPT and isinstance(prompt, str) else "",
        )

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if not text.strip() or moment not in _VOICES or moment is HookMoment.BELL:
            return SILENCE
        return HookAnswer(stdout=json.dumps({"context": text}) + "\n")

    def context(self, moment: HookMoment, watch: str) -> HookAnswer:
        """Return what to print when there is no text: nothing, for Magpie watches no files."""
        del moment, watch
        return SILENCE


HOOKS: Final[HookAdapter] = MagpieHooks()
