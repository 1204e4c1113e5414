"""What HTTP answers outside the page proper: the shell, the sign-in page, errors, and the files that pages load.

Anyone may load these: they hold no data. A browser that goes to an address can send no proof. So it gets `PageShell`,
for any address: its script asks for the address again, now with a proof, and shows what comes. An error says the same
as JSON and as a plain page: one sentence, one hint. Nothing of the request is repeated, so nothing in it can act.

The static files are a fixed table, read once at start. A name in the address is looked up in this table and nowhere
else, so no path of the file system ever comes from a request. The address holds a hash of the content, so a browser may
keep the file for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib import resources
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from harken.errors import HarkenError, Unavailable
from harken.memory import json_bytes
from harken.surfaces.web.page_sessions import TicketBook

PUSH_WORKER: Final = "/push-worker.js"
_STYLE = "plain.css"
_STYLES = ("app.css", "panels.css", "automation.css", "conversations.css")
_SCRIPTS = ("app.js", "writing.js", "automation.js", "conversations.js", "palette.js", "push.js", "htmx.min.js")
_NO_SCRIPT = "This page needs JavaScript: without it nothing can prove that it is you."


class PageShell:
    """Makes the shell and the sign-in page."""

    def __init__(
        self,
        files: Mapping[str, StaticFile],
        tickets: TicketBook,
        command: str = "harken open",
        entry: str = "",
        push_key: Callable[[], str] = str,
    ) -> None:
        self._files = files
        self._tickets = tickets
        self.command = command  # what signs a browser in
        self._entry = entry  # of a page that is not signed in: another way in
        self._push_key = push_key  # with which a browser subscribes to notifications; empty where there are none
        self.style = files[_STYLE].url

    def page(self) -> Response:
        """Return the shell of any page."""
        said = (
            self._said(
                "signed-out",
                "You are not signed in.",
                "Run this in a terminal. It opens this page again, signed in.",
                self._entry,
            ),
            self._said(
                "stranger",
                "Another program answers at this address.",
                "It was told nothing of worth. Run this in a terminal: it opens the page where Harken is.",
            ),
            self._said("away", "Harken does not answer.", "Run this in a terminal. It starts Harken if need be."),
        )
        # What every page needs comes while the page itself is asked for.
        ahead = [(name, "style") for name in _STYLES] + [(name, "script") for name in _SCRIPTS]
        return self._made("Harken", "shell.js", said, ahead)

    def sign_in(self) -> Response:
        """Return the page that a link opens."""
        hint = "Each link works once, for a few minutes. Run this in a terminal for a new one."
        stranger = "It could not show that it made this link. Run this in a terminal for a new one."
        said = (
            self._said("used", "This link does not work any more.", hint),
            self._said("stranger", "Another program answers at this address.", stranger),
            self._said("away", "Harken does not answer.", "Run this in a terminal. It starts Harken if need be."),
        )
        return self._made("Sign in · Harken", "signin.js", said)

    def worker(self, path: str) -> Response:
        """Return the service worker at an address: one that takes the place of any other and ends itself.

        Where there are notifications, and only there, one address has the worker that shows them.
        """
        file = self._files["push-worker.js" if path == PUSH_WORKER and self._push_key() else "leaving.js"]
        return Response(file.content, media_type=file.content_type, headers={"Service-Worker-Allowed": "/"})

    def _made(self, title: str, script: str, said: Sequence[str], ahead: Sequence[tuple[str, str]] = ()) -> Response:
        sheet, icon, ticket = self.style, self._files["icon.svg"].url, self._tickets.issue()
        scripts = "".join(f'<script src="{self._files[name].url}"></script>' for name in ("session.js", script))
        early = "".join(f'<link rel="preload" href="{self._files[name].url}" as="{kind}">' for name, kind in ahead)
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">'
            f'<meta name="color-scheme" content="light dark"><meta name="harken-ticket" content="{ticket}">'
            f'<meta name="harken-command" content="{self.command}">'
            f'<meta name="harken-push" content="{self._push_key()}">'
            f'<title>{title}</title><link rel="icon" type="image/svg+xml" href="{icon}">'
            f'{scripts}<link rel="stylesheet" href="{sheet}">{early}</head><body class="plain">{"".join(said)}'
            f"<noscript><main><h1>Harken</h1><p>{_NO_SCRIPT}</p></main></noscript></body></html>"
        )
        return Response(page, media_type=HTML)

    def _said(self, name: str, title: str, hint: str, more: str = "") -> str:
        return (
            f'<main id="{name}" hidden><h1>{escape(title)}</h1><p>{escape(hint)}</p><p><code>{self.command}</code></p>'
            f'{more}<p><a href="/">Try again</a></p></main>'
        )


# An app that was installed has a store of its own on some phones: no link that is opened elsewhere signs it in.
PASTE: Final = (
    '<form id="paste"><label for="link">Or paste the link that it shows here</label>'
    '<input id="link" type="url" autocomplete="off" placeholder="https://…/sign-in#…" required>'
    "<button>Sign in</button></form>"
)
HTML = "text/html"
UNAUTHORIZED, FORBIDDEN, TOO_LARGE = 401, 403, 413


def json_answer(value: object) -> Response:
    """Return an answer for a program."""
    return Response(json_bytes(value), media_type="application/json")


def error_answer(error: HarkenError, status: int = 0, *, as_page: bool = False, style: str = "") -> Response:
    """Return what went wrong, as a page when a browser wants to show it."""
    status = status or error.http_status
    if as_page:
        return plain_page(error.message, error.hint, status=status, style=style)
    answer = Response(json_bytes({"error": error.as_dict()}), status_code=status, media_type="application/json")
    if isinstance(error, Unavailable):
        answer.headers["Retry-After"] = str(int(error.retry_after))
    if status == UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def plain_page(title: str, hint: str, *, status: int, style: str = "") -> Response:
    """Return a page that only says something; `style` is the address of a stylesheet."""
    sheet = f'<link rel="stylesheet" href="{escape(style)}">' if style else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)} · Harken</title>{sheet}</head>'
        f'<body class="plain"><main><h1>{escape(title)}</h1><p>{escape(hint)}</p>'
        '<p><a href="/">Go to the inbox</a></p></main></body></html>'
    )
    return Response(page, status_code=status, media_type=HTML)


def wants_page(accept: str) -> bool:
    """Whether an Accept header is that of a browser which would show the answer to a person."""
    return HTML in accept.lower()


CONTENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
        ".webmanifest": "application/manifest+json",
    }
)
HASH_LETTERS = 12
FOR_EVER = "public, max-age=31536000, immutable"
NOT_MODIFIED, NOT_FOUND = 304, 404


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """A file, where it is served, and as what."""

    url: str
    content: bytes
    content_type: str
    tag: str


def static_files() -> Mapping[str, StaticFile]:
    """Return every file of `static/` that browsers may load, by name."""
    folder = resources.files(f"{__package__}.page").joinpath("static")
    found: dict[str, StaticFile] = {}
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in CONTENT_TYPES:
            content = entry.read_bytes()
            if suffix == ".webmanifest":  # after the icon, by name: it is at an address with a hash, too
                content = content.replace(b"/icon.svg", found["icon.svg"].url.encode())
            tag = hashlib.sha256(content).hexdigest()[:HASH_LETTERS]
            url = f"/static/{tag}/{entry.name}"
            found[entry.name] = StaticFile(url=url, content=content, content_type=CONTENT_TYPES[suffix], tag=f'"{tag}"')
    return MappingProxyType(found)


def static_route(files: Mapping[str, StaticFile]) -> Route:
    """Return the route that serves them."""
    by_url = {file.url: file for file in files.values()}
    return Route("/static/{path:path}", partial(_serve, by_url), methods=["GET"])


async def _serve(by_url: Mapping[str, StaticFile], request: Request) -> Response:
    file = by_url.get(request.scope["path"])
    if file is None:
        return PlainTextResponse("There is no such file.\n", NOT_FOUND)
    headers = {"ETag": file.tag, "Cache-Control": FOR_EVER, "X-Content-Type-Options": "nosniff"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    return Response(file.content, media_type=file.content_type, headers=headers)
