"""Notifications are asked for by one key, and refused in words where nobody could deliver them."""

from __future__ import annotations

import re

import pytest

from harken.errors import UserError
from harken.sources.microsoft.notifications import with_notices
from harken.sources.teams.settings import TeamsSettings, read_settings

ENTRY: dict[str, object] = {"kind": "teams", "client_id": "1b730954-1685-4b74-9bfd-dac224a7b894"}


def test_the_address_is_the_public_one_and_the_name_of_the_source() -> None:
    """It is what a tunnel or a proxy has to show, so it is always the same."""
    settings = read_settings("work", {**ENTRY, "notifications": True})

    told = with_notices(settings, "https://harken.example.org/base")

    assert told.notice_url == "https://harken.example.org/base/graph/work"


@pytest.mark.parametrize("public_url", ["", "http://harken.example.org", "http://127.0.0.1:8781"])
def test_without_an_https_address_it_is_refused_with_what_to_do(public_url: str) -> None:
    """Microsoft posts over https only; a source that nobody tells would be silent for no visible reason."""
    settings = read_settings("work", {**ENTRY, "notifications": True})

    with pytest.raises(UserError, match=re.escape("sources.work.notifications")) as caught:
        with_notices(settings, public_url)
    assert "hooks.public_url" in caught.value.hint


def test_without_the_key_nothing_is_asked_for() -> None:
    """A public address alone, which webhooks need too, is no wish to be told."""
    settings = read_settings("work", ENTRY)

    assert with_notices(settings, "https://harken.example.org") == settings
    assert settings.pace == "looks every 8 s"


def test_the_key_is_true_or_false() -> None:
    """A text such as "no" would otherwise count as yes."""
    with pytest.raises(UserError, match=re.escape("sources.work.notifications is 'no'")):
        read_settings("work", {**ENTRY, "notifications": "no"})
    assert TeamsSettings(name="work").notifications is False
