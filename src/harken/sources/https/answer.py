"""The answer to one request, as it came over the wire. Pure.

It says nothing about what the answer means, nor whether to ask again: each client above decides that. It is made by
`wire.py`; nothing is below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: header names in lower case. `body` is None if it broke off, or was more than is read."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    is_too_long: bool = False
