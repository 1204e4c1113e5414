"""Messages move to PostgreSQL and back, are backed up there, and what the journal has of them is not lost with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict

from harken.store.postgres.connection import PostgresTarget, connect
from tests.cli.rig import Rig
from tests.store.postgres_server import SchemaPool, schemas

__all__ = ["schemas"]  # fixtures

USER_ERROR, CONFLICT = 2, 4
DROP = "DROP SCHEMA IF EXISTS {} CASCADE"


def url_of(target: PostgresTarget) -> str:
    """Return the server of a target as settings name it."""
    return "postgresql://?" + urlencode({name: f"{value}" for name, value in conninfo_to_dict(target.url).items()})


@pytest.fixture
def target(schemas: SchemaPool) -> Iterator[PostgresTarget]:
    """A schema that is not there yet."""
    target = PostgresTarget(schemas.url, f"harken_test_{os.getpid()}_moved")
    yield target
    with closing(connect(target)) as connection:
        connection.execute(DROP.format(target.schema))


def words(target: PostgresTarget) -> list[str]:
    """Return the words of a move to it."""
    return ["store", "move", url_of(target), "--schema", target.schema]


def test_messages_move_to_postgresql_and_back(served: Rig, target: PostgresTarget, tmp_path: Path) -> None:
    """Who begins on one machine and goes on with three must not begin anew; and it must be no way without return."""
    for number in range(3):
        served.ok("send", f"number {number}", "--channel", "ci")
    first = served.ok("export")
    assert served.run(*words(target)).code == CONFLICT  # the daemon would go on writing into the old one
    served.ok("down")
    planned = served.json(*words(target), "--dry-run")
    assert (planned["state"], planned["counts"]["messages"]) == ("planned", 3)
    assert served.json("store", "show")["backend"] == "SQLite"
    assert "harken store move sqlite" in served.ok(*words(target))
    assert served.run(*words(target)).code == CONFLICT  # it is there
    shown = served.json("store", "show")
    assert (shown["backend"], shown["counts"]["messages"], shown["moved_to"]) == ("PostgreSQL", 3, "")
    with served.serving():
        assert served.ok("export") == first
        served.ok("send", "number 3")
        exported = served.ok("export")
        served.ok("backup", f"{tmp_path / 'saved.tgz'}")
    assert served.json("store", "move", "sqlite")["counts"]["messages"] == 4
    copy = Rig(tmp_path / "copy")
    assert target.schema in copy.json("restore", f"{tmp_path / 'saved.tgz'}", "--with-settings")["was_in"]
    for each in (served, copy):
        with each.serving():
            assert each.ok("export") == exported


def name_in_config(served: Rig, target: PostgresTarget) -> None:
    """Write down where the store is to be, as somebody does who reads about PostgreSQL first."""
    lines = f"[store]\nurl = {json.dumps(url_of(target))}\nschema = {json.dumps(target.schema)}\n"
    (served.home / "config.toml").write_text(lines)


def test_messages_move_also_when_the_server_was_named_first(served: Rig, target: PostgresTarget) -> None:
    """Two pages tell of it, and nobody should have to take back what the one says to do what the other does."""
    served.ok("send", "one")
    first = served.ok("export")
    served.ok("down")
    name_in_config(served, target)
    refused = served.run("up")
    assert (refused.code, "harken store move" in refused.err) == (USER_ERROR, True)
    served.ok(*words(target))
    assert served.run(*words(target)).code == CONFLICT
    with served.serving():
        assert served.ok("export") == first


def test_a_home_in_which_nothing_ever_happened_may_have_its_store_elsewhere(
    served: Rig, target: PostgresTarget
) -> None:
    """Harken is started once to see that it works: that makes a file, and no inbox that could be lost."""
    served.ok("down")
    name_in_config(served, target)
    with served.serving():
        served.ok("send", "one")
        assert served.json("store", "show")["backend"] == "PostgreSQL"


def test_what_the_journal_has_comes_back_without_the_server(served: Rig, target: PostgresTarget) -> None:
    """A server that burns down without a backup takes what other machines had, and nothing of this one."""
    served.ok("send", "one")
    served.ok("down")
    served.ok(*words(target))
    with served.serving():
        served.ok("send", "two")
        exported = served.ok("export")
    refused = served.run("recover", "--yes")
    assert (refused.code, "--from-journal" in refused.err) == (USER_ERROR, True)
    with closing(connect(target)) as connection:
        connection.execute(DROP.format(target.schema))
    served.ok("recover", "--yes", "--from-journal")
    with served.serving():
        assert served.ok("export") == exported
