"""What an answer of Graph means: decided without any network, for every answer there could be."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Unavailable
from harken.sources.http import HttpAnswer
from harken.sources.microsoft.responses import (
    MissingScope,
    OutcomeUnknown,
    PositionGone,
    ResponseDone,
    ResponseFailure,
    ResponseRefresh,
    ResponseRetry,
    verdict_of,
)

NOW: Final = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "code", "message", "innerError"]), inner),
    max_leaves=12,
)
BODIES: Final = st.none() | st.binary() | JSON.map(lambda value: json.dumps(value).encode())
HEADERS: Final = st.dictionaries(st.sampled_from(["retry-after", "date", "location"]), st.text())
WRITES: Final = st.sampled_from(["POST", "PATCH"])


@given(st.sampled_from(["GET", "POST", "PATCH"]), st.integers(100, 599), HEADERS, BODIES)
def test_every_answer_has_a_verdict_that_can_be_shown(
    method: str, status: int, headers: dict[str, str], body: bytes | None
) -> None:
    """An answer nobody foresaw must not end a feed, and nothing of it may act on a terminal or a page."""
    verdict = verdict_of(method, HttpAnswer(status, headers, body), NOW)
    if isinstance(verdict, ResponseDone):
        assert status // 100 == 2
        return
    error = verdict.error
    assert error.message
    assert error.hint
    assert error.message.isprintable()
    assert not set(error.message) & set("<>")
    assert len(error.message) < 400


@given(WRITES, st.integers(100, 599), HEADERS, BODIES)
def test_writing_is_repeated_only_after_it_was_turned_away(
    method: str, status: int, headers: dict[str, str], body: bytes | None
) -> None:
    """Everything else may have happened, and a second message cannot be taken back."""
    verdict = verdict_of(method, HttpAnswer(status, headers, body), NOW)
    assert isinstance(verdict, ResponseRetry) == (status == 429)
    assert isinstance(verdict, ResponseRefresh) == (status == 401)
    if status >= 500 or status == 408:
        assert isinstance(verdict, ResponseFailure)
        assert isinstance(verdict.error, OutcomeUnknown)


@given(st.integers(100, 599), HEADERS, BODIES)
def test_reading_is_never_unsure(status: int, headers: dict[str, str], body: bytes | None) -> None:
    """There is nothing that could have happened."""
    verdict = verdict_of("GET", HttpAnswer(status, headers, body), NOW)
    assert isinstance(verdict, ResponseDone) or not isinstance(verdict.error, OutcomeUnknown)


@given(st.text(alphabet="abcdefghijABCDEFGHIJ0123456789+/=_.-", min_size=32, max_size=300))
def test_nothing_as_long_as_a_token_is_told(secret: str) -> None:
    """Services echo what they were sent."""
    for message in (secret, f"The token {secret} is bad", f"'{secret}'", f"({secret}),x"):
        body = json.dumps({"error": {"code": "bad", "message": message}}).encode()
        verdict = verdict_of("GET", HttpAnswer(400, {}, body), NOW)
        assert isinstance(verdict, ResponseFailure)
        assert secret not in verdict.error.message
        assert "400 bad" in verdict.error.message


def test_a_lost_position_concerns_readers_only() -> None:
    """Something that was deleted before it was changed is simply not there."""
    gone = HttpAnswer(410, {"location": "https://x/y"}, b"")
    read, written = verdict_of("GET", gone, NOW), verdict_of("PATCH", gone, NOW)
    assert isinstance(read, ResponseFailure)
    assert isinstance(read.error, PositionGone)
    assert read.error.location == "https://x/y"
    assert isinstance(written, ResponseFailure)
    assert written.error.code == "not_found"


def test_scopes_are_read_from_graphs_sentence() -> None:
    """As it is written for missing permissions of people and of applications."""
    for sentence in ("Missing scope permissions", "Missing role permissions"):
        message = f"{sentence} on the request. API requires one of 'Mail.Read, Mail.ReadWrite.All'. Has ''."
        body = json.dumps({"error": {"code": "Forbidden", "message": message}}).encode()
        verdict = verdict_of("GET", HttpAnswer(403, {}, body), NOW)
        assert isinstance(verdict, ResponseFailure)
        assert isinstance(verdict.error, MissingScope)
        assert verdict.error.scopes == ("Mail.Read", "Mail.ReadWrite.All")


def test_half_a_letter_does_not_make_an_answer_unreadable() -> None:
    """A preview may cut an emoji in two: one message must not stop everything that is read together with it."""
    for body in (rb'{"value": "hi \ud83d", "n": 1}', b'{"value": "hi \xf0\x9f", "n": 1}'):
        verdict = verdict_of("GET", HttpAnswer(200, {}, body), NOW)
        assert isinstance(verdict, ResponseDone)
        assert verdict.body["n"] == 1
        assert verdict.body["value"] == "hi \ufffd"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"value": null}', b'{"value": {}}', b"[]"])
def test_a_page_without_its_list_is_broken(body: bytes) -> None:
    """Taken for an empty one it would say that nothing is there."""
    verdict = verdict_of("GET", HttpAnswer(200, {}, body), NOW, is_list=True)
    assert isinstance(verdict, ResponseRetry)
    assert isinstance(verdict.error, Unavailable)
    assert isinstance(verdict_of("GET", HttpAnswer(200, {}, b'{"value": []}'), NOW, is_list=True), ResponseDone)


def test_claims_of_a_challenge_are_passed_on_as_they_were_asked() -> None:
    """What is no challenge, or cannot be read as one, asks for nothing but another token."""
    asked = base64.b64encode(b'{"access_token":{"nbf":{"essential":true}}}').decode()
    for challenge, claims in (
        (f'Bearer error="insufficient_claims", claims="{asked}"', '{"access_token":{"nbf":{"essential":true}}}'),
        (f'Bearer error="invalid_token", claims="{asked}"', ""),
        ('Bearer error="insufficient_claims", claims="%%%"', ""),
        ('Bearer error="insufficient_claims", claims="abcd"', ""),
    ):
        verdict = verdict_of("GET", HttpAnswer(401, {"www-authenticate": challenge}, b""), NOW)
        assert isinstance(verdict, ResponseRefresh)
        assert verdict.claims == claims
