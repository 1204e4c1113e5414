"""Between the sign-in and the daemon's first look: what is said then arrives, and what was said before does not."""

from __future__ import annotations

from pathlib import Path

from harken.testing import running_daemon
from tests.daemon.graph_rig import Arrivals, add_account, sign_in
from tests.graph.service import serving
from tests.loss.rig import until


def test_what_is_said_after_the_sign_in_arrives_also_if_the_daemon_starts_later(home: Path) -> None:
    """Whoever signs in expects to be reached from then on, whether the daemon runs already or not."""
    with serving(seed=3) as graph:
        ann = graph.person("Ann")
        chat = graph.chat(ann)
        graph.say(chat, ann, "<p>before the sign-in</p>")
        add_account(home, graph, "chats", "teams")
        sign_in(home, graph, "chats")
        graph.say(chat, ann, "<p>after the sign-in</p>")
        with running_daemon(home):
            arrivals = Arrivals(home)
            until(lambda: len(graph.asked("/me/chats")) >= 3 or arrivals.find("after"), "two looks", 30)
            assert arrivals.find("after the sign-in") is not None
            assert arrivals.find("before the sign-in") is None
