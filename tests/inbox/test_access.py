"""Who may reach what: decided by the person, never by an agent or a message."""

from __future__ import annotations

import pytest

from harken.errors import Forbidden, UserError
from harken.ingest.pairing import LIFETIME, MAX_TRIES
from harken.model import SenderRule, Trust
from tests.inbox.rig import AGENT, OWNER, Bench, from_teams


async def trust_of(bench: Bench, text: str = "hello", sender: str = "ann") -> Trust:
    """Let someone write on teams; return how far they are trusted."""
    return (await bench.intake.accept([from_teams(text, sender)]))[0].message.trust


async def test_an_agent_never_has_the_owners_word(bench: Bench) -> None:
    """A script in its shell may name whom it reports for; whose word it is, is told by the id, and that is its own."""
    await bench.access.allow(OWNER, "boss", as_owner=True)
    for name in ("boss", "ci-bot"):
        sent = (await bench.inbox.send(AGENT, "do as I say", sender=name)).message
        assert (sent.sender.label, sent.sender.id, sent.trust) == (name, "agent:claude-code", Trust.KNOWN)
    for name in ("owner", " You "):
        with pytest.raises(Forbidden):
            await bench.inbox.send(AGENT, "do as I say", sender=name)
    sent = (await bench.inbox.send(AGENT, "hello")).message
    assert (sent.sender.id, sent.channel, sent.trust) == ("agent:claude-code", "agent", Trust.KNOWN)


async def test_what_the_owner_says_is_the_owners(bench: Bench) -> None:
    """And only that: whoever gives another name is that one."""
    mine = (await bench.inbox.send(OWNER, "do it")).message
    assert (mine.sender.id, mine.sender.name, mine.trust) == ("owner", "you", Trust.OWNER)
    assert (await bench.inbox.send(OWNER, "done", sender="ci-bot")).message.trust is Trust.KNOWN


async def test_a_decision_counts_from_the_next_message_on(bench: Bench) -> None:
    """The newest one, without a restart."""
    assert await trust_of(bench) is Trust.UNKNOWN
    assert await bench.access.allow(OWNER, " ann ") == SenderRule("*", "ann", Trust.KNOWN)
    assert await trust_of(bench) is Trust.KNOWN
    await bench.access.allow(OWNER, "ann", source="teams", as_owner=True)
    assert await trust_of(bench) is Trust.OWNER
    await bench.access.deny(OWNER, "ann", source="teams")
    assert await trust_of(bench) is Trust.UNKNOWN


async def test_sender_that_is_named_with_its_source_is_refused_with_the_right_words(bench: Bench) -> None:
    """A decision about `teams:ann` would be kept and never match, and you would think that she was let in."""
    with pytest.raises(UserError, match="teams is a source") as refused:
        await bench.access.allow(OWNER, "teams:ann")
    assert refused.value.hint == "Name the two apart: ann --source teams"
    assert (await bench.access.allow(OWNER, "29:1abc")).sender == "29:1abc"
    assert (await bench.access.allow(OWNER, "teams:ann", source="bot")).sender == "teams:ann"


async def test_name_that_nothing_can_have_is_not_muted(bench: Bench) -> None:
    """It would stand in every list of mutes."""
    with pytest.raises(UserError, match="100,000 characters"):
        await bench.access.mute(OWNER, "sender", "x" * 100_000)


@pytest.mark.parametrize("source", ["*", "teams"])
async def test_no_decision_makes_the_word_of_everyone_yours(bench: Bench, source: str) -> None:
    """One star too many would let every stranger give your agents orders."""
    with pytest.raises(UserError, match="Not everyone"):
        await bench.access.allow(OWNER, " * ", source=source, as_owner=True)
    assert await trust_of(bench) is Trust.UNKNOWN


async def test_a_pairing_code_admits_the_one_who_sends_it(bench: Bench) -> None:
    """Exactly one, exactly once: a code that is overheard afterwards is worth nothing."""
    code, _ = bench.access.pair(OWNER)
    assert await trust_of(bench, f" {code.upper()} ") is Trust.KNOWN
    assert await trust_of(bench, "hello") is Trust.KNOWN
    assert await trust_of(bench, code, "eve") is Trust.UNKNOWN
    assert await trust_of(bench, "hello", "eve") is Trust.UNKNOWN
    assert await bench.store.people.senders() == [SenderRule("teams", "ann", Trust.KNOWN)]


async def test_a_pairing_code_expires(bench: Bench) -> None:
    """It was made for the next few minutes."""
    code, until = bench.access.pair(OWNER)
    assert until == bench.clock.now() + LIFETIME
    bench.clock.advance(LIFETIME.total_seconds())
    assert await trust_of(bench, code) is Trust.UNKNOWN


async def test_a_pairing_code_cannot_be_guessed(bench: Bench) -> None:
    """A few wrong tries, by whomever, end it."""
    code, _ = bench.access.pair(OWNER)
    for number in range(MAX_TRIES):
        await trust_of(bench, f"pair-{number}", "eve")
    assert await trust_of(bench, code) is Trust.UNKNOWN


async def test_a_code_inside_a_text_admits_nobody(bench: Bench) -> None:
    """Someone who quotes a message must not be let in by it."""
    code, _ = bench.access.pair(OWNER)
    assert await trust_of(bench, f"he said: {code}", "eve") is Trust.UNKNOWN


async def test_a_mute_ends_by_itself_or_by_hand(bench: Bench) -> None:
    """The person who said 'an hour' does not have to remember."""
    mute = await bench.access.mute(OWNER, "channel", " ci ", seconds=60)
    await bench.access.mute(OWNER, "session", "claude-code")
    assert [(each.kind, each.name) for each in await bench.store.people.mutes()] == [
        ("channel", "ci"),
        ("session", "claude-code"),
    ]
    bench.clock.advance(61)
    assert mute not in await bench.store.people.mutes()
    await bench.access.unmute(OWNER, "session", "claude-code")
    assert await bench.store.people.mutes() == []


async def test_what_cannot_be_decided_is_said(bench: Bench) -> None:
    """One sentence and one hint each."""
    with pytest.raises(UserError, match="Which sender"):
        await bench.access.allow(OWNER, "  ")
    with pytest.raises(UserError, match="'mailbox' cannot be muted"):
        await bench.access.mute(OWNER, "mailbox", "inbox")
    with pytest.raises(UserError, match="Which channel"):
        await bench.access.mute(OWNER, "channel", "")


async def test_a_pairing_code_that_the_owner_sends_changes_nothing(bench: Bench) -> None:
    """Trying one out must not make a known sender of the owner."""
    code, _ = bench.access.pair(OWNER)
    assert (await bench.inbox.send(OWNER, code)).message.trust is Trust.OWNER
    assert (await bench.inbox.send(OWNER, "do it")).message.trust is Trust.OWNER
    assert await bench.store.people.senders() == []
    assert await trust_of(bench, code) is Trust.KNOWN


async def test_a_decision_about_everyone_leaves_the_owner_the_owner(bench: Bench) -> None:
    """Whoever shuts everyone out still wants to be heard."""
    for decide, others in ((bench.access.deny, Trust.UNKNOWN), (bench.access.allow, Trust.KNOWN)):
        await decide(OWNER, "*")
        assert (await bench.inbox.send(OWNER, "do it")).message.trust is Trust.OWNER
        assert await trust_of(bench) is others
