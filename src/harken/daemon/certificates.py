"""Whose certificates a source believes: those of the system, and those in a file that the person names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from harken.config.home import Home, expand_user
from harken.errors import UserError


def believed(ca: str, source: str, home: Home, environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return whose certificates are believed; None for those of the system alone."""
    if not ca:
        return None
    try:
        trust = ssl.create_default_context()
        trust.load_verify_locations(cafile=home.path / expand_user(ca, environ))
    except (OSError, ssl.SSLError) as exc:
        raise UserError(
            f"The certificates in sources.{source}.ca cannot be read.", "Name a PEM file that you can read."
        ) from exc
    return trust
