"""What a person may write about Teams and Outlook, and what is said about a mistake."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.sources.microsoft.notifications import with_notices
from harken.sources.outlook.settings import read_settings as read_outlook
from harken.sources.teams.settings import TeamsSettings, read_settings

ID = "66666666-7777-8888-9999-aaaaaaaaaaaa"
SCOPES = ("User.Read", "Chat.ReadWrite", "ChatMessage.Send")
TEAMS = {"kind": "teams", "client_id": ID}
AGENT = {
    "kind": "teams",
    "sign_in": "agent",
    "tenant": "contoso.example",
    "blueprint_id": ID,
    "agent_id": ID,
    "user_id": ID,
    "certificate": "file:agent.pem",
}


def test_an_id_is_enough_for_everything_else() -> None:
    """What people must bring is one id; the rest is as Microsoft has it."""
    teams = read_settings("chats", {**TEAMS, "trust": "known", "enabled": True})
    assert teams == TeamsSettings(name="chats", client_id=ID)
    assert teams.delegated().scopes == SCOPES
    assert read_outlook("mail", {**TEAMS, "kind": "outlook"}).poll == 60.0
    assert teams.address == "graph.microsoft.com"


def test_an_agent_user_names_its_certificate() -> None:
    """Nobody signs in: what it needs is kept elsewhere and only named here."""
    settings = read_settings("bot", AGENT)
    assert (settings.is_agent, settings.certificate) == (True, "file:agent.pem")
    assert "PEM" not in repr(settings.agent_user("PEM"))


def test_graph_on_this_machine_needs_no_certificate() -> None:
    """A token that stays here cannot be read on the way."""
    assert read_settings("chats", {**TEAMS, "graph_url": "http://localhost:1/v1.0/"}).graph_url.endswith("/v1.0")


def test_the_address_is_the_public_one_and_the_name_of_the_source() -> None:
    """It is what a tunnel or a proxy has to show, so it is always the same."""
    settings = read_settings("work", {**TEAMS, "notifications": True})

    told = with_notices(settings, "https://harken.example.org/base")

    assert told.notice_url == "https://harken.example.org/base/graph/work"


@pytest.mark.parametrize("public_url", ["", "http://harken.example.org", "http://127.0.0.1:8781"])
def test_without_an_https_address_it_is_refused_with_what_to_do(public_url: str) -> None:
    """Microsoft posts over https only; a source that nobody tells would be silent for no visible reason."""
    settings = read_settings("work", {**TEAMS, "notifications": True})

    with pytest.raises(UserError, match=re.escape("sources.work.notifications")) as caught:
        with_notices(settings, public_url)
    assert "hooks.public_url" in caught.value.hint


def test_without_the_key_nothing_is_asked_for() -> None:
    """A public address alone, which webhooks need too, is no wish to be told."""
    settings = read_settings("work", TEAMS)

    assert with_notices(settings, "https://harken.example.org") == settings
    assert settings.pace == "looks every 8 s"


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text(), max_size=3))


@given(st.dictionaries(st.sampled_from([*AGENT, "client_id", "poll", "watched", "graph_url", "ca", "x"]), _VALUES))
def test_whatever_is_written_is_read_or_refused(entry: dict[str, object]) -> None:
    """Settings are typed by hand: nothing else may come of them than settings or an error for people."""
    try:
        settings = read_settings("chats", {**TEAMS, **entry})
    except UserError:
        return
    assert settings.graph_url.startswith(("https://", "http://"))
    assert settings.client_id == ID or settings.is_agent
