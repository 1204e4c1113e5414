"""Whatever is posted with a good signature, the daemon goes on, and what it stores is bounded."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import Draft
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import Preset, WebhookEvent, payload_of
from harken.sources.webhook.settings import read_settings
from tests.sources.webhook import samples
from tests.sources.webhook.rig import PRESETS

Json: TypeAlias = Any
"""Whatever JSON can say."""

MAX_TEXT = 70_000
EVENTS = ["push", "issues", "pull_request", "issue_comment", "workflow_run", "release", "status", "star", "create"]
RESOURCES = ["issue", "event_alert", "metric_alert", "error", "comment", "installation"]
DOCUMENTED = [value for name, value in vars(samples).items() if name.isupper() and not name.startswith("_")]

texts = st.text(max_size=40) | st.sampled_from(
    ["a\nb", "https://x.example/a b", "0" * 40, "\x1b[31m", "\u202e", "1e400"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@st.composite
def mangled(draw: st.DrawFn) -> Json:
    """A documented payload in which some values are something else."""

    def change(value: Json) -> Json:
        if draw(st.integers(0, 9)) == 0:
            return draw(values)
        if isinstance(value, dict):
            return {key: change(item) for key, item in value.items()}
        if isinstance(value, list):
            return [change(item) for item in value]
        return value

    return change(draw(st.sampled_from(DOCUMENTED)))


def preset_of(name: str) -> Preset:
    """The preset, and for the generic one expressions that do something."""
    parts = (
        {"text": "a", "channel": "type", "sender": "sender.login", "id": "to_string(@)"} if name == "generic" else {}
    )
    return read_settings("ci", {"preset": name, "secret": "env:IT", **parts}).preset


def headers_of(draw: st.DataObject) -> dict[str, str]:
    """The headers that say what it is about; they come over the wire as latin-1."""
    noise = st.text(st.characters(max_codepoint=255), max_size=20)
    return {
        "x-github-event": draw.draw(st.sampled_from(EVENTS) | noise),
        "sentry-hook-resource": draw.draw(st.sampled_from(RESOURCES) | noise),
        "x-github-delivery": draw.draw(noise),
    }


@settings(max_examples=300)
@given(name=st.sampled_from(PRESETS), payload=mangled() | values, data=st.data())
def test_no_payload_breaks_a_preset(name: str, payload: Json, data: st.DataObject) -> None:
    """Whoever has the secret may still send anything, and so may whoever names a branch."""
    try:
        found = preset_of(name).read(PostedRequest(headers=headers_of(data)), payload)
    except UserError:
        return  # it is not what its headers say
    if isinstance(found, WebhookEvent):
        assert 0 < len(found.text) < MAX_TEXT
        assert 0 < len(found.channel) <= 128
        assert "\n" not in found.channel
        assert "\n" not in found.sender.id + found.sender.name
        draft = Draft(
            source="ci",
            sender=found.sender,
            text=found.text,
            upstream_id=found.id,
            channel=found.channel,
            conversation=found.conversation,
            thread=found.thread,
            sent_at=found.sent_at,
            meta=found.meta,
        )
        prepare(draft, IngestPolicy()).text.encode()


@given(st.binary(max_size=300) | values.map(lambda value: json.dumps(value).encode()))
def test_bytes_are_a_value_or_a_mistake(body: bytes) -> None:
    """Nothing else is raised, so that nothing but an answer comes of it."""
    try:
        found = payload_of(PostedRequest(body=body))
    except UserError:
        return
    assert found is None or isinstance(found, bool | int | float | str | list | dict)


@given(depth=st.integers(1, 3_000), name=st.sampled_from(PRESETS))
@settings(max_examples=60)
def test_nesting_does_not_reach_the_stack(depth: int, name: str) -> None:
    """A payload that is nested deeply is a mistake or a message, never the end of the daemon."""
    body = b'{"a":' * depth + b'{"text":"x"}' + b"}" * depth
    try:
        payload = payload_of(PostedRequest(body=body))
    except UserError:
        return
    preset_of(name).read(PostedRequest(), payload)
