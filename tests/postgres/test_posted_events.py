"""Daemons of two machines on one store: one of them posts, and the other goes on when it has died."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.graph.certificate import write_loopback_pair
from tests.loss.rig import until
from tests.postgres.conftest import Machines
from tests.remote.receiver import receiving
from tests.remote.rig import PublicDaemon
from tests.remote.test_webhooks import Subscriber
from tests.satellite.rig import MainDaemon, free_port


def test_one_of_two_daemons_posts_and_the_other_takes_over(machines: Machines, tmp_path: Path) -> None:
    """Both would post everything twice; and a subscription is not that of the daemon that it was made at."""
    authority, server = write_loopback_pair(tmp_path)
    with ExitStack() as stack, receiving() as receiver:
        public: list[PublicDaemon] = []
        for name in ("here", "there"):
            home, port = machines.home(name), free_port()
            with (home / "config.toml").open("a") as config:
                config.write(
                    f'\n[http]\npublic_listen = "127.0.0.1:{port}"\npublic_url = "https://localhost:{port}"\n'
                    f'certificate = "{server}"\nprivate_key = "{server}"\ncallbacks_to_loopback = true\n'
                )
            served = stack.enter_context(machines.starter.daemon(home))
            public.append(PublicDaemon(MainDaemon(served, authority, port).start()))
        here, there = public
        agent = Subscriber(here, receiver)
        agent.subscribe()
        sent = [agent.send("one"), str(there.call("send", text="two", sender="ci-bot", channel="ci")["id"])]
        receiver.wait_for(*sent)
        until(lambda: there.call("status")["callbacks"][0]["told"] == len(sent), "both are noted")
        assert len(receiver.events) == len(sent)
        here.main.served.kill()
        sent.append(str(there.call("send", text="three", sender="ci-bot", channel="ci")["id"]))
        events = receiver.wait_for(*sent)
        ids = {each.said["data"]["message_id"]: each.id for each in events}
        assert ids == {message: f"evt-received-{message}" for message in sent}
