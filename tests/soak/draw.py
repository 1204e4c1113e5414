"""Which situations are played on which host: drawn by chance, and the same for the same seed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.loss.rig import Chance


def draw(seed: int, hosts: Sequence[str], situations: Sequence[str], count: int) -> Mapping[str, Sequence[str]]:
    """Return so many situations for each host; over all hosts each comes at least once, if there is room for it."""
    chance = Chance(seed)
    room = len(hosts) * count
    needed = chance.sample(situations, min(room, len(situations)))
    drawn = [*needed, *(chance.choice(situations) for _ in range(room - len(needed)))]
    chance.shuffle(drawn)
    return {host: drawn[at * count : (at + 1) * count] for at, host in enumerate(hosts)}
