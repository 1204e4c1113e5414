"""The declaration of a host: what is declared wrongly is said where it is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harken.hosts.host import Host
from harken.hosts.registry import hosts


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None),
        ("name", "../evil"),
        ("name", "two words"),
        ("name", "watch"),
        ("title", None),
        ("aliases", "mag"),
        ("aliases", (1,)),
        ("aliases", ("you",)),
        ("order", "first"),
        ("marks", None),
        ("one_shot_words", ("--headless",)),
        ("has_many", "no"),
        ("result_bytes", "9"),
        ("settings_paths", None),
        ("interactive", "magpie"),
        ("hooks", "my_package.hooks:HOOKS"),
        ("connector", 7),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(field: str, value: object) -> None:
    """Taken as it is, it would fail much later; and a host with a reader's name would read your mail away."""
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(TypeError, match=f"{field} of a Host has to be"):
        replace(Host(name="magpie", title="Magpie"), **wrong)


def test_every_host_of_this_installation_is_declared_rightly() -> None:
    """The check must not refuse what is left out on purpose."""
    assert all(isinstance(host, Host) for host in hosts().values())
