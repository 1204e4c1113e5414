"""Two sessions without tasks talk as the page says."""

from __future__ import annotations

from pathlib import Path

from harken.testing import EdgeClient, edge_command
from tests.cli.rig import serving
from tests.cli.test_as_agent import texts
from tests.docs.pages import DOCS, commands, fences
from tests.loss.rig import until

PAGE = DOCS / "howto" / "two-sessions.md"


def session(home: Path, folder: Path, name: str) -> EdgeClient:
    """Begin a session of an agent in a folder."""
    return EdgeClient(["env", "-C", str(folder), *edge_command(home)], name=name)


def test_two_sessions_in_two_folders_write_to_each_other(tmp_path: Path) -> None:
    """The settings and the commands are those of the page, with folders that are here."""
    (settings,) = fences(PAGE, "toml")
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    for name in ("shop", "api"):
        (tmp_path / name).mkdir()
        settings = settings.replace(f"~/code/{name}", str(tmp_path / name))
    (home / "config.toml").write_text(settings)
    lines = [line for block in fences(PAGE, "sh") for line in block.splitlines()]
    ask, answer = (next(iter(commands(line))) for line in lines if line.startswith("harken send "))
    with serving(home) as rig:
        with session(home, tmp_path / "shop", "claude-code") as shop:
            shop.tool("inbound_queue_stats")
            rig.ok(*ask)
            assert shop.tool("inbox_pull")["messages"] == []
        until(lambda: not rig.json("status")["sessions"], "the first session is gone")
        with session(home, tmp_path / "api", "codex") as api:
            pulled = api.tool("inbox_pull")
            assert texts(pulled) == [ask[1]]
            assert pulled["messages"][0]["sender_id"] == "agent:claude-code"
            api.tool("reply", message_id=pulled["messages"][0]["id"], body="said to the person")
            rig.ok(*answer)
        until(lambda: not rig.json("status")["sessions"], "the second session is gone")
        with session(home, tmp_path / "shop", "claude-code") as shop:
            assert texts(shop.tool("inbox_pull")) == [answer[1]]
        assert texts(rig.json("list", "--mailbox", "replies")) == ["said to the person"]
