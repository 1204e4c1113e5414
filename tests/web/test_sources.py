"""The panel of sources and the channels of the page: what it says is true, and a server's words stay text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.model import Attention, Trust
from harken.sources.source import SourceHealth, SourceReport, SourceState
from harken.surfaces.web.page.sources import MAX_CHANNELS, cards, summary
from tests.loss.rig import DaemonStarter, Served, until
from tests.web.test_panels import HOSTILE, Browser, Page

ANNOUNCER = Path(__file__).parents[1] / "cli" / "announcer.py"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def report(health: SourceHealth) -> SourceReport:
    """Return what the daemon says of a source."""
    return SourceReport(
        name="ci",
        kind="mcp",
        address="https://ci.example",
        health=health,
        trust=Trust.UNKNOWN,
        attention=Attention.PROMPT,
    )


@pytest.fixture(scope="module")
def listening(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser at a daemon that listens to a hostile server, and cannot reach another one."""
    home = tmp_path_factory.mktemp("s") / "home"
    home.mkdir(mode=0o700)
    said = [
        str(ANNOUNCER),
        "huge*9000000=x",
        f"deploys={HOSTILE}",
        "deploys=again",
        f"{HOSTILE[:60].replace('=', '')}=x",
        "noise=x",
    ]
    words = ", ".join(f"'''{word}'''" for word in said)
    kept = ", ".join(f"'''{word}'''" for word in ("deploys", HOSTILE[:60].replace("=", "")))
    (home / "config.toml").write_text(
        f'[sources.ci]\nkind = "mcp"\ncommand = "{sys.executable}"\nargs = [{words}]\nchannels = [{kept}]\n'
        '[sources.gone]\nkind = "mcp"\nurl = "http://127.0.0.1:9/mcp"\n'
        '[sources.secret]\nkind = "mcp"\nurl = "https://x.example"\nheaders = { Authorization = "env:NOT_SET" }\n'
    )
    (home / "config.toml").chmod(0o600)
    with starter.daemon(home) as served:
        browser = Browser(served.start())
        until(lambda: "again" in str(served.call("list", channel="deploys")), "the server is heard")
        until(lambda: "retrying" in browser.page("/sources").said, "the other one cannot be reached")
        yield browser


def test_each_source_says_how_it_is_doing_and_why(listening: Browser) -> None:
    """Listening, tried again, or waiting for a person: with counts, what was left out, and what to do."""
    page = listening.page("/sources")
    assert "1 listening" in page.said
    assert "1 message was skipped: longer than 8 MB." in page.said
    assert "127.0.0.1:9 cannot be reached" in page.said
    assert "The secret env:NOT_SET is not set." in page.said
    assert "Left out by the list of channels: 1" in page.said
    assert "go with prompts" in page.said
    assert page.all("a", href="/c/ci/deploys")


def test_a_servers_words_stay_text(listening: Browser) -> None:
    """Names of servers and channels are theirs to choose: none becomes an element, a handler or a style."""
    for path in ("/sources", "/c/ci/deploys"):
        page = listening.page(path)
        assert not page.all("img")
        assert not page.all("style")
        assert all(has.get("src", "").startswith("/static/") for has in page.all("script"))
        names = {name for _, has in page.elements for name in has}
        assert not {name for name in names if name == "style" or name.startswith(("on", "hx-on"))}


def test_a_channel_is_acknowledged_without_a_script(listening: Browser) -> None:
    """Up to what is shown; agents have their own place."""
    newest = listening.page("/c/ci/deploys").all("ol", id="items")[0]["data-newest"]
    assert _unread(listening) == 2
    asked = {"source": "ci", "channel": "deploys", "up_to": newest}
    assert listening.post("/do/seen", asked) == (303, "/c/ci/deploys")
    assert _unread(listening) == 0


def _unread(browser: Browser) -> int:
    found = browser.daemon.call("channels")["channels"]
    return next(int(each["unread"]) for each in found if each["channel"] == "deploys")


def test_a_home_without_sources_is_told_how_to_add_one(daemon: Served) -> None:
    """An empty page without a word would look like a fault."""
    page: Page = Browser(daemon.start()).page("/sources")
    assert "In a terminal: harken source add" in page.said
    assert page.all("a", href="/sources")


def test_cards_show_the_busiest_channels_and_count_the_rest() -> None:
    """A server that makes up channels does not make the page endless."""
    counts = {f"c{number}": number for number in range(1, MAX_CHANNELS + 6)}
    health = SourceHealth(state=SourceState.LISTENING, counts=counts, dropped={"noise": 3, "more": 4}, since=NOW)
    (card,) = cards([report(health)])
    assert [each.count for each in card.counts] == sorted(counts.values(), reverse=True)[:MAX_CHANNELS]
    assert (card.more, card.dropped_total) == (5, 7)


def test_every_state_has_words_and_a_sign() -> None:
    """A state that a page cannot say would be an error page."""
    shown = cards([report(SourceHealth(state=state)) for state in SourceState])
    assert all(card.explanation and card.dot for card in shown)
    assert summary([*shown, shown[1]]).startswith("1 connecting, 2 listening, 1 silent")
