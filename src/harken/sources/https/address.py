"""Where a service is, and which addresses belong to it. Pure.

A token goes only where this module says: to the configured origin, over https, or over http to this machine. Links
that the service hands out (next pages, delta links, where to begin again) are followed there and nowhere else, whoever
wrote them. Ids come from outside too: `part` makes one segment of a path of them. Below is httpx2's idea of an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote

import httpx2

from harken.errors import Refused, UserError
from harken.sources.loopback import is_loopback

_HINT: Final = "write it like https://service.example.org/v1.0"
_SHOWN_CHARS: Final = 24
_SHOWN_SEGMENTS: Final = 8
_IN_QUERY: Final = "$,/:()'"
_CLIMBS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class Address:
    """The root of all paths, and what the service is called in errors."""

    root: httpx2.URL
    service: str

    @classmethod
    def parse(cls, text: str, service: str) -> Self:
        """Read a configured address; raises `UserError` if a token must not go there."""
        try:
            root = httpx2.URL(text.strip().rstrip("/"))
        except (httpx2.InvalidURL, UnicodeError) as exc:
            raise UserError(f"The address of {service} cannot be read.", _HINT) from exc
        if root.userinfo or root.query or root.fragment or not root.host:
            raise UserError(f"The address of {service} is a host and a path, nothing else.", _HINT)
        if root.scheme != "https" and not (root.scheme == "http" and is_loopback(root.host)):
            raise UserError(f"{service} is called over https only: a token is sent along.", _HINT)
        return cls(root, service)

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return is_loopback(self.root.host)

    def url(self, path: str, params: Mapping[str, str] | None = None) -> httpx2.URL:
        """Return where a path below the root is, or a whole link; raises `Refused` if that is elsewhere."""
        if "://" in path.partition("?")[0]:
            url = self.link(path)
        else:
            bare = path.partition("?")[0]
            if any(segment in _CLIMBS for segment in bare.split("/")) or "//" in bare or "#" in path:
                raise Refused(f"A path within {self.service} does not lead upwards.", "encode ids before they are used")
            url = self.link(f"{self.root}/{path.lstrip('/')}")
        if not params:
            return url
        # OData reads a plus as itself: a space has to be %20.
        query = "&".join(f"{quote(name, safe='$')}={quote(value, safe=_IN_QUERY)}" for name, value in params.items())
        return url.copy_with(query=b"&".join(each for each in (url.query, query.encode()) if each))

    def link(self, text: str) -> httpx2.URL:
        """Return a link that the service handed out; raises `Refused` if it leads elsewhere."""
        try:
            url = httpx2.URL(text)
        except (httpx2.InvalidURL, UnicodeError) as exc:
            # Among the reasons is its length.
            raise Refused(f"{self.service} names an address that cannot be.", "if this goes on, report it") from exc
        self._check(url)
        return url

    def begin_again(self, location: str) -> str:
        """Return a `Location` as a link that can be followed, or nothing if it leads elsewhere."""
        try:
            return str(self.link(str(self.root.join(location)))) if location else ""
        except (Refused, httpx2.InvalidURL, UnicodeError):
            return ""

    def _check(self, url: httpx2.URL) -> None:
        if _origin(url) != _origin(self.root) or url.userinfo:
            raise Refused(
                f"{self.service} names an address that is not its own, and it is not followed.",
                "if this goes on, check the configured address",
            )


def part(identifier: str) -> str:
    """Return an id as one segment of a path, whatever is in it."""
    quoted = quote(identifier, safe=":@", errors="replace")
    return quoted.replace(".", "%2E") if identifier in _CLIMBS else quoted


def shown(url: httpx2.URL) -> str:
    """Return a path as a log may show it: no query, and of long segments only the beginning."""
    segments = url.path.strip("/").split("/")
    kept = [each if len(each) <= _SHOWN_CHARS else f"{each[:8]}…" for each in segments[:_SHOWN_SEGMENTS]]
    return "/" + "/".join(kept)


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or (443 if url.scheme == "https" else 80)
