"""No name is more than text on the page: of a sender, a channel, a thread, a task, a branch, a rule or a mailbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.hostile.corpus import imitations, marked, names
from tests.loss.rig import DaemonStarter, Served
from tests.web.rig import NAVIGATION, Web

NAMES: Final = list(names())
TEXTS: Final = [*dict.fromkeys(imitations()), *marked(), *NAMES]
MAX_SHOWN: Final = 60  # characters of a name that every view shows, and that a rule may have
PAGES: Final = (
    *("/m/inbox", "/sources", "/sessions", "/tasks", "/search?q=words", "/rules", "/waiting"),
    *("/conversations", "/conversations?view=for-you", "/needs", "/sources/new", "/agents"),
    *(f"/{place}task-{number}" for number in range(len(NAMES)) for place in ("t/", "m/task:")),
)
MADE: Final = (
    "img, style, iframe, object, embed, base, script:not([src^='/static/']), main link, main meta, title *, textarea *"
)
ACTIVE: Final = ("on", "hx-on", "hx-vals", "hx-vars", "style", "srcdoc", "formaction")


@pytest.fixture(scope="module")
def named(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon in which everything that has a name has a hostile one."""
    folder = tmp_path_factory.mktemp("n")
    with starter.daemon(folder / "home") as served:
        served.start()
        rules = [f"{number} {_one_line(text)}"[:MAX_SHOWN] for number, text in enumerate(NAMES)]
        (served.home / "triggers.json").write_text(json.dumps({"rules": [{"name": name} for name in rules]}))
        (served.home / "triggers.json").chmod(0o600)
        served.call("rules_reload")
        for text in TEXTS:
            served.call("send", text="words", sender=text[:100], channel=_channel(text[:100]), conversation=text)
        for number, text in enumerate(NAMES):
            place = folder / f"{number} \u202egpj\x1b[2J <img src=x>"
            place.mkdir()
            served.call("task_new", title=text, id=f"task-{number}", dir=str(place), branch=text, prompt=text)
        yield served


@pytest.mark.parametrize("path", PAGES)
def test_name_is_only_text_on_the_page(named: Served, path: str) -> None:
    """It becomes no element and no handler, leads nowhere else, and hides nothing."""
    web = Web(named)
    answer = web.ask("GET", path, {**NAVIGATION, **web.signed_in()})
    assert answer.status == 200
    page = LexborHTMLParser(answer.text)
    assert not page.css(MADE)
    for node in page.css("*"):
        assert not [name for name in node.attributes if name.startswith(ACTIVE)], node.html
    for node in page.css("[href], [action], [hx-get], [hx-post]"):
        for name in ("href", "action", "hx-get", "hx-post"):
            target = node.attributes.get(name) or "/"
            assert target.startswith(("/", "?", "#")), target
            assert not target.startswith(("//", "/\\")), target
    ids = [node.attributes["id"] for node in page.css("[id]")]
    assert len(ids) == len(set(ids))
    assert {char for char in page.text() if not char.isprintable()} <= {"\n", "\t"}
    assert "alert(1)" in page.text(), path  # at least in the sidebar


def _channel(text: str) -> str:
    """Return a name as a channel may have it."""
    return "/".join(
        part.strip() for part in text.translate({ord("\\"): None, ord("*"): None}).split("/") if part.strip()
    )


def _one_line(text: str) -> str:
    """Return a name as the file of the rules may have it."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())
