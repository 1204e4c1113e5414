"""Each sentence that promises something has a test that holds it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.docs.named_tests import collected
from tests.docs.pages import ROOT
from tests.docs.statements import Statement, statements
from tests.promises import PAGES
from tests.promises.promise import Promise, PromisePage


def findings(
    said: Sequence[Statement], promises: Sequence[Promise], no_promise: Mapping[str, str], tests: Collection[str]
) -> list[str]:
    """Return everything that is wrong between a page, its promises and the tests."""
    found: list[str] = []
    covered: dict[Statement, list[tuple[int, int]]] = {each: [] for each in said}
    for quote in [*(promise.quote for promise in promises), *no_promise]:
        pattern = re.compile(".*?".join(re.escape(part) for part in quote.split(" … ")))
        places = [(each, match.span()) for each in said if (match := pattern.search(each.text))]
        if len(places) == 1:
            covered[places[0][0]].append(places[0][1])
        else:
            found.append(f"is in {len(places)} statements and not in one: {quote}")
    for each, quoted in covered.items():
        for begin, end in each.sentences():
            if not any(first < end and last > begin for first, last in quoted):
                found.append(f"nothing holds, under {each.section or 'the title'}: {each.text[begin:end]}")
    for promise in promises:
        found += [f"no make target runs {test}: {promise.quote}" for test in promise.held_by if test not in tests]
        if not promise.held_by:
            found.append(f"no test is named: {promise.quote}")
    return found


@cache
def all_tests() -> Collection[str]:
    """Return the names of all tests that some make target runs."""
    return collected(ROOT / "tests")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_every_promise_of_a_page_is_held_by_tests(page: PromisePage) -> None:
    """What nobody tries stops being true, and nobody notices but the reader who counted on it."""
    said = list(statements((ROOT / page.path).read_text(encoding="utf-8"), without=page.without))
    assert findings(said, page.promises, page.no_promise, all_tests()) == []


PAGE = """# Page

It is **fast**. It
is small.

- **Safe.** It never lies: see `this.`
- Old.

| what | how |
|---|---|
| one | It counts. It adds |

```mermaid
stateDiagram-v2
    a --> b: it flies
```

## Not promised

Nothing.
"""
PROMISES = (
    Promise("It is **fast**.", ("test_a",)),
    Promise("is small", ("test_a", "test_b")),
    Promise("**Safe.** It … lies", ("test_b",)),
    Promise("It counts. It adds", ("test_a",)),
    Promise("a --> b", ("test_a",)),
)
NO_PROMISE = {"Old.": "it is only said"}


def found_in(text: str, promises: Sequence[Promise] = PROMISES) -> list[str]:
    """Return what is wrong with a page and some promises, where there are two tests."""
    return findings(list(statements(text, without={"Not promised"})), promises, NO_PROMISE, {"test_a", "test_b"})


def test_a_page_is_cut_into_sentences() -> None:
    """What the reading passes over, no promise has to hold."""
    assert [
        (each.section, [each.text[begin:end].strip() for begin, end in each.sentences()]) for each in statements(PAGE)
    ] == [
        ("Page", ["It is **fast**.", "It is small."]),
        ("Page", ["**Safe.** It never lies: see `this.`"]),
        ("Page", ["Old."]),
        ("Page", ["one | It counts.", "It adds"]),
        ("Page", ["a --> b: it flies"]),
        ("Not promised", ["Nothing."]),
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param("It is also green.", "nothing holds, under Not so: It is also green.", id="paragraph"),
        pytest.param("- Old. It sings.", "is in 2 statements and not in one: Old.", id="quoted twice"),
        pytest.param("| a |\n|---|\n| It dances. |", "nothing holds, under Not so: It dances.", id="row"),
    ],
)
def test_a_statement_that_is_added_needs_a_promise(more: str, reason: str) -> None:
    """The check is worth what it finds."""
    assert found_in(PAGE) == []
    assert reason in found_in(f"{PAGE}\n## Not so\n\n{more}\n")


@pytest.mark.parametrize(
    ("promise", "reason"),
    [
        (Promise("It is **fast**.", ("test_c",)), "no make target runs test_c: It is **fast**."),
        (Promise("It is **fast**.", ()), "no test is named: It is **fast**."),
        (Promise("It is slow.", ("test_a",)), "is in 0 statements and not in one: It is slow."),
    ],
)
def test_a_promise_needs_its_words_and_its_tests(promise: Promise, reason: str) -> None:
    """One whose test went away, or whose page was written anew, holds nothing any more."""
    assert reason in found_in(PAGE, (promise, *PROMISES[1:]))


def test_only_tests_that_are_run_count(tmp_path: Path) -> None:
    """A suite that nothing uses, a file that is not collected or a mark that no target asks for would hold nothing."""
    for folder in ("some", "hosts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "some" / "suite.py").write_text(
        "class Part:\n    def test_part(self): ...\nclass Whole:\n    TestPart = Part\n    def test_whole(self): ...\n"
        "class Unused:\n    def test_unused(self): ...\ndef test_not_collected(): ...\n"
    )
    (tmp_path / "some" / "test_it.py").write_text(
        "class TestIt(Whole):\n    async def test_own(self): ...\n@pytest.mark.slow\ndef test_slow(): ...\n"
        "@pytest.mark.hosts\ndef test_host_elsewhere(): ...\n@pytest.mark.skip\ndef test_skipped(): ...\n"
    )
    (tmp_path / "some" / "test_marked.py").write_text("pytestmark = [pytest.mark.hosts]\ndef test_marked(): ...\n")
    (tmp_path / "hosts" / "test_hosts.py").write_text("pytestmark = pytest.mark.hosts\ndef test_host(): ...\n")
    assert collected(tmp_path) == {"test_part", "test_whole", "test_own", "test_slow", "test_host"}
