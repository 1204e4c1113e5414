"""Pages stand on their own: links lead somewhere, commands can be typed, and nothing is promised that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import click

from harken.cli.verbs import harken
from tests.docs.pages import DOCS, ROOT, anchors, commands, fences, links, name_of, pages, prose

PLACEHOLDERS = ("<", "…", "[", "VERB")


def parse(command: click.Command, arguments: list[str]) -> None:
    """Raise what the command line would say about these arguments."""
    if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        _, inner, rest = command.resolve_command(click.Context(command), list(arguments))
        if inner is None:
            raise click.UsageError(f"There is no command {arguments[0]!r}.")
        parse(inner, rest)
    elif "--help" not in arguments and "--version" not in arguments:
        command.make_context("harken", list(arguments))


def test_every_relative_link_resolves() -> None:
    """A link that leads nowhere costs the reader's confidence in the rest."""
    for page in pages():
        for link in links(page):
            if "://" in link:
                continue
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), (page, link)
            assert not anchor or anchor in anchors(file), (page, link)


def test_every_command_in_a_block_can_be_typed() -> None:
    """People copy these lines: a renamed option must fail here and not in their terminal."""
    for page in pages():
        for block in fences(page, "sh"):
            for arguments in commands(block):
                if any(word.startswith(("[", "{", "ID")) or word.endswith("...") for word in arguments):
                    continue  # the usage line of the reference, which is written from the same commands
                parse(harken, arguments)


def test_every_command_in_prose_exists() -> None:
    """A page may not name a command that is only planned."""
    known = harken.list_commands(click.Context(harken))
    for page in pages():
        for words in re.findall(r"`harken ([^`]+)`", prose(page)):
            first = words.split()[0]
            if not first.startswith(PLACEHOLDERS) and not first.startswith("--"):
                assert first in known, (page, words)


def test_every_path_of_the_checkout_that_is_named_exists() -> None:
    """The pages are a map of the code; a map with places that moved is worse than none."""
    for page in pages():
        for path in re.findall(r"`((?:src|tests|scripts|docs)/[\w./-]+)`", prose(page)):
            assert (ROOT / path).exists(), path
        if page.parent.name == "explanation":
            packages = "|".join(each.name for each in (ROOT / "src" / "harken").iterdir() if each.is_dir())
            for path in re.findall(rf"`((?:{packages})/[\w./]+)`", prose(page)):
                assert (ROOT / "src" / "harken" / path).exists(), path


def test_the_readme_is_short_and_shows_code_first() -> None:
    """A stranger decides within the first screen."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("```sh") for line in lines[:30])


def test_nothing_tells_people_to_install_from_an_index() -> None:
    """Until there is a release, the name there is a stranger's to take, and what it installs runs as the reader."""
    installing = re.compile(r"""(?:\b(?:pip|pipx|uv|tool) (?:install|run|add)|\buvx)(?: -[-\w]+)* ['"]?harken""")
    assert installing.search("pip install 'harken[phone]'")
    assert installing.search("uvx harken demo")
    sources = [*pages(), ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("*.py")]
    assert [name_of(each) for each in sources if installing.search(each.read_text(encoding="utf-8"))] == []


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nothing links to does not exist for readers."""
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = (link.partition("#")[0] for link in links(page) if "://" not in link)
        waiting += [(page.parent / target).resolve() for target in targets if target.endswith(".md")]
    assert set(DOCS.rglob("*.md")) <= seen


def test_no_page_names_a_machine_of_its_writers() -> None:
    """Paths of one machine help nobody else."""
    for page in pages():
        assert not re.search(r"/work/|/root/|/tmp/", page.read_text(encoding="utf-8")), name_of(page)


def test_every_attack_names_the_tests_that_show_what_stops_it() -> None:
    """A claim about safety that nothing tries is a hope; and a table without what remains possible is advertising."""
    text = (DOCS / "explanation" / "attacks.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(parts) == 15
    for part in parts:
        rows = [line for line in part.splitlines() if line.startswith("| ") and not line.endswith("| test |")]
        assert rows, part
        assert "**What remains.**" in part, part
        for row in rows:
            named = re.findall(r"`(tests/[\w/]+\.py)`", row.split(" | ")[-1])
            assert named, row
            for path in named:
                assert re.search(r"^(async )?def test_", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), path


def test_every_file_that_the_architecture_names_is_there() -> None:
    """The page is read beside the code: a module that was moved must be moved there, too."""
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "harken"
    named = set(re.findall(r"`((?:[\w*]+/)+[\w*]+\.py)`", text))
    tree = text.partition("src/harken/\n")[2].partition("```")[0]
    place = ""
    for line in tree.splitlines():
        place = line.split()[0] if line[2] != " " else place
        folder = place if place.endswith("/") else ""
        named |= {place, *(f"{folder}{module}" for module in re.findall(r"[\w/]+\.py\b", line) if module != place)}
    assert len(named) > 50
    assert [name for name in sorted(named) if not any(source.glob(name))] == []
    packages = {f"{each.name}/" for each in source.iterdir() if (each / "__init__.py").exists()}
    modules = {each.name for each in source.glob("*.py") if not each.name.startswith("__")}
    assert (packages | modules) - named == set()
