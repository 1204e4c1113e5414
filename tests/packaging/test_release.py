"""A release is what it says: its version, its changelog, its tag, and the two files that are published."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from datetime import date
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from scripts import release
from scripts.package_metadata import absolute_links, relative_links
from tests.docs.pages import ROOT
from tests.packaging.rig import build

TODAY = date(2027, 1, 15)
CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2027-01-14

### Added

- A door.

## [0.1.0] - 2026-12-01

- The house.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose version 0.2.0 can be released."""
    (tmp_path / "src" / "harken").mkdir(parents=True)
    (tmp_path / release.VERSION_FILE).write_text('"""Harken."""\n\n__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_a_checkout_that_agrees_with_itself_can_be_released(checkout: Path) -> None:
    """Otherwise nothing ever can."""
    assert list(release.findings(checkout, tag="v0.2.0", today=TODAY)) == []
    assert release.main(["check", "--tag", "v0.2.0"], root=checkout) in {0, 1}  # 1 while the day is still to come


@pytest.mark.parametrize(
    ("old", "new", "tag", "reason"),
    [
        pytest.param("", "", "v0.2.1", "The tag is v0.2.1 and the version 0.2.0", id="tag"),
        pytest.param(
            "0.2.0] - 2027-01-14", "0.3.0] - 2027-01-14", "", "newest release in CHANGELOG.md is 0.3.0", id="version"
        ),
        pytest.param("2027-01-14", "2027-02-14", "", "which is in the future", id="date"),
        pytest.param("### Added\n\n- A door.\n", "", "", "says nothing of 0.2.0", id="empty"),
        pytest.param("[Unreleased]\n", "[Unreleased]\n\n- A window.\n", "", "has unreleased changes", id="unreleased"),
        pytest.param("[0.1.0]", "[0.9.0]", "", "not in order", id="order"),
    ],
)
def test_what_does_not_agree_is_named(checkout: Path, old: str, new: str, tag: str, reason: str) -> None:
    """A version on an index cannot be taken back, so each mistake has to be found before."""
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(old, new, 1) if old else changelog.read_text())
    assert any(reason in each for each in release.findings(checkout, tag=tag, today=TODAY))


def test_preparing_sets_the_version_and_dates_what_is_unreleased(checkout: Path) -> None:
    """Both have to change together; by hand one is forgotten."""
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- A window.\n"))
    assert release.main(["prepare", "0.3.0", "--date", "2027-01-15"], root=checkout) == 0
    assert list(release.findings(checkout, tag="v0.3.0", today=TODAY)) == []
    assert release.section_of(changelog.read_text(), "## [0.3.0] - 2027-01-15") == "- A window."


def test_notes_are_what_the_changelog_says_of_the_newest_release(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of a release repeats the changelog and nothing else."""
    assert release.main(["notes"], root=checkout) == 0
    assert capsys.readouterr().out == "### Added\n\n- A door.\n"


def test_links_of_the_readme_are_absolute_on_an_index() -> None:
    """A page of an index has none of the files beside it; what is absolute, or leads to the page itself, stays."""
    page = 'See [it](docs/a.md#b), ![this](docs/a.svg), <img src="docs/b.png">, [there](https://x.org/), [here](#c).'
    at = "https://git.example.org/o/harken"
    assert absolute_links(page, at, tag="v1.2.3") == (
        f"See [it]({at}/blob/v1.2.3/docs/a.md#b), ![this]({at}/raw/v1.2.3/docs/a.svg), "
        f'<img src="{at}/raw/v1.2.3/docs/b.png">, [there](https://x.org/), [here](#c).'
    )
    assert relative_links(page) == ["docs/a.md#b", "docs/a.svg", "docs/b.png"]


def test_what_is_built_holds_everything_and_names_the_project(tmp_path: Path) -> None:
    """A template or a migration that is missing from the wheel fails on other people's machines only."""
    assert list(release.dist_findings(ROOT, build(tmp_path / "dist"))) == []
    (tmp_path / "dist" / "left-over.whl").touch()
    assert len(list(release.dist_findings(ROOT, tmp_path / "dist"))) == 1


def test_a_package_without_an_address_is_not_released() -> None:
    """An index would show links that lead nowhere, and no way back to the project."""
    text = "Summary: It.\nClassifier: Any\n\nSee the [quickstart](docs/quickstart.md).\n"
    assert list(release.metadata_findings(text)) == [
        "The package names no address of the project: build it with HARKEN_REPOSITORY set.",
        "The README links to docs/quickstart.md, which an index does not have.",
    ]


def test_a_release_happens_on_a_tag_and_where_a_person_switched_it_on() -> None:
    """Nobody publishes by pushing to a branch, and what runs with the right to publish is pinned to a commit."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert re.search(r'^on:\n  push:\n    tags: \["v', text, re.MULTILINE)
    assert not re.search(r"branches|pull_request|workflow_dispatch|schedule|secrets\.", text)
    publishing = text.partition("\n  publish:\n")[2]
    assert "if: vars.PUBLISH_RELEASES == 'yes'" in publishing
    assert "environment: pypi" in publishing
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert [each for each in used if not re.search(r"@[0-9a-f]{40}$", each)] == []
    for script in re.findall(r"(?:scripts|\.ci)/[\w./]+", text):
        assert (ROOT / script).exists(), script


def test_what_the_package_imports_it_declares() -> None:
    """Here everything is installed; in an environment of its own the package has what it names and nothing more."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for names in described["optional-dependencies"].values() for each in names]
    named = [re.split(r"[<>=;\[ ]", each)[0] for each in [*described["dependencies"], *extras]]
    brought = {"mcp-types", "pydantic"}  # the interface of `mcp` is made of them
    assert _imported() - {each.lower() for each in named} == brought


def _imported() -> set[str]:
    """Return the distributions of other people that the package imports, anywhere in it."""
    found: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found.update(each.name.partition(".")[0] for each in names)
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.partition(".")[0])
    owners = packages_distributions()
    found -= {"harken", *sys.stdlib_module_names}
    return {owner.lower().replace("_", "-") for each in found for owner in owners.get(each, [each])}
