"""What refusals mean and who signed in: pure decisions about text from outside."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import NeedsPerson, Unavailable
from harken.sources.http import seconds_of
from harken.sources.microsoft.sign_in import SignedInPerson, SignInRecord, StoredSignIn, claims_of, load_kept, person_of
from harken.sources.microsoft.sign_in_service import RefusalCause, RefusalContext, cause_of, codes_of, refusal

ASKER = RefusalContext(name="work", tenant="contoso.example", client_id="the-app", authority="https://login.example")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
MOMENTS = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("error", "suberror", "number", "cause"),
    [
        ("invalid_grant", "consent_required", 65001, RefusalCause.CONSENT),
        ("invalid_grant", "consent_required", 90094, RefusalCause.ADMIN_CONSENT),
        ("access_denied", None, 90094, RefusalCause.ADMIN_CONSENT),
        ("access_denied", None, 65004, RefusalCause.DECLINED),
        ("authorization_declined", None, 70019, RefusalCause.DECLINED),
        ("expired_token", None, 70020, RefusalCause.EXPIRED_CODE),
        ("invalid_grant", None, 70019, RefusalCause.EXPIRED_CODE),
        ("invalid_grant", "bad_token", 50173, RefusalCause.REVOKED),
        ("invalid_grant", "token_expired", 700082, RefusalCause.REVOKED),
        ("invalid_grant", None, 9002313, RefusalCause.REVOKED),
        ("invalid_grant", None, 50057, RefusalCause.ACCOUNT),
        ("interaction_required", "basic_action", 50076, RefusalCause.POLICY),
        ("invalid_grant", "message_only", 53003, RefusalCause.POLICY),
        ("interaction_required", None, 999999, RefusalCause.POLICY),
        ("invalid_tenant", None, 90002, RefusalCause.TENANT),
        ("invalid_request", None, 50194, RefusalCause.TENANT),
        ("unauthorized_client", None, 700016, RefusalCause.CLIENT),
        ("invalid_client", None, 7000218, RefusalCause.PUBLIC_CLIENT),
        ("invalid_request", None, 50011, RefusalCause.REDIRECT),
        ("invalid_scope", None, 70011, RefusalCause.SCOPE),
        ("invalid_client", None, 700024, RefusalCause.CLOCK),
        ("invalid_client", None, 700027, RefusalCause.CERTIFICATE),
        ("server_error", None, 0, RefusalCause.LATER),
        ("invalid_request", None, 90033, RefusalCause.LATER),
        ("brand_new", None, 123456, RefusalCause.UNKNOWN),
    ],
)
def test_a_refusal_has_the_cause_that_its_words_and_numbers_say(
    error: str, suberror: str | None, number: int, cause: RefusalCause
) -> None:
    """Each cause has another remedy. Numbers may change, so a plain word wins; a coarse word is refined by a number."""
    said = {"error": error, "suberror": suberror, "error_description": f"AADSTS{number}: text" if number else "text"}

    assert cause_of(said) is cause
    assert cause_of({**said, "error_codes": [number]}) is cause


def test_every_cause_tells_a_person_something_of_their_own_to_do() -> None:
    """Two causes with the same words would send somebody to the wrong place."""
    numbers = (65001, 90094, 50076, 65004, 70019, 50173, 90002, 700016, 7000218, 50011, 70011, 50057, 700027, 82001)
    found = [refusal({"error": "x", "error_codes": [number]}, ASKER) for number in (*numbers, 700024, 123456)]

    assert all(isinstance(error, NeedsPerson) and error.action and error.hint for error in found)
    assert len({error.message.partition(" (")[0] for error in found}) == len(found)
    assert found[-1].hint.endswith("https://login.microsoftonline.com/error?code=123456")
    assert "https://login.example/contoso.example/adminconsent?client_id=the-app" in found[1].hint


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(420.0, "7 minutes ahead"), (-420.0, "7 minutes behind"), (7_200.0, "2 hours ahead"), (-61.0, "1 minute behind")],
)
def test_a_clock_is_said_to_be_off_by_so_much(seconds: float, words: str) -> None:
    """A person who reads the minutes looks at the clock; one who reads a number looks it up."""
    asker = RefusalContext(name="work", tenant="t", client_id="c", authority="https://a", skew_seconds=seconds)

    assert f"your clock is {words}" in refusal({"error": "invalid_client", "error_codes": [700024]}, asker).message


@given(
    st.dictionaries(
        st.sampled_from(["error", "suberror", "error_codes"]), JSON | st.sampled_from(["x_y", "bad_token"])
    ),
    st.sampled_from(["", "AADSTS50076:"]),
)
def test_any_refusal_becomes_an_error_that_repeats_nothing(said: dict[str, object], number: str) -> None:
    """What the service says could be anything: it neither breaks us nor reaches a terminal, a page or a model."""
    unseen = "Kß\u202e\x1b[31m<b>hush"
    said["error_description"] = f"{unseen} {number} {unseen}"

    error = refusal(said, ASKER)

    assert isinstance(error, NeedsPerson | Unavailable)
    text = f"{error.message} {error.hint} {error.as_dict()}"
    assert "hush" not in text
    assert text.isprintable()


@given(st.lists(st.integers(min_value=10_000, max_value=9_999_999), max_size=20))
def test_numbers_are_found_wherever_they_are(numbers: list[int]) -> None:
    """Older answers have them in the text only; a list of thousands must not make an error of thousands of lines."""
    expected = tuple(dict.fromkeys(numbers))[:8]

    assert codes_of({"error_codes": numbers}) == expected
    assert codes_of({"error_description": " ".join(f"AADSTS{number}: no." for number in numbers)}) == expected


@given(st.tuples(*[st.text()] * 4), st.tuples(MOMENTS, MOMENTS, MOMENTS), st.lists(st.text()), st.text(), st.text())
def test_what_is_kept_is_read_back_as_it_was(
    who: tuple[str, str, str, str],
    times: tuple[datetime, datetime, datetime],
    scopes: list[str],
    client_id: str,
    tokens: str,
) -> None:
    """Whoever signed in is still the one after a restart, whatever their name."""
    person = SignedInPerson(name=who[0], upn=who[1], tenant_id=who[2], user_id=who[3])
    sign_in = SignInRecord(
        person=person, since=times[0], renewed_at=times[1], expires_at=times[2], scopes=tuple(scopes)
    )
    kept = StoredSignIn(sign_in=sign_in, client_id=client_id, access=tokens, tokens=tokens)

    assert load_kept(kept.dump()) == kept
    assert repr(kept) == f"StoredSignIn(sign_in={sign_in!r}, client_id={client_id!r})"


@given(st.one_of(st.text(), JSON.map(json.dumps)))
def test_anything_else_that_is_kept_counts_as_nothing(text: str) -> None:
    """A damaged file, or one of a later version, asks for a new sign-in and breaks nothing."""
    assert load_kept(text) is None
    assert load_kept(None) is None
    assert load_kept(json.dumps({"version": 2})) is None


@given(JSON, st.text())
def test_what_an_id_token_claims_is_cleaned(claims: object, name: str) -> None:
    """A display name is chosen by its owner, and shown in terminals."""
    person_of(claims)
    person = person_of({"name": name, "preferred_username": name * 100, "oid": 7})

    assert (person.name + person.upn).isprintable()
    assert len(person.upn) <= 200
    assert person.user_id == ""


@given(st.text())
def test_an_id_token_that_is_none_claims_nothing(text: str) -> None:
    """The service may leave it out, or send something else."""
    assert claims_of(text) == {} or text.count(".") >= 1
    assert claims_of(None) == {}


@given(JSON)
def test_a_number_of_seconds_is_a_number_whatever_is_sent(value: object) -> None:
    """A lifetime from outside is used to compute times: nothing in it may overflow or be undefined."""
    assert 0 <= seconds_of(value) < 1e9 + 1
    assert seconds_of("3599") == 3599
