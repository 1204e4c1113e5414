"""`harken source` with Teams and Outlook: added, signed in to with a code, tried, signed out of, and never a token."""

from __future__ import annotations

import os
import pty
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Outcome, Rig
from tests.graph.service import Graph, serving
from tests.graph.tokens import Answer

USAGE, WRONG, NEEDS_PERSON, NOT_LISTENING = 2, 2, 6, 1
CLIENT = "66666666-7777-8888-9999-aaaaaaaaaaaa"
BROWSER = """
import html, re, ssl, sys, urllib.parse, urllib.request
trust = ssl.create_default_context(cafile=CA)
page = urllib.request.urlopen(sys.argv[1], context=trust, timeout=20).read().decode()
action = html.unescape(re.search('action="([^"]+)"', page)[1])
fields = {name: html.unescape(value) for name, value in re.findall('name="([a-z_]+)" value="([^"]*)"', page)}
urllib.request.urlopen(action, urllib.parse.urlencode(fields).encode(), timeout=20).read()
"""


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A Microsoft on loopback whose person enters every code at once."""
    with serving() as service:
        service.sign_in.device_interval = 1
        yield service


def write(rig: Rig, graph: Graph, kind: str, more: str = "") -> None:
    """Write settings that lead to the service on loopback."""
    rig.home.mkdir(mode=0o700, exist_ok=True)
    with (rig.home / "config.toml").open("a") as file:
        file.write(
            f'[sources.{kind}]\nkind = "{kind}"\ntenant = "{graph.tenant}"\nclient_id = "{graph.client_id}"\n'
            f'graph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\nca = "{graph.ca}"\n{more}'
        )


def login(rig: Rig, name: str) -> Outcome:
    """Sign in with a code."""
    return rig.run("source", "login", name, "--device")


def test_whoever_signs_in_with_a_code_is_named_and_can_try_the_source(fresh: Rig, graph: Graph) -> None:
    """From settings to an account that answers, in two commands."""
    graph.say(graph.chat(graph.person("Ann")), graph.me, "<p>hello</p>")
    write(fresh, graph, "teams")
    done = login(fresh, "teams")
    assert (done.code, done.out) == (0, f"teams: signed in as {graph.me.name} ({graph.me.address}).\n")
    assert "enter the code" in done.err
    assert "Not granted" not in done.err
    trial = fresh.json("source", "test", "teams")
    assert (trial["state"], trial["server"]) == ("listening", f"{graph.me.name} ({graph.me.address})")
    assert trial["found"].startswith("1 chat, the last message ")


def test_each_folder_of_the_mailbox_is_looked_at(fresh: Rig, graph: Graph) -> None:
    """A folder that is not there must be seen before anybody waits for its mail."""
    graph.mail(graph.person("Ann"), "lunch", "<p>at noon?</p>")
    write(fresh, graph, "outlook")
    assert login(fresh, "outlook").code == 0
    assert fresh.json("source", "test", "outlook")["found"].startswith("inbox: the last mail ")


def test_a_sign_in_is_kept_for_its_owner_only_and_told_nobody(fresh: Rig, graph: Graph) -> None:
    """Whoever reads a token reads the person's chats: it is in one private file and in nothing that is printed."""
    write(fresh, graph, "teams")
    told = fresh.json("source", "login", "teams", "--device")
    assert set(told) == {"name", "state", "as", "user_id", "since", "granted", "not_granted"}
    kept = fresh.home / "sign-ins" / "teams.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert "access" in kept.read_text()


def test_after_signing_out_the_source_says_how_to_sign_in(fresh: Rig, graph: Graph) -> None:
    """Nothing of the sign-in stays on the machine, and what to do next is said."""
    write(fresh, graph, "teams")
    assert login(fresh, "teams").code == 0
    assert fresh.json("source", "logout", "teams")["state"] == "signed out"
    assert not (fresh.home / "sign-ins" / "teams.json").exists()
    tried = fresh.run("source", "test", "teams")
    assert tried.code == NOT_LISTENING
    assert "harken source login teams" in tried.out
    assert fresh.json("source", "logout", "teams")["state"] == "was not signed in"


def test_a_declined_sign_in_leaves_the_one_before(fresh: Rig, graph: Graph) -> None:
    """Whoever changes their mind at the browser has lost nothing."""
    write(fresh, graph, "teams")
    assert login(fresh, "teams").code == 0
    graph.sign_in.answer = Answer.DECLINES
    declined = login(fresh, "teams")
    assert declined.code == NEEDS_PERSON
    assert "harken source login teams" in declined.err
    assert fresh.run("source", "test", "teams").code == 0


def test_consent_that_is_missing_is_told_with_who_must_give_it(fresh: Rig, graph: Graph) -> None:
    """The person cannot see from a refusal that somebody else has to act."""
    graph.sign_in.consented.clear()
    write(fresh, graph, "teams")
    refused = login(fresh, "teams")
    assert refused.code == NEEDS_PERSON
    assert "administrator" in refused.err


def test_adding_teams_says_what_is_asked_for_who_consents_and_what_polling_means(fresh: Rig) -> None:
    """What a person agrees to is said before they sign in."""
    done = fresh.run("source", "add", "teams", "--client-id", CLIENT, "--tenant", "contoso.example", "--poll", "30")
    assert done.code == 0
    entry = f'[sources.teams]\nkind = "teams"\ntenant = "contoso.example"\nclient_id = "{CLIENT}"\npoll = 30.0\n'
    assert entry in (fresh.home / "config.toml").read_text()
    for told in ("Chat.ReadWrite", "ChatMessage.Send", f"adminconsent?client_id={CLIENT}", "every 30 seconds"):
        assert told in done.err
    assert "harken source login teams" in done.err


def test_whoever_gives_no_id_is_told_what_it_is_and_asked(fresh: Rig) -> None:
    """At a terminal the set-up is guided, up to the sign-in; the tenant need not be known."""
    main, side = pty.openpty()
    words = [*COMMAND, "source", "add", "outlook"]
    process = start_harken(words, stdin=side, stdout=side, stderr=side, env=fresh.environment)
    os.close(side)
    answers = iter([CLIENT.encode() + b"\n", b"\n", b"later\n"])
    said = b""
    try:
        while data := os.read(main, 65_536):
            said += data
            if said.endswith(b": "):
                os.write(main, next(answers))
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(main)
    assert process.wait(timeout=SECONDS) == 0, said
    entry = f'[sources.outlook]\nkind = "outlook"\nclient_id = "{CLIENT}"\n'
    assert (fresh.home / "config.toml").read_text().endswith(entry)
    for told in (b"App registrations", b"Mail.Read: to read your mail", b"administrator", b"Sign in now"):
        assert told in said


def test_an_account_can_have_another_name(fresh: Rig) -> None:
    """A person may have two accounts."""
    added = fresh.json("source", "add", "outlook", "work", "--client-id", CLIENT, "--keyring")
    assert (added["name"], added["entry"]) == ("work", {"kind": "outlook", "client_id": CLIENT, "cache": "keyring"})


def test_an_mcp_server_may_still_be_called_teams(fresh: Rig) -> None:
    """The word means the kind only where nothing says that it is a server."""
    added = fresh.json("source", "add", "teams", "--url", "https://x.example/mcp")
    assert added["entry"] == {"kind": "mcp", "url": "https://x.example/mcp"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--client-id"),
        (("--client-id", "abc"), "sources.teams.client_id"),
        (("--client-id", CLIENT, "--tenant", "a b"), "sources.teams.tenant"),
        (("--client-id", CLIENT, "--poll", "1"), "sources.teams.poll"),
        (("a", "b", "--client-id", CLIENT), "One name"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(fresh: Rig, words: tuple[str, ...], said: str) -> None:
    """A daemon that does not start because of one source helps nobody."""
    done = fresh.run("source", "add", "teams", *words)
    assert done.code in {USAGE, WRONG}
    assert said in done.err
    assert not (fresh.home / "config.toml").exists() or "teams" not in (fresh.home / "config.toml").read_text()


AGENT = ("--agent", "--tenant", "contoso.example", "--blueprint-id", CLIENT, "--agent-id", CLIENT, "--user-id", CLIENT)


def test_an_agent_user_is_added_by_what_only_one_has(fresh: Rig) -> None:
    """What is written signs in as an Agent User; the certificate is named and never copied."""
    done = fresh.run("source", "add", "teams", "bot", *AGENT, "--certificate", "file:agent.pem")
    assert done.code == 0, done.err
    entry = (
        f'[sources.bot]\nkind = "teams"\nsign_in = "agent"\ntenant = "contoso.example"\nblueprint_id = "{CLIENT}"\n'
        f'agent_id = "{CLIENT}"\nuser_id = "{CLIENT}"\ncertificate = "file:agent.pem"\n'
    )
    assert (fresh.home / "config.toml").read_text().endswith(entry)
    for told in ("in the name of the Agent User", "harken source test bot", "agent.pem"):
        assert told in done.err
    assert "adminconsent" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (AGENT, "--certificate"),
        (("--agent", "--certificate", "file:agent.pem"), "--tenant"),
        ((*AGENT, "--certificate", "-----BEGIN PRIVATE KEY-----"), "sources.bot.certificate"),
        ((*AGENT, "--certificate", "file:agent.pem", "--client-id", CLIENT), "sources.bot.client_id"),
        ((*AGENT, "--certificate", "file:agent.pem", "--user-id", "nobody"), "sources.bot.user_id"),
    ],
)
def test_an_agent_user_that_cannot_work_is_refused(fresh: Rig, words: tuple[str, ...], said: str) -> None:
    """What is missing or wrong is named before anything is written, and a key that was pasted is not repeated."""
    done = fresh.run("source", "add", "teams", "bot", *words)
    assert done.code in {USAGE, WRONG}
    assert said in done.err
    assert "PRIVATE KEY" not in done.err
    assert not (fresh.home / "config.toml").exists() or "bot" not in (fresh.home / "config.toml").read_text()


def test_whoever_signs_in_in_the_browser_is_named(fresh: Rig, graph: Graph, tmp_path: Path) -> None:
    """The usual way: the browser of this machine is opened, and brings the answer back to the command."""
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\n{BROWSER}".replace("CA", repr(str(graph.ca))))
    browser.chmod(0o700)
    write(fresh, graph, "teams")
    done = Rig(fresh.home, {**fresh.extra, "BROWSER": f"{browser} %s"}).run("source", "login", "teams")
    assert (done.code, done.out) == (0, f"teams: signed in as {graph.me.name} ({graph.me.address}).\n"), done.err
    assert "Sign in in your browser" in done.err
    assert fresh.json("source", "test", "teams")["state"] == "listening"


def test_an_agent_user_is_signed_in_by_its_certificate(fresh: Rig, graph: Graph) -> None:
    """An account of the agent's own needs no person, and says so to whoever wants to sign in."""
    agent = graph.register_agent()
    fresh.home.mkdir(mode=0o700)
    key = agent.signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = fresh.home / "agent.pem"
    pem.touch(mode=0o600)
    pem.write_bytes(key + agent.signer.certificate.public_bytes(Encoding.PEM))
    (fresh.home / "config.toml").write_text(
        f'[sources.bot]\nkind = "teams"\nsign_in = "agent"\ntenant = "{graph.tenant}"\n'
        f'blueprint_id = "{agent.blueprint_id}"\nagent_id = "{agent.identity_id}"\nuser_id = "{agent.user.id}"\n'
        f'certificate = "file:agent.pem"\ngraph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\n'
        f'ca = "{graph.ca}"\n'
    )
    trial = fresh.json("source", "test", "bot")
    assert (trial["state"], trial["found"]) == ("listening", "No chat is there.")
    refused = login(fresh, "bot")
    assert (refused.code, "by its certificate" in refused.err) == (WRONG, True)
    pem.unlink()
    missing = fresh.run("source", "test", "bot")
    assert missing.code == WRONG
    assert "agent.pem" in missing.err


def test_nobody_signs_in_to_what_has_no_sign_in(fresh: Rig) -> None:
    """The reason is said, and what to do instead."""
    assert fresh.run("source", "add", "ci", "--url", "https://ci.example/mcp").code == 0
    server = login(fresh, "ci")
    assert (server.code, "ci has no sign-in" in server.err) == (WRONG, True)
