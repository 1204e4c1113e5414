"""The composition root: opens everything in order, joins it, serves until told to stop, closes in reverse.

The only module that knows both ends. What each part is, its own module says; here they are only joined.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import ByteStream
from starlette.routing import Route

from harken import __version__
from harken.clock import Clock, SystemClock
from harken.config.home import Home
from harken.config.load import load
from harken.config.secrets import resolve
from harken.config.settings import Settings
from harken.daemon import http, upkeep
from harken.daemon.callers import AgentProcesses, Callers, client_check
from harken.daemon.confirmations import Confirmations
from harken.daemon.escalation_wiring import HaltNotices, YourTraces, escalation, halt_notices
from harken.daemon.hosting import HostedAgents
from harken.daemon.leadership import ALONE, Leader, Leadership
from harken.daemon.listener import CALL, HOOK, Listener, Ownership, announce, open_endpoint, places_here
from harken.daemon.metrics import EventCounters, Metrics
from harken.daemon.neighbours import Neighbours
from harken.daemon.rule_wiring import RuleWiring, join
from harken.daemon.session_wiring import SessionWiring
from harken.daemon.source_set import SourceSet, configured_policy
from harken.daemon.storage import HomeStore, Readiness, StandIn, home_store
from harken.daemon.supervisor import Supervisor
from harken.dispatch.bells import Bells, Push
from harken.dispatch.escalation import Escalation
from harken.dispatch.outbox import NOBODY
from harken.dispatch.toast import Desktop, Toasts
from harken.errors import Unavailable, UserError
from harken.hosts.connect.plan import local_place
from harken.hosts.hook import Hello
from harken.inbox.access import Access, TokenRequest, Tokens
from harken.inbox.callbacks import CallbackDelivery, CallbackSubscriptions
from harken.inbox.caller import NO_SESSION, Bounds, Caller, Grant, Role
from harken.inbox.channels import Channels
from harken.inbox.conversations import Conversations
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals, Questions, Replies
from harken.inbox.retention import MailRetention
from harken.inbox.subscriptions import EventSubscriptions
from harken.inbox.taskbook import TaskBook
from harken.inbox.tasks import Tasks
from harken.inbox.ticker import Ticker
from harken.inbox.views import Views
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.model import INBOX, LOCAL, Draft, Mailbox, SessionKey, timestamp
from harken.processes import Origin
from harken.sessions.registry import MailScopeOf, SessionFiles, Sessions
from harken.sessions.session import Session
from harken.setup.sources import SourceDesk, SourceSignIns
from harken.sources.check import RunningSources
from harken.sources.local import LocalSender, Post
from harken.sources.source import SourceReport
from harken.store.contract import Store
from harken.store.contract.events import AfterCommit, Event
from harken.store.journal import Journal
from harken.store.sqlite.connection import Connect, connect
from harken.surfaces.doors import EVENT_DOORS
from harken.surfaces.hooks import Notify
from harken.surfaces.mcp.connection import Connection
from harken.surfaces.mcp.server import AgentServer, Outlet
from harken.surfaces.mcp.services import AgentServices, Ask, ModernServer, event_json
from harken.surfaces.socket import CallConnection
from harken.surfaces.web.app import answering_app, api_routes, create_app, shown_routes
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.page_sessions import PHONE_IDLE, PHONE_LASTS, PageSessions
from harken.surfaces.web.signin import PHONE_LINK_SECONDS, SignIns
from harken.surfaces.wire import LineReader
from harken.verbs import access as browser_calls
from harken.verbs import shapes
from harken.verbs.table import VERBS
from harken.verbs.verb import CallContext, PhoneLinkMade

if TYPE_CHECKING:  # importing them here is what this module puts off
    from harken.daemon.public.issuer import TokenIssuer
    from harken.daemon.public.listener import PublicListener
    from harken.daemon.public.ntfy import NtfyPush
    from harken.daemon.public.phones import PhoneDoor
    from harken.daemon.public.webpush import WebPush
    from harken.daemon.satellites.machines import Machines

_log = logging.getLogger("harken.daemon")


SDK: Final = "harken.surfaces.mcp.sdk"
# How long lines may go to a journal file that was moved away. They are written again where it was.
JOURNAL_LOOK_SECONDS: Final = 0.25


class Sdk:
    """The module of what the official SDK serves, once it is imported: with the first client that needs it.

    It is as much as all the rest of a daemon, and agents on the socket do without it, but those of the modern era.
    """

    def __init__(self) -> None:
        self._module: ModuleType | None = None
        self._importing = anyio.Lock()

    async def module(self) -> ModuleType:
        """Return it. The first call takes as long as the import; meanwhile others are served."""
        # Many agents may come at once: one thread imports, not all that there are.
        async with self._importing:
            if self._module is None:
                self._module = await anyio.to_thread.run_sync(_imported)
            return self._module

    async def open_modern(self, agent: AgentServer, outlet: Outlet) -> ModernServer:
        """Return what serves a connection of the modern era."""
        found: ModernServer = (await self.module()).SocketServer(agent, outlet)
        return found


def _imported() -> ModuleType:
    # As with everything else that stays: the collector need not look at it again and again, now or later.
    gc.disable()
    found = import_module(SDK)
    gc.enable()
    gc.collect()
    gc.freeze()
    return found


@dataclass(slots=True, kw_only=True)
class Daemon:
    """The joined parts."""

    home: Home
    settings: Settings
    clock: Clock
    stored: HomeStore
    store: Store
    journal: Journal
    intake: Intake
    inbox: Inbox
    tasks: Tasks
    ticker: Ticker
    sign_ins: SignIns
    reading_of: MailScopeOf
    callers: Callers
    access: Access
    policies: PolicyBook
    bells: Bells
    wiring: SessionWiring
    source_set: SourceSet
    rule_wiring: RuleWiring
    questions: Questions
    counters: EventCounters
    readiness: Readiness
    started_at: datetime
    leader: Leader = ALONE
    neighbours: Neighbours | None = None
    sdk: Sdk = field(default_factory=Sdk)
    desktop: Desktop = field(default_factory=lambda: Desktop(os.environ))
    url: str = ""
    port_problem: str = ""
    places_problem: Callable[[], str] = str
    supervisor: Supervisor | None = None
    public: PublicListener | None = None
    machines: Machines | None = None
    phones: PhoneDoor | None = None
    ntfy: NtfyPush | None = None
    web_push: WebPush | None = None
    hosting: HostedAgents = field(init=False)
    tokens: Tokens = field(init=False)
    views: Views = field(init=False)
    subscriptions: EventSubscriptions = field(init=False)
    confirmations: Confirmations = field(init=False)
    source_desk: SourceDesk = field(init=False)
    source_sign_ins: SourceSignIns = field(init=False)
    _calls: CallContext = field(init=False)

    def __post_init__(self) -> None:
        """Build what verbs, pages and questions in sessions need, once for all callers."""
        named = frozenset(verb.name for verb in VERBS if verb.needs is Grant.NAMED)
        self.hosting = HostedAgents(
            self.home,
            self.inbox,
            self.tasks,
            self.clock,
            wiring=self.wiring,
            changes=self.store.changes,
            reading_of=self.reading_of,
        )
        self.tasks.be_hosted_by(self.hosting)
        self.tokens = Tokens(
            self.store.tokens, self.policies, self.clock, verbs=named, issuer=self.settings.http.issuer
        )
        self.views = Views(self.store, self.tasks.list, self.inbox, self.clock)
        self.subscriptions = EventSubscriptions(self.store, self.ticker, self.clock)
        self.confirmations = Confirmations(
            self.store.changes,
            self.rule_wiring.automation,
            self.inbox.sessions,
            self.clock,
            usual=self.settings.runs,
        )
        self.source_desk = SourceDesk(home=self.home, put_in_force=self._put_in_force, running=self._running)
        self.source_sign_ins = SourceSignIns(self.source_desk.sign_in_of)
        self._calls = CallContext(
            inbox=self.inbox,
            access=self.access,
            tokens=self.tokens,
            tasks=self.tasks,
            channels=Channels(self.store, self.inbox),
            questions=self.questions,
            approvals=self.wiring.approvals,
            conversations=Conversations(self.store.conversations, self.store.messages, self.clock),
            replies=Replies(self.store.outbox),
            automation=self.rule_wiring.automation,
            retention=MailRetention(self.store, upkeep.limits_of(self.settings), lambda: self.journal.last),
            caller=Caller(role=Role.OWNER),
            session=NO_SESSION,
            request="",
            daemon=self.facts,
            sources=self.sources,
            place=partial(local_place, self.home.path),
            reload=self.reload,
            sign_in=lambda: self.sign_ins.link(self.url),
            phone_link=self._phone_link,
            browsers=self.sign_ins.sessions,
            callbacks=self.store.subscriptions.list,
            machines=lambda: self.machines.here() if self.machines else {},
        )

    async def _phone_link(self, caller: Caller, asked: TokenRequest) -> PhoneLinkMade:
        if self.phones is None:
            from harken.daemon.public.phones import check_address

            check_address(self.settings.http)
            raise Unavailable("Phones are not let in yet.", "Try again in a moment.")
        return await self.phones.link(caller, asked)

    def facts(self) -> Mapping[str, object]:
        """What `status` says of the daemon itself."""
        health = self.supervisor.health if self.supervisor is not None else {}
        return {
            "pid": os.getpid(),
            "version": __version__,
            "url": self.url,
            "port_problem": self.port_problem,
            "places_problem": self.places_problem(),
            "public_url": self.public.url if self.public else "",
            "hooks_url": self.source_set.doors.url,
            "hooks_public_url": self.source_set.settings.hooks.public_url,
            "home": str(self.home.path),
            "store": self.stored.name,
            "daemons": self.neighbours.facts() if self.neighbours else [],
            "started_at": timestamp(self.started_at),
            "toasts": self.desktop.state if self.settings.toasts.enabled else "off",
            "journal_problem": self.journal.problem,
            "store_problem": self.intake.problem,
            "sources": [shapes.source(each) for each in self.sources()],
            "browsers": browser_calls.shapes_of(self.sign_ins.sessions.all()),
            "subscriptions": [shapes.subscriber(each) for each in self.subscriptions.subscribers()],
            "parked_loops": {name: state.error for name, state in health.items() if state.is_parked},
        }

    def port_taken(self, port: int, holder: str) -> None:
        """Note that another program listens where the page was: what is open there may be that program's by now."""
        self.sign_ins.sessions.end_all()
        self.port_problem = (
            f"Port {port} is taken by {holder}. The page has moved, and its browsers are signed out: harken open"
        )

    def sources(self) -> Sequence[SourceReport]:
        """What people are told about the sources."""
        return self.source_set.reports()

    def _put_in_force(self) -> bool:
        """Take the settings over, for a thread that has changed them."""
        anyio.from_thread.run(self.reload)
        return True

    def _running(self) -> RunningSources:
        states = {each.name: (each.health.state, each.health.reason) for each in self.sources()}
        return RunningSources(hooks_url=self.source_set.doors.url, states=states)

    async def reload(self) -> Mapping[str, object]:
        """Take over the settings as they are written now; raises `UserError` with nothing changed."""
        wanted = (await anyio.to_thread.run_sync(load, self.home, {}, os.environ)).settings
        changes = await self.source_set.take_over(wanted)
        _log.info("reloaded: %s", changes)
        return changes.as_json()

    async def token_changed(self) -> None:
        """Another daemon of the store made or revoked a token."""
        await self.policies.refresh()
        await self.tokens.look_again()

    def call_context(self, caller: Caller, session: SessionKey, request: str) -> CallContext:
        """Return what a verb needs, for one caller."""
        return replace(self._calls, caller=caller, session=session, request=request)

    def web_context(self) -> WebContext:
        """Return what HTTP needs."""
        return WebContext(
            call_context=lambda _verb="": self.http_context(Caller(role=Role.OWNER)),
            inbox=self.inbox,
            views=self.views,
            tasks=self.tasks,
            questions=self.questions,
            automation=self.rule_wiring.automation,
            ticker=self.ticker,
            subscriptions=self.subscriptions,
            sign_ins=self.sign_ins,
            source_admin=self.source_desk,
            source_sign_ins=self.source_sign_ins,
            clock=self.clock,
            metrics=self._metrics().text,
            unready=self.readiness.reason,
        )

    def _metrics(self) -> Metrics:
        return Metrics(
            store=self.store,
            database=self.home.database,
            clock=self.clock,
            counters=self.counters,
            intake=self.intake,
            sessions=self.inbox.sessions.live,
            sources=self.sources,
            loops=lambda: self.supervisor.health.values() if self.supervisor is not None else (),
            journal_problem=lambda: self.journal.problem,
            started_at=self.started_at,
        )

    def http_context(self, caller: Caller) -> CallContext:
        """Return what a verb needs, for one request by HTTP."""
        session = SessionKey(f"{upkeep.HTTP}{secrets.token_hex(8)}")
        return self.call_context(caller, session, session)

    def agent_services(self) -> AgentServices:
        """Return what serves agents."""
        return AgentServices(
            inbox=self.inbox,
            tasks=self.tasks,
            channels=self._calls.channels,
            subscriptions=self.subscriptions,
            clock=self.clock,
            reading_of=self.reading_of,
            sources=self.sources,
        )

    async def serve_mcp(self, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Serve an agent's edge."""
        means = replace(
            self.agent_services(),
            # Where the system does not tell who is at the other end, its word is all there is.
            named_by=lambda host: self.callers.name_task(hello.task, origin, hello.pid, host),
            origin=origin,
        )
        greet = partial(self._greet, origin)
        connection = Connection(stream, lines, hello=hello, means=means, open_modern=self.sdk.open_modern, greet=greet)
        await connection.serve()

    async def serve_call(self, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Serve a client of the command line."""
        session = SessionKey(f"{upkeep.CLI}{secrets.token_hex(8)}")
        context = self.call_context(self.callers.find(origin, hello), session, session)
        try:
            await CallConnection(stream, lines, context).serve()
        finally:
            # While the store cannot be written its leases stay, and end by time.
            with anyio.CancelScope(shield=True), suppress(Unavailable):
                await self.store.deliveries.release(session)

    def _greet(self, origin: Origin, session: Session, hello: Hello, notify: Notify, ask: Ask | None) -> None:
        self.wiring.greet(session, hello, notify, origin)
        if ask is not None:
            self.confirmations.welcome(session, hello.edge, ask)


@asynccontextmanager
async def compose(home: Home, settings: Settings, clock: Clock, opener: Connect = connect) -> AsyncIterator[Daemon]:
    """Open the store that is configured and join the parts over it."""
    async with _composed(home, settings, home_store(home, settings, clock, opener, os.environ)) as daemon:
        yield daemon


@asynccontextmanager
async def _composed(home: Home, settings: Settings, stored: HomeStore) -> AsyncIterator[Daemon]:
    counters, clock, bells, ticker = EventCounters(), stored.clock, Bells(home.bells_dir), Ticker()
    sources = SourceSet(settings, home, clock, os.environ, counters)
    journal = Journal(home.journal_dir, is_shared=stored.is_shared, look_seconds=JOURNAL_LOOK_SECONDS)
    observe = _after_commit(journal, ticker, counters, bells)
    async with stored.open(journal, after_commit=observe, before_commit=bells.before_commit) as store:
        await upkeep.end_passing_leases(store.deliveries)
        await ticker.attach(store.events, store.messages)
        pairings, policies = Pairings(clock), PolicyBook(store.people, store.tokens, configured_policy(settings))
        await policies.refresh()
        intake, book = Intake(store, policies, pairings), TaskBook(store.tasks)
        reading_of, bounds = _reading(home, settings, book), _bounds(settings, sources)
        inbox = Inbox(store, intake, policies, Sessions(), clock, bounds=bounds, tasks=book)
        tasks = Tasks(store, inbox, book, clock, reading_of=reading_of)
        await tasks.refresh()
        agents = AgentProcesses(home.run_dir / "agents.json")
        agents.follow(inbox.sessions)
        inbox.sessions.observe(ticker.poke)
        rules_here = partial(join, home, settings.runs, store, clock, here=stored.here)
        rule_wiring = rules_here(agents=agents, bounds=bounds, tool_server=sources.tool_server)
        await rule_wiring.begin()
        questions, callers = Questions(store, clock), Callers(agents, inbox.sessions)
        approvals = Approvals(store, clock, lambda: sources.settings.approvals)
        wiring = SessionWiring(
            inbox, store, clock, bells, reading_of, questions=questions, approvals=approvals, naming=callers.name_task
        )
        await _inherit(wiring, SessionFiles(home.sessions_dir, inbox.sessions))
        await sources.begin(store, intake, policies, {LOCAL: LocalSender(_post(intake))})
        try:
            yield Daemon(
                home=home,
                settings=settings,
                clock=clock,
                stored=stored,
                store=store,
                journal=journal,
                intake=intake,
                inbox=inbox,
                tasks=tasks,
                ticker=ticker,
                sign_ins=SignIns(PageSessions(http.api_token(home), clock, home.page_sessions_file), clock),
                reading_of=reading_of,
                callers=callers,
                access=Access(store.people, policies, pairings, clock),
                policies=policies,
                bells=bells,
                wiring=wiring,
                source_set=sources,
                rule_wiring=rule_wiring,
                questions=questions,
                counters=counters,
                readiness=Readiness(store.health.check_writable),
                leader=Leadership(store, clock, stored.daemon) if stored.is_shared else ALONE,
                neighbours=_neighbours(stored, store, inbox.sessions),
                started_at=clock.now(),
            )
        finally:
            ticker.close()
            journal.close()
            await sources.close()


def _neighbours(stored: HomeStore, store: Store, sessions: Sessions) -> Neighbours | None:
    if not stored.is_shared:
        return None
    return Neighbours(store, sessions, stored.clock, machine=stored.here.name, daemon=stored.daemon)


async def _inherit(wiring: SessionWiring, files: SessionFiles) -> None:
    """Know the sessions of an earlier daemon again, and keep a record of each from now on."""
    left = files.read()
    files.begin()
    await wiring.inherit(left)


def _after_commit(journal: Journal, ticker: Ticker, counters: EventCounters, bells: Bells) -> AfterCommit:
    def observe(events: Sequence[Event]) -> None:
        # The line first: nobody is told of what has none.
        journal.observe(events)
        ticker.publish(events)
        counters.observe(events)
        bells.after_commit(events)

    return observe


async def serve(home: Home, settings: Settings, *, opener: Connect = connect) -> None:
    """Run the daemon until SIGTERM or SIGINT. The caller holds the home's lock."""
    home.down_file.unlink(missing_ok=True)
    stored = home_store(home, settings, SystemClock(), opener, os.environ)
    is_told = False
    while not is_told:
        is_open = False
        try:
            async with _composed(home, settings, stored) as daemon:
                is_open = True
                await _serve(daemon)
            is_told = True
        except Unavailable as exc:
            if is_open or not stored.is_shared:
                raise
            _log.warning("waiting for the store: %s", exc.message)
            is_told = await StandIn(home, settings, stored, exc).serve()
    _log.info("stopped")


async def _serve(daemon: Daemon) -> None:
    home, settings = daemon.home, daemon.settings
    token = http.api_token(home)
    place = (settings.http.host, settings.http.port, home.port_file, "http.port")
    sock = http.bind(*place, on_taken=daemon.port_taken)
    daemon.url = http.url_of(sock)
    hosts = http.hosts_of(settings.http.host, sock.getsockname()[1])
    daemon.sign_ins.sessions.end_elsewhere(hosts)
    # With other machines let in, a server of another account may stand in front.
    agents, remote = daemon.callers.agents, settings.http.allow_remote
    refuse_client = client_check(agents.is_socket_of_run, daemon.callers.is_socket_of_agent, any_account=remote)
    web = http.make_server(create_app(daemon.web_context(), token, hosts, refuse_client=refuse_client))
    daemon.source_set.open_doors()
    lock = Ownership(home.lock_file)
    try:
        async with open_endpoint(home, settings.daemon.transport) as endpoint, anyio.create_task_group() as tasks:
            supervisor = Supervisor(tasks)
            own = Ownership(home.lock_file, *endpoint.files)
            daemon.readiness.serves_at(endpoint.address)
            _start_loops(daemon, supervisor)
            surfaces = {
                "mcp": daemon.serve_mcp,
                CALL: daemon.serve_call,
                HOOK: daemon.wiring.serve_hook,
                "wake": daemon.wiring.serve_wake,
                "acp": daemon.hosting.serve_editor,
            }
            is_agent, places = daemon.callers.is_agent, places_here()
            listener = Listener(surfaces, endpoint.token, places=places, find_run=agents.run_of, is_agent=is_agent)
            daemon.places_problem = lambda: listener.problem
            # Accepting fails while the process has no file descriptors left.
            supervisor.start("socket", partial(endpoint.listener.serve, listener.handle))
            _let_machines_in(daemon, listener, supervisor)
            tasks.start_soon(partial(web.serve, sockets=[sock]))
            daemon.source_set.doors.serve_in(tasks)
            # From the moment on that others know of it, it ends cleanly when it is told to.
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                announce(home, endpoint.address, url=daemon.url, port_problem=daemon.port_problem)
                _log.info("Harken %s serves %s at %s", __version__, home.path, daemon.url)
                # What was built until now stays: the collector need not look at it again and again.
                gc.collect()
                gc.freeze()
                await own.until_told(signals)
            web.should_exit = True
            daemon.source_set.doors.stop()
            daemon.ticker.close()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await daemon.desktop.close()
        # What lies there now may be another daemon's.
        for leftover in () if lock.is_lost else (home.address_file, home.daemon_file):
            leftover.unlink(missing_ok=True)


def _let_machines_in(daemon: Daemon, listener: Listener, supervisor: Supervisor) -> None:
    """Let other machines in, if the settings want it: most daemons never import what that needs."""
    if not daemon.settings.http.public_listen:
        return
    from harken.daemon.public.gate import GateSettings, RemoteDoor
    from harken.daemon.public.listener import PublicListener
    from harken.daemon.satellites.machines import Machines

    gate = GateSettings(hosts=lambda: public.hosts, proxies=daemon.settings.http.proxy, issuer=_issuer(daemon))
    machines = daemon.machines = Machines(
        daemon.tokens,
        listener=listener,
        wiring=daemon.wiring,
        sessions=daemon.inbox.sessions,
        bells=daemon.bells,
        home=daemon.home,
        gate=gate,
    )
    door = RemoteDoor(
        daemon.tokens,
        daemon.clock,
        gate=gate,
        api_routes=api_routes,
        call_context=daemon.http_context,
        means=replace(daemon.agent_services(), sources=tuple, callbacks=_callbacks(daemon, supervisor)),
        load=daemon.sdk.module,
    )
    phones = daemon.phones = phone_door(daemon)
    posted = Route(f"{EVENT_DOORS}{{name}}", daemon.source_set.doors.app)
    pressed = [daemon.ntfy.route] if daemon.ntfy else []
    routes = [machines.route, *door.routes(), posted, *pressed, phones.route]
    public = daemon.public = PublicListener(daemon.settings.http, os.environ, routes)
    supervisor.start("phones", phones.run)
    supervisor.start("machines", machines.run)
    supervisor.start("remote agents", door.run)
    supervisor.start("public listener", public.run)


def _callbacks(daemon: Daemon, supervisor: Supervisor) -> CallbackSubscriptions:
    """Return what has events posted to subscribers elsewhere, and post them."""
    from harken.inbox.posting import CallbackWire

    wire = CallbackWire(daemon.clock.now, allows_loopback=daemon.settings.http.callbacks_to_loopback)
    delivery = CallbackDelivery(daemon.store, daemon.subscriptions, daemon.clock, wire, event_json)
    supervisor.start("callbacks", partial(daemon.leader.lead, "callbacks", delivery.run))
    return CallbackSubscriptions(daemon.store, daemon.subscriptions, daemon.clock, wire)


def phone_door(daemon: Daemon) -> PhoneDoor:
    """Return the page for phones at the public address."""
    from harken.daemon.public.listener import hosts_of
    from harken.daemon.public.phones import PhoneDoor, PhonePages

    file = daemon.home.phone_sessions_file
    sessions = PageSessions(http.api_token(daemon.home), daemon.clock, file, lasts=PHONE_LASTS, idle=PHONE_IDLE)
    return PhoneDoor(
        daemon.settings.http,
        daemon.tokens,
        daemon.clock,
        SignIns(sessions, daemon.clock, seconds=PHONE_LINK_SECONDS),
        hosts=hosts_of(daemon.settings.http),
        pages=PhonePages(
            web_context=daemon.web_context,
            call_context=daemon.http_context,
            routes=shown_routes,
            answering=answering_app,
            notifier=daemon.web_push,
            is_reached=lambda: daemon.public is None or bool(daemon.public.url),
        ),
    )


def _issuer(daemon: Daemon) -> TokenIssuer | None:
    """Return what checks JWTs, if an issuer is configured; only then its library is imported."""
    http_settings = daemon.settings.http
    if not http_settings.issuer:
        return None
    if not http_settings.public_url:
        raise UserError("http.issuer is set without http.public_url.", "Tokens are made for an address: set both.")
    from harken.daemon.public.issuer import TokenIssuer

    return TokenIssuer(http_settings.issuer, f"{http_settings.public_url}/mcp", daemon.clock)


def _start_loops(daemon: Daemon, supervisor: Supervisor) -> None:
    store, settings, lead = daemon.store, daemon.settings, daemon.leader.lead
    push = Push(store, daemon.inbox.sessions)
    daemon.supervisor = supervisor
    if isinstance(daemon.leader, Leadership):
        supervisor.start("leadership", daemon.leader.run)
    if daemon.neighbours is not None:
        refresh = {
            "task": daemon.tasks.refresh,
            **dict.fromkeys(("access", "muted", "unmuted"), daemon.policies.refresh),
            "token": daemon.token_changed,
        }
        supervisor.start("neighbours", daemon.neighbours.run)
        supervisor.start("changes", partial(daemon.neighbours.follow, daemon.ticker, refresh))
    for source in (LOCAL, NOBODY):
        lane = partial(daemon.source_set.outbox.run, source)
        supervisor.start(f"outbox {source}".rstrip(), partial(lead, "outbox", lane))
    supervisor.start("push", push.run)
    supervisor.start("agents", daemon.callers.agents.run)
    daemon.bells.clear()
    supervisor.start("bells", daemon.wiring.ringer.run)
    supervisor.start("wakes", daemon.wiring.wakes.run)
    supervisor.start("sessions", daemon.wiring.reap)
    supervisor.start("questions", partial(daemon.wiring.hear_questions, str(daemon.home.path)))
    supervisor.start("hosted", daemon.hosting.run)
    supervisor.start("tasks", daemon.tasks.keep)
    supervisor.start("sign-ins", daemon.source_sign_ins.run)
    daemon.source_set.start(supervisor, daemon.leader)
    if settings.toasts.enabled:
        toasts = Toasts(
            store,
            daemon.clock,
            daemon.desktop.show,
            quiet=settings.toasts.quiet_hours,
            consent_to=daemon.rule_wiring.consent_to,
        )
        supervisor.start("toasts", toasts.run)
    _notify_phones(daemon, supervisor)
    supervisor.start("halts", _halt_notices(daemon).run)
    supervisor.start("waiting", partial(lead, "waiting", _escalation(daemon).run))
    daemon.rule_wiring.start(supervisor, daemon.leader)
    if settings.runs.ask_in_session:
        supervisor.start("asking", daemon.confirmations.run)
    schedule = upkeep.ScheduleKeeper(daemon.inbox, store.changes, daemon.clock)
    supervisor.start("schedule", partial(lead, "schedule", schedule.run))
    supervisor.start("index", partial(lead, "index", partial(upkeep.keep_index, store.messages)))
    supervisor.start("journal", lambda: upkeep.keep_journal(daemon.journal, store.events))
    supervisor.start("leases", lambda: upkeep.keep_leases(store.deliveries, daemon.inbox.sessions.keys))
    limits = partial(upkeep.keep_limits, store.retention, daemon.journal, upkeep.limits_of(settings))
    supervisor.start("retention", partial(lead, "retention", limits))


def _escalation(daemon: Daemon) -> Escalation:
    return escalation(
        daemon.store,
        daemon.clock,
        daemon.settings,
        intake=daemon.intake,
        mutes=daemon.policies.mutes,
        show=daemon.desktop.show,
        secret=partial(resolve, home=daemon.home, environ=os.environ),
        phones=[each.tell for each in (daemon.ntfy, daemon.web_push) if each is not None],
    )


def _halt_notices(daemon: Daemon) -> HaltNotices:
    return halt_notices(
        daemon.inbox.sessions,
        daemon.store,
        daemon.clock,
        daemon.settings,
        show=daemon.desktop.show,
        secret=partial(resolve, home=daemon.home, environ=os.environ),
        traces=YourTraces(at_page=lambda: daemon.sign_ins.sessions.here_at),
        phones=[each.tell_halt for each in (daemon.ntfy, daemon.web_push) if each is not None],
    )


def _notify_phones(daemon: Daemon, supervisor: Supervisor) -> None:
    if daemon.settings.ntfy.address:
        daemon.ntfy = _ntfy(daemon)
        supervisor.start("ntfy", daemon.ntfy.run)
    daemon.web_push = _web_push(daemon)
    if daemon.web_push is not None:
        supervisor.start("web push", daemon.web_push.run)


def _ntfy(daemon: Daemon) -> NtfyPush:
    from harken.daemon.public.ntfy import NtfyPush

    return NtfyPush(
        daemon.store,
        daemon.clock,
        daemon.settings,
        approvals=daemon.wiring.approvals,
        inbox=daemon.inbox,
        secret=partial(resolve, home=daemon.home, environ=os.environ),
    )


def _web_push(daemon: Daemon) -> WebPush | None:
    """Return what pushes to the page on phones; None where it is not installed, or no certificate is here.

    Behind a proxy another account could have the port while the daemon is down, and become the worker of the page.
    """
    http = daemon.settings.http
    has_page = http.public_listen and http.public_url.startswith("https://")
    if not (has_page and http.certificate and http.private_key and find_spec("http_ece")):
        return None
    from harken.daemon.public.webpush import PushBook, WebPush
    from harken.inbox.posting import CallbackWire

    async def holder(session: str) -> Caller | None:
        return None if daemon.phones is None else await daemon.phones.holder(session)

    return WebPush(
        daemon.store,
        daemon.clock,
        daemon.settings,
        book=PushBook(daemon.home.phone_push_file),
        approvals=daemon.wiring.approvals,
        wire=CallbackWire(daemon.clock.now, allows_loopback=http.callbacks_to_loopback),
        holder=holder,
    )


def _reading(home: Home, settings: Settings, tasks: TaskBook) -> MailScopeOf:
    """Return what decides how a session in a folder reads, or one that was started for a task."""
    projects = {name: [str(folder) for folder in project.dirs] for name, project in settings.projects.items()}
    return partial(tasks.scope_of, home.trial_dir, projects)


def _bounds(settings: Settings, sources: SourceSet) -> Bounds:
    return Bounds(
        max_wait_seconds=settings.limits.max_wait_seconds,
        lease=settings.limits.lease,
        new_consumer_window=settings.limits.new_consumer_window,
        new_consumer_most=settings.limits.new_consumer_most,
        max_said_chars=settings.limits.max_message_chars,
        agents_read=frozenset({INBOX, *(Mailbox(f"project:{name}") for name in settings.projects)}),
        announcers=sources.heard_only,
    )


def _post(intake: Intake) -> Post:
    async def post(draft: Draft) -> str:
        return (await intake.accept([draft]))[0].message.id

    return post
