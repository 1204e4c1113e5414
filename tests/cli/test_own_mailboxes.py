"""An agent reads its own mailboxes on the command line, as with its tools; what is in the others is not for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.rig import Json, Rig, serving

REFUSED, NOT_FOUND = 7, 3
HIDDEN = "the codes of the vault"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Commands on a home with a mailbox that an agent elsewhere does not read."""
    home: Path = tmp_path_factory.mktemp("own") / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[projects.vault]\ndirs = ["/vault"]\n')
    with serving(home) as served:
        yield served


@pytest.fixture(scope="module")
def agent(rig: Rig) -> Rig:
    """The shell of an agent that is in no project."""
    return replace(rig, extra={"GEMINI_CLI": "1"})


@pytest.fixture(scope="module")
def hidden(rig: Rig) -> str:
    """A message for the agents of the project, and one for all."""
    rig.ok("send", "lunch is at noon", "--channel", "news")
    return str(rig.json("send", HIDDEN, "--to", "project:vault", "--channel", "news")["id"])


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "--channel", "news"),
        ("search", "codes"),
        ("search", "noon"),
        ("journal",),
        ("channel", "news"),
        ("channel", "names"),
        ("waiting",),
        ("outbox",),
        ("rules", "test", "--all"),
    ],
    ids=" ".join,
)
def test_agent_sees_only_what_is_in_its_own_mailboxes(
    rig: Rig, agent: Rig, hidden: str, words: tuple[str, ...]
) -> None:
    """What was sent to the agents of a project is not for one that works elsewhere, whatever it is told to look for."""
    assert hidden
    said = json.dumps(agent.json(*words))
    assert HIDDEN not in said
    if words[-1] in ("list", "news", "journal"):
        assert "lunch is at noon" in said or words == ("channel", "names")
        assert HIDDEN in json.dumps(rig.json(*words))


@pytest.mark.parametrize("verb", ["list", "search"])
def test_agent_is_refused_a_mailbox_that_is_not_its_own(agent: Rig, hidden: str, verb: str) -> None:
    """It is told so: nothing found would look like an empty mailbox."""
    assert hidden
    done = agent.run(verb, *(["codes"] if verb == "search" else []), "--mailbox", "project:vault")
    assert (done.code, done.out) == (REFUSED, "")
    assert done.err.startswith("harken: An agent may not read the mailbox 'project:vault'.")


@pytest.mark.parametrize(
    "words", [("read",), ("read", "--offset", "0"), ("rules", "explain")], ids=["whole", "piece", "verdict"]
)
def test_agent_cannot_read_a_message_of_another_mailbox_by_its_id(
    agent: Rig, hidden: str, words: tuple[str, ...]
) -> None:
    """Ids stand in logs and in what others say."""
    done = agent.run(*words, hidden)
    assert (done.code, done.out) == (NOT_FOUND, "")


def test_agent_can_look_what_became_of_its_own_message(agent: Rig) -> None:
    """It may send to others, and wants to know whether they have seen it."""
    sent: Json = agent.json("send", "the roof is done", "--to", "project:vault")
    assert agent.json("read", sent["id"])["message"]["content_text_sanitized"] == "the roof is done"


def test_agent_cannot_answer_what_is_not_for_it(agent: Rig, hidden: str) -> None:
    """Whoever gets the answer would take it for one of somebody who was asked."""
    assert agent.run("reply", hidden, "done").code == NOT_FOUND


def test_run_reads_no_mail_at_all(rig: Rig, hidden: str) -> None:
    """It was told to look at one stranger's text, not at everybody's."""
    run = replace(rig, extra={"HARKEN_RUN": "n-1"})
    assert [run.run(*words).code for words in (("list",), ("read", hidden), ("search", "noon"))] == [REFUSED] * 3
