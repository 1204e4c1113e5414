"""Which hosts are this machine: only there may something secret go without encryption."""

from __future__ import annotations

import pytest

from harken.sources.settings import is_loopback


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    """Services on this machine have no certificates, and need none."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "localhost.example", "my-localhost", "127.0.0.1.example", "127.1", "::", "10.0.0.1"),
        *("2130706433", "[localhost]", "127.0.0.1 ", "\N{SMALL ROMAN NUMERAL FIFTY}ocalhost"),
    ],
)
def test_whatever_else_there_is_counts_as_another_machine(host: str) -> None:
    """A name that only looks like this machine would be sent a password in the clear."""
    assert not is_loopback(host)
