"""Checks that a release is what it says: `python scripts/release.py COMMAND`.

    check [--tag vX.Y.Z] [--dist FOLDER]   the version, its place in the changelog, the tag, and what was built
    notes                                  what the changelog says of this version, for the page of the release
    prepare X.Y.Z [--date YYYY-MM-DD]      set the version, and put what is unreleased below it

It publishes nothing: `.github/workflows/release.yml` does, on a tag, where a person has switched it on.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from email.parser import Parser
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.package_metadata import REPOSITORY, relative_links

ROOT: Final = Path(__file__).resolve().parent.parent
VERSION_FILE: Final = "src/harken/__init__.py"
UNRELEASED: Final = "## [Unreleased]"
NEEDED_FILES: Final = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "requirements.lock", "docs/index.md")

_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_NUMBER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_HEADING: Final = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def version_of(root: Path) -> str:
    """Return the version that the package says of itself."""
    found = _VERSION.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    return found[1] if found else ""


def section_of(changelog: str, heading: str) -> str:
    """Return what stands below a heading of the changelog, up to the next of its kind."""
    _, _, rest = changelog.partition(f"{heading}\n")
    return re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()


def findings(root: Path, *, tag: str = "", today: date) -> Iterator[str]:
    """Yield what keeps this checkout from being released."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not _NUMBER.fullmatch(version):
        yield f"{VERSION_FILE} has the version {version!r}: expected three numbers, such as 0.1.0."
    if tag and tag != f"v{version}":
        yield f"The tag is {tag} and the version {version}: tag v{version}, or set the version."
    headings = _HEADING.findall(changelog)
    if not headings or headings[0][0] != version:
        newest = headings[0][0] if headings else "none"
        yield f"The newest release in CHANGELOG.md is {newest}, not {version}: run release.py prepare {version}."
    else:
        if date.fromisoformat(headings[0][1]) > today:
            yield f"CHANGELOG.md dates {version} {headings[0][1]}, which is in the future."
        if not section_of(changelog, f"## [{version}] - {headings[0][1]}"):
            yield f"CHANGELOG.md says nothing of {version}."
    if section_of(changelog, UNRELEASED):
        yield "CHANGELOG.md has unreleased changes: they belong to this release, or the tag to an earlier commit."
    numbers = [tuple(map(int, each.split("."))) for each, _ in headings]
    if numbers != sorted(set(numbers), reverse=True):
        yield "The releases in CHANGELOG.md are not in order, the newest first, each once."


def dist_findings(root: Path, dist: Path) -> Iterator[str]:
    """Yield what is wrong with what was built."""
    version = version_of(root)
    wheel, sdist = (f"harken-{version}-py3-none-any.whl", f"harken-{version}.tar.gz")
    there = {each.name for each in dist.iterdir() if not each.name.startswith(".")}
    if there != {wheel, sdist}:
        yield f"{dist} holds {', '.join(sorted(there)) or 'nothing'}: expected {wheel} and {sdist}."
        return
    with zipfile.ZipFile(dist / wheel) as archive:
        packed = set(archive.namelist())
        metadata = archive.read(f"harken-{version}.dist-info/METADATA").decode()
    yield from (f"{wheel} lacks {each}." for each in sorted(_package_files(root) - packed))
    with tarfile.open(dist / sdist) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    wanted = {f"src/{each}" for each in _package_files(root)} | set(NEEDED_FILES)
    yield from (f"{sdist} lacks {each}." for each in sorted(wanted - names))
    yield from metadata_findings(metadata)


def metadata_findings(text: str) -> Iterator[str]:
    """Yield what an index would show wrongly, or not at all."""
    metadata = Parser().parsestr(text)
    if not metadata.get_all("Project-URL"):
        yield f"The package names no address of the project: build it with {REPOSITORY} set."
    readme = str(metadata.get_payload())
    yield from (f"The README links to {each}, which an index does not have." for each in relative_links(readme))
    yield from (f"The package has no {field}." for field in ("Summary", "Classifier") if not metadata.get(field))


def _package_files(root: Path) -> set[str]:
    files = (root / "src" / "harken").rglob("*")
    return {
        each.relative_to(root / "src").as_posix()
        for each in files
        if each.is_file() and "__pycache__" not in each.parts
    }


def prepare(root: Path, version: str, day: date) -> None:
    """Set the version, and date what is unreleased with it."""
    place = root / VERSION_FILE
    place.write_text(_VERSION.sub(f'__version__ = "{version}"', place.read_text(encoding="utf-8")), encoding="utf-8")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day}", 1), encoding="utf-8")


def main(arguments: Sequence[str], *, root: Path = ROOT) -> int:
    """Run a command, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check")
    check.add_argument("--tag", default="")
    check.add_argument("--dist", type=Path)
    commands.add_parser("notes")
    preparing = commands.add_parser("prepare")
    preparing.add_argument("version")
    preparing.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date())
    asked = parser.parse_args(arguments)
    if asked.command == "prepare":
        if not _NUMBER.fullmatch(asked.version):
            parser.error(f"{asked.version!r} is no version: expected three numbers, such as 0.1.0")
        prepare(root, asked.version, asked.date)
        return 0
    if asked.command == "notes":
        changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
        heading = next((each[0] for each in _HEADING.finditer(changelog)), UNRELEASED)
        sys.stdout.write(f"{section_of(changelog, heading)}\n")
        return 0
    found = list(findings(root, tag=asked.tag, today=datetime.now(UTC).date()))
    found += dist_findings(root, asked.dist) if asked.dist else ()
    sys.stdout.write("".join(f"{each}\n" for each in found) or f"harken {version_of(root)} can be released\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
