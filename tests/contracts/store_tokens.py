"""The part of the store suite about tokens: one in force for a name, bound to one machine, and ended for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harken.errors import Conflict, Forbidden, NotFound
from harken.model import INBOX, Consumer, Mailbox, Trust
from harken.store.contract import Store
from harken.store.contract.tokens import Token, TokenScope
from harken.testing import FakeClock
from tests.contracts.store_suite import Journal, StoreSuite, later

DIGEST = b"d" * 32


def token(clock: FakeClock, name: str = "buildbox", number: int = 1) -> Token:
    """Return a token as the use cases would ask for it."""
    return Token(id=f"t-{number}", name=name, kind="machine", made_at=clock.now())


class TokenSuite(StoreSuite):
    """What lets other machines in."""

    async def test_token_is_found_by_the_hash_of_its_secret_only(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Whoever reads the journal, or the answers, learns nothing that lets a machine in."""
        made = await store.tokens.add(token(clock), DIGEST)
        assert await store.tokens.find(DIGEST) == made == token(clock)
        assert await store.tokens.find(b"e" * 32) is None
        assert await store.tokens.list() == [made]
        (event,) = journal.of("token")
        assert DIGEST.hex() not in str(event.data)
        assert event.data["change"] == "made"

    async def test_first_use_binds_a_token_to_its_machine(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """A token that is copied to another machine lets nobody in there, and that changes nothing."""
        await store.tokens.add(token(clock), DIGEST)
        used = await store.tokens.use("t-1", "m-1", "192.0.2.7")
        assert (used.bound_to, used.used_from, used.used_at) == ("m-1", "192.0.2.7", clock.now())
        clock.advance(5)
        with pytest.raises(Forbidden, match="another machine"):
            await store.tokens.use("t-1", "m-2", "192.0.2.8")
        assert await store.tokens.list() == [used]
        again = await store.tokens.use("t-1", "m-1", "192.0.2.9")
        assert again == replace(used, used_from="192.0.2.9", used_at=clock.now())
        assert [event.data["change"] for event in journal.of("token")] == ["made", "bound"]

    async def test_token_ends_by_revocation_or_by_its_time(self, store: Store, clock: FakeClock) -> None:
        """It stays in the list, and its name is free for a new one."""
        await store.tokens.add(replace(token(clock), expires_at=later(clock, 60)), DIGEST)
        with pytest.raises(Conflict):
            await store.tokens.add(token(clock, number=2), b"e" * 32)
        clock.advance(61)
        with pytest.raises(Forbidden, match="expired"):
            await store.tokens.use("t-1", "m-1", "")
        with pytest.raises(NotFound):
            await store.tokens.revoke("buildbox")
        await store.tokens.add(token(clock, number=2), b"e" * 32)
        assert (await store.tokens.revoke("buildbox")).revoked_at == clock.now()
        with pytest.raises(Forbidden, match="revoked"):
            await store.tokens.use("t-2", "m-1", "")
        with pytest.raises(NotFound):
            await store.tokens.revoke("buildbox")
        assert [each.id for each in await store.tokens.list()] == ["t-1", "t-2"]

    async def test_scope_is_stored_and_journaled(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """What a token may do is what it was made for, after a restart too."""
        scope = TokenScope(
            may=frozenset({"send", "read"}),
            mailboxes=(INBOX, Mailbox("task:one")),
            consumer=Consumer("laptop"),
            trust=Trust.UNKNOWN,
        )
        made = await store.tokens.add(replace(token(clock), kind="agent", scope=scope), DIGEST)
        assert made.scope == scope
        assert await store.tokens.list() == [made]
        (event,) = journal.of("token")
        assert [event.data[each] for each in ("may", "mailboxes", "consumer", "trust")] == [
            ["read", "send"],
            ["inbox", "task:one"],
            "laptop",
            "unknown",
        ]

    async def test_use_without_a_machine_binds_nothing(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """A program may come from several machines with one token; where from last is noted."""
        await store.tokens.add(token(clock), DIGEST)
        await store.tokens.use("t-1", "", "192.0.2.7")
        used = await store.tokens.use("t-1", "", "192.0.2.8")
        assert (used.bound_to, used.used_from) == ("", "192.0.2.8")
        assert [event.data["change"] for event in journal.of("token")] == ["made"]

    async def test_hash_is_free_again_when_its_token_has_ended(self, store: Store, clock: FakeClock) -> None:
        """What stands for the holder of an issuer's tokens is always the same; the newest token counts."""
        await store.tokens.add(token(clock), DIGEST)
        with pytest.raises(Conflict):
            await store.tokens.add(token(clock, "other", 2), DIGEST)
        await store.tokens.revoke("buildbox")
        again = await store.tokens.add(token(clock, "other", 2), DIGEST)
        assert await store.tokens.find(DIGEST) == again
        assert [each.name for each in await store.tokens.list()] == ["buildbox", "other"]
