"""How hosts are started, as far as it can be judged without them; the rest is in `tests/hosts`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from harken.hosts.registry import host_names, hosts, trial_recipe
from harken.hosts.trial_recipe import ModelOverrides

URL = "http://127.0.0.1:9"


def test_every_host_that_we_know_can_be_tried() -> None:
    """A host that Harken connects but cannot try would never be found broken."""
    assert all(host.trial for host in hosts().values())


def test_a_replaced_model_leaves_the_rest_of_an_environment_alone() -> None:
    """A trial is of the person's own configuration: all of it but the model."""
    overrides = ModelOverrides(env={"URL": "ours"}, without=frozenset({"TOKEN"}))
    assert overrides.applied({"URL": "theirs", "TOKEN": "x", "PROXY": "y"}) == {"URL": "ours", "PROXY": "y"}


@pytest.mark.parametrize("host", host_names())
def test_a_private_environment_takes_nothing_from_ours(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real keys lie in the environments of the people who run tests."""
    monkeypatch.setenv("SOME_SECRET", "of-news")
    environ = trial_recipe(host).environment(URL, tmp_path, "/bin")
    assert (environ["HOME"], environ["PATH"]) == (str(tmp_path), "/bin")
    assert "of-news" not in environ.values()


@pytest.mark.parametrize("host", host_names())
def test_a_home_is_prepared_inside_itself_and_readable(host: str, tmp_path: Path) -> None:
    """What we write for a host has to be in its own format, and nowhere else."""
    user, project = tmp_path / "user", tmp_path / 'a "project"'
    trial_recipe(host).prepare(user, project, URL)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert user in path.parents
        read = tomllib.loads if path.suffix == ".toml" else json.loads
        assert read(path.read_text())
