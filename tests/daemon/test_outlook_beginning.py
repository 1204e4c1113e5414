"""From when on mail is heard, with a real daemon: from the sign-in on, however late the daemon starts."""

from __future__ import annotations

from pathlib import Path

from harken.testing import running_daemon
from tests.daemon.graph_rig import Arrivals, add_account, sign_in
from tests.graph.service import serving
from tests.loss.rig import until


def test_a_mail_after_the_sign_in_arrives_also_if_the_daemon_starts_later(home: Path) -> None:
    """Whoever signs in expects the next mail to arrive, and none of those before."""
    with serving(seed=3) as graph:
        ann = graph.person("Ann")
        graph.mail(ann, "Old", "<p>before the sign-in</p>")
        graph.clock.advance(60)
        add_account(home, graph, "mail", "outlook")
        sign_in(home, graph, "mail")
        graph.clock.advance(60)
        graph.mail(ann, "New", "<p>after the sign-in</p>")
        with running_daemon(home):
            arrivals = Arrivals(home)
            until(lambda: len(graph.asked("/delta")) >= 2 or arrivals.find("after"), "two looks", 30)
            assert arrivals.find("after the sign-in") is not None
            assert arrivals.find("before the sign-in") is None
