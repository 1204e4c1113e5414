"""What agents are told, word for word: a change here is a change of what every model reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.errors import NotFound
from harken.hosts.instructions import ANY_HOST, CHANNEL, SKILLS, Abilities, agent_instructions, command_text, skill_text
from harken.hosts.registry import connectable, connector, hook_host, host_name, host_words, hosts


def every_text() -> str:
    """Each text that an agent can be given, under a heading of its own."""
    texts = {
        "hooks and wake": agent_instructions(Abilities()),
        "hooks, no wake": agent_instructions(Abilities(can_be_woken=False)),
        "several hosts": agent_instructions(ANY_HOST),
        "the skill": skill_text(Abilities()),
        "the skill for channels": skill_text(Abilities(), CHANNEL),
    }
    return "".join(f"==== {name} ====\n{text.rstrip()}\n" for name, text in texts.items())


def test_what_agents_are_told_is_this() -> None:
    """Whose word is what, where answers go, and that nothing is gained by polling."""
    assert every_text() == Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SKILLS)
def test_the_front_matter_of_a_skill_is_plain(name: str) -> None:
    """One line each and no second colon, as every host's parser takes it."""
    _, matter, _ = skill_text(Abilities(), name).split("---\n", 2)
    assert [line.count(": ") for line in matter.splitlines()] == [1, 1]
    assert matter.startswith(f"name: {name}\n")


def test_a_command_takes_what_the_user_added() -> None:
    """Hosts have different words for it; without one the text ends as the skill does."""
    assert command_text(Abilities(), "$ARGUMENTS").endswith("\nWhat the user added: $ARGUMENTS\n")
    for name in SKILLS:
        assert skill_text(Abilities(), name).endswith(command_text(Abilities(), name=name))


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_names_tools_as_the_host_does(name: str) -> None:
    """Every tool in it is called by the whole name."""
    text = command_text(Abilities(tool_prefix="mcp_harken_"), name=name)
    for tool in ("inbox_pull", "inbox_search", "inbound_queue_stats", "reply", "ack"):
        assert f"`{tool}`" not in text


def test_tools_are_called_as_the_host_calls_them() -> None:
    """A model that does not find a tool by the name it read gives up."""
    text = agent_instructions(Abilities(tool_prefix="mcp_harken_"))
    for tool in ("inbox_pull", "inbox_search", "reply", "ack", "check_inbox"):
        assert f"`mcp_harken_{tool}`" in text
        assert f"`{tool}`" not in text


def test_every_host_is_found_by_its_names() -> None:
    """The table, the packages and what people type belong together."""
    assert {host_name(word) for word in host_words()} == set(hosts())
    assert host_name(" Claude-Code ") == "claude-code"
    with pytest.raises(NotFound, match=r"There is no host 'cloude'"):
        host_name("cloude")
    for name in connectable():
        assert connector(name).name == name
        assert hook_host(name).name == name
