"""What a run with Teams and Outlook leaves behind, looked through: no token, no secret, no markup, no private path.

The run signs in, is refused, reads hostile messages, meets every fault, answers, loses its sign-in and signs out, and
logs everything there is to log. Then all that it wrote, printed or served is searched for what only the service knew.
"""

from __future__ import annotations

import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote

import pytest

from tests.cli.rig import Rig
from tests.daemon.graph_rig import Arrivals, Json, add_account, add_agent, sign_in
from tests.graph.faults import Fault
from tests.graph.service import Graph, serving
from tests.graph.tokens import Answer
from tests.graph.world import Chat
from tests.loss.rig import DaemonStarter, Served, until
from tests.web.rig import NAVIGATION, Web

PRIVATE: Final = "robin-private"  # a folder that is in the path of everything
MARKUP: Final = ("data-upstream-only", "mso-style-upstream", "<script>alert")
PASTED: Final = ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "correct-horse-battery-9")
HTML: Final = (
    f'<div style="mso-style-upstream:1"><blockquote data-upstream-only="1">quoted</blockquote>'
    f"<p>hello: {PASTED[0]} and password = {PASTED[1]}</p><script>alert(1)</script></div>"
)
GIVEN: Final = frozenset({"device_code", "refresh_token", "client_assertion", "user_federated_identity_credential"})
FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.STALLED)
JWT: Final = re.compile(rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")
PAGES: Final = ("/m/inbox", "/sources", "/c/chats/teams", "/part/items?mailbox=inbox", "/part/sidebar")
VERBS: Final = ("list", "source_list", "status", "journal", "export", "stats")
PIECE: Final = 40
MIN: Final = 20
HEAD: Final = 120
NEEDS_PERSON: Final = 6


@dataclass
class Evidence:
    """Everything that a run has written, printed and served, by where it was found."""

    home: Path
    graph: Graph
    found: dict[str, bytes] = field(default_factory=dict[str, bytes])
    sign_ins: dict[str, tuple[int, bytes]] = field(default_factory=dict[str, tuple[int, bytes]])

    def command(self, *words: str, code: int = 0) -> None:
        """Run a command and keep what it printed."""
        done = Rig(self.home).run(*words)
        assert done.code == code, done
        self.found[f"{len(self.found)} harken {' '.join(words)}"] = (done.out + done.err).encode()

    def files(self, moment: str) -> None:
        """Keep every file as it is now; what holds a sign-in is kept apart."""
        for file in self.home.parent.rglob("*"):
            if not file.is_file() or file.is_symlink() or file.name in {"config.toml", "agent.pem"}:
                continue
            name = f"{moment}: {file.relative_to(self.home.parent)}"
            if file.parent.name == "sign-ins":
                self.sign_ins[name] = (stat.S_IMODE(file.stat().st_mode), file.read_bytes())
            else:
                self.found[name] = file.read_bytes()

    def served(self, daemon: Served, messages: list[str]) -> None:
        """Keep what the page and the HTTP API show."""
        web = Web(daemon)
        cookie = web.signed_in()
        shown = [f"/{kind}/{quote(each)}" for each in messages for kind in ("part/item", "part/text")]
        for path in (*PAGES, *shown):
            answer = web.ask("GET", path, {**NAVIGATION, **cookie})
            assert answer.status == 200, (path, answer)
            self.found[f"page {path}"] = answer.body
        for verb in VERBS:
            self.found[f"api {verb}"] = web.ask("POST", f"/api/{verb}", web.bearer, b"{}").body
        for each in messages:
            body = f'{{"ref": "{each}"}}'.encode()
            self.found[f"api read {each}"] = web.ask("POST", "/api/read", web.bearer, body).body

    def places(self, *secrets: bytes) -> list[str]:
        """Return where one of these is."""
        return [place for place, data in self.found.items() if any(secret in data for secret in secrets)]


def be_refused(evidence: Evidence, graph: Graph) -> None:
    """Let the person decline, and nobody have consented."""
    graph.sign_in.answer = Answer.DECLINES
    evidence.command("source", "login", "chats", "--device", code=NEEDS_PERSON)
    graph.sign_in.answer = Answer.APPROVES
    consented = set(graph.sign_in.consented)
    graph.sign_in.consented.clear()
    evidence.command("source", "login", "mail", "--device", code=NEEDS_PERSON)
    graph.sign_in.consented |= consented


def state_of(daemon: Served, name: str) -> str:
    """Return how a source is doing."""
    sources: list[Json] = daemon.call("source_list")["sources"]
    return next(str(each["state"]) for each in sources if each["name"] == name)


def be_answered(daemon: Served, graph: Graph, chat: Chat) -> list[str]:
    """Let hostile messages come through every fault, and answer them; return their ids."""
    ann = chat.members[1]
    # A few on each path: what fails again and again is asked for more and more seldom.
    for number, fault in enumerate(FAULTS):
        graph.fail_next(fault, path=("/delta", "/me/chats", f"/chats/{chat.id}/messages")[number % 3])
    graph.expire_tokens()
    graph.say(chat, ann, HTML)
    graph.mail(ann, "Hello", HTML)
    arrivals = Arrivals(daemon.home)
    until(lambda: arrivals.look() is None or len(arrivals.messages) >= 2, "both arrive", 60)
    messages = [str(each["id"]) for each in arrivals.messages]
    for each in messages:
        daemon.call("reply", ref=each, body="It is **done**.")
    until(lambda: set(replies_to(daemon, messages)) == {("sent", "")}, "both are answered", 60)
    assert (len(graph.sent_mails), len(graph.asked(f"/chats/{chat.id}/messages", "POST"))) == (1, 1)
    return messages


def replies_to(daemon: Served, messages: list[str]) -> list[tuple[str, str]]:
    """Return how the replies to messages are doing, and why; none may have been given up."""
    rows = [row for each in messages for row in daemon.call("read", ref=each)["replies"]]
    assert {row["state"] for row in rows} <= {"queued", "sent"}, rows
    return [(row["state"], row["error"]) for row in rows]


@pytest.fixture(scope="module")
def evidence(starter: DaemonStarter) -> Iterator[Evidence]:
    """A whole run, and what is left of it."""
    with (
        tempfile.TemporaryDirectory(prefix="hk-") as folder,
        pytest.MonkeyPatch.context() as patch,
        serving(seed=11) as graph,
    ):
        owner = Path(folder) / PRIVATE
        owner.mkdir()
        patch.setenv("HOME", str(owner))
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        evidence = Evidence(owner / "hk", graph)
        run(evidence, starter, graph)
        yield evidence


def run(evidence: Evidence, starter: DaemonStarter, graph: Graph) -> None:
    """Do everything that could leave something behind."""
    home, ann = evidence.home, graph.person("Ann")
    chat = graph.chat(ann)
    add_account(home, graph, "chats", "teams")
    add_account(home, graph, "mail", "outlook")
    add_agent(home, graph, "bot")
    with (home / "config.toml").open("a") as file:
        file.write('[log]\nlevel = "debug"\n')
    graph.sign_in.device_interval = 1
    be_refused(evidence, graph)
    for name in ("chats", "mail"):
        sign_in(home, graph, name)
    with starter.daemon(home, {"HOME": str(home.parent)}) as daemon:
        daemon.start()
        until(lambda: {state_of(daemon, name) for name in ("chats", "mail", "bot")} == {"listening"}, "it listens", 60)
        messages = be_answered(daemon, graph, chat)
        evidence.command("source", "test", "chats")
        evidence.served(daemon, messages)
        evidence.files("running")
        graph.revoke_sign_in()
        until(lambda: state_of(daemon, "chats") == "needs person", "the sign-in has ended", 60)
        for words in (("status",), ("source", "list"), ("read", messages[0])):
            evidence.command(*words)
        evidence.served(daemon, messages)
        evidence.command("source", "logout", "chats")
        daemon.kill()
        evidence.files("killed")


def given(graph: Graph) -> set[bytes]:
    """Return pieces of every secret that went between us and the token service, whoever made it.

    Pieces, because a long value may lie on two pages of the database.
    """
    tokens = {*graph.tokens.access, *graph.tokens.refresh}
    forms = [dict(parse_qsl(entry.body.decode())) for entry in graph.asked("/oauth2/", "POST")]
    tokens |= {value for form in forms for name, value in form.items() if name in GIVEN}
    # How signed tokens begin is the same for all of them.
    starts = (
        (token, start) for token in tokens for start in range(HEAD if len(token) > HEAD else 0, len(token), PIECE)
    )
    return {token[start : start + PIECE].encode() for token, start in starts if len(token) - start >= MIN}


def kinds_given(graph: Graph) -> set[str]:
    """Return which kinds of secrets were sent to the token service."""
    return {name for entry in graph.asked("/oauth2/", "POST") for name in dict(parse_qsl(entry.body.decode()))} & GIVEN


def test_the_run_was_one_worth_looking_through(evidence: Evidence) -> None:
    """A search that finds nothing says nothing if there was nothing to find."""
    graph = evidence.graph
    assert kinds_given(graph) == GIVEN
    assert len(graph.tokens.access) > 3
    assert len(given(graph)) > 8
    assert {entry.fault for entry in graph.requests if entry.fault} == set(FAULTS)
    names = " ".join(evidence.found)
    for place in ("harken.db", "harken.db-wal", "journal/", "logs/", "daemon.json", "page /sources", "api journal"):
        assert place in names
    assert any(b"Ann" in data for place, data in evidence.found.items() if place.startswith("page /part/item"))


def test_no_token_code_or_assertion_is_anywhere_but_in_the_sign_in(evidence: Evidence) -> None:
    """Whoever reads one reads the person's chats and mail."""
    assert evidence.places(*given(evidence.graph)) == []
    assert [place for place, data in evidence.found.items() if JWT.search(data)] == []


def test_a_sign_in_is_kept_in_one_private_file(evidence: Evidence) -> None:
    """The tokens that the daemon uses must be somewhere: there, and for its owner only."""
    holding = {place: mode for place, (mode, data) in evidence.sign_ins.items() if JWT.search(data)}
    folder = f"{evidence.home.name}/sign-ins"
    assert holding == {
        f"running: {folder}/chats.json": 0o600,
        f"running: {folder}/mail.json": 0o600,
        f"killed: {folder}/mail.json": 0o600,
    }


def test_the_key_of_a_certificate_stays_in_its_file(evidence: Evidence) -> None:
    """It signs for an account that may read and write without any person."""
    lines = (evidence.home / "agent.pem").read_bytes().splitlines()
    assert evidence.places(b"PRIVATE KEY", *(line for line in lines if len(line) == 64)) == []


def test_what_people_paste_is_redacted_before_it_is_kept(evidence: Evidence) -> None:
    """A password in a chat is not to be found in files for years."""
    assert evidence.places(*(each.encode() for each in PASTED)) == []
    assert len(evidence.places(b"[redacted: github token]")) > 3


def test_no_markup_of_a_message_is_kept_or_shown(evidence: Evidence) -> None:
    """It is parsed to text once, at the door: nobody behind it can be tricked by it."""
    assert evidence.places(*(each.encode() for each in MARKUP)) == []
    assert len(evidence.places(b"hello: ")) > 3


def test_no_private_path_is_told_to_anybody(evidence: Evidence) -> None:
    """Folders name people and projects: only the log, the daemon's own files and its status say where its home is."""
    own = ("logs/", "/run/", ".stderr", "harken status", "api status")
    told = [place for place in evidence.places(PRIVATE.encode()) if not any(each in place for each in own)]
    assert told == []
