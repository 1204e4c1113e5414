"""The verbs for the browsers that are signed in to the page. Like those in `calls`, and refused to agents.

What a browser holds, and when that ends, is in `web/page_sessions.py`; here is only what a person is told and may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from harken.errors import NotFound, UserError
from harken.model import timestamp
from harken.surfaces.desk import Arguments, Desk, SignedInBrowser, Verb, about


class SignIn(Arguments):
    """Make a link that signs a browser in, once."""


class ListBrowsers(Arguments):
    """Show the browsers that are signed in to the page, the one that was used last first."""


class SignOut(Arguments):
    """Sign browsers out of the page. What is open in them ends too."""

    browsers: Annotated[list[str], about("Their ids.")] = msgspec.field(default_factory=list)
    is_all: Annotated[bool, about("Every browser.")] = False


async def _sign_in(desk: Desk, _a: SignIn) -> object:
    desk.caller.require_owner("sign in to the page")
    return {"url": desk.sign_in()}


async def _browsers(desk: Desk, _a: ListBrowsers) -> object:
    desk.caller.require_owner("look at who is signed in to the page")
    return {"browsers": shapes_of(desk.browsers.all())}


async def _sign_out(desk: Desk, a: SignOut) -> object:
    desk.caller.require_owner("sign browsers out")
    known = {each.id: each for each in desk.browsers.all()}
    wanted = list(known) if a.is_all else [name.strip() for name in a.browsers]
    if not wanted and not a.is_all:
        raise UserError("Which browser?", "Name its id, as `harken browsers` shows it, or say --all.")
    if unknown := [name for name in wanted if name not in known]:
        raise NotFound(f"No browser {unknown[0][:40]!r} is signed in.", "See who is: harken browsers")
    for name in wanted:
        desk.browsers.end(name)
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


BROWSER_VERBS: tuple[tuple[str, Verb], ...] = (
    ("sign_in", Verb(SignIn, _sign_in)),
    ("browsers", Verb(ListBrowsers, _browsers)),
    ("sign_out", Verb(SignOut, _sign_out)),
)
