"""Messages and files of rules for the tests, with everything that a test does not care about filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from harken.automation import Rule
from harken.model import Attention, Message, MessageId, Sender
from harken.rules.load import load
from tests.builders import a_message

NOON: Final = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MESSAGE: Final = a_message(
    "Build 456 failed",
    received_at=NOON,
    source="github",
    sender=Sender("bot", "Build bot"),
    attention=Attention.PROMPT,
    channel="ci/main",
)


def message(number: int = 1, /, **changes: object) -> Message:
    """Return a message; `after` says how many seconds after noon it came."""
    facts: dict[str, Any] = {"id": MessageId(f"m-{number}"), "seq": number, **changes}
    return replace(MESSAGE, received_at=NOON + timedelta(seconds=facts.pop("after", 0)), **facts)


def file_of(*rules: Mapping[str, object]) -> bytes:
    """Return a file with these rules."""
    return json.dumps({"rules": rules}).encode()


def rules_of(*rules: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return rules as the loader reads them."""
    return load(file_of(*rules)).rules


def rule_of(**fields: object) -> Rule:
    """Return one rule."""
    return rules_of({"name": "ci", **fields})[0]
