"""`harken needs`: what waits for you, with the command that answers it; an agent is not told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.cli.rig import Rig, serving
from tests.cli.test_as_agent import REFUSED, hosting
from tests.cli.test_connect import at_terminal
from tests.seeded import Asked, seed


def test_what_waits_is_listed_with_what_to_do_and_can_be_put_away(tmp_path: Path) -> None:
    """The oldest first; what was put away stays away over a restart of the daemon, and is shown again on request."""
    first, second = seed(
        tmp_path / "home",
        [Asked(text="when?", ago=timedelta(hours=2)), Asked(text="and why?", ago=timedelta(minutes=5), sender="bob")],
    )
    with serving(tmp_path / "home") as rig:
        assert "2 things need you: harken needs" in rig.ok("status")
        assert rig.json("status")["needs"] == {"count": 2}
        lines = rig.ok("needs").splitlines()
        assert [f"harken reply {each} TEXT" in line for each, line in zip((first, second), lines, strict=True)] == [
            True,
            True,
        ]
        _code, narrow = at_terminal(Rig(rig.home, {"COLUMNS": "50"}), b"", "needs")
        assert all(f"  harken reply {each} TEXT" in narrow for each in (first, second))
        key = rig.json("needs")["needs"][0]["key"]
        rig.ask("put_away", keys=[key])
        assert [each["ref"] for each in rig.json("needs")["needs"]] == [second]
        rig.ask("put_away", keys=[key], is_undone=True)
        assert rig.json("needs")["count"] == 2
        with hosting(rig):
            assert rig.run("needs").code == REFUSED
            assert rig.json("status")["needs"] is None
