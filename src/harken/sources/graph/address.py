"""Where Microsoft Graph is, and which addresses belong to it. Pure.

A token goes only where this module says: to the configured origin, over https, or over http to this machine. Links
that Graph hands out (next pages, delta links, where to begin again) are followed there and nowhere else, whoever wrote
them. Ids come from outside too: `part` makes one segment of a path of them. Below is only httpx2's idea of an address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote

import httpx2

from harken.errors import Refused, UserError

GRAPH: Final = "https://graph.microsoft.com/v1.0"

_SHOWN_CHARS: Final = 24
_SHOWN_SEGMENTS: Final = 8
_IN_QUERY: Final = "$,/:()'"
_CLIMBS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class Address:
    """The root of all paths."""

    root: httpx2.URL

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a configured address; raises `UserError` if a token must not go there."""
        hint = f"write it like {GRAPH}"
        try:
            root = httpx2.URL(text.strip().rstrip("/"))
        except (httpx2.InvalidURL, UnicodeError) as exc:
            raise UserError("The address of Microsoft Graph cannot be read.", hint) from exc
        if root.userinfo or root.query or root.fragment or not root.host:
            raise UserError("The address of Microsoft Graph is a host and a path, nothing else.", hint)
        if root.scheme != "https" and not (root.scheme == "http" and is_loopback(root.host)):
            raise UserError("Microsoft Graph is called over https only: a token is sent along.", hint)
        return cls(root)

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
                raise Refused("A path within Microsoft Graph does not lead upwards.", "encode ids before they are used")
            url = self.link(f"{self.root}/{path.lstrip('/')}")
        if not params:
            return url
        # OData reads a plus as itself: a space has to be %20.
        query = "&".join(f"{quote(name, safe='$')}={quote(value, safe=_IN_QUERY)}" for name, value in params.items())
        return url.copy_with(query=b"&".join(each for each in (url.query, query.encode()) if each))

    def link(self, text: str) -> httpx2.URL:
        """Return a link that Graph handed out; raises `Refused` if it leads elsewhere."""
        url = _read(text)
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
                "Microsoft Graph names an address that is not its own, and it is not followed.",
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


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read(text: str) -> httpx2.URL:
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as exc:
        # Among the reasons is its length.
        raise Refused("Microsoft Graph names an address that cannot be.", "if this goes on, report it") from exc


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or (443 if url.scheme == "https" else 80)
