"""What a person may write about Teams and Outlook, and what is said about a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
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


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"kind": "teams"}, "client_id is missing"),
        ({**TEAMS, "client_id": "abc"}, "client_id"),
        ({**TEAMS, "sign_in": "magic"}, "sign_in is 'magic'"),
        ({**TEAMS, "tenant": "a/b"}, "tenant"),
        ({**TEAMS, "poll": 1}, "poll is 1"),
        ({**TEAMS, "poll": True}, "poll is True"),
        ({**TEAMS, "poll": float("nan")}, "poll is nan"),
        ({**TEAMS, "watched": "Release"}, "watched"),
        ({**TEAMS, "muted": [1]}, "muted"),
        ({**TEAMS, "folders": ["inbox"]}, "folders is not a setting of teams"),
        ({**TEAMS, "cache": "attic"}, "cache is 'attic'"),
        ({**TEAMS, "scopes": ["openid"]}, "scopes"),
        ({**TEAMS, "certificate": "file:x"}, "certificate has no meaning"),
        ({**TEAMS, "graph_url": "http://graph.example"}, "graph_url"),
        ({**TEAMS, "graph_url": "https://u:p@graph.example"}, "graph_url"),
        ({**TEAMS, "graph_url": "https://[x"}, "graph_url"),
        ({**TEAMS, "authority": "http://127.0.0.1:1"}, "authority"),
        ({**TEAMS, "authority": "https://login.example/x"}, "authority"),
        ({**AGENT, "certificate": "-----BEGIN PRIVATE KEY-----"}, "certificate does not say where"),
        ({**AGENT, "tenant": "organizations"}, "tenant"),
        ({**AGENT, "user_id": "me"}, "user_id"),
        ({**AGENT, "client_id": ID}, "client_id has no meaning"),
    ],
)
def test_every_mistake_names_its_key(entry: dict[str, object], key: str) -> None:
    """Whoever reads the error must find the line."""
    with pytest.raises(UserError) as caught:
        read_settings("chats", entry)
    said = f"{caught.value.message} {caught.value.hint}"
    assert key in said
    assert "sources.chats." in said
    assert "BEGIN" not in said
    assert "u:p" not in said


def test_a_slip_of_the_pen_is_guessed() -> None:
    """The key that was meant is named."""
    with pytest.raises(UserError, match="client-id") as caught:
        read_settings("chats", {"kind": "teams", "client-id": ID})
    assert caught.value.hint == "Did you mean client_id?"


def test_graph_on_this_machine_needs_no_certificate() -> None:
    """A token that stays here cannot be read on the way."""
    assert read_settings("chats", {**TEAMS, "graph_url": "http://localhost:1/v1.0/"}).graph_url.endswith("/v1.0")


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
