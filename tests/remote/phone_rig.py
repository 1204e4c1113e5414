"""A phone without a screen: it signs in by a link of `harken open --phone`, and sends what a test wants it to."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlencode

from tests.remote.rig import PublicDaemon
from tests.web.rig import Answer, Web

HTML = {"Accept": "text/html"}


class PhoneWeb(Web):
    """The page at the public address, as a phone sees it."""

    def __init__(self, public: PublicDaemon) -> None:
        super().__init__(public.main.served)
        self.public = public
        self.origin = public.url
        self.address = public.url.removeprefix("https://")
        self.wish: dict[str, object] = {}
        self.session: dict[str, str] = {}

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection on which nothing was asked yet."""
        return self.public.connection()

    def link(self) -> str:
        """Return a new sign-in link for a phone."""
        return str(self.public.call("phone_link", **self.wish)["url"])

    def enter(self, may: Sequence[str] = (), **wish: object) -> PhoneWeb:
        """Sign in."""
        self.wish = {"may": list(may), **wish}
        self.session = self.signed_in()
        return self

    def look(self, path: str) -> Answer:
        """Look at a page."""
        return self.ask("GET", path, {**self.session, **HTML})

    def do(self, path: str, **fields: str) -> Answer:
        """Send a form as the page does."""
        headers = {
            **self.session,
            "Origin": self.origin,
            "HX-Request": "true",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self.ask("POST", path, headers, urlencode(fields).encode())

    def hang_on(self, path: str = "/events") -> bool:
        """Open a stream and return, once it has ended, whether it had begun."""
        (session,) = self.session.values()
        with closing(self.connect()) as connection:
            connection.request("GET", path, headers={"Harken-Proof": self.proof(session, "GET", path)})
            answer = connection.getresponse()
            while answer.read1():
                pass
            return answer.status == 200
