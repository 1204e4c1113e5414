"""What a person does about rules, actions and runs: answer, pause, resume, reload, start, end.

Adapters over `Reactions`, which refuses whoever is not the person. What came too late is a sentence on the page where
it was asked, not an error: somebody else was faster, and the page shows how things stand now.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harken.errors import HarkenError, UserError
from harken.inbox.reactions import Wish
from harken.surfaces.web.front import Front
from harken.surfaces.web.page.forms import form_of, once_key
from harken.surfaces.web.page.looks import SEE_OTHER
from harken.surfaces.web.page.places import message_rules_href
from harken.surfaces.web.page.reaction_looks import Note, ReactionLooks, Wanted
from harken.surfaces.web.page.rendering import OK, is_part
from harken.surfaces.web.page.rules import answered_words
from harken.surfaces.web.page.runs import run_href

YES: Final = "yes"
NO: Final = "no"
RULES: Final = "/rules"


class ReactionDeeds:
    """What a person does."""

    def __init__(self, front: Front, looks: ReactionLooks) -> None:
        self._front = front
        self._looks = looks

    async def answer(self, request: Request) -> Response:
        """Accept or refuse what an action asks."""
        form = await form_of(request)
        said = form.get("answer", "")
        if said not in (YES, NO):
            raise UserError("Yes or no?", "Load the page again.")
        try:
            told = await self._front.reactions.answer(
                self._front.desk().caller, form.get("action", ""), is_yes=said == YES
            )
        except HarkenError as exc:
            return await self._looks.rules_page(Note.of(exc), _status(request, exc))
        return await self._rules(request, answered_words(told.action))

    async def pause(self, request: Request) -> Response:
        """Let no rule fire until that is ended."""
        await self._front.reactions.pause(self._front.desk().caller, is_on=True)
        return await self._rules(request, "Paused. Messages keep arriving, and no rule fires.")

    async def resume(self, request: Request) -> Response:
        """Let rules fire again."""
        await self._front.reactions.pause(self._front.desk().caller, is_on=False)
        return await self._rules(request, "Resumed. Rules fire for what comes from now on.")

    async def reload(self, request: Request) -> Response:
        """Put the file of rules in force, or say everything that is wrong with it."""
        try:
            found = await self._front.reactions.reload(self._front.desk().caller)
        except HarkenError as exc:
            return await self._looks.rules_page(Note.of(exc), _status(request, exc))
        count = len(found.cards)
        return await self._rules(request, f"Read again: {count} {'rule is' if count == 1 else 'rules are'} in force.")

    async def abort(self, request: Request) -> Response:
        """End a run."""
        form = await form_of(request)
        name = form.get("run", "")
        try:
            card = await self._front.reactions.abort(self._front.desk().caller, name)
        except HarkenError as exc:
            return await self._looks.run_page(name, note=Note.of(exc), status=_status(request, exc))
        if is_part(request):
            return await self._looks.run_page(card.run.id, note=Note(lines=["Aborted."]))
        return RedirectResponse(run_href(card.run.id), SEE_OTHER)

    async def run(self, request: Request) -> Response:
        """Send an agent to a message."""
        form = await form_of(request)
        ref = form.get("message", "")
        wanted = Wanted(rule=form.get("rule", ""), agent=form.get("agent", ""), workdir=form.get("workdir", "").strip())
        try:
            told = await self._front.reactions.run_now(
                self._front.desk().caller,
                ref,
                Wish(rule=wanted.rule, agent=wanted.agent, workdir=wanted.workdir),
                key=once_key(form.get("key", ""), repr((ref, wanted))),
            )
        except HarkenError as exc:
            return await self._looks.run_now_page(ref, wanted, Note.of(exc), exc.http_status)
        return RedirectResponse(message_rules_href(told.action.message), SEE_OTHER)

    async def _rules(self, request: Request, said: str) -> Response:
        """Answer what was done: a script gets the page with a sentence, a browser goes there."""
        if is_part(request):
            return await self._looks.rules_page(Note(lines=[said]))
        return RedirectResponse(RULES, SEE_OTHER)


def _status(request: Request, error: HarkenError) -> int:
    # The page's script shows nothing of an answer that is an error.
    return OK if is_part(request) else error.http_status
