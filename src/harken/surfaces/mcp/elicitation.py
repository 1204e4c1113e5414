"""How a question reaches the person behind an MCP connection: the SDK's elicitation, where it is known to be safe.

Only hosts that were seen to show such a form to the person, and never to answer it themselves, are asked: an agent
must not confirm for its owner. What is asked, and what an answer means, is in `asking.py`.
"""

from __future__ import annotations

from functools import partial

from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from harken.hosts.host import Host
from harken.surfaces.mcp.asking import Ask, FormChoice, FormQuestion, choice


def way(host: Host, session: ServerSession) -> Ask | None:
    """Return how to ask the person behind a connection; None when that is not possible, or not known to be safe."""
    declared = session.client_capabilities.elicitation if session.client_capabilities is not None else None
    # Without a mode it is a form: the other mode came later.
    has_form = declared is not None and (declared.form is not None or declared.url is None)
    if not host.asks_person or not has_form or session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return partial(_ask, session)


async def _ask(session: ServerSession, asked: FormQuestion) -> FormChoice | None:
    """Show a question until it is answered. The host is told when this is cancelled, and takes it away."""
    try:
        result = await session.elicit_form(asked.text, asked.form)
    except (MCPError, ValidationError):
        return None
    return choice(asked, result.content or {}) if result.action == "accept" else FormChoice.LATER
