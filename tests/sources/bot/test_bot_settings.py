"""Settings of a bot: what is written wrongly says which key, and never repeats what may be a secret."""

from __future__ import annotations

import pytest

from harken.sources.bot.settings import GOVERNMENT, read_settings
from tests.sources.bot.service import APP_ID, TENANT

OTHER = "7d0f9a56-63b2-4d0c-9d50-3f0a8f1c2e11"
GOOD = {"kind": "bot", "app_id": APP_ID, "tenant": TENANT, "secret": "env:BOT_SECRET"}


def test_three_settings_are_enough() -> None:
    """Everything else is Microsoft's, and known."""
    settings = read_settings("desk", GOOD)
    assert settings.openid_url == "https://login.botframework.com/v1/.well-known/openidconfiguration"
    assert settings.token_url == f"https://login.microsoftonline.com/{TENANT}/oauth2/v2.0/token"
    assert (settings.issuer, settings.scope) == (
        "https://api.botframework.com",
        "https://api.botframework.com/.default",
    )
    assert settings.channels == {"msteams"}


def test_the_cloud_of_the_government_is_another_one() -> None:
    """A token of one cloud says nothing in the other."""
    settings = read_settings("desk", {**GOOD, "cloud": GOVERNMENT})
    assert settings.issuer == "https://api.botframework.us"
    assert not settings.is_service("https://smba.trafficmanager.net/emea/")
    assert settings.is_service("https://smba.infra.gov.teams.microsoft.us/teams")


@pytest.mark.parametrize(
    ("more", "heard"),
    [
        ({}, {TENANT}),
        ({"tenant": TENANT.upper()}, {TENANT}),
        ({"tenants": []}, {TENANT}),
        ({"tenants": [OTHER]}, {OTHER}),
        ({"tenants": [TENANT, OTHER]}, {TENANT, OTHER}),
        ({"tenants": ["*"]}, set()),
        ({"tenant": "contoso.onmicrosoft.com"}, set()),
        ({"tenant": "botframework.com"}, set()),
        ({"channels": ["msteams", "webchat"]}, set()),
        ({"channels": ["msteams", "webchat"], "tenants": [TENANT]}, {TENANT}),
    ],
)
def test_bot_of_one_tenant_hears_that_one_unless_told_otherwise(more: dict[str, object], heard: set[str]) -> None:
    """Anybody in any organisation who knows its app id could write to it. A web page names no tenant."""
    assert read_settings("desk", {**GOOD, **more}).tenants == heard
