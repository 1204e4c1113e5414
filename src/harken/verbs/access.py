"""The verbs for who may reach what: admitted senders, mutes, signed-in browsers, tokens.

What a browser holds, and when that ends, is in `web/page_sessions.py`; agents are refused the verbs for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from harken.errors import NotFound, UserError
from harken.inbox.access import MACHINE, TokenRequest
from harken.inbox.caller import Grant
from harken.model import timestamp
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, SignedInBrowser, Verb, about

_LONGEST_MUTE_SECONDS = 10 * 365 * 86_400.0
_UNDONE: Final = about("Take back what you decided about them, whatever it was.", flag="--undo")


class Allow(Arguments):
    """Let a sender's messages reach your agents."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only for messages from this source.")] = "*"
    as_owner: Annotated[bool, about("Treat their messages as yours.")] = False
    is_undone: Annotated[bool, _UNDONE] = False


class Deny(Arguments):
    """Only store and count a sender's messages."""

    sender: Annotated[str, about("The sender's id.")]
    source: Annotated[str, about("Only for messages from this source.")] = "*"
    is_undone: Annotated[bool, _UNDONE] = False


class Pair(Arguments):
    """Make a code that allows the sender who sends it."""


class MuteName(Arguments):
    """Mute a channel, sender or session. Its messages are still stored."""

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
    """Say who the caller is taken for: the person, or an agent. Changes nothing."""


async def _allow(context: CallContext, a: Allow) -> object:
    if a.is_undone:
        return await _taken_back(context, a)
    rule = await context.access.allow(context.caller, a.sender, source=a.source, as_owner=a.as_owner)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _deny(context: CallContext, a: Deny) -> object:
    if a.is_undone:
        return await _taken_back(context, a)
    rule = await context.access.deny(context.caller, a.sender, source=a.source)
    return {"source": rule.source, "sender": rule.sender, "trust": rule.trust.value}


async def _taken_back(context: CallContext, a: Allow | Deny) -> object:
    source, sender = await context.access.take_back(context.caller, a.sender, source=a.source)
    return {"source": source, "sender": sender, "trust": None}


async def _pair(context: CallContext, _a: Pair) -> object:
    code, until = context.access.pair(context.caller)
    return {"code": code, "until": shapes.moment(until)}


async def _mute(context: CallContext, a: MuteName) -> object:
    if a.kind == "session" and not await _reads(context, a.name.strip()):
        raise NotFound(f"There is no session or agent {a.name[:80]!r}.", "See them: harken status --all")
    mute = await context.access.mute(context.caller, a.kind, a.name, seconds=a.seconds)
    return {"kind": mute.kind, "name": mute.name, "until": shapes.moment(mute.until)}


async def _reads(context: CallContext, name: str) -> bool:
    """Whether a name is that of a session that is here, or of an agent that reads or has read."""
    live = context.inbox.sessions.everywhere()
    return any(name in (each.key, each.consumer) for each in live) or name in await context.inbox.consumers()


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
    Verb("whoami", WhoAmI, _whoami, needs=Grant.ANY),
)


class SignIn(Arguments):
    """Make a link that signs a browser in, once."""


class MakePhoneLink(Arguments):
    """Make a link that signs your phone in to the page at the public address, once."""

    name: Annotated[str, about("The name of its token (default: phone).")] = ""
    may: Annotated[list[str], about("What the phone may do: read, answer, approve, send, sort (default: read).")] = (
        msgspec.field(default_factory=list)
    )
    seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0)] | None, about("For this long; until it is revoked when null.")
    ] = None


class ListBrowsers(Arguments):
    """Show the browsers that are signed in to the page, and when each was used last."""


class SignOut(Arguments):
    """Sign browsers out of the page, also where it is open."""

    browsers: Annotated[list[str], about("Their ids.")] = msgspec.field(default_factory=list)
    is_all: Annotated[bool, about("Every browser.", flag="--all")] = False


async def _sign_in(context: CallContext, _a: SignIn) -> object:
    context.caller.require_home("sign in to the page")
    return {"url": context.sign_in()}


async def _phone_link(context: CallContext, a: MakePhoneLink) -> object:
    context.caller.require_home("sign a phone in")
    asked = TokenRequest(name=a.name.strip(), may=a.may, seconds=a.seconds)
    made = await context.phone_link(context.caller, asked)
    return {"url": made.url, "name": made.name, "may": list(made.may), "seconds": made.seconds}


async def _browsers(context: CallContext, _a: ListBrowsers) -> object:
    context.caller.require_owner("look at who is signed in to the page")
    return {"browsers": shapes_of(context.browsers.all())}


async def _sign_out(context: CallContext, a: SignOut) -> object:
    context.caller.require_owner("sign browsers out")
    known = {each.id: each for each in context.browsers.all()}
    wanted = list(known) if a.is_all else [name.strip() for name in a.browsers]
    if not wanted and not a.is_all:
        raise UserError("Which browser?", "Name its id, as `harken browsers` shows it, or use --all.")
    if unknown := [name for name in wanted if name not in known]:
        raise NotFound(f"No browser {unknown[0][:40]!r} is signed in.", "See who is: harken browsers")
    for name in wanted:
        context.browsers.end(name)
    return {"browsers": shapes_of(known[name] for name in wanted)}


def shapes_of(browsers: Iterable[SignedInBrowser]) -> Sequence[Mapping[str, object]]:
    """Return browsers as people and programs are told of them, the one that was used last first."""
    return [
        {
            "id": each.id,
            "browser": each.browser,
            "address": each.host,
            "began_at": timestamp(each.began_at),
            "used_at": timestamp(each.used_at),
        }
        for each in sorted(browsers, key=lambda each: each.used_at, reverse=True)
    ]


BROWSER_VERBS: Final = (
    Verb("sign_in", SignIn, _sign_in),
    Verb("phone_link", MakePhoneLink, _phone_link),
    Verb("browsers", ListBrowsers, _browsers),
    Verb("sign_out", SignOut, _sign_out),
)


class NewToken(Arguments):
    """Make a token, which lets a program or another machine in. Its secret is shown once and not stored."""

    name: Annotated[str, about("Its name, as you will see it beside what came with it.")]
    kind: Annotated[str, about("Who gets it: agent, sender (it only sends), machine or phone.")] = "agent"
    mailboxes: Annotated[
        list[str], about("The mailboxes that it is for (default: inbox); * is every one.", flag="--mailbox")
    ] = msgspec.field(default_factory=list)
    task: Annotated[str, about("Its agent works on this task, and has the task's mailbox alone.")] = ""
    may: Annotated[
        list[str],
        about("What it may do: read, send, reply, approve (answer what asks you), or verbs that only you may do."),
    ] = msgspec.field(default_factory=list)
    consumer: Annotated[str, about("Its agent reads as this consumer (default: the token's name).")] = ""
    trust: Annotated[str, about("How far a sender is trusted: known, unknown or owner (default: known).")] = ""
    subject: Annotated[str, about("What the issuer of http.issuer calls its holder; then there is no secret.")] = ""
    seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0)] | None, about("For this long; until it is revoked when null.")
    ] = None


class ListTokens(Arguments):
    """Show the tokens: what each may do, and when and from where it was used last."""


class ListMachines(Arguments):
    """Show the machines that are joined as satellites, and when each was here last."""


class RevokeToken(Arguments):
    """End a token, and at once every connection that was made with it."""

    name: Annotated[str, about("Its name.")]


async def _token_new(context: CallContext, a: NewToken) -> object:
    context.caller.require_home("make tokens")
    asked = TokenRequest(
        name=a.name.strip(),
        kind=a.kind,
        may=a.may,
        mailboxes=a.mailboxes,
        task=(await context.tasks.show(a.task)).task.id if a.task else None,
        consumer=a.consumer.strip(),
        trust=a.trust,
        subject=a.subject.strip(),
        seconds=a.seconds,
    )
    token, secret = await context.tokens.make(context.caller, asked)
    return {**shapes.token(token), "secret": secret, "join_url": context.daemon().get("public_url", "")}


async def _token_list(context: CallContext, _a: ListTokens) -> object:
    return {"tokens": [shapes.token(each) for each in await context.tokens.list(context.caller)]}


async def _token_revoke(context: CallContext, a: RevokeToken) -> object:
    return shapes.token(await context.tokens.revoke(context.caller, a.name.strip()))


async def _machines(context: CallContext, _a: ListMachines) -> object:
    here = context.machines()
    tokens = [each for each in await context.tokens.list(context.caller) if each.token.kind == MACHINE]
    return {"machines": [shapes.machine(each, here.get(each.token.name)) for each in tokens]}


TOKEN_VERBS: Final = (
    Verb("machines", ListMachines, _machines),
    Verb("token_new", NewToken, _token_new),
    Verb("token_list", ListTokens, _token_list),
    Verb("token_revoke", RevokeToken, _token_revoke),
)
