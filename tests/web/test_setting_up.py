"""What is set up in the page is what the command line would have set up: sources, agents, senders; same refusals."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.cli.rig import Rig
from tests.graph.service import Graph, serving
from tests.loss.rig import DaemonStarter, until
from tests.web.rig import NAVIGATION
from tests.web.test_panels import Browser, Page

ANNOUNCER = Path(__file__).parents[1] / "cli" / "announcer.py"
TYPED = "correct-horse-battery-staple"
CODEX = b'# mine\nmodel = "x"\n'


@pytest.fixture
def browser(starter: DaemonStarter, tmp_path: Path) -> Iterator[Browser]:
    """A signed-in browser of a person with settings of their own, and no program of any host."""
    user = tmp_path / "user"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/config.toml").write_bytes(CODEX)
    with starter.daemon(tmp_path / "home", {"HOME": str(user), "PATH": os.defpath}) as daemon:
        yield Browser(daemon.start())


def do(browser: Browser, path: str, status: int = 200, /, **fields: str) -> Page:
    """Send a form, and return the page that answers."""
    own = {"Origin": browser.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
    sent = urlencode({name.replace("set_", "set-"): value for name, value in fields.items()}).encode()
    answer = browser.web.ask("POST", path, {**NAVIGATION, **browser.session, **own}, sent)
    assert answer.status == status, answer.text
    assert TYPED not in answer.text
    return Page(answer.text)


def states(browser: Browser) -> dict[str, str]:
    """Return the sources that the daemon has, with their states."""
    return {each["name"]: each["state"] for each in browser.daemon.call("source_list")["sources"]}


def everywhere(folder: Path, text: str) -> set[str]:
    """Return the files below a folder that hold a text."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_socket()]
    return {str(path.relative_to(folder)) for path in files if text.encode() in path.read_bytes()}


def test_source_is_added_tried_removed_and_put_back(browser: Browser) -> None:
    """From the form to a source that listens, without a terminal; what was removed by mistake is back by a click."""
    args = f"{ANNOUNCER}\ndeploys=hello"
    page = do(browser, "/do/source", kind="mcp", name="ci", set_command=sys.executable, set_args=args)
    assert "Harken is listening to it." in page.said
    assert f'command = "{sys.executable}"' in page.said
    until(lambda: "hello" in str(browser.daemon.call("list", channel="deploys")), "its first message is stored")
    assert "Tried: listening." in do(browser, "/do/source-test", name="ci").said
    removed = do(browser, "/do/source-remove", name="ci")
    assert "ci is taken out of config.toml" in removed.said
    assert states(browser) == {}
    (undo,) = removed.all("input", name="undo")
    assert "ci is there again." in do(browser, "/do/source-back", undo=undo["value"]).said
    assert list(states(browser)) == ["ci"]
    assert "can no longer be put back" in do(browser, "/do/source-back", 404, undo=undo["value"]).said


def test_typed_secret_is_in_one_private_file_and_goes_with_its_source(browser: Browser) -> None:
    """Whoever types a password into the page must find it nowhere else: no page, journal, log or setting."""
    home = browser.daemon.home
    form = {"kind": "webhook", "name": "ci", "set_preset": "github", "set_SECRETS": TYPED}
    assert 'secret = "file:secrets/ci.secrets"' in do(browser, "/do/source", **form).said
    assert everywhere(home, TYPED) == {"secrets/ci.secrets"}
    assert stat.S_IMODE((home / "secrets/ci.secrets").stat().st_mode) == 0o600
    removed = do(browser, "/do/source-remove", name="ci")
    assert everywhere(home, TYPED) == set()
    do(browser, "/do/source-back", undo=removed.all("input", name="undo")[0]["value"])
    assert everywhere(home, TYPED) == {"secrets/ci.secrets"}
    assert states(browser) == {"ci": "listening"}


def test_secret_of_one_source_is_not_overwritten_by_another(browser: Browser) -> None:
    """A name with a dot may be what the file of another source's secret is called: that source would go deaf."""
    do(browser, "/do/source", kind="webhook", name="ci", set_preset="github", set_SECRETS=TYPED)
    refused = do(browser, "/do/source", 409, kind="webhook", name="ci.secrets", set_preset="github")
    assert "The secret of ci is kept in" in refused.said
    assert everywhere(browser.daemon.home, TYPED) == {"secrets/ci.secrets"}
    assert list(states(browser)) == ["ci"]


def test_source_that_cannot_be_put_back_yet_is_not_given_up(browser: Browser) -> None:
    """Its secret is nowhere else any more: as soon as its name is free again, it can be put back."""
    do(browser, "/do/source", kind="webhook", name="ci", set_preset="github", set_SECRETS=TYPED)
    undo = do(browser, "/do/source-remove", name="ci").all("input", name="undo")[0]["value"]
    do(browser, "/do/source", kind="webhook", name="ci", set_preset="gitlab")
    do(browser, "/do/source-back", 409, undo=undo)
    do(browser, "/do/source-remove", name="ci")
    do(browser, "/do/source-back", undo=undo)
    assert everywhere(browser.daemon.home, TYPED) == {"secrets/ci.secrets"}


def test_source_stays_where_the_rest_of_the_settings_is_refused(browser: Browser) -> None:
    """One that is gone from the file and still listened to would be neither here nor there."""
    do(browser, "/do/source", kind="webhook", name="ci", set_preset="github", set_SECRETS=TYPED)
    file = browser.daemon.home / "config.toml"
    written = f"{file.read_text()}\n[daemon]\nport = -1\n"
    file.write_text(written)
    do(browser, "/do/source-remove", 422, name="ci")
    assert file.read_text() == written
    assert everywhere(browser.daemon.home, TYPED) == {"secrets/ci.secrets"}


def test_secret_that_was_made_is_shown_once_and_a_reference_stays_one(browser: Browser) -> None:
    """What the service has to be told must be read once; where a secret is kept already, it stays."""
    made = do(browser, "/do/source", kind="webhook", set_preset="github")
    assert re.search(r"Secret: \S{20,}", made.said)
    assert "Secret:" not in browser.page("/source/github").said
    kept = do(browser, "/do/source", kind="webhook", name="other", set_preset="gitlab", set_SECRETS="env:OTHER")
    assert 'secret = "env:OTHER"' in kept.said
    assert "OTHER is not set" in kept.said


def test_what_cannot_be_added_is_said_in_the_form_and_leaves_nothing(browser: Browser) -> None:
    """The same reasons as on the command line; what was filled in stays there, but for what is secret."""
    do(browser, "/do/source", kind="webhook", name="there", set_preset="github")
    secrets = sorted((browser.daemon.home / "secrets").iterdir())
    for fields, status, said in [
        ({"kind": "imap", "set_host": "imap.example.org"}, 422, "User is missing."),
        ({"kind": "webhook", "name": "a b", "set_preset": "github"}, 422, "cannot be the name of a source"),
        ({"kind": "webhook", "name": "ci", "set_preset": "nobody"}, 422, "'nobody' is not possible."),
        ({"kind": "webhook", "name": "there", "set_preset": "github"}, 409, "There is already another source there"),
        ({"kind": "mcp", "name": "x", "set_url": "https://x.example", "set_command": "y"}, 422, "address or a program"),
        ({"kind": "teams", "set_client_id": "x"}, 422, "is not an id such as"),
        ({"kind": "imap", "set_host": "h.example", "set_user": "u", "set_port": "many"}, 422, "is not a number"),
    ]:
        key = "set_SECRETS" if fields["kind"] == "webhook" else "set_password"
        page = do(browser, "/do/source", status, **{**fields, key: TYPED})
        assert said in page.said
        assert list(states(browser)) == ["there"]
        assert sorted((browser.daemon.home / "secrets").iterdir()) == secrets
        for name, value in fields.items():
            if name.startswith("set_") and name != "set_preset":
                assert page.all("input", name=name.replace("set_", "set-"))[0]["value"] == value


def test_form_that_is_sent_twice_adds_one_source(browser: Browser) -> None:
    """A second click is no second source, and no error."""
    form = {"kind": "webhook", "name": "ci", "set_preset": "github", "key": "k1"}
    assert len({do(browser, "/do/source", **form).said for _ in range(2)}) == 1
    assert states(browser) == {"ci": "listening"}


def test_every_kind_has_a_form_of_what_it_declares(browser: Browser) -> None:
    """Secrets are typed into fields that hide them, and everything has a label and a help."""
    chosen = browser.page("/sources/new")
    forms = [has["href"] for has in chosen.all("a") if has["href"].startswith("/sources/new/")]
    assert {"/sources/new/imap", "/sources/new/mcp", "/sources/new/webhook"} <= set(forms)
    for form in forms:
        page = browser.page(form)
        named = [has["id"] for tag in ("input", "select", "textarea") for has in page.all(tag) if "set-" in str(has)]
        labelled = {has["for"] for has in page.all("label")}
        assert named
        assert set(named) <= labelled, form
    assert browser.page("/sources/new/imap").all("input", name="set-password")[0]["type"] == "password"
    browser.page("/sources/new/nobody", 404)


def test_person_signs_in_to_a_source_by_a_code_and_out_again(browser: Browser) -> None:
    """The page shows the code, sees by itself when it was entered, and never shows a token."""
    with serving() as graph:
        graph.sign_in.device_interval = 1
        _write_teams(browser, graph)
        begun = do(browser, "/do/source-sign-in", name="teams", act="in")
        assert begun.all("section", hx_get="/source/teams") or "Asking for a code" in begun.said
        who = f"{graph.me.name} ({graph.me.address})"

        def signed_in() -> bool:
            return f"Signed in as {who}" in browser.page("/source/teams").said

        until(signed_in, "the page says who signed in")
        assert "Signed out." in do(browser, "/do/source-sign-in", name="teams", act="out").said
        assert not (browser.daemon.home / "sign-ins" / "teams.json").exists()
    do(browser, "/do/source", kind="webhook", name="ci", set_preset="github")
    assert "ci has no sign-in." in do(browser, "/do/source-sign-in", 422, name="ci", act="in").said


def _write_teams(browser: Browser, graph: Graph) -> None:
    file = browser.daemon.home / "config.toml"
    file.write_text(
        f'[sources.teams]\nkind = "teams"\ntenant = "{graph.tenant}"\nclient_id = "{graph.client_id}"\n'
        f'graph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\nca = "{graph.ca}"\n'
    )
    file.chmod(0o600)
    browser.daemon.call("reload")


def test_agent_is_connected_by_the_plan_that_was_shown_and_disconnected(browser: Browser, tmp_path: Path) -> None:
    """Settings of a host are changed only as the person saw it, and are what they were afterwards."""
    settings = tmp_path / "user/.codex/config.toml"
    shown = browser.page("/agents/codex")
    assert "+[mcp_servers.harken]" in shown.said
    assert "~/.codex/config.toml" in shown.said
    (mark,) = (has["value"] for has in shown.all("input", name="mark"))
    settings.write_bytes(CODEX + b"# changed meanwhile\n")
    refused = do(browser, "/do/connect", host="codex", mark=mark)
    assert "has changed since you looked" in refused.said
    assert settings.read_bytes() == CODEX + b"# changed meanwhile\n"
    (mark,) = (has["value"] for has in refused.all("input", name="mark"))
    assert "Codex is connected." in do(browser, "/do/connect", host="codex", mark=mark).said
    assert b"[mcp_servers.harken]" in settings.read_bytes()
    assert "as it was before" in browser.page("/agents/codex").said
    assert "Codex is disconnected." in do(browser, "/do/disconnect", host="codex").said
    assert settings.read_bytes() == CODEX + b"# changed meanwhile\n"


def test_agent_that_cannot_be_connected_says_why(browser: Browser, tmp_path: Path) -> None:
    """Settings that cannot be understood are not written over, and a host that is not there is not found."""
    (tmp_path / "user/.codex/config.toml").write_text("not = [toml")
    page = browser.page("/agents/codex")
    assert "It cannot be connected:" in page.said
    assert page.all("button", id="connect") == []
    browser.page("/agents/nobody", 404)
    assert "not found on this machine" in browser.page("/agents").said


def test_sender_is_paired_by_a_code_of_the_page(browser: Browser) -> None:
    """The code of the page admits the one who sends it, as that of the command does."""
    assert browser.page("/pair").all("bdi", id="pair-code") == []
    said = do(browser, "/do/pair").said
    code = re.search(r"pair-[0-9a-z]{8}", unescape(said))
    assert code
    args = f"{ANNOUNCER}\nchat={code[0]}\nchat=after"
    do(browser, "/do/source", kind="mcp", name="chat", set_command=sys.executable, set_args=args)

    def heard() -> dict[str, str]:
        found = browser.daemon.call("list", channel="chat")["messages"]
        return {each["content_text_sanitized"]: each["trust"] for each in found if len(found) > 1}

    assert until(heard, "both messages are stored")["after"] == "known"


def test_agent_of_an_inbox_elsewhere_is_shown_with_its_address(browser: Browser, tmp_path: Path) -> None:
    """Its plan and its way back are here, too, and say that it has only tools."""
    person = Rig(browser.daemon.home, {"HOME": str(tmp_path / "user"), "PATH": os.defpath})
    person.ok("connect", "codex", "--url", "https://harken.example.org", "--yes")
    page = browser.page("/agents/codex")
    assert "connected to https://harken.example.org/mcp" in page.said
    assert "nothing wakes it" in page.said
    assert "Codex is disconnected." in do(browser, "/do/disconnect", host="codex").said
    assert (tmp_path / "user/.codex/config.toml").read_bytes() == CODEX
