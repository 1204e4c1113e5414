"""Ids of tasks: short, memorable, never given out twice, and safe wherever they are written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.inbox.tasks import given_id, task_id

# Safe in a file name, a branch, a mailbox, a URL and a shell, without quotes.
SAFE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_CHARS = 40
TITLES = st.text(max_size=200)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Fix the login page", "fix-login-page"),
        ("Rename amount to amount_cents", "rename-amount-cents"),
        ("API", "api"),
        ("  Crème brûlée  ", "creme-brulee"),
        ("The", "the"),
        ("../../etc/passwd", "etc-passwd"),
        ("--force", "force"),
        ("fix: 'rm -rf /' & co", "fix-rm-rf"),
    ],
)
def test_an_id_is_made_of_the_words_that_tell_something(title: str, expected: str) -> None:
    """People say these aloud and type them."""
    assert task_id(title, set()) == expected


@given(TITLES)
def test_any_title_gives_an_id_that_is_safe_everywhere(title: str) -> None:
    """It becomes a folder, a branch and a mailbox: a title must not be able to be a path or an option."""
    made = task_id(title, set())
    assert SAFE.fullmatch(made)
    assert len(made) <= MAX_CHARS


@given(TITLES)
def test_what_is_proposed_may_also_be_chosen(title: str) -> None:
    """The command line proposes an id and hands it back: that must never be refused."""
    made = task_id(title, set())
    assert given_id(made) == made


@given(st.lists(TITLES, max_size=30))
def test_no_two_tasks_get_the_same_id(titles: list[str]) -> None:
    """Also not for the same title again and again; each is as safe and as short as the first."""
    taken = set[str]()
    for title in titles:
        made = task_id(title, taken)
        assert made not in taken
        assert given_id(made) == made
        assert SAFE.fullmatch(made)
        taken.add(made)


@given(st.integers(min_value=2, max_value=40))
def test_the_same_title_again_gets_the_next_number(count: int) -> None:
    """`api`, `api-2`, `api-3`: nobody has to guess which is newer."""
    taken = set[str]()
    for _ in range(count):
        taken.add(task_id("API", taken))
    assert taken == {"api", *(f"api-{number}" for number in range(2, count + 1))}


@given(TITLES, st.sets(st.sampled_from(["api", "web", "api-2", "fix-login-page"])))
def test_the_same_question_has_the_same_answer(title: str, taken: set[str]) -> None:
    """What was proposed a moment ago is what is made: only a title without any letter is named by chance."""
    if re.search("[a-z0-9]", title, re.IGNORECASE | re.ASCII):
        assert task_id(title, taken) == task_id(title, taken)


@pytest.mark.parametrize("name", ["api", "a", "api-2", "v1.2", "a_b", "0", "a" * 40])
def test_a_person_may_choose_a_plain_name(name: str) -> None:
    """As the hint says."""
    assert given_id(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "API", "a b", "a/b", "../a", ".a", "-a", "a\n", "a\0", "task:a", "ü", "a" * 41, "a\u202eb", "a%", "*"],
)
def test_a_name_that_could_be_something_else_is_refused(name: str) -> None:
    """A path, an option, a mailbox, two lines: none of them is an id. The error says what is."""
    with pytest.raises(UserError) as caught:
        given_id(name)
    assert caught.value.hint
    assert "\n" not in caught.value.message
