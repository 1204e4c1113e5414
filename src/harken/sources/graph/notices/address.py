"""Where Microsoft posts for a source, and whether it can. Pure, and quick to import."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harken.errors import UserError
from harken.sources.graph.settings import GraphSettings

FOLDER: Final = "/graph/"


def path_of(name: str) -> str:
    """Return the path of the door of a source."""
    return f"{FOLDER}{name}"


def with_notices(settings: GraphSettings, public_url: str) -> GraphSettings:
    """Return the settings with the address that Microsoft posts to, if it shall; raises `UserError` if it cannot."""
    if not settings.notifications:
        return settings
    if not public_url.startswith("https://"):
        raise UserError(
            f"sources.{settings.name}.notifications needs an https address at which Microsoft reaches this machine.",
            "Set hooks.public_url to that of your tunnel or reverse proxy, or take notifications out.",
        )
    return replace(settings, notice_url=f"{public_url.rstrip('/')}{path_of(settings.name)}")
