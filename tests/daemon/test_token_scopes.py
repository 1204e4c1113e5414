"""What a token lets its holder do: every verb, with every scope, in every mailbox. What is refused changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import anyio
import pytest

from harken.automation import Mode, Order, Outcome, RuleVerdict
from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import Daemon, compose
from harken.errors import Forbidden, HarkenError, NotFound, UserError
from harken.inbox.access import TokenRequest, Tokens, holder_of
from harken.inbox.caller import EVERY_MAILBOX, Caller, Grant, Role, covers, lets
from harken.inbox.tasks import NewTask
from harken.memory import json_bytes
from harken.model import INBOX, Consumer, Mailbox, Message, SessionKey, TaskId, Trust
from harken.store.contract.automation import Settlement
from harken.store.contract.tokens import Token, TokenScope, TokenStore
from harken.testing import FakeClock
from harken.verbs.table import VERBS

OWNER: Final = Caller(role=Role.OWNER)
GRANTS: Final = (Grant.READ, Grant.SEND, Grant.REPLY, Grant.APPROVE)
FIRST, SECOND = Mailbox("task:first"), Mailbox("task:second")
MAILBOXES: Final = (INBOX, FIRST, SECOND)
Field: TypeAlias = Any
"""The value of a field of a request, which the class knows the type of."""
SECRETS: Final = MappingProxyType({INBOX: "for-the-inbox", FIRST: "for-the-first", SECOND: "for-the-second"})

NEEDS: Final[Mapping[Grant, Sequence[str]]] = MappingProxyType(
    {
        Grant.ANY: ("whoami",),
        Grant.READ: (
            *("list", "read", "pull", "wait", "prove", "ack", "search", "stats", "mailboxes", "channels", "channel"),
            *("questions", "outbox", "check_inbox", "inbox_status"),
        ),
        Grant.SEND: ("send", "unsend", "send_to_task", "send_to_peer"),
        Grant.REPLY: ("reply",),
        Grant.APPROVE: ("actions", "confirm", "approvals", "approval", "approve"),
        Grant.NAMED: (
            *("evidence", "notify", "journal", "source_list", "reload", "allow", "deny", "pair", "mute", "unmute"),
            *(
                "sign_in",
                "phone_link",
                "browsers",
                "sign_out",
                "machines",
                "token_new",
                "token_list",
                "token_revoke",
                "task_id",
                "task_new",
            ),
            *("task_make", "task_list", "task_show", "task_link", "task_unlink", "task_done", "task_rm"),
            *("task_host", "task_stop"),
            *("channel_ack", "channel_clear", "channel_inject", "question_done", "conversations", "done", "snooze"),
            *("reopen", "unread", "needs", "put_away", "status", "outbox_retry", "export", "retention"),
            *("retention_run", "rules", "rules_reload", "rules_test", "rules_try", "rules_add", "rules_remove"),
            *("rules_explain", "rules_pause", "rules_resume", "run_now", "runs", "run", "run_output", "run_abort"),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A daemon's parts with mail in three mailboxes, and an action that waits about each."""

    daemon: Daemon
    home: Path
    mail: Mapping[Mailbox, Message]
    actions: Mapping[Mailbox, str]
    numbers: list[int] = field(default_factory=list[int])

    async def call(self, caller: Caller, verb: str, **arguments: object) -> object:
        """Do a verb as the HTTP API does."""
        self.numbers.append(0)
        number = str(len(self.numbers))
        return await VERBS.call(self.daemon.call_context(caller, SessionKey(f"http:{number}"), number), verb, arguments)

    def arguments(self, verb: str, mailbox: Mailbox) -> dict[str, Any] | None:
        """Return what would let a verb act on a mailbox; None for one that cannot name any."""
        message, task = self.mail[mailbox].id, mailbox.removeprefix("task:")
        named: Mapping[str, dict[str, Any]] = {
            "list": {"mailbox": mailbox},
            "read": {"ref": message},
            "ack": {"refs": [message]},
            "search": {"text": SECRETS[mailbox], "mailbox": mailbox},
            "questions": {"mailbox": mailbox},
            "reply": {"ref": message, "body": "an answer"},
            "confirm": {"action": self.actions[mailbox], "yes": False},
            "send": {"text": "news", "to": mailbox},
        }
        of_task: Mapping[str, dict[str, Any]] = {
            "check_inbox": {"task_id": task},
            "inbox_status": {"task_id": task},
            "send_to_task": {"task_id": task, "body": "news"},
            "send_to_peer": {"peer": task, "body": "news"},
        }
        return named.get(verb) or (of_task.get(verb) if mailbox != INBOX else None)

    def stored(self) -> Sequence[str]:
        """Return everything that the database holds."""
        with sqlite3.connect(f"file:{self.home / 'harken.db'}?mode=ro", uri=True) as connection:
            return list(connection.iterdump())


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Three mailboxes with a message each, and an action about each."""
    home, clock = Home(tmp_path / "home"), FakeClock()
    ensure(home)
    async with compose(home, Settings(), clock) as daemon:
        for mailbox in (FIRST, SECOND):
            name = TaskId(mailbox.removeprefix("task:"))
            folder = tmp_path / name
            folder.mkdir()
            await daemon.tasks.new(OWNER, NewTask(title=name, id=name, dir=str(folder)))
        await daemon.tasks.link(OWNER, "first", "second", is_on=True)
        mail = {each: (await daemon.inbox.send(OWNER, SECRETS[each], to=each)).message for each in MAILBOXES}
        actions = await _ask_about(daemon, clock, list(mail.values()))
        yield Stage(daemon=daemon, home=home.path, mail=mail, actions=dict(zip(mail, actions, strict=True)))


async def _ask_about(daemon: Daemon, clock: FakeClock, messages: Sequence[Message]) -> Sequence[str]:
    order = Order(agent="", workdir="", tools=(), prompt="", timeout=timedelta(minutes=1), max_turns=1)
    verdicts = [
        RuleVerdict(message=each.id, rule=f"r{n}", mode=Mode.CONFIRM, outcome=Outcome.FIRED, reason="", order=order)
        for n, each in enumerate(messages)
    ]
    state = await daemon.store.rules.state()
    settlement = Settlement(
        revision=state.revision, judged=state.judged, verdicts=verdicts, keep_since=clock.now() - timedelta(days=1)
    )
    return [action.id for action in await daemon.store.rules.settle(settlement)]


def scopes() -> Iterable[TokenScope]:
    """Return every scope: each set of words with each set of mailboxes, and each verb that is named by itself."""
    words = [frozenset(some) for number in range(len(GRANTS) + 1) for some in combinations(GRANTS, number)]
    places = [(INBOX,), (FIRST,), (INBOX, SECOND), (EVERY_MAILBOX,)]
    named = [frozenset({verb}) for verb in NEEDS[Grant.NAMED]]
    for may, mailboxes in [*((may, each) for may in words for each in places), *((may, places[3]) for may in named)]:
        yield TokenScope(may=may, mailboxes=mailboxes, consumer=Consumer("elsewhere"))


def holder(scope: TokenScope) -> Caller:
    """Return who comes with a token of a scope."""
    return Caller(role=Role.AGENT, consumer=scope.consumer, holder="elsewhere", scope=scope)


def test_every_verb_says_what_a_token_needs_for_it() -> None:
    """A new verb is decided about here, too: what nobody thought of has to be named."""
    assert {verb.name: verb.needs for verb in VERBS} == {name: need for need, names in NEEDS.items() for name in names}


def test_scope_is_words_times_mailboxes() -> None:
    """The decision itself, for every verb, scope and mailbox."""
    for scope in scopes():
        for verb in VERBS:
            word = verb.name if verb.needs is Grant.NAMED else verb.needs.value
            assert lets(scope, verb.name, verb.needs) == (verb.needs is Grant.ANY or word in scope.may)
        for mailbox in MAILBOXES:
            assert covers(scope, mailbox) == (bool({mailbox, EVERY_MAILBOX} & set(scope.mailboxes)))


async def test_refused_cells_change_nothing(stage: Stage) -> None:
    """Every verb that a scope does not let its holder do, and every mailbox that it is not for."""
    before = stage.stored()
    refused = 0
    for scope in scopes():
        for verb in VERBS:
            if not lets(scope, verb.name, verb.needs):
                refused += 1
                with pytest.raises(Forbidden, match="The token 'elsewhere' may not do"):
                    await stage.call(holder(scope), verb.name)
                continue
            for mailbox in MAILBOXES:
                given = stage.arguments(verb.name, mailbox)
                if given is None or covers(scope, mailbox):
                    continue
                refused += 1
                with pytest.raises((Forbidden, NotFound, UserError)):
                    await stage.call(holder(scope), verb.name, **given)
    assert refused > len(list(VERBS)) * 100
    assert stage.stored() == before


async def test_answers_hold_nothing_of_other_mailboxes(stage: Stage) -> None:
    """Every verb that needs no name, for a token with all words: whatever it answers is of its mailboxes alone."""
    for mailbox in MAILBOXES:
        caller = holder(TokenScope(may=frozenset(GRANTS), mailboxes=(mailbox,), consumer=Consumer(f"c-{mailbox[-3:]}")))
        others = [each for each in MAILBOXES if each != mailbox]
        for verb in (each for each in VERBS if each.needs is not Grant.NAMED):
            given = stage.arguments(verb.name, mailbox) or _without_mailbox(verb.name)
            try:
                told = json_bytes(await stage.call(caller, verb.name, **given)).decode()
            except HarkenError as exc:
                told = exc.message
            assert "token" not in told or "for every mailbox" in told, verb.name
            for other in others:
                hidden = (SECRETS[other], stage.mail[other].id, stage.actions[other], f'"{other}"')
                assert not [each for each in hidden if each in told], (verb.name, mailbox)


def _without_mailbox(verb: str) -> dict[str, Any]:
    given: Mapping[str, dict[str, Any]] = {
        "wait": {"timeout": 0},
        "search": {"text": "for"},
        "prove": {"deliveries": ["d-1"]},
    }
    return given.get(verb, {})


async def test_named_verb_is_done_as_you_would(stage: Stage) -> None:
    """What only you may do, a token may that names it, and no other."""
    made = await make(stage, name="helper", may=["mute"], mailboxes=["*"])
    await stage.call(made, "mute", kind="channel", name="ci")
    assert [each.name for each in stage.daemon.policies.mutes(stage.daemon.clock.now())] == ["ci"]
    with pytest.raises(Forbidden, match="may not do 'unmute'"):
        await stage.call(made, "unmute", kind="channel", name="ci")
    with pytest.raises(Forbidden, match="may not do 'list'"):
        await stage.call(made, "list")


async def test_what_hosts_ask_is_for_tokens_of_every_mailbox(stage: Stage) -> None:
    """It is about a session, and in no mailbox: a token for one would reach beyond it."""
    asked: Sequence[tuple[str, dict[str, Any]]] = (
        ("approvals", {}),
        ("approval", {"approval": "p-1"}),
        ("approve", {"approval": "p-1", "choice": "no", "digest": "x"}),
    )
    made = await make(stage, name="some", may=["approve"])
    for verb, arguments in asked:
        with pytest.raises(Forbidden, match="for every mailbox"):
            await stage.call(made, verb, **arguments)
    assert await stage.call(await make(stage, name="all", may=["approve"], mailboxes=["*"]), "approvals") == {
        "approvals": []
    }


async def make(stage: Stage, caller: Caller = OWNER, **asked: Field) -> Caller:
    """Make a token, and return who comes with it."""
    _state, secret = await stage.daemon.tokens.make(caller, TokenRequest(**asked))
    return holder_of(await stage.daemon.tokens.hold(secret, "192.0.2.7"))


async def test_token_makes_none_that_may_more(stage: Stage) -> None:
    """Never more than its maker: neither words nor mailboxes, and no trust that was not its own."""
    made = (await make(stage, name="maker", may=["read", "token_new"], mailboxes=["*"])).doing("token_new", Grant.NAMED)
    assert (await make(stage, made, name="reader", may=["read"], mailboxes=["inbox"])).mailboxes == (INBOX,)
    for asked in ({"may": ["read", "send"]}, {"may": ["mute"], "mailboxes": ["*"]}, {"kind": "machine"}):
        with pytest.raises(Forbidden, match="more than itself"):
            await make(stage, made, name="more", **asked)
    with pytest.raises(Forbidden, match="more than itself"):
        await make(stage, made, name="more", kind="sender", trust="owner")
    with pytest.raises(Forbidden, match="more than itself"):  # it would speak as you
        await make(stage, made, name="more", kind="phone", may=["read"])
    assert {each.name for each in await stage.daemon.store.tokens.list()} == {"maker", "reader"}


@pytest.mark.parametrize("seconds", [None, 120.0, 30.0])
async def test_token_makes_none_that_outlives_it(stage: Stage, seconds: float | None) -> None:
    """An end that you gave it is one of all that comes of it."""
    may = ["read", "token_new"]
    maker = await make(stage, name="maker", may=may, mailboxes=["*"], seconds=60.0)
    asked = TokenRequest(name="made", may=["read"], seconds=seconds)
    made, _secret = await stage.daemon.tokens.make(maker.doing("token_new", Grant.NAMED), asked)
    until = min(seconds or 60.0, 60.0)
    assert made.token.expires_at == stage.daemon.clock.now() + timedelta(seconds=until)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"may": ["fly"]}, "nothing called 'fly'"),
        ({"may": ["mute"]}, "about every mailbox"),
        ({"kind": "sender", "may": ["read"]}, "may only send"),
        ({"kind": "machine", "may": ["read"]}, "no scope"),
        ({"trust": "known"}, "Only a sender's"),
        ({"kind": "sender", "trust": "friend"}, "no trust 'friend'"),
        ({"kind": "robot"}, "no kind"),
        ({"consumer": "watch"}, "cannot be a consumer"),
        ({"consumer": "task:first"}, "cannot be a consumer"),
        ({"task": "first", "mailboxes": ["inbox"]}, "mailbox alone"),
        ({"mailboxes": ["no such name"]}, "not a mailbox"),
        ({"name": "Big"}, "cannot be the name"),
    ],
)
async def test_scope_that_makes_no_sense_is_refused(stage: Stage, asked: dict[str, Any], said: str) -> None:
    """With the reason, and nothing is made."""
    with pytest.raises(UserError, match=said):
        await make(stage, **{"name": "one", **asked})
    assert await stage.daemon.store.tokens.list() == []


async def test_sender_is_trusted_as_you_said(stage: Stage) -> None:
    """Its id is the token's, whatever name it gives itself; your later decision about it comes first."""
    caller = OWNER
    for trust in reversed(Trust):
        caller = await make(stage, name=f"ci-{trust.value}", kind="sender", trust=trust.value)
        sent = await stage.daemon.inbox.send(caller, "the build is red", sender="Build server")
        assert (sent.message.sender.id, sent.message.sender.name) == (f"program:ci-{trust.value}", "Build server")
        assert (sent.message.trust, sent.message.mailbox) == (trust, INBOX)
        with pytest.raises(Forbidden, match="Nobody can speak as"):
            await stage.daemon.inbox.send(caller, "mine", sender="program:other")
        for name in ("owner", "\u043ewner", "y\u200bou", "\uff59\uff4f\uff55"):
            with pytest.raises(Forbidden, match="speak as the owner"):
                await stage.daemon.inbox.send(caller, "mine", sender=name)
    await stage.daemon.access.deny(OWNER, "program:ci-owner")
    assert (await stage.daemon.inbox.send(caller, "again")).message.trust is Trust.UNKNOWN


@pytest.mark.parametrize("text", ["yes {}", "y\u200bes {}", " NO {}. "])
@pytest.mark.parametrize("kind", ["sender", "phone"])
async def test_words_of_a_token_answer_no_action(stage: Stage, kind: str, text: str) -> None:
    """It may send with your trust, and still not approve what asks you."""
    asked = {"trust": "owner"} if kind == "sender" else {"may": ["send"]}
    caller = await make(stage, name="mine", kind=kind, **asked)
    with pytest.raises(Forbidden, match="the verb is confirm"):
        await stage.daemon.inbox.send(caller, text.format(stage.actions[INBOX]))


async def test_phone_speaks_as_you_and_as_nobody_else(stage: Stage) -> None:
    """What it sends is yours; a name of another would come with your trust."""
    caller = await make(stage, name="pocket", kind="phone", may=["read", "send"])
    sent = await stage.daemon.inbox.send(caller, "on my way")
    assert (sent.message.sender.id, sent.message.trust, caller.consumer) == ("owner", Trust.OWNER, "watch")
    with pytest.raises(Forbidden):
        await stage.daemon.inbox.send(caller, "hello", sender="bob")


async def test_token_of_a_task_has_its_mailbox_alone(stage: Stage) -> None:
    """Its agent reads as the task does here, and takes its mail."""
    caller = await make(stage, name="far", task=TaskId("first"))
    assert (str(caller.consumer), caller.mailboxes, caller.sender.id) == ("task:first", (FIRST,), "task:first")
    told = await stage.call(caller, "check_inbox")
    assert SECRETS[FIRST] in json_bytes(told).decode()


async def test_held_token_ends_with_its_time_and_when_it_is_revoked(stage: Stage) -> None:
    """Also one that came a moment ago; what is open with it is told."""
    clock, tokens, ended = stage.daemon.clock, stage.daemon.tokens, list[str]()
    tokens.observe(lambda token: ended.append(token.name))
    _state, secret = await tokens.make(OWNER, TokenRequest(name="one", seconds=60))
    token = await tokens.hold(secret, "192.0.2.7")
    assert tokens.is_in_force(token)
    assert isinstance(clock, FakeClock)
    clock.advance(61)
    assert not tokens.is_in_force(token)
    with pytest.raises(Forbidden, match="expired"):
        await tokens.hold(secret, "192.0.2.7")
    _state, secret = await tokens.make(OWNER, TokenRequest(name="two"))
    token = await tokens.hold(secret, "192.0.2.7")
    await tokens.revoke(OWNER, "two")
    assert (ended, tokens.is_in_force(token)) == (["two"], False)
    with pytest.raises(Forbidden, match="revoked"):
        await tokens.hold(secret, "192.0.2.7")
    with pytest.raises(Forbidden, match="not known"):
        await tokens.hold(f"{secret}x", "192.0.2.7")


class LateTokens:
    """The tokens of a store whose answers come late: what they say was true when they were asked."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self.add, self.find, self.list, self.revoke = tokens.add, tokens.find, tokens.list, tokens.revoke
        self.go = anyio.Event()

    async def use(self, token: str, machine: str, address: str) -> Token:
        """Note a use, and say so late."""
        used = await self._tokens.use(token, machine, address)
        await self.go.wait()
        return used


async def test_token_that_is_revoked_while_it_comes_is_refused(stage: Stage) -> None:
    """What began with it would not be ended: it was not there yet when everything with this token was."""
    late = LateTokens(stage.daemon.store.tokens)
    tokens = Tokens(late, stage.daemon.policies, stage.daemon.clock)
    _state, secret = await tokens.make(OWNER, TokenRequest(name="one"))
    refused = list[str]()

    async def hold() -> None:
        with pytest.raises(Forbidden, match="revoked"):
            await tokens.hold(secret, "192.0.2.7")
        refused.append("one")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await anyio.wait_all_tasks_blocked()
        await tokens.revoke(OWNER, "one")
        late.go.set()
    assert refused == ["one"]


async def test_use_is_noted_once_a_minute_and_from_elsewhere_at_once(stage: Stage) -> None:
    """You see where a token is used; a program that asks often does not write each time."""
    clock, tokens = stage.daemon.clock, stage.daemon.tokens
    assert isinstance(clock, FakeClock)
    _state, secret = await tokens.make(OWNER, TokenRequest(name="one"))
    noted = []
    for address in ("192.0.2.7", "192.0.2.7", "192.0.2.8"):
        clock.advance(10)
        await tokens.hold(secret, address)
        (state,) = await tokens.list(OWNER)
        noted.append((state.token.used_from, state.token.used_at))
    assert noted[0] == noted[1] != noted[2]
    assert noted[2] == ("192.0.2.8", clock.now())


async def test_secret_is_nowhere_but_in_the_answer(stage: Stage) -> None:
    """Neither it nor its hash is in the journal; the hash alone is in the database."""
    _state, secret = await stage.daemon.tokens.make(OWNER, TokenRequest(name="one", may=["read"]))
    await stage.daemon.tokens.hold(secret, "192.0.2.7")
    everything = b"".join(path.read_bytes() for path in stage.home.rglob("*") if path.is_file())
    assert b"token" in everything
    assert secret.encode() not in everything
    assert secret.removeprefix("harken_").encode() not in everything
    assert secret not in str(await stage.daemon.store.events.after(0, 1_000))
