"""`harken doctor` tries the public address as far as it can be tried from the daemon's own machine."""

from __future__ import annotations

import pytest

from harken.config.home import Home
from harken.hosts.connect.plan import CheckFinding
from harken.setup.doctor import own_health
from tests.remote.rig import PublicDaemon


def finding(public: PublicDaemon) -> CheckFinding:
    """Return what is said of the public address."""
    found = own_health(Home(public.main.served.home)).findings
    (said,) = [each for each in found if str(public.main.port) in each.what]
    return said


def test_address_that_answers_is_said_to(public: PublicDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name leads here, its certificate is trusted, and it is Harken that answers."""
    monkeypatch.setenv("SSL_CERT_FILE", str(public.main.authority))
    said = finding(public)
    assert (said.is_good, said.what) == (True, f"{public.url} answers, as tried from this machine")


def test_certificate_that_nobody_trusts_is_named(public: PublicDaemon) -> None:
    """The usual mistake, before anybody tries to connect."""
    said = finding(public)
    assert not said.is_good
    assert "certificate is not trusted" in said.hint


def test_name_that_leads_nowhere_is_named(public: PublicDaemon) -> None:
    """The name, not the daemon, is what has to be looked at."""
    config = public.main.served.home / "config.toml"
    port = public.main.port
    config.write_text(config.read_text().replace(f"https://localhost:{port}", f"https://nowhere.invalid:{port}"))
    public.main.served.kill()
    public.main.start()
    said = finding(public)
    assert not said.is_good
    assert "cannot be reached" in said.hint


def test_listener_that_could_not_begin_is_named(public: PublicDaemon) -> None:
    """It is wanted, and is not there: the log says why."""
    config = public.main.served.home / "config.toml"
    config.write_text(f'[http]\npublic_listen = "127.0.0.1:{public.main.port}"\n')
    public.main.served.kill()
    public.main.served.start()
    said = finding(public)
    assert not said.is_good
    assert "daemon.log" in said.hint
