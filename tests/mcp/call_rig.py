"""Calls of tools without a connection: what the SDK's server would make of a request. This module tests nothing."""

from __future__ import annotations

from harken.inbox.channels import Channels
from harken.sessions.proof import CallLog
from harken.sessions.session import Session
from harken.verbs.verb import ToolCall
from tests.inbox.tasks_rig import Workshop, says


def called(shop: Workshop, session: Session, log: CallLog, request: str, *, result_bytes: int) -> ToolCall:
    """Return a call that has just arrived, of a session whose host shows so much."""
    log.begin(request)
    return ToolCall(
        inbox=shop.inbox,
        tasks=shop.tasks,
        channels=Channels(shop.store, shop.inbox),
        reader=session.reader,
        caller=says(session),
        edge="edge",
        request=request,
        carrier=f"edge/{request}",
        carry=lambda deliveries: log.carry(request, deliveries),
        drop=lambda: log.drop(request),
        afterwards=lambda do: log.afterwards(request, do),
        when_proven=lambda do: log.when_proven(request, do),
        result_bytes=result_bytes,
    )
