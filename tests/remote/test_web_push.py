"""What waits is on your phone as a notification of the page: encrypted, signed, chosen, and gone with the phone.

No push service of a browser can be reached here: the service and the browser's part are ours, made from the RFCs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from stat import S_IMODE
from typing import Final

import anyio
import pytest

from harken.config.home import Home, ensure
from harken.config.settings import HttpSettings, PushSettings, Settings
from harken.daemon.compose import compose
from harken.daemon.public.webpush import PushBook, PushKeys, WebPush, encrypted
from harken.inbox.caller import Caller, Role
from harken.inbox.posting import CallbackWire
from harken.testing import FakeClock
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost, asked, one
from tests.loss.rig import DaemonStarter, until
from tests.remote.phone_rig import PhoneWeb
from tests.remote.push_service import PushBrowser, PushService, Voucher, opened, push_service
from tests.remote.rig import PublicDaemon
from tests.satellite.rig import MainDaemon, free_port, let_machines_in
from tests.seeded import Asked, seed
from tests.web.rig import Answer, data_of, letters

ALL: Final = ("read", "answer", "approve")
WORKER: Final = {"Service-Worker": "script", "Sec-Fetch-Dest": "serviceworker", "Accept": "*/*"}
OWNER: Final = Caller(role=Role.OWNER)


@pytest.fixture
def service() -> Iterator[PushService]:
    """A push service."""
    with push_service() as found:
        yield found


def started(starter: DaemonStarter, home: Path, folder: Path, more: str = "") -> Iterator[PublicDaemon]:
    """Start a daemon that may push to this machine."""
    port = free_port()
    authority = let_machines_in(home, port, folder)
    with (home / "config.toml").open("a") as config:
        config.write(f'callbacks_to_loopback = true\n[waiting]\nphone_after = "1s"\n{more}')
    with starter.daemon(home) as served:
        yield PublicDaemon(MainDaemon(served, authority, port).start())


@pytest.fixture
def public(starter: DaemonStarter, home: Path, tmp_path: Path) -> Iterator[PublicDaemon]:
    """A daemon that shows what is asked on lock screens."""
    yield from started(starter, home, tmp_path, '[push]\nshows = "text"\n')


def push_key(web: PhoneWeb) -> str:
    """Return the key with which the shell of the page has a browser subscribe."""
    return (
        web.ask("GET", "/", {"Accept": "text/html"}).text.partition('name="harken-push" content="')[2].partition('"')[0]
    )


def subscribe(web: PhoneWeb, browser: PushBrowser, **changed: object) -> Answer:
    """Subscribe as the page does."""
    until(
        lambda: 'name="harken-push" content="B' in web.ask("GET", "/", {"Accept": "text/html"}).text, "there is a key"
    )
    sent = {**web.session, "Origin": web.origin, "Content-Type": "text/plain;charset=UTF-8"}
    return web.ask("POST", "/push", sent, browser.subscription(**changed))


def signed_in(public: PublicDaemon, browser: PushBrowser, *may: str, name: str = "phone") -> PhoneWeb:
    """Return a phone that is notified."""
    web = PhoneWeb(public).enter(may or ALL, name=name)
    assert subscribe(web, browser).status == 204
    return web


def test_browser_of_the_tests_reads_the_example_of_the_standard() -> None:
    """RFC 8291, appendix A. So what it reads of ours, every browser reads."""
    browser = PushBrowser.known("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "BTBZMqHH6r4Tts7J_aSIgg")
    body = data_of(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3j"
        "l7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert opened(body, browser.key, browser.auth) == b"When I grow up, I want to be a watermelon"


def test_length_of_what_is_sent_tells_little() -> None:
    """A push service sees it: a yes and a password have the same."""
    browser = PushBrowser("")
    keys = PushKeys(**json.loads(browser.subscription())["keys"])
    sent = [encrypted(b'{"text":"%s"}' % (b"x" * length), keys) for length in (1, 100, 400)]
    assert len({len(each) for each in sent}) == 1
    assert json.loads(opened(sent[1], browser.key, browser.auth)) == {"text": "x" * 100}


def test_phone_is_told_at_once_what_a_host_asks(public: PublicDaemon, service: PushService) -> None:
    """With the place of the page where it is answered, and for as long as it is asked."""
    browser = service.browser()
    web = signed_in(public, browser)
    assert browser.read(service.pushed(0))["text"] == "This phone is told what waits for you."
    rig = DaemonFixture(public.main.served)
    with AskingHost(rig, asked("make test")):
        pushed = service.pushed(1)
        said = browser.read(pushed)
        assert (said["title"], said["text"].splitlines()[0]) == (
            "opencode asks whether it may use bash",
            "command: make test",
        )
        assert said["path"] == f"/needs#need-approval:{one(rig)['id']}"
        assert f'id="need-approval:{one(rig)["id"]}"' in web.look("/needs").text
        assert (pushed.headers["urgency"], 0 < int(pushed.headers["ttl"]) <= 86_400) == ("high", True)
        assert "web push" in one(rig)["shown"]
    vouched = Voucher.of(pushed.headers["authorization"])
    assert vouched.said["sub"] == public.url
    assert vouched.key == push_key(web)


def test_phone_that_may_only_read_is_not_told_what_it_could_not_answer(
    public: PublicDaemon, service: PushService
) -> None:
    """What its page does not show, its lock screen does not show either."""
    signed_in(public, service.browser("/reader"), "read", name="reader")
    signed_in(public, service.browser())
    with AskingHost(DaemonFixture(public.main.served), asked("make test")):
        service.pushed(1)
    assert [each.path for each in service.took] == ["/reader", "/one", "/one"]


def test_question_reaches_the_phone_with_its_place(
    starter: DaemonStarter, home: Path, tmp_path: Path, service: PushService
) -> None:
    """When the ladder says that the phone is next, after a restart too; where text is not shown, it is not sent."""
    for public in started(starter, home, tmp_path):
        browser = service.browser()
        signed_in(public, browser)
        public.main.served.stop()
        message = seed(home, [Asked(text="is it done?", ago=timedelta(minutes=5))])[0]
        public.main.start()
        said = browser.read(service.pushed(1))
        assert said["path"] == f"/message/{message}"
        assert (said["title"].split(",")[0], said["text"]) == ("1 waits for an answer", "ann in chat")


@pytest.mark.parametrize("status", [404, 410])
def test_subscription_that_is_gone_is_removed(public: PublicDaemon, service: PushService, status: int) -> None:
    """The push service says it; nothing is posted there again."""
    signed_in(public, service.browser())
    kept = public.main.served.home / "phone-push.json"
    assert S_IMODE(kept.stat().st_mode) == 0o600
    service.statuses["/one"] = status
    with AskingHost(DaemonFixture(public.main.served), asked("make test")):
        until(lambda: not json.loads(kept.read_text())["subscriptions"], "it is removed")
    assert service.refused == 1


def test_nothing_goes_to_a_phone_that_was_revoked_or_has_switched_it_off(
    public: PublicDaemon, service: PushService
) -> None:
    """A lost phone shows nothing any more."""
    kept = public.main.served.home / "phone-push.json"
    lost = signed_in(public, service.browser("/lost"), name="lost")
    off = signed_in(public, service.browser("/off"), name="off")
    signed_in(public, service.browser(), name="mine")
    public.call("token_revoke", name="lost")
    assert off.do("/push-off").status == 204
    assert len(json.loads(kept.read_text())["subscriptions"]) == 1
    with AskingHost(DaemonFixture(public.main.served), asked("make test")):
        service.pushed(1)
    assert [each.path for each in service.took] == ["/lost", "/off", "/one", "/one"]
    assert subscribe(lost, service.browser("/lost")).status == 401


def test_browser_that_signs_in_again_is_told_once(public: PublicDaemon, service: PushService) -> None:
    """It keeps its subscription; the session before may still be good."""
    browser = service.browser()
    signed_in(public, browser, name="before")
    signed_in(public, browser, name="after")
    with AskingHost(DaemonFixture(public.main.served), asked("make test")):
        service.pushed(2)
    assert len(service.took) == 3


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://10.0.0.1/x",
        "https://169.254.169.254/latest",
        "http://push.example/x",
        "https://user@push.example/x",
        "file:///etc/passwd",
        "",
    ],
)
def test_nothing_is_pushed_into_a_network_of_yours(public: PublicDaemon, service: PushService, endpoint: str) -> None:
    """The address is what a browser says: like that of a webhook it has to be everyone's."""
    web = PhoneWeb(public).enter(ALL)
    assert subscribe(web, service.browser(), endpoint=endpoint).status in (409, 422)
    assert json.loads((public.main.served.home / "phone-push.json").read_text())["subscriptions"] == []


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"p256dh": "x", "auth": "y"},
        {"p256dh": letters(b"\4" * 65), "auth": letters(bytes(16))},
        {"p256dh": "é", "auth": letters(bytes(16))},
        {"p256dh": letters(bytes(65)), "auth": letters(bytes(4_096))},
    ],
)
def test_garbage_is_no_subscription(public: PublicDaemon, service: PushService, keys: object) -> None:
    """It says so, and nothing was posted."""
    web = PhoneWeb(public).enter(ALL)
    assert subscribe(web, service.browser(), keys=keys).status in (413, 422)
    assert service.took == []


def test_subscription_needs_a_proof_and_the_page_of_this_address(public: PublicDaemon, service: PushService) -> None:
    """Nobody else has your notifications sent to them."""
    web = PhoneWeb(public).enter(ALL)
    body = service.browser().subscription()
    assert web.ask("POST", "/push", {"Origin": web.origin}, body).status == 401
    (session,) = web.session.values()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site", "Origin": web.origin}):
        proof = web.proof(session, "POST", "/push", body)
        assert web.ask("POST", "/push", {"Harken-Proof": proof, **headers}, body).status == 403
    assert service.took == []


def test_worker_is_there_for_phones_at_one_address(public: PublicDaemon) -> None:
    """Every other one is answered with a worker that ends itself; on this machine each is."""
    web = PhoneWeb(public).enter(ALL)
    until(lambda: push_key(web), "there is a key")
    asked_at = {path: web.ask("GET", path, WORKER).text for path in ("/push-worker.js", "/sw.js", "/")}
    assert ["showNotification" in text for text in asked_at.values()] == [True, False, False]
    assert ["unregister" in text for text in asked_at.values()] == [False, True, True]


def test_without_a_certificate_of_its_own_there_is_no_worker(
    starter: DaemonStarter, home: Path, tmp_path: Path
) -> None:
    """Behind a proxy, another account could have the port while Harken is down, and would become the worker."""
    port = free_port()
    let_machines_in(home, port, tmp_path)
    (home / "config.toml").write_text(
        f'[http]\npublic_listen = "127.0.0.1:{port}"\npublic_url = "https://here.example"\nproxy = ["127.0.0.1"]\n'
    )
    with starter.daemon(home) as served:
        MainDaemon(served, home, port).start()
        assert not (home / "phone-push.json").exists()


def test_key_is_in_no_backup_log_or_journal(public: PublicDaemon, service: PushService) -> None:
    """Who has it and an address can write on your lock screen."""
    signed_in(public, service.browser("/a-secret-address"))
    home = public.main.served.home
    pem = json.loads((home / "phone-push.json").read_text())["key"].splitlines()[1]
    with AskingHost(DaemonFixture(public.main.served), asked("make test")):
        service.pushed(1, "/a-secret-address")
    holding = [file.name for file in home.rglob("*") if file.is_file() and pem.encode() in file.read_bytes()]
    assert holding == ["phone-push.json"]
    addressed = [file.name for file in home.rglob("*") if file.is_file() and b"a-secret-address" in file.read_bytes()]
    assert addressed == ["phone-push.json"]


@pytest.mark.parametrize(
    ("shows", "title", "text"),
    [
        ("nothing", "Harken", "1 waits for an answer, for 5 min"),
        ("sender", "1 waits for an answer, for 5 min", "ann in chat"),
        ("text", "ann in chat waits for an answer", "is it done?"),
    ],
)
async def test_lock_screen_shows_what_was_chosen_and_a_failure_is_tried_again(
    tmp_path: Path, service: PushService, shows: str, title: str, text: str
) -> None:
    """As with ntfy. A push service that is away is asked less and less often, and forgets nobody."""
    http = HttpSettings(public_listen="127.0.0.1:1", public_url="https://here.example")
    settings = Settings(http=http, push=PushSettings(shows=shows))
    home, clock, browser = Home(tmp_path / "home"), FakeClock(), service.browser()
    ensure(home)
    async with compose(home, settings, clock) as daemon, anyio.create_task_group() as tasks:
        book = PushBook(home.phone_push_file)
        book.load()

        async def holder(_session: str) -> Caller | None:
            return OWNER

        push = WebPush(
            daemon.store,
            clock,
            settings,
            book=book,
            approvals=daemon.wiring.approvals,
            wire=CallbackWire(clock.now, allows_loopback=True),
            holder=holder,
        )
        await push.subscribe("b-1", browser.subscription())
        tasks.start_soon(push.run)
        await daemon.store.messages.append([Asked(text="is it done?").message()])
        clock.advance(timedelta(minutes=5).total_seconds())
        questions = await daemon.store.questions.open(10)
        service.statuses["/one"] = 503
        assert not await push.tell(questions)
        del service.statuses["/one"]
        assert await push.tell(questions)
        said = browser.read(service.pushed(1))
        assert (said["title"], said["text"]) == (title, text)
        again = PushBook(home.phone_push_file)
        again.load()
        assert (again.public_key, again.all()) == (book.public_key, book.all())
        tasks.cancel_scope.cancel()
