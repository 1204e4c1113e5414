"""The declaration of a kind of source: what is declared wrongly is said where it is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harken.sources.registry import kinds
from harken.sources.source import SourceKind


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None),
        ("title", 7),
        ("speakers", "people"),
        ("channel", None),
        ("is_default", "no"),
        ("make", "my_package.source:make_source"),
        ("check", None),
        ("sign_in", "my_package.source:sign_in"),
        ("answers", "yes"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(field: str, value: object) -> None:
    """Taken as it is, it would fail much later, in a command that says nothing of the declaration."""
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(TypeError, match=f"{field} of a SourceKind has to be"):
        replace(kinds().default, **wrong)


def test_every_kind_of_this_installation_is_declared_rightly() -> None:
    """The check must not refuse what is left out on purpose."""
    assert all(isinstance(kind, SourceKind) for kind in kinds())
    assert not kinds().broken
