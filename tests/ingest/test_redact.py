"""Secrets leave a text, harmless text stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.redact import RedactedText, redact
from tests.cost import costs_at_most

# Made up, and put together here so that no scanner of secrets takes this file for a leak.
MIXED = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"
BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + "A" * 12] * 3)
PEM = "-----BEGIN RSA " + f"PRIVATE KEY-----\n{BODY}\n-----END RSA " + "PRIVATE KEY-----"

SECRETS = {
    f"curl -H 'Authorization: Bearer {MIXED}' x": "curl -H 'Authorization: Bearer [redacted: authorization]' x",
    "Authorization: Basic dXNlcjpwYXNz": "Authorization: Basic [redacted: authorization]",
    f"authorization={MIXED}": "authorization=[redacted: authorization]",
    f"use bearer {MIXED}.": "use bearer [redacted: bearer token]",
    f"key:\n{PEM}\nend": "key:\n[redacted: private key]\nend",
    f"{PEM[:90]} and then": "[redacted: private key] and then",
    PEM.replace("\n", "\\n"): "[redacted: private key]",
    f"ghp_{MIXED}": "[redacted: github token]",
    f"harken_{MIXED}_-{MIXED[:10]}": "[redacted: harken token]",
    f"(gho_{MIXED})": "([redacted: github token])",
    f"github_pat_{MIXED}_{MIXED}": "[redacted: github token]",
    f"glpat-{MIXED}": "[redacted: gitlab token]",
    "xoxb-123456789012-" + "abcDEF": "[redacted: slack token]",
    "xapp-1-A0123-456-" + "abc": "[redacted: slack token]",
    f"https://hooks.slack.com/services/T0/B0/{MIXED}": "https://hooks.slack.com/services/[redacted: slack webhook]",
    "AKIA" + "ABCDEFGHIJKLMN12": "[redacted: aws access key]",
    f"aws_secret_access_key = {MIXED}/+12": "aws_secret_access_key = [redacted: aws secret key]",
    "AIza" + MIXED[:35]: "[redacted: google api key]",
    f"sk-ant-api03-{MIXED}": "[redacted: api key]",
    f"OPENAI_API_KEY=sk-proj-{MIXED}": "OPENAI_API_KEY=[redacted: api key]",
    "sk_live_" + MIXED: "[redacted: stripe key]",
    f"npm_{MIXED}": "[redacted: npm token]",
    f"pypi-AgEIcHlwaS5vcmc{MIXED}": "[redacted: pypi token]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123": "[redacted: jwt]",
    "postgres://app:hunter2@db:5432/x": "postgres://app:[redacted: password]@db:5432/x",
    "redis://:s3cret@cache": "redis://:[redacted: password]@cache",
    "DB_PASSWORD=hunter22": "DB_PASSWORD=[redacted: password]",
    '"password": "correct-horse-1"': '"password": "[redacted: password]"',
    "pwd: pa$$word!": "pwd: [redacted: password]",
    f"client_secret: {MIXED}": "client_secret: [redacted: secret]",
    f"api-key={MIXED}&x=1": "api-key=[redacted: secret]&x=1",
    f"AccountName=x;AccountKey={MIXED}{MIXED}==;E=y": "AccountName=x;AccountKey=[redacted: azure key];E=y",
    "https://x.test/c?sv=1&sig=abc%2Bdef%3D1234567890&se=2": "https://x.test/c?sv=1&sig=[redacted: signature]&se=2",
}

HARMLESS = [
    "",
    "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904 fixes it",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "https://example.org/a/b?c=d&sign=1#frag and http://localhost:8080/users/@me, git@github.com:a/b.git",
    "<img src='data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ'>",
    "password: see wiki",
    "The password: unchanged since May. Password = required.",
    "password = os.environ['DB_PASSWORD1']",
    "password=$DB_PASSWORD1 password: ${PASS1} password=<your-password-1> password: ******** password=env:PASS1",
    "self.password = config.database1.password2",
    "password = hash_password(user1)",
    "PWD=/home/user1/project",
    "token: 2026-01-01T00:00:00",
    "token = tokenizer.next_token()",
    "const token = await getAccessToken1(request);",
    "secret: 12 items, api_key: string, token: the-one-from-yesterday",
    "Authorization: required. Authorization: Basic authentication is off. Use a bearer authentication-scheme-here",
    ".sk-folding-cube-container-element { } task-sk-1",
    "the file starts with -----BEGIN PRIVATE KEY----- and nothing follows",
    "ghp_ and AKIA and xoxb- are prefixes; eyJ too",
    "postgres://app:$PASSWORD@db/x and http://user:{password}@host",
    "ASIAN MARKETS, AKIA is a name; AIzawa",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secret_is_replaced_by_its_kind(text: str) -> None:
    """What is stored is kept for years, exported and shown to models: a secret in it is out of control."""
    assert redact(text) == RedactedText(SECRETS[text], 1)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    """A filter that takes away what agents need would be turned off."""
    assert redact(text) == RedactedText(text, 0)


def test_every_secret_is_counted() -> None:
    """The count is shown to people, so that they know something was taken out."""
    text = "\n".join(SECRETS)
    assert redact(text).count == len(SECRETS)


@pytest.mark.parametrize("text", SECRETS)
def test_no_part_of_a_long_secret_is_left(text: str) -> None:
    """A bound in a pattern would leave the tail of a long token behind."""
    assert MIXED[-12:] not in redact(text).text


PIECES = st.sampled_from(
    [
        *SECRETS,
        *HARMLESS,
        MIXED,
        "password=",
        "token: ",
        "Bearer ",
        "Authorization: ",
        "://",
        "a:",
        "@",
        "-----",
        PEM.partition("\n")[0],
        PEM.rpartition("\n")[2],
        " ",
        "\n",
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_redacting_again_changes_nothing(text: str) -> None:
    """A text may pass more than once; the marks themselves must not look like secrets."""
    once = redact(text).text
    assert redact(once) == RedactedText(once, 0)


PREFIXES = [
    *["-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nAAAA", "-----", "ghp_", "github_pat_", "glpat-"],
    *[
        "-----BEGIN PRIVATE KEY-----" + " " * 150,
        "-----BEGIN PRIVATE KEY----- a: " + "x " * 150,
        "-----BEGIN ",
        "-----END ",
    ],
    *["xoxb-", "xapp-", "AKIA", "secret_key=", "AIza", "ya29.", "sk-", "sk-a", "sk_live_", "npm_", "pypi-", "eyJ"],
    *["eyJaaaaaaaa.", "authorization: ", "authorization: basic ", "bearer ", "AccountKey=", "?sig=", "a://", "a://b:"],
    *["a://b:c", "http://a:b@", "password=", "password: ", 'password=aaaaaaa"', "token=", "aaaa.bbbb-", " ", "a", "a."],
    "hooks.slack.com/services/",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_hostile_text_costs_little(prefix: str) -> None:
    """Many beginnings must not take longer than as much prose: no pattern may look twice."""
    text = "password token bearer authorization eyj :// sk- " + prefix * (250_000 // len(prefix))
    with costs_at_most(250):
        redact(text)


def test_key_with_something_else_inside_goes_as_a_whole() -> None:
    """Else what is inside is taken out first, and only cleaning a second time would find the key."""
    odd = "-----BEGIN PRIVATE KEY-----Bearer Op2AsEY-----iDf6\n-----END PRIVATE KEY-----"
    once = redact(f"a {odd} b")
    assert once.text == "a [redacted: private key] b"
    assert redact(once.text).text == once.text


def test_many_beginnings_of_keys_take_no_longer_than_their_length() -> None:
    """Each is looked at up to the next, whatever follows."""
    text = "-----BEGIN PRIVATE KEY----- x " * 2_000
    assert redact(text).text == text


def test_keys_inside_keys_take_no_longer_than_their_length() -> None:
    """Whoever takes them out one by one, from the inside, looks at all of them for each."""
    text = "-----BEGIN PRIVATE KEY-----\n" * 9_000 + "-----END PRIVATE KEY-----\n" * 9_000
    with costs_at_most(1_000):
        assert redact(text).text == "[redacted: private key]\n"
