"""The verbs for who may reach what: senders that are admitted, and what is muted."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about

_LONGEST_MUTE_SECONDS = 10 * 365 * 86_400.0


class Allow(Arguments):
    """Let a sender reach sessions."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only from this source.", command="Only where it comes from this source.")] = "*"
    as_owner: Annotated[bool, about("Treat their word as yours.")] = False


class Deny(Arguments):
    """Let a sender only be counted."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only from this source.", command="Only where it comes from this source.")] = "*"


class Pair(Arguments):
    """Make a code that admits the one sender who sends it."""


class MuteName(Arguments):
    """Keep a channel, sender or session from being pushed to."""

    kind: Annotated[str, about("channel, sender or session.")]
    name: Annotated[str, about("Its name.")]
    seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_MUTE_SECONDS)] | None,
        about("For this long; until unmuted when null."),
    ] = None


class UnmuteName(Arguments):
    """End a mute."""

    kind: Annotated[str, about("channel, sender or session.")]
    name: Annotated[str, about("Its name.")]


class WhoAmI(Arguments):
    """Say for whom the caller is taken: the person, or an agent. Changes nothing."""


async def _allow(context: CallContext, a: Allow) -> object:
    rule = await context.access.allow(context.caller, a.sender, source=a.source, as_owner=a.as_owner)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _deny(context: CallContext, a: Deny) -> object:
    rule = await context.access.deny(context.caller, a.sender, source=a.source)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _pair(context: CallContext, _a: Pair) -> object:
    code, until = context.access.pair(context.caller)
    return {"code": code, "until": shapes.moment(until)}


async def _mute(context: CallContext, a: MuteName) -> object:
    mute = await context.access.mute(context.caller, a.kind, a.name, seconds=a.seconds)
    return {"kind": mute.kind, "name": mute.name, "until": shapes.moment(mute.until)}


async def _unmute(context: CallContext, a: UnmuteName) -> object:
    mute = await context.access.unmute(context.caller, a.kind, a.name)
    return {"kind": mute.kind, "name": mute.name}


async def _whoami(context: CallContext, _a: WhoAmI) -> object:
    return {"role": context.caller.role.value, "consumer": context.caller.consumer}


ACCESS_VERBS: Final = (
    Verb("allow", Allow, _allow),
    Verb("deny", Deny, _deny),
    Verb("pair", Pair, _pair),
    Verb("mute", MuteName, _mute),
    Verb("unmute", UnmuteName, _unmute),
    Verb("whoami", WhoAmI, _whoami),
)
