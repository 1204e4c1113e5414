"""Every house rule can fail, and lets the sound way pass.

A rule that never fires is decoration. Each case is a whole little tree on disk, checked through the same door as
the real one; `test_every_rule_is_shown_to_fail` keeps the list of cases complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.ratchets import (
    MAX_FUNCTION_LINES,
    MAX_FUNCTION_STATEMENTS,
    MAX_MODULE_LINES,
    MAX_MODULES,
    Rule,
    check,
    main,
)

MODULE = "src/harken/model.py"
TEST = "tests/test_model.py"
LOCK = "requirements.lock"
NO_LIMIT = 1000


@dataclass(frozen=True)
class Case:
    """A file that breaks a rule, and the same thing done properly; with where the rule points to."""

    rule: Rule
    broken: str
    sound: str
    path: str = MODULE
    line: int = 1
    sound_path: str = ""


def _function(lines: list[str]) -> str:
    return "def long() -> None:\n" + "".join(f"    {line}\n" for line in lines)


CASES = (
    Case(Rule.MODULE_LENGTH, "\n" * (MAX_MODULE_LINES + 1), "\n" * MAX_MODULE_LINES, line=MAX_MODULE_LINES + 1),
    Case(
        Rule.FUNCTION_LENGTH,
        _function(["# why"] * (MAX_FUNCTION_LINES - 1) + ["pass"]),
        _function(["# why"] * (MAX_FUNCTION_LINES - 2) + ["pass"]),
    ),
    Case(
        Rule.FUNCTION_STATEMENTS,
        _function(['"""Not counted."""'] + ["pass"] * (MAX_FUNCTION_STATEMENTS + 1)),
        _function(['"""Not counted."""'] + ["pass"] * MAX_FUNCTION_STATEMENTS),
    ),
    Case(
        Rule.FUNCTION_STATEMENTS,
        "async def deep() -> None:\n    if True:\n" + "        pass\n" * MAX_FUNCTION_STATEMENTS,
        "async def deep() -> None:\n    if True:\n" + "        pass\n" * (MAX_FUNCTION_STATEMENTS - 1),
    ),
    Case(
        Rule.BROAD_EXCEPT,
        "try:\n    pass\nexcept Exception:\n    pass\n",
        "try:\n    pass\nexcept OSError:\n    pass\n",
        line=3,
    ),
    Case(
        Rule.BROAD_EXCEPT,
        "try:\n    pass\nexcept:\n    pass\n",
        "try:\n    pass\nexcept Exception:\n    pass\n",
        line=3,
        sound_path="src/harken/daemon/supervisor.py",
    ),
    Case(
        Rule.BROAD_EXCEPT,
        "try:\n    pass\nexcept (OSError, builtins.BaseException):\n    pass\n",
        "try:\n    pass\nexcept (OSError, ValueError):\n    pass\n",
        line=3,
    ),
    Case(Rule.BROAD_EXCEPT, "x = contextlib.suppress(Exception)\n", "x = contextlib.suppress(OSError)\n"),
    Case(Rule.MODULE_STATE, "SEEN = {}\n", "SEEN = MappingProxyType({'a': 1})\n"),
    Case(Rule.MODULE_STATE, "SEEN: Final = [1]\n", "SEEN: Final = (1,)\n"),
    Case(Rule.MODULE_STATE, "SEEN: Mapping[str, int] = {'a': 1}\n", "SEEN: Final[Mapping[str, int]] = {'a': 1}\n"),
    Case(Rule.MODULE_STATE, "SEEN: Final[dict[str, int]] = {'a': 1}\n", "SEEN: Final = frozenset({1})\n"),
    Case(Rule.MODULE_STATE, "SEEN = collections.deque()\n", "def fresh():\n    return collections.deque()\n"),
    Case(Rule.MODULE_STATE, "try:\n    a = 1\nexcept OSError:\n    a = []\n", "__all__ = ['a']\n", line=4),
    Case(Rule.MODULE_STATE, "def f():\n    global seen\n", "class A:\n    def f(self):\n        x = []\n", line=2),
    Case(Rule.EMPTY_NAME, "", "", path="src/harken/text_utils.py", sound_path="src/harken/sanitise.py"),
    Case(Rule.EMPTY_NAME, "", "", path="src/harken/core/message.py", sound_path="src/harken/score/message.py"),
    Case(Rule.EMPTY_NAME, "\nclass SessionManager:\n    pass\n", "\nclass Sessions:\n    pass\n", line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = r"[a-z]*+b"\n', 'import re\nA = r"[a-z]*b"\n', line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = rf"{B}(?:a|b){{2,}}+"\n', 'import re\nA = rf"{B}(?:a|b){{2,}}"\n', line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = "(?>a|ab)"\n', 'import re\nA = "(?:a|ab)"\n', line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = "a++"\n', 'import re\nA = r"[*+]+\\++[^]*+]"\n', line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = "a?+"\n', 'import re\nA = b in "*+?" or "a".join(b)\n', line=2),
    Case(Rule.POSSESSIVE, 'import re\nA = "a?+"\n', 'A = "C++"\n', line=2),
    Case(Rule.EDGE_STDLIB, "import anyio\n", "import socket\n", path="src/harken/edge/pipe.py"),
    Case(Rule.EDGE_STDLIB, "from ..model import A\n", "from .hello import A\n", path="src/harken/edge/pipe.py"),
    Case(Rule.EDGE_STDLIB, "def f():\n    import harken\n", "import json\n", path="src/harken/edge/pipe.py", line=2),
    Case(Rule.EDGE_STDLIB, "from .. import edge, model\n", "from . import hello\n", path="src/harken/edge/pipe.py"),
    Case(Rule.SUPPRESSION_REASON, "import a  # noqa: F401\n", "import a  # noqa: F401 - read by the host\n"),
    Case(Rule.SUPPRESSION_REASON, "import a  # noqa - read by the host\n", "import a  # imported for the host\n"),
    Case(Rule.SUPPRESSION_REASON, "a = 1  # type: ignore[misc]\n", "a = 1  # type: ignore[misc]  # stub is wrong\n"),
    Case(Rule.SUPPRESSION_REASON, "a = 1  # type: ignore  # stub is wrong\n", "a = '# type: ignore'\n"),
    Case(Rule.SUPPRESSION_REASON, "a = 1  # pragma: no cover\n", "a = 1  # pragma: no cover - only on Windows\n"),
    Case(Rule.SUPPRESSION_REASON, "a = 1  # noqa\n", "a = 1  # no quarrel\n", path=TEST),
    Case(Rule.TEST_SLEEP, "import time\ntime.sleep(0.1)\n", "import time\ntime.monotonic()\n", path=TEST, line=2),
    Case(Rule.TEST_SLEEP, "import anyio\nanyio.sleep(2 * 3)\n", "import anyio\nanyio.sleep(0)\n", path=TEST, line=2),
    Case(Rule.TEST_SLEEP, "from time import sleep\nsleep(1)\n", "def sleep(n): ...\nsleep(1)\n", path=TEST, line=2),
    Case(Rule.TEST_MOCK, "import unittest.mock\n", "import unittest\n", path=TEST),
    Case(Rule.TEST_MOCK, "from unittest import mock\n", "from unittest import case\n", path=TEST),
    Case(Rule.PARTICIPLE_CLASS, "class Wanted: ...\n", "class WantedMessage: ...\n"),
    Case(Rule.PARTICIPLE_CLASS, "class _Reading: ...\n", "class Feed: ...\n"),
    Case(Rule.PARTICIPLE_CLASS, "class Told: ...\n", "class Setting: ...\n"),
    Case(Rule.SESSION_CHANGE, "session.is_busy = True\n", "session.work()\n"),
    Case(Rule.SESSION_CHANGE, "self.session.stops += 1\n", "self.session = found\n"),
    Case(Rule.SESSION_CHANGE, "session.last_block, x = None, 1\n", "x, y = session.last_told\n"),
    Case(Rule.SESSION_CHANGE, "del session.wakers['bell']\n", "del wakers['bell']\n"),
    Case(Rule.SESSION_CHANGE, "new_session.moments.add('tool')\n", "sessions.add('tool')\n"),
    Case(
        Rule.SESSION_CHANGE,
        "session.hindrance = ''\n",
        "session.hindrance = ''\n",
        sound_path="src/harken/sessions/registry.py",
    ),
    Case(Rule.TEST_MOCK, "def test_a(mocker): ...\n", "def test_a(tmp_path): ...\n", path=TEST),
    Case(Rule.TEST_MOCK, "monkeypatch.setattr(a, 'b', 1)\n", "monkeypatch.setenv('b', '1')\n", path=TEST),
    Case(Rule.LOCK_PLACE, "--index-url https://a.example/simple\n", "# via anyio\n", path=LOCK),
    Case(Rule.LOCK_PLACE, "# make lock /home/someone/lock\n", "# make lock\n", path=LOCK),
    Case(Rule.LOCK_PLACE, "--find-links wheels\n", "    # via harken (pyproject.toml:dev)\n", path=LOCK),
    Case(Rule.LOCK_HASH, "anyio==4.0\n", "anyio==4.0 \\\n    --hash=sha256:00\n", path=LOCK),
)


def _found(root: Path, path: str, text: str, max_suppressions: int = NO_LIMIT) -> list[tuple[str, int, Rule]]:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return [(finding.path, finding.line, finding.rule) for finding in check(root, max_suppressions)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}")
def test_broken_file_is_found_where_it_is_broken(case: Case, tmp_path: Path) -> None:
    """A rule that points to the wrong place, or drags others along, gets switched off by annoyed people."""
    assert set(_found(tmp_path, case.path, case.broken)) == {(case.path, case.line, case.rule)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}")
def test_sound_file_passes(case: Case, tmp_path: Path) -> None:
    """There must be an allowed way to do what the rule forbids."""
    assert _found(tmp_path, case.sound_path or case.path, case.sound) == []


def test_suppressions_above_the_ceiling_are_found(tmp_path: Path) -> None:
    """Each one has its reason, but together they may only become fewer."""
    two = "import a  # noqa: F401 - read by the host\nimport b  # noqa: F401 - read by the host\n"
    assert _found(tmp_path, MODULE, two, max_suppressions=2) == []
    assert _found(tmp_path, MODULE, two, max_suppressions=1) == [(MODULE, 2, Rule.SUPPRESSION_CEILING)]


DECLARED = """
HOST = Host(name="magpie-cli", title="Magpie CLI", aliases=("magpie",), marks=HostMarks(variables=("MAGPIE_SESSION",)))
"""


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('x = "magpie-cli"\n', True),
        ('x = f"Run Magpie CLI: {y}"\n', True),
        ('x = ("magpie", 1)\n', True),
        ('x = environ["MAGPIE_SESSION"]\n', True),
        ("from harken.hosts.magpie.wake import Waker\n", True),
        ("import harken.hosts.magpie\n", True),
        ('"""Magpie CLI is told so."""\n', False),
        ("# magpie\n", False),
        ('x = "magpies-nest"\n', False),
        ("from harken.hosts.magpies import x\n", False),
        ('x = host_named("other").title\n', False),
    ],
)
def test_a_host_is_named_in_its_own_folder_only(tmp_path: Path, text: str, *, is_found: bool) -> None:
    """A table elsewhere is what the next host is forgotten in."""
    _found(tmp_path, "src/harken/hosts/magpie/host.py", DECLARED)
    _found(tmp_path, "src/harken/hosts/magpie/wake.py", text)
    assert _found(tmp_path, "src/harken/edge/host_table.py", 'x = "magpie-cli"\n') == []
    assert _found(tmp_path, MODULE, text) == ([(MODULE, 1, Rule.HOST_NAME)] if is_found else [])


def test_a_template_names_no_host(tmp_path: Path) -> None:
    """A page that shows one by name does not show that of another package."""
    _found(tmp_path, "src/harken/hosts/magpie/host.py", DECLARED)
    place = tmp_path / "src/harken/page/start.html.j2"
    place.parent.mkdir(parents=True)
    place.write_text("<p>\nharken connect magpie-cli</p>\n")
    assert (str(place.relative_to(tmp_path)), 2, Rule.HOST_NAME) in _found(tmp_path, MODULE, "x = 1\n")


def test_a_host_imports_no_other_host(tmp_path: Path) -> None:
    """One host can be added or taken away without reading the rest."""
    _found(tmp_path, "src/harken/hosts/magpie/host.py", DECLARED)
    _found(tmp_path, "src/harken/hosts/jay/host.py", 'HOST = Host(name="jay")\n')
    jay = "src/harken/hosts/jay/wake.py"
    assert _found(tmp_path, jay, "from harken.hosts.jay.hooks import HOOKS\n") == []
    assert _found(tmp_path, jay, "from harken.hosts.magpie.hooks import HOOKS\n") == [(jay, 1, Rule.HOST_NAME)]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('x = "pigeon"\n', True),
        ('KINDS = ("pigeon", "other")\n', True),
        ("from harken.sources.pigeon.source import PigeonSource\n", True),
        ("import harken.sources.pigeon\n", True),
        ('"""A pigeon brings it."""\n', False),
        ('x = "a pigeon brings it"\n', False),
        ('x = "mcp"\n', False),
        ("from harken.sources.registry import kinds\n", False),
    ],
)
def test_a_kind_of_source_is_named_in_its_own_folder_only(tmp_path: Path, text: str, *, is_found: bool) -> None:
    """A table elsewhere is what the next kind is forgotten in; the name of the protocol MCP is everybody's."""
    _found(tmp_path, "src/harken/sources/mcp/kind.py", 'KIND = SourceKind(name="mcp")\n')
    _found(tmp_path, "src/harken/sources/pigeon/kind.py", 'KIND = SourceKind(name="pigeon", title="Pigeon")\n')
    _found(tmp_path, "src/harken/sources/pigeon/source.py", text)
    assert _found(tmp_path, MODULE, text) == ([(MODULE, 1, Rule.SOURCE_KIND_NAME)] if is_found else [])


def test_a_class_name_is_defined_once(tmp_path: Path) -> None:
    """A name that means two things is looked up each time it is read."""
    other = "src/harken/other.py"
    assert _found(tmp_path, MODULE, "class Ledger: ...\n") == []
    assert _found(tmp_path, "tests/test_x.py", "class Ledger: ...\n") == []
    assert _found(tmp_path, other, "class Ledger: ...\n") == [(other, 1, Rule.CLASS_NAME)]


def test_few_modules_have_one_importer_only(tmp_path: Path) -> None:
    """A tree of modules that each serve one other is read by going back and forth."""
    for number in range(20):
        _found(tmp_path, f"src/harken/part{number}.py", "")
    several = "\n".join(f"from harken import part{number}" for number in range(6)) + "\n"
    assert _found(tmp_path, "src/harken/use.py", several) == []
    most = "\n".join(f"from harken import part{number}" for number in range(8)) + "\n"
    assert [rule for _, _, rule in _found(tmp_path, "src/harken/use.py", most)] == [Rule.ONE_IMPORTER]
    _found(tmp_path, "src/harken/again.py", most)
    assert _found(tmp_path, "src/harken/use.py", most) == []


def test_the_package_has_few_modules(tmp_path: Path) -> None:
    """Splitting is easy, and each part is one more place to look for the rest."""
    (tmp_path / MODULE).parent.mkdir(parents=True)
    for number in range(MAX_MODULES - 1):
        (tmp_path / f"src/harken/part{number}.py").touch()
    assert _found(tmp_path, MODULE, "") == []
    assert [rule for _, _, rule in _found(tmp_path, "src/harken/use.py", "")] == [Rule.MODULE_COUNT]


def test_no_chain_of_imports_is_long(tmp_path: Path) -> None:
    """A reader follows a name from module to module; after a dozen the question is forgotten."""
    for number in range(13):
        _found(tmp_path, f"src/harken/part{number}.py", f"from harken import part{number + 1}\n")
    assert _found(tmp_path, "src/harken/part13.py", "") == []
    found = _found(tmp_path, "src/harken/part13.py", "from harken import part14, part0\n")
    assert found == []
    _found(tmp_path, "src/harken/part14.py", "")
    assert [rule for _, _, rule in _found(tmp_path, "src/harken/use.py", "")] == [Rule.IMPORT_CHAIN]


def test_docstrings_name_who_does_what(tmp_path: Path) -> None:
    """Whoever is charming in a sentence, and cannot be searched for in a hundred thousand words."""
    named, vague = "The reader waits for it. " * 200, "Whoever reads it waits. "
    assert _found(tmp_path, MODULE, f'"""{vague}"""\n') == []
    assert _found(tmp_path, MODULE, f'"""{named}"""\n') == []
    assert _found(tmp_path, MODULE, f'"""{named}{vague}"""\n') == [(MODULE, 1, Rule.VAGUE_DOCSTRING)]


def test_every_rule_is_shown_to_fail() -> None:
    """A rule without a case here might never fire, and nobody would notice."""
    of_several_files = {
        Rule.SUPPRESSION_CEILING,
        Rule.HOST_NAME,
        Rule.SOURCE_KIND_NAME,
        Rule.CLASS_NAME,
        Rule.MODULE_COUNT,
        Rule.ONE_IMPORTER,
        Rule.IMPORT_CHAIN,
        Rule.VAGUE_DOCSTRING,
    }
    assert {case.rule for case in CASES} | of_several_files == set(Rule)


def test_findings_are_printed_with_place_rule_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People and editors jump to `file:line`, and the reason saves them the search; the exit code stops `make`."""
    _found(tmp_path, MODULE, "SEEN = {}\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == (
        "src/harken/model.py:1: module-state: "
        "shared by everything that imports it: pass it in, or make it Final and read-only\n"
        "ratchets: 1 findings\n"
    )


def test_clean_tree_exits_with_zero(tmp_path: Path) -> None:
    """Otherwise `make check` could never be green."""
    _found(tmp_path, MODULE, "SEEN = ()\n")
    assert main([str(tmp_path)]) == 0
