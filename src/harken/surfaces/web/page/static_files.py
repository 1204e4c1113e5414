"""The files the page loads: a fixed table, read once at start.

A name in the address is looked up in this table and nowhere else, so no path of the file system ever comes from a
request. The address holds a hash of the content: whoever has it may keep it for ever. Below are only the files in
`static/`; above is `rendering.py`, which writes the addresses into pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

CONTENT_TYPES: Mapping[str, str] = MappingProxyType(
    {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
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
    folder = resources.files(__package__).joinpath("static")
    found: dict[str, StaticFile] = {}
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in CONTENT_TYPES:
            content = entry.read_bytes()
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
