"""The page on your phone, at the public address: who is let in, what each may do there, and how that ends."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from harken.config.home import Home, ensure
from harken.config.settings import HttpSettings, Settings
from harken.daemon.compose import compose, phone_door
from harken.daemon.public.listener import WRONG_MOST, PublicListener
from harken.daemon.public.phones import PAGES
from harken.errors import Unavailable, UserError
from harken.inbox.access import TokenRequest
from harken.inbox.caller import Caller, Role
from harken.surfaces.web.app import api_routes, probe_routes, shown_routes
from harken.surfaces.web.page.sessions import agent_routes
from harken.surfaces.web.page.sources import source_routes
from harken.surfaces.web.page.tasks import task_routes
from harken.surfaces.web.page_sessions import MAX_SESSIONS, PHONE_IDLE
from harken.surfaces.web.signin import SignInRequest
from harken.testing import FakeClock
from tests.loss.rig import WAIT_SECONDS, until
from tests.remote.phone_rig import HTML, PhoneWeb
from tests.remote.rig import PublicDaemon
from tests.web.rig import NAVIGATION, data_of, tag

EVERYTHING: Final = ("read", "answer", "approve", "send", "sort")
# Who may do it, of phones that got one word each; every one of them may read.
LET: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "/do/seen": EVERYTHING,
        "/do/send": ("answer", "send"),
        "/do/settle": ("answer",),
        "/do/approve": ("approve",),
        "/do/answer": ("approve",),
        "/do/triage": ("sort",),
        "/do/undo": ("sort",),
    }
)
FILLED: Final = MappingProxyType({"mailbox": "inbox", "channel": "cli", "source": "local", "verb": "list"})
NOTHING_HERE: Final = "There is nothing at this address."
CHANGEABLE: Final = tuple(
    f'INSERT INTO "{name}"'
    for name in ("messages", "cursors", "outbox", "conversations", "approvals", "actions", "mutes", "senders", "events")
)
OWNER: Final = Caller(role=Role.OWNER)
HTTP: Final = HttpSettings(public_listen="127.0.0.1:1", public_url="https://here.example")


@pytest.fixture
def web(public: PublicDaemon) -> PhoneWeb:
    """The public address, with no phone yet."""
    return PhoneWeb(public)


async def whole_page(folder: Path) -> Mapping[str, str]:
    """Return every address of the page and the API on this machine, with its method."""
    home = Home(folder / "home")
    ensure(home)
    async with compose(home, Settings(), FakeClock()) as daemon:
        context = daemon.web_context()
        routes = chain(
            shown_routes(context),
            source_routes(context),
            agent_routes(context),
            task_routes(context),
            probe_routes(context),
            api_routes(lambda _request: context.call_context()),
        )
        return {each.path: "POST" if "POST" in (each.methods or ()) else "GET" for each in routes}


async def test_every_address_of_the_page_is_let_or_refused_as_its_phone_was_told(
    public: PublicDaemon, tmp_path: Path
) -> None:
    """The table: each address of the page, and of your own API, with a phone of each word. What is refused did nothing.

    An address that is new is not there for phones until it is decided about here and in `PAGES`.
    """
    pages = await whole_page(tmp_path)
    assert set(PAGES) <= set(pages)
    assert {path for path in PAGES if pages[path] == "POST"} == set(LET)
    sent = public.call("send", text="is it red?")["id"]
    for word in EVERYTHING:
        phone = PhoneWeb(public).enter([word], name=f"may-{word}")
        for path, method in pages.items():
            if path.startswith("/static/") or path in ("/events", "/healthz"):
                continue
            asked = re.sub(r"\{(\w+)[^}]*\}", lambda part: FILLED.get(part[1], sent), path)
            before = stored(public)
            answer = phone.do(asked) if method == "POST" else phone.look(asked)
            if path not in PAGES:
                assert answer.status in (401, 403, 404, 405), (word, path, answer)
                assert NOTHING_HERE in answer.text or answer.status != 404
            elif word in LET.get(path, EVERYTHING):
                assert answer.status not in (401, 403, 405), (word, path, answer)
                assert NOTHING_HERE not in answer.text, (word, path)
                continue
            else:
                assert (answer.status, "This phone may not do that." in answer.text) == (403, True), (word, path)
            assert stored(public) == before, (word, path)


def stored(public: PublicDaemon) -> Sequence[str]:
    """Return what the database holds of everything that a phone could change."""
    file = public.main.served.home / "harken.db"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return [line for line in connection.iterdump() if line.startswith(CHANGEABLE)]


def test_without_a_phone_nothing_of_the_page_is_there(web: PhoneWeb) -> None:
    """Who never uses it has what they had before: nothing that could be attacked."""
    for path in ("/", "/sign-in", "/events", "/static/x"):
        assert web.ask("GET", path, NAVIGATION).status == 404
    web.enter()
    shell = web.ask("GET", "/", NAVIGATION)
    assert (shell.status, "harken open --phone" in shell.text) == (200, True)
    assert "set-cookie" not in shell.headers


def test_phone_is_a_token_that_is_listed_with_its_last_use_and_may_read_by_default(web: PhoneWeb) -> None:
    """Listed where everything is that can reach the inbox from elsewhere."""
    web.public.call("send", text="the build is red")
    web.enter()
    assert "the build is red" in web.look("/m/inbox").text
    (token,) = web.public.call("token_list")["tokens"]
    told = {name: token[name] for name in ("name", "kind", "may", "mailboxes", "state", "used_from")}
    assert told == {
        "name": "phone",
        "kind": "phone",
        "may": ["read"],
        "mailboxes": ["*"],
        "state": "in force",
        "used_from": "127.0.0.1",
    }
    assert PhoneWeb(web.public).enter().look("/waiting").status == 200
    assert [each["name"] for each in web.public.call("token_list")["tokens"]] == ["phone", "phone-2"]


def test_link_works_once(web: PhoneWeb) -> None:
    """Who photographs the screen comes too late."""
    secret = web.secret()
    assert [web.redeem(secret).status, web.redeem(secret).status] == [200, 403]


def test_guessed_links_are_slowed_down_and_then_not_listened_to(web: PhoneWeb) -> None:
    """A phone that is signed in goes on from the same address."""
    web.enter()
    threads = [threading.Thread(target=web.redeem, args=(bytes([n] * 32),)) for n in range(WRONG_MOST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert web.redeem(web.secret()).status == 429
    assert web.look("/conversations").status == 200


def test_sign_in_reads_no_more_than_a_sign_in_has(web: PhoneWeb) -> None:
    """It is the one body that is read of everyone: many of them must not fill the memory."""
    web.wish = {"may": ["read"]}
    secret = web.secret()
    assert web.redeem(secret, extra="x" * 5_000).status == 403
    assert web.redeem(secret).status == 200


def test_revoked_phone_is_out_at_once_and_its_stream_ends(web: PhoneWeb) -> None:
    """A lost phone must not see the next message."""
    web.enter(["read", "approve"])
    ended = list[bool]()
    stream = threading.Thread(target=lambda: ended.append(web.hang_on()))
    stream.start()
    other = PhoneWeb(web.public).enter(name="other")
    until(lambda: web.look("/needs").status == 200, "it is used")
    web.public.call("token_revoke", name="phone")
    stream.join(WAIT_SECONDS)
    assert ended == [True]
    assert web.look("/needs").status == 401
    assert other.look("/needs").status == 200


def test_phone_stays_signed_in_when_the_daemon_restarts(web: PhoneWeb) -> None:
    """An installed app opens without a new sign-in."""
    web.enter()
    web.public.main.served.stop()
    web.public.main.start()
    again = PhoneWeb(web.public)
    again.keys, again.session = web.keys, web.session
    assert again.look("/conversations").status == 200


def test_signing_out_on_the_phone_ends_its_token(web: PhoneWeb) -> None:
    """The list says who can still come."""
    web.enter()
    assert web.do("/sign-out").status == 204
    assert web.look("/").status == 401
    assert web.public.call("token_list")["tokens"][0]["state"] == "revoked"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_guard_of_the_page_holds_here_too(web: PhoneWeb, headers: dict[str, str]) -> None:
    """A page of others can neither ask nor act, with a good proof either."""
    web.enter(["send"])
    (session,) = web.session.values()
    body = b"mailbox=inbox&text=evil"
    sent = {"Origin": web.origin, "Harken-Proof": web.proof(session, "POST", "/do/send", body), **headers}
    assert web.ask("POST", "/do/send", sent, body).status == 403
    assert web.public.call("list", mailbox="inbox")["messages"] == []


def test_own_token_and_other_tokens_do_not_open_the_page(web: PhoneWeb) -> None:
    """Only a phone's session does; and its token has no secret with which the API could be asked."""
    web.enter(["read", "send"])
    own = (web.public.main.served.home / "token").read_text().strip()
    for secret in (own, web.public.token("ci"), web.public.token("app", kind="phone")):
        for path in ("/conversations", "/events"):
            answer = web.ask("GET", path, {"Authorization": f"Bearer {secret}", **HTML})
            assert answer.status == 403, path
    (session,) = web.session.values()
    assert web.public.api("list", session)[0] == 401


def test_proof_is_good_for_one_request_and_for_what_it_says(web: PhoneWeb) -> None:
    """What is overheard or kept can be used for nothing else."""
    web.enter()
    (session,) = web.session.values()
    proof = web.proof(session, "GET", "/needs")
    asked = [web.ask("GET", path, {"Harken-Proof": proof, **HTML}).status for path in ("/waiting", "/needs", "/needs")]
    assert asked == [401, 200, 401]


def test_files_hold_no_key_and_the_journal_no_secret(web: PhoneWeb) -> None:
    """A backup that somebody finds signs nobody in."""
    web.wish = {"may": ["read"]}
    secret = web.link().partition("#")[2]
    web.enter()
    home = web.public.main.served.home
    kept = (home / "phone-sessions.json").read_text()
    assert [each["phone"] for each in json.loads(kept)["sessions"]] == ["phone-2"]
    journal = "".join(file.read_text() for file in (home / "journal").iterdir())
    log = "".join(file.read_text() for file in (home / "logs").iterdir())
    assert all(secret not in text for text in (kept, journal, log))


def test_reader_is_shown_no_button_that_would_be_refused(web: PhoneWeb) -> None:
    """What it may not do is not offered."""
    web.public.call("send", text="is it red?", sender="Ann", channel="chat")
    reader, doer = web.enter(), PhoneWeb(web.public).enter(EVERYTHING, name="doer")
    for path, words in {
        "/m/inbox": ("data-reply", 'id="composer"'),
        "/conversations": ("data-triage",),
        "/needs": ("/do/settle", "/do/approve"),
        "/waiting": ("choose Reply",),
    }.items():
        shown, all_of_it = reader.look(path).text, doer.look(path).text
        assert [word for word in words if word in shown and word != "data-triage"] == [], path
        assert not [word for word in ("/sources", "/rules", "/runs", "/sessions", "data-allow") if word in all_of_it]


@pytest.mark.parametrize(
    ("http", "said"),
    [
        (HttpSettings(), "http.public_url is not set"),
        (HttpSettings(public_url="https://here.example"), "http.public_listen is not set"),
        (HttpSettings(public_listen="127.0.0.1:1", public_url="http://here.example"), "cannot use"),
        (HttpSettings(public_listen="127.0.0.1:1", public_url="https://here.example/harken"), "cannot use"),
    ],
)
async def test_without_an_address_the_command_says_what_to_set(tmp_path: Path, http: HttpSettings, said: str) -> None:
    """It is the first thing that everyone meets."""
    home = Home(tmp_path / "home")
    ensure(home)
    async with compose(home, Settings(http=http), FakeClock()) as daemon:
        with pytest.raises(Exception, match=said):
            await phone_door(daemon).link(OWNER, TokenRequest(name=""))


async def test_no_link_is_shown_while_nothing_is_served_at_its_address(tmp_path: Path) -> None:
    """You would look for the fault on the phone, where it is not."""
    home = Home(tmp_path / "home")
    ensure(home)
    async with compose(home, Settings(http=HTTP), FakeClock()) as daemon:
        daemon.public = PublicListener(HTTP, {}, [])
        with pytest.raises(Unavailable, match=f"Nothing is served at {HTTP.public_url}"):
            await phone_door(daemon).link(OWNER, TokenRequest(name=""))


async def test_phone_takes_no_place_of_another(tmp_path: Path) -> None:
    """A link that is open has a place too: else the phone that was unused for longest would be signed out by it."""
    home = Home(tmp_path / "home")
    ensure(home)
    async with compose(home, Settings(http=HTTP), FakeClock()) as daemon:
        door = phone_door(daemon)
        for number in range(MAX_SESSIONS - 2):
            made = await door.link(OWNER, TokenRequest(name=f"phone-{number}"))
            assert await door.sign_in(redeemed(made.url), "here.example", "Chrome 140 on Android") is not None
        links = [await door.link(OWNER, TokenRequest(name="")) for _ in range(2)]
        with pytest.raises(UserError, match="too many phones"):
            await door.link(OWNER, TokenRequest(name=""))
        for link in links:
            assert await door.sign_in(redeemed(link.url), "here.example", "Chrome 140 on Android") is not None
        states = [each.state for each in await daemon.tokens.list(OWNER)]
        assert states == ["in force"] * MAX_SESSIONS


def redeemed(url: str) -> SignInRequest:
    """Return what the page of a link says."""
    key = data_of(url.partition("#")[2])
    return SignInRequest(
        link=tag(key, "harken link 1"), nonce="n", proof=tag(key, "harken page 1", "n", "here.example")
    )


async def test_phone_that_is_not_used_for_long_is_signed_out_and_its_token_ends(tmp_path: Path) -> None:
    """A phone in a drawer is no open door."""
    home, clock = Home(tmp_path / "home"), FakeClock()
    ensure(home)
    async with compose(home, Settings(http=HTTP), clock) as daemon:
        door = phone_door(daemon)
        made = await door.link(OWNER, TokenRequest(name="old"))
        assert (made.name, list(made.may)) == ("old", ["read"])
        assert await door.sign_in(redeemed(made.url), "here.example", "Chrome 140 on Android") is not None
        await door.end_lapsed()
        clock.advance(PHONE_IDLE.total_seconds() - 60)
        assert (await daemon.tokens.list(OWNER))[0].state == "in force"
        clock.advance(61)
        await door.end_lapsed()
        assert (await daemon.tokens.list(OWNER))[0].state == "revoked"
