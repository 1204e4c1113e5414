"""Whose chats they are: another person begins anew, the same one goes on where it was."""

from __future__ import annotations

import pytest

from tests.graph.service import Graph
from tests.sources.microsoft.teams_rig import Rig, rigged


def sign_in_as(rig: Rig, name: str) -> None:
    """Let somebody else sign in, over the sign-in that is there."""
    rig.graph.world.me = rig.graph.person(name)
    rig.keys.held = ""


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_another_person_begins_with_what_is_said_from_now_on(graph: Graph, *, is_restarted: bool) -> None:
    """The place of somebody else would fetch what was said to this person before the sign-in, or skip what comes."""
    ann = graph.person("Ann")
    async with rigged(graph) as rig:
        graph.say(graph.chat(ann), ann, "<p>for the first</p>")
        await rig.go_round(1)
        before = rig.source
        rig.time.pass_by(60)
        sign_in_as(rig, "Bob")
        chat = graph.chat(ann)
        graph.say(chat, ann, "<p>before Bob signed in</p>")
        rig.time.pass_by(60)
        if is_restarted:
            rig.restart()
        assert await rig.go_round(2) == []
        assert (rig.source is before) is not is_restarted
        graph.say(chat, ann, "<p>for Bob</p>")
        assert [draft.text for draft in await rig.go_round(2)] == ["<p>for Bob</p>"]


async def test_somebody_else_who_signs_in_between_two_looks_is_noticed(graph: Graph) -> None:
    """A sign-in over another needs no restart: the same feed goes on, with the chats of the other person."""
    ann = graph.person("Ann")
    async with rigged(graph) as rig:
        graph.say(graph.chat(ann), ann, "<p>old</p>")
        await rig.go_round(1)

        def switch() -> None:
            if rig.time.rounds_left == 3:
                sign_in_as(rig, "Bob")
                graph.say(graph.chat(ann), ann, "<p>before Bob was there</p>")
                rig.time.pass_by(60)

        rig.time.at_leaps.append(switch)
        assert await rig.go_round(4) == []


async def test_the_same_person_goes_on_where_they_were(graph: Graph) -> None:
    """What was said while nobody was signed in is not lost."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with rigged(graph) as rig:
        graph.say(chat, ann, "<p>old</p>")
        await rig.go_round(1)
        graph.say(chat, ann, "<p>meanwhile</p>")
        rig.time.pass_by(3_600)
        rig.keys.held = ""
        rig.restart()
        assert [draft.text for draft in await rig.go_round(2)] == ["<p>meanwhile</p>"]


async def test_a_place_from_before_accounts_were_noted_is_the_present_ones(graph: Graph) -> None:
    """An update must not lose what came meanwhile."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with rigged(graph) as rig:
        graph.say(chat, ann, "<p>old</p>")
        await rig.go_round(1)
        rig.kept.checkpoint = rig.kept.checkpoint.replace(f',"account":"{graph.me.id}"', "")
        assert "account" not in rig.kept.checkpoint
        rig.time.pass_by(1)
        graph.say(chat, ann, "<p>meanwhile</p>")
        assert [draft.text for draft in await rig.go_round(2)] == ["<p>meanwhile</p>"]
        assert graph.me.id in rig.kept.checkpoint
