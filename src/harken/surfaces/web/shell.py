"""The pages without data that anyone may load: the shell that fetches the real page with a proof, and the sign-in page.

A browser that goes to an address can send no proof. So it gets a shell, whatever the address: its script asks for
the address again, now with a proof, and shows what comes. What both say to a person is here, and shown by the
scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from starlette.responses import Response

from harken.surfaces.web.answers import HTML
from harken.surfaces.web.page.static_files import StaticFile
from harken.surfaces.web.proofs import TicketBook

_COMMAND = "harken open"
_STYLES = ("app.css", "panels.css", "reactions.css")
_SCRIPTS = ("app.js", "writing.js", "reactions.js", "htmx.min.js")
_NO_SCRIPT = "This page needs JavaScript: without it nothing can prove that it is you."


class PageShell:
    """Makes them."""

    def __init__(self, files: Mapping[str, StaticFile], tickets: TicketBook) -> None:
        self._files = files
        self._tickets = tickets

    def page(self) -> Response:
        """Return the shell of any page."""
        said = (
            _said(
                "signed-out", "You are not signed in.", "Run this in a terminal. It opens this page again, signed in."
            ),
            _said(
                "stranger",
                "Another program answers at this address.",
                "It was told nothing of worth. Run this in a terminal: it opens the page where Harken is.",
            ),
            _said("away", "Harken does not answer.", "Run this in a terminal. It starts Harken if need be."),
        )
        # What every page needs comes while the page itself is asked for.
        ahead = [(name, "style") for name in _STYLES] + [(name, "script") for name in _SCRIPTS]
        return self._made("Harken", "shell.js", said, ahead)

    def sign_in(self) -> Response:
        """Return the page that a link opens."""
        hint = "Each link works once, for two minutes. Run this in a terminal for a new one."
        stranger = "It could not show that it made this link. Run this in a terminal for a new one."
        said = (
            _said("used", "This link does not work any more.", hint),
            _said("stranger", "Another program answers at this address.", stranger),
            _said("away", "Harken does not answer.", "Run this in a terminal. It starts Harken if need be."),
        )
        return self._made("Sign in · Harken", "signin.js", said)

    def _made(self, title: str, script: str, said: Sequence[str], ahead: Sequence[tuple[str, str]] = ()) -> Response:
        sheet, icon, ticket = self._files["plain.css"].url, self._files["icon.svg"].url, self._tickets.issue()
        scripts = "".join(f'<script src="{self._files[name].url}"></script>' for name in ("session.js", script))
        early = "".join(f'<link rel="preload" href="{self._files[name].url}" as="{kind}">' for name, kind in ahead)
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">'
            f'<meta name="color-scheme" content="light dark"><meta name="harken-ticket" content="{ticket}">'
            f'<title>{title}</title><link rel="icon" type="image/svg+xml" href="{icon}">'
            f'{scripts}<link rel="stylesheet" href="{sheet}">{early}</head><body class="plain">{"".join(said)}'
            f"<noscript><main><h1>Harken</h1><p>{_NO_SCRIPT}</p></main></noscript></body></html>"
        )
        return Response(page, media_type=HTML)


def _said(name: str, title: str, hint: str) -> str:
    return (
        f'<main id="{name}" hidden><h1>{escape(title)}</h1><p>{escape(hint)}</p><p><code>{_COMMAND}</code></p>'
        '<p><a href="/">Try again</a></p></main>'
    )
