"""Real hosts that are connected by URL to a Harken elsewhere: over TLS of a private authority, and with tools only.

`harken connect HOST --url` has written the host's own entry. Each host gets the token and the authority by the
environment variables that its entry and the page name, and no Harken runs on its machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.registry import host_named, host_names, hosts, interactive
from harken.testing.daemon import DaemonProcess, Json
from harken.trial.exchange import ModelAnswer
from harken.trial.model import MockModel
from tests.hosts.observer import Observer, SentMessage
from tests.hosts.play import PULL, ObservedHost
from tests.hosts.stage import PROGRAMS, Stage
from tests.hosts.story import tree
from tests.loss.rig import until
from tests.satellite.rig import free_port, let_machines_in

HOSTS: Final = host_names()
# These end no session when they leave: what they had without proof stays theirs for a quarter of an hour.
SILENT_LEAVERS: Final = frozenset({"gemini-cli"})
COUNT: Final = ModelAnswer.call("inbound_queue_stats", {})
# What a person has allowed for good: Codex asks before `reply`, and refuses it where nobody can be asked.
ALLOWED: Final = '\n[mcp_servers.harken.tools.reply]\napproval_mode = "approve"\n'


@dataclass(slots=True)
class RemoteHost:
    """A host with an entry for the Harken of another machine."""

    host: ObservedHost
    main: DaemonProcess
    url: str
    secret: str
    before: dict[str, bytes | None]  # the person's home as it was

    def states(self, message: SentMessage) -> list[str]:
        """Return what the ledger says of a message and this host."""
        ledger = self.main.call("read", ref=message.id)["ledger"]
        return [str(line["state"]) for line in ledger if line["consumer"] == self.host.name]


@contextmanager
def elsewhere(name: str) -> Iterator[RemoteHost]:
    """A host in a home of its own, and a daemon in another that lets it in."""
    assert (PROGRAMS / interactive(name).program).exists(), f"{name} is not installed: run `make test-hosts` once"
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="harken-"))).resolve()
        model = opened.enter_context(MockModel())
        stage = Stage(host=host_named(name), folder=folder, model=model)
        stage.prepare()
        opened.callback(stage.end_everything)
        port = free_port()
        authority = let_machines_in(folder / "main", port, folder)
        main = DaemonProcess(folder / "main").start()
        opened.callback(main.stop)
        until(lambda: main.call("status")["daemon"]["public_url"], "other machines are let in")
        secret = str(main.call("token_new", name=name)["secret"])
        declared = hosts()[name].remote
        assert declared is not None
        stage = replace(stage, extra={"HARKEN_TOKEN": secret, declared().authority: str(authority)})
        before = tree(stage.user)
        url = f"https://localhost:{port}"
        at_home(stage, authority).harken("connect", name, "--url", url, "--yes")
        if name == "codex":
            config = stage.user / ".codex/config.toml"
            config.write_text(config.read_text() + ALLOWED)
        host = ObservedHost(stage, Observer(stage), opened.enter_context(ExitStack()))
        model.follow(host.script)
        yield RemoteHost(host, main, url, secret, before)


def at_home(stage: Stage, authority: Path) -> Stage:
    """Return the stage for commands of Harken's own, which trusts an authority by another name than some hosts."""
    return replace(stage, extra={**stage.extra, "SSL_CERT_FILE": str(authority)})


@pytest.fixture(scope="module", params=HOSTS)
def remote(request: pytest.FixtureRequest) -> Iterator[RemoteHost]:
    """Each host, all its tests before the next one's."""
    with elsewhere(str(request.param)) as found:
        yield found


def test_message_is_pulled_and_answered_and_proof_makes_it_seen(remote: RemoteHost) -> None:
    """The answer that holds it proves nothing yet; the call after it does, and the reply goes out."""
    host, observer = remote.host, remote.host.begin()
    message = observer.send_at(remote.main, "before the run")
    assert remote.states(message) == []
    host.run(PULL, ModelAnswer.call("reply", {"message_id": message.id, "body": "it is green"}))
    assert remote.states(message) == ["answered"]
    host.conclude()


def proving(host: ObservedHost, *messages: SentMessage) -> ModelAnswer:
    """Return the call that proves that earlier answers were read: any, but of a host that cancels answered calls.

    Of opencode only one that names the messages: its cancellation may as well have crossed an answer.
    """
    names = [message.id for message in messages]
    return ModelAnswer.call("ack", {"ids": names}) if host.name == "opencode" else COUNT


def test_message_without_proof_is_not_called_seen(remote: RemoteHost) -> None:
    """The run ends with the pull: that its model had the text shows only in what comes later."""
    host, observer = remote.host, remote.host.begin()
    message = observer.send_at(remote.main, "before a run that ends after its pull")
    host.run(PULL)
    states = remote.states(message)
    assert states in (["offered"], ["queued"]), states
    observer.leave_open(message)
    host.run(PULL, proving(host, message))
    if host.name in SILENT_LEAVERS:
        assert remote.states(message) == ["offered"]
        return
    assert remote.states(message) == ["seen"]
    host.conclude()


def test_several_runs_get_each_message_once(remote: RemoteHost) -> None:
    """Messages that come while nobody looks wait, and come with the next run."""
    host, observer = remote.host, remote.host.begin()
    first = observer.send_at(remote.main, "before two runs")
    host.run(PULL, proving(host, first))
    second = observer.send_at(remote.main, "between two runs")
    host.run(PULL, proving(host, second))
    assert (remote.states(first), remote.states(second)) == (["seen"], ["seen"])
    observer.expect_plain(first, second)
    observer.expect_once(first)
    host.conclude()


@pytest.mark.parametrize("remote", ["opencode"], indirect=True)
def test_cancelled_answer_proves_nothing(remote: RemoteHost) -> None:
    """It cancels each call after it was answered, so what it was given comes again, with a mark."""
    host, observer = remote.host, remote.host.begin()
    message = observer.send_at(remote.main, "before a run whose answers are cancelled")
    host.run(PULL, COUNT)
    assert remote.states(message) == ["offered"]
    observer.leave_open(message)
    host.run(PULL, proving(host, message))
    assert [each.is_marked for each in observer.appearances(message)] == [False, True]
    host.conclude()


def test_no_secret_is_left_and_disconnect_takes_the_entry_out(remote: RemoteHost) -> None:
    """Last: in no file that the host or Harken wrote here is the token, and the entry is gone when it is taken back."""
    stage = remote.host.stage
    here = {**tree(stage.user), **tree(stage.harken_home)}
    assert [name for name, data in here.items() if data and remote.secret.encode() in data] == []
    stage.harken("disconnect", remote.host.name, "--yes")
    left = [name for name, data in tree(stage.user).items() if data and remote.url.encode() in data]
    assert [name for name in left if not _is_history(name)] == []


def test_entry_is_taken_back_to_the_byte(remote: RemoteHost) -> None:
    """Where the host has not run in between, its home is as it was."""
    authority = Path(next(value for name, value in remote.host.stage.extra.items() if name != "HARKEN_TOKEN"))
    stage = at_home(remote.host.stage, authority)
    before = tree(stage.user)
    said = json.loads(stage.harken("connect", remote.host.name, "--url", remote.url, "--yes", "--json"))
    assert _is_good(said), said
    assert tree(stage.user) != before
    stage.harken("disconnect", remote.host.name, "--yes")
    assert tree(stage.user) == before


def _is_good(said: Json) -> bool:
    return all(finding["is_good"] for host in said["hosts"] for finding in host["findings"])


def _is_history(name: str) -> bool:
    """Whether a file is where a host keeps what happened: backups of its settings, logs, caches."""
    return any(word in name for word in ("backups", "log", "cache", "projects/", "storage", "sessions"))
