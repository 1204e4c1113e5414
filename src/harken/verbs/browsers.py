"""The verbs for the browsers that are signed in to the page. They are refused to agents.

What a browser holds, and when that ends, is in `web/page_sessions.py`; here is only what a person is told and may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from harken.errors import NotFound, UserError
from harken.model import timestamp
from harken.verbs.verb import Arguments, CallContext, SignedInBrowser, Verb, about


class SignIn(Arguments):
    """Make a link that signs a browser in, once."""


class ListBrowsers(Arguments):
    """Show the browsers that are signed in to the page, the one that was used last first."""


class SignOut(Arguments):
    """Sign browsers out of the page. What is open in them ends too."""

    browsers: Annotated[list[str], about("Their ids.")] = msgspec.field(default_factory=list)
    is_all: Annotated[bool, about("Every browser.", flag="--all")] = False


async def _sign_in(context: CallContext, _a: SignIn) -> object:
    context.caller.require_owner("sign in to the page")
    return {"url": context.sign_in()}


async def _browsers(context: CallContext, _a: ListBrowsers) -> object:
    context.caller.require_owner("look at who is signed in to the page")
    return {"browsers": shapes_of(context.browsers.all())}


async def _sign_out(context: CallContext, a: SignOut) -> object:
    context.caller.require_owner("sign browsers out")
    known = {each.id: each for each in context.browsers.all()}
    wanted = list(known) if a.is_all else [name.strip() for name in a.browsers]
    if not wanted and not a.is_all:
        raise UserError("Which browser?", "Name its id, as `harken browsers` shows it, or say --all.")
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
    Verb("browsers", ListBrowsers, _browsers),
    Verb("sign_out", SignOut, _sign_out),
)
