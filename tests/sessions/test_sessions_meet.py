"""Sessions are one, however they are heard of first: by a connection, by a hook, or by a call that names them.

What is asked here is who is who. What a session is told is tested with the hooks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from harken.hosts.hook import Hello, hook_key, session_key
from harken.hosts.host import Host
from harken.hosts.registry import host_named
from harken.model import INBOX, Consumer, DeliveryId, Mailbox, SessionKey
from harken.sessions.registry import UNANSWERED, Sessions
from harken.sessions.session import Presence, Session
from harken.sessions.turns import TurnPhase
from tests.builders import a_session
from tests.inbox.rig import Quiet

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
CLAUDE, COPILOT, CODEX, GEMINI, OPENCODE, QWEN = (
    host_named(name) for name in ("claude-code", "copilot-cli", "codex", "gemini-cli", "opencode", "qwen-code")
)
SINGLE = (CLAUDE, COPILOT, GEMINI, QWEN)
PID = 4_000


class Room:
    """A registry, and hosts that come into it as the daemon lets them in."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        self._edges = count(1)
        self._seconds = count(1)

    def edge(
        self, host: Host, *, pid: int = PID, native: str = "", cwd: str = "/work", consumer: str = ""
    ) -> tuple[Session, str]:
        """Let an MCP connection say hello; return its session and the connection's own name."""
        name = f"e{next(self._edges)}"
        env = {host.session_variable: native} if native else {}
        hello = Hello(edge=name, ppid=pid, cwd=cwd, env=env)
        fresh = self._session(host, session_key(host, hello), pid=pid, native=native, cwd=cwd)
        fresh.surfaces = host.surfaces
        fresh.agent = fresh.consumer = Consumer(consumer or host.name)
        return self.sessions.open(fresh, name, Quiet()), name

    def hook(
        self,
        host: Host,
        native: str,
        *,
        pid: int = PID,
        pids: tuple[int, ...] = (),
        cwd: str = "/work",
        is_host: bool = True,
    ) -> Session:
        """Let a hook speak for a conversation; its process descends from `pid` and further ones."""
        fresh = self._session(host, hook_key(host, native, pid), pid=pid, native=native, cwd=cwd)
        fresh.is_host_process = is_host
        session, _former = self.sessions.meet(fresh, [pid, *pids])
        self.sessions.touch(session.key, fresh.last_active)
        session.moments.add("prompt")
        self.sessions.note_change()
        return session

    def keys(self) -> list[str]:
        """Who is here."""
        return sorted(self.sessions.keys())

    def _session(self, host: Host, key: SessionKey, *, pid: int, native: str, cwd: str) -> Session:
        now = NOW + timedelta(seconds=next(self._seconds))
        return a_session(
            host.name,
            at=now,
            key=key,
            cwd=cwd,
            pid=pid,
            mailboxes=(INBOX, Mailbox("project:work")) if cwd == "/work" else (INBOX,),
            surfaces=(),
            native=native,
            has_many=host.has_many,
        )


@pytest.fixture
def room() -> Room:
    """Nobody is here yet."""
    return Room()


def native_in_environment(host: Host) -> str:
    """What the host's MCP environment names: Gemini and Codex name nothing there."""
    return "n1" if host in (COPILOT, QWEN, CLAUDE) else ""


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_edge_first_then_hook_is_one_session(room: Room, host: Host) -> None:
    """A message is leased to a session: two names for one would be two readers that take turns."""
    opened, _ = room.edge(host, native=native_in_environment(host))
    met = room.hook(host, "n1")
    assert met is opened
    assert room.keys() == [hook_key(host, "n1", PID)]


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_the_name_that_an_edge_was_started_with_stays_when_the_first_hook_joins(room: Room, host: Host) -> None:
    """`harken mcp --consumer reviewer` has a cursor of its own: the hooks of the host know nothing of that name."""
    opened, _ = room.edge(host, native=native_in_environment(host), consumer="reviewer")
    met = room.hook(host, "n1", cwd="/elsewhere")
    assert met is opened
    assert (met.agent, met.consumer, met.mailboxes) == ("reviewer", "reviewer", (INBOX,))


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_hook_first_then_edge_is_one_session(room: Room, host: Host) -> None:
    """After a restart of the daemon, a hook may be quicker than the edge."""
    met = room.hook(host, "n1")
    opened, _ = room.edge(host, native=native_in_environment(host))
    assert opened is met
    assert room.keys() == [hook_key(host, "n1", PID)]


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_a_session_has_the_same_ways_whoever_came_first(room: Room, host: Host) -> None:
    """`status` and `doctor` say how a session is reached; the order of two processes must not change that."""
    room.edge(host, native=native_in_environment(host))
    edge_first = room.hook(host, "n1")
    other = Room()
    other.hook(host, "n1")
    hook_first, _ = other.edge(host, native=native_in_environment(host))
    assert list(hook_first.ways) == list(edge_first.ways) == ["hook: prompt", *host.surfaces]


def test_what_a_nameless_edge_was_given_keeps_its_session(room: Room) -> None:
    """The key changes when the first hook names the conversation: the offers must be told, and the key looked up."""
    opened, edge = room.edge(GEMINI)
    former = opened.key
    fresh = a_session(
        GEMINI.name, NOW, key=hook_key(GEMINI, "n1", PID), client="", cwd="/work", pid=PID, surfaces=(), native="n1"
    )
    assert room.sessions.meet(fresh, [PID]) == (opened, former)
    assert room.sessions.get(former) is None
    assert room.sessions.get(SessionKey("gemini-cli:n1")) is opened
    assert room.sessions.close(opened.key, edge)
    assert room.keys() == []


def test_the_hook_says_where_a_session_works(room: Room) -> None:
    """A plugin's MCP server runs in the plugin's folder: what the session reads follows from where the agent works."""
    room.edge(COPILOT, native="n1", cwd="/home/ann/.harken/plugins/copilot-cli")
    met = room.hook(COPILOT, "n1", cwd="/work")
    assert (met.cwd, met.mailboxes) == ("/work", (INBOX, Mailbox("project:work")))


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_a_cleared_conversation_is_the_same_session(room: Room, host: Host) -> None:
    """After /clear the process, the person and the connection are the same; only the host's own id is new."""
    opened, _ = room.edge(host, native=native_in_environment(host))
    room.hook(host, "n1")
    after = room.hook(host, "n2")
    assert after is opened
    assert after.native == "n2"
    assert room.hook(host, "n2") is after
    assert len(room.keys()) == 1


def test_two_processes_of_a_host_are_two_sessions(room: Room) -> None:
    """Two terminals, two agents."""
    first, second = room.hook(CLAUDE, "n1", pid=4_000), room.hook(CLAUDE, "n2", pid=5_000)
    assert first is not second
    assert room.keys() == ["claude-code:4000", "claude-code:5000"]


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
def test_an_agent_that_another_agent_started_is_a_session_of_its_own(room: Room, host: Host) -> None:
    """An agent may run its own program in a shell: that one's hooks descend from the outer process, and are not its."""
    outer, _ = room.edge(host, pid=4_000, native=native_in_environment(host))
    assert room.hook(host, "n1", pid=4_000) is outer
    inner = room.hook(host, "inner", pid=5_000, pids=(5_001, 4_500, 4_000, 1))
    assert inner is not outer
    assert (outer.native, inner.native) == ("n1", "inner")
    assert room.sessions.end(inner.key)
    assert [session.native for session in room.sessions.live()] == ["n1"]


def test_hooks_of_another_host_in_the_same_process_tree_are_not_mixed_up(room: Room) -> None:
    """Codex started from a Claude Code shell is Codex."""
    outer, _ = room.edge(CLAUDE, pid=4_000)
    inner = room.hook(CODEX, "t1", pid=4_000, pids=(4_000, 1))
    assert inner is not outer
    assert room.keys() == ["claude-code:4000", "codex:t1"]


# -- several conversations in one process --------------------------------------------------------------------------


def test_two_conversations_of_one_process_are_two_sessions(room: Room) -> None:
    """One process serves several at once: what one is told, the other has not read."""
    first, second = room.hook(OPENCODE, "a"), room.hook(OPENCODE, "b")
    assert first is not second
    assert room.hook(OPENCODE, "a") is first
    assert room.keys() == ["opencode:a", "opencode:b"]


def test_the_one_connection_of_a_process_goes_to_its_first_conversation(room: Room) -> None:
    """The edge of opencode is there before any conversation; it must not stay behind as a session of nobody."""
    opened, _ = room.edge(OPENCODE)
    assert room.hook(OPENCODE, "a") is opened
    other = room.hook(OPENCODE, "b")
    assert other is not opened
    assert room.keys() == ["opencode:a", "opencode:b"]


def test_a_call_without_a_name_is_of_the_conversation_that_was_active_last(room: Room) -> None:
    """The host does not say which conversation calls: the busy one does."""
    room.edge(OPENCODE)
    first = room.hook(OPENCODE, "a")
    second = room.hook(OPENCODE, "b")
    assert room.sessions.of_process(first) is second
    room.hook(OPENCODE, "a")
    assert room.sessions.of_process(first) is first


# -- Codex: one connection per thread, none of which says whose it is ----------------------------------------------


def test_of_several_nameless_connections_a_hook_takes_none(room: Room) -> None:
    """A guess would give one thread the other's messages, and nothing would ever put it right."""
    one, _ = room.edge(CODEX)
    two, _ = room.edge(CODEX)
    met = room.hook(CODEX, "t1")
    assert met not in (one, two)
    assert len(room.keys()) == 3


def test_a_single_nameless_connection_is_the_thread_that_a_hook_names(room: Room) -> None:
    """With one there is nothing to guess."""
    opened, _ = room.edge(CODEX)
    assert room.hook(CODEX, "t1") is opened
    assert room.keys() == ["codex:t1"]


def test_a_call_binds_its_connection_to_the_thread_that_hooks_told_of(room: Room) -> None:
    """The connection joins the session that is there; no session of nobody is left."""
    room.edge(CODEX)
    nameless, edge = room.edge(CODEX)
    met = room.hook(CODEX, "t1")
    bound, former = room.sessions.bind(nameless, edge, SessionKey("codex:t1"), "t1")
    assert (bound, former) == (met, None)
    assert list(met.connections) == [edge]
    assert room.sessions.get(nameless.key) is None
    assert not room.sessions.close(SessionKey("edge:other"), edge)


def test_a_call_names_a_connection_that_no_hook_told_of(room: Room) -> None:
    """Without hooks the call is all there is: what it was given before goes with it."""
    nameless, edge = room.edge(CODEX)
    former_key = nameless.key
    assert room.sessions.bind(nameless, edge, SessionKey("codex:t1"), "t1") == (nameless, former_key)
    assert (nameless.key, nameless.native, room.keys()) == ("codex:t1", "t1", ["codex:t1"])


def test_a_connection_that_names_another_thread_moves_there(room: Room) -> None:
    """The first thread keeps what is its own: what it was told, what may prove it, how it is woken."""
    nameless, edge = room.edge(CODEX)
    first, _ = room.sessions.bind(nameless, edge, SessionKey("codex:t1"), "t1")
    first.carry("c-1", [DeliveryId("d-1")], TurnPhase.STEP)
    first.begin_wait(lambda: None)
    first.work()
    second, _ = room.sessions.bind(first, edge, SessionKey("codex:t2"), "t2")
    assert second is not first
    assert (list(first.connections), list(second.connections)) == ([], [edge])
    assert (list(first.unproven), list(second.unproven)) == (["d-1"], [])
    assert (first.presence, second.presence) == (Presence.WAITING, Presence.CONNECTED)


def test_a_bound_connection_that_closes_takes_its_thread_along(room: Room) -> None:
    """Codex ends the server of a thread with the thread, and the process lives on for others."""
    _, first_edge = room.edge(CODEX)
    _, second_edge = room.edge(CODEX)
    for edge, thread in ((first_edge, "t1"), (second_edge, "t2")):
        nameless = room.sessions.get(SessionKey(f"edge:{edge}"))
        assert nameless is not None
        room.sessions.bind(nameless, edge, SessionKey(f"codex:{thread}"), thread)
    assert room.sessions.close(SessionKey("codex:t1"), first_edge)
    assert room.keys() == ["codex:t2"]


# -- ends and restarts ---------------------------------------------------------------------------------------------


def test_a_session_that_hooks_told_of_outlives_its_connection(room: Room) -> None:
    """An MCP server may be restarted or switched off in a running session: it is still here and can be woken."""
    _, edge = room.edge(CLAUDE)
    met = room.hook(CLAUDE, "n1")
    met.is_busy = False
    room.sessions.close(met.key, edge)
    assert room.keys() == ["claude-code:4000"]
    again, _ = room.edge(CLAUDE)
    assert again is met
    assert again.presence is Presence.IDLE


def test_a_session_without_hooks_goes_with_its_last_connection(room: Room) -> None:
    """Nothing else would ever say that it is over."""
    opened, first = room.edge(CLAUDE)
    _, second = room.edge(CLAUDE)
    assert not room.sessions.close(opened.key, first)
    assert room.sessions.close(opened.key, second)
    assert room.keys() == []


def test_an_end_takes_the_session_away_at_once(room: Room) -> None:
    """A message to a conversation that is over must not be promised to it."""
    room.edge(CLAUDE)
    met = room.hook(CLAUDE, "n1")
    assert room.sessions.end(met.key)
    assert not room.sessions.end(met.key)
    assert room.keys() == []


@pytest.mark.parametrize("host", SINGLE, ids=lambda host: host.name)
@pytest.mark.parametrize("is_edge_first", [True, False])
def test_a_new_daemon_puts_a_session_together_again(host: Host, *, is_edge_first: bool) -> None:
    """All it has are the edges that come back and the hooks that run: in either order it is the session from before."""
    keys: list[list[str]] = []
    for room in (Room(), Room()):
        if is_edge_first or not keys:
            room.edge(host, native=native_in_environment(host))
            room.hook(host, "n1")
        else:
            room.hook(host, "n1")
            room.edge(host, native=native_in_environment(host))
        keys.append(room.keys())
    assert keys[0] == keys[1] == [hook_key(host, "n1", PID)]


def test_observers_hear_of_everything_that_changes_who_is_here() -> None:
    """The bells ring for hosts that are here: one that came unheard would be left out."""
    room = Room()
    heard: list[list[str]] = []
    room.sessions.observe(lambda: heard.append(room.keys()))
    _, edge = room.edge(CLAUDE)
    room.hook(CODEX, "t1")
    room.sessions.close(SessionKey("claude-code:4000"), edge)
    room.sessions.end(SessionKey("codex:t1"))
    assert heard == [["claude-code:4000"], ["claude-code:4000", "codex:t1"], ["codex:t1"], []]


def test_hook_that_somebody_has_run_by_hand_says_nothing_of_a_process(room: Room) -> None:
    """A shell is no host: an agent in it is nobody's helper, and a session that is known stays where it is."""
    known = room.hook(CODEX, "s1")
    shell = room.hook(CODEX, "s1", pid=PID + 9, is_host=False)
    assert (shell, known.pid, known.is_host_process) == (known, PID, True)
    by_hand = room.hook(GEMINI, "s2", pid=PID + 9, is_host=False)
    inside = room.hook(GEMINI, "s3", pid=PID + 10, pids=(PID + 9,))
    assert (by_hand.is_host_process, inside.is_helper) == (False, False)
    assert Session.inherited(by_hand.record).is_host_process is False
    opened, _ = room.edge(GEMINI, pid=PID + 9, native="s2")
    assert (opened, opened.is_host_process) == (by_hand, True)


def test_what_an_agent_started_beside_itself_is_its_helper(room: Room) -> None:
    """It does a part of the work, and is gone soon: mail that it is given is mail that nobody acts on."""
    outer = room.hook(CLAUDE, "n1")
    inner = room.hook(CLAUDE, "n2", pid=PID + 5, pids=(PID + 2, PID, 1))
    beside = room.hook(CLAUDE, "n3", pid=PID + 6, pids=(1,))
    assert [each.is_helper for each in (outer, inner, beside)] == [False, True, False]
    assert list(room.sessions.listeners(INBOX)) == [outer, beside]


# -- looking whether a session can be woken -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [RuntimeError("circle"), OSError(5, "x"), ExceptionGroup("x", [ValueError("y")])])
async def test_host_that_fails_to_say_whether_it_can_be_woken_fails_nobody_else(room: Room, fault: Exception) -> None:
    """A message is accepted whatever a host's program does; what is not known is said so."""
    session = room.hook(CODEX, "t1")

    async def probe() -> str:
        raise fault

    session.probe = probe
    await room.sessions.probe(session, 5.0)
    assert session.hindrance == UNANSWERED
