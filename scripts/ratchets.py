"""House rules that no linter knows: each finding says where, which rule, and why it matters.

Run by `make check` as `python scripts/ratchets.py [ROOT]`. It reads `src/`, `tests/`, `scripts/` and the lock
files as text and syntax trees; it imports none of them and needs the standard library only. It is not a style
checker: ruff and mypy come before it. A limit may be lowered at any time and is never raised together with the
change that needs it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

MAX_MODULES: Final = 430
MAX_MODULE_LINES: Final = 800
MAX_FUNCTION_LINES: Final = 60
MAX_FUNCTION_STATEMENTS: Final = 40
MAX_SUPPRESSIONS: Final = 6
MIN_REASON_WORDS: Final = 2
MAX_ONE_IMPORTER_PERCENT: Final = 30
MAX_IMPORT_CHAIN: Final = 14
ENOUGH_MODULES: Final = 20  # a share of fewer says nothing
MAX_VAGUE_WORDS: Final = 0.4  # in 1,000 words of docstrings
ENOUGH_WORDS: Final = 1_000  # a rate over fewer says nothing

# The supervisor keeps loops alive; the writer thread hands whatever a job raised to the caller that waits for it; a
# plugin is other people's code, and a broken one stops nothing else.
CATCH_ALLS: Final = frozenset(
    {
        "src/harken/daemon/supervisor.py",
        "src/harken/store/sql/writer.py",
        "src/harken/plugins.py",  # other people's code
        "src/harken/verbs/verb.py",  # logged, and told to the caller
    }
)
EDGE: Final = "src/harken/edge/"
SESSIONS: Final = "src/harken/sessions/"
EDGE_TABLE: Final = "src/harken/edge/host_table.py"  # written from the declarations
HOSTS: Final = "src/harken/hosts/"
SOURCES: Final = "src/harken/sources/"
KIND_DECLARATION: Final = "/kind.py"
# The protocol's own name; and a word that means something else there.
NO_KIND_NAMES: Final = frozenset({"mcp"})
OTHER_MEANINGS: Final = frozenset(
    {("src/harken/inbox/results.py", "outlook"), ("src/harken/surfaces/mcp/events.py", "webhook")}
)
DECLARATION: Final = "host.py"
NAMING_FIELDS: Final = frozenset({"name", "title", "aliases"})
LOCK_FILES: Final = ("requirements.lock", "requirements-dev.lock")
SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})

EMPTY_NAMES: Final = frozenset({"util", "utils", "helper", "helpers", "common", "manager", "managers", "core"})
IRREGULAR_PARTICIPLES: Final = frozenset(
    {"Chosen", "Done", "Gone", "Heard", "Held", "Kept", "Left", "Lost", "Sent", "Shown", "Told", "Written"}
)
# They end as participles do, and are nouns.
PLAIN_NOUNS: Final = frozenset(
    {"Embed", "Feed", "Finding", "Need", "Ring", "Seed", "Setting", "Shed", "String", "Thing"}
)
# They stand where a type has a name.
VAGUE_WORDS: Final = frozenset({"whoever", "whatever", "somebody", "nobody", "anybody", "whom", "whose"})
BROAD_ERRORS: Final = frozenset({"Exception", "BaseException"})
SLEEPING_MODULES: Final = frozenset({"time", "anyio", "asyncio", "trio"})
MOCK_MODULES: Final = frozenset({"mock", "pytest_mock", "unittest.mock"})
CHANGING_METHODS: Final = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
MUTABLE_CALLS: Final = frozenset(
    {
        "list",
        "dict",
        "set",
        "bytearray",
        "defaultdict",
        "deque",
        "Counter",
        "OrderedDict",
        "ChainMap",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "WeakSet",
        "count",
        "cycle",
        "Lock",
        "RLock",
        "Condition",
        "Event",
        "Semaphore",
        "Queue",
        "SimpleQueue",
        "StringIO",
        "BytesIO",
    }
)
READ_ONLY_TYPES: Final = frozenset(
    {
        "Mapping",
        "Sequence",
        "Collection",
        "Iterable",
        "Container",
        "Sized",
        "AbstractSet",
        "MappingProxyType",
        "frozenset",
        "tuple",
    }
)
MUTABLE_NODES: Final = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)

# Each has one group: the code that says what is silenced.
_SUPPRESSIONS: Final = (
    re.compile(r"#\s*(?:(?:ruff|flake8):\s*)?noqa(:\s*[A-Z]+[0-9]+(?:[,\s]\s*[A-Z]+[0-9]+)*)?"),
    re.compile(r"#\s*type:\s*ignore(\[[a-z0-9, -]+\])?"),
    re.compile(r"#\s*mypy:\s*([a-z-]+)?"),
    re.compile(r"#\s*pragma\b:?(\s*no \w+)?"),
)
# What is escaped or in a class is skipped.
_POSSESSIVE: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<found>[*+?}]\+|\(\?>)", re.DOTALL)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{6,}")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_DOCSTRING_WORD: Final = re.compile(r"[a-z']+")
_CAMEL_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")
_NAMES_A_PLACE: Final = re.compile(r"://|(?:^|\s)(?:-i|-f|--\w*index\S*|--find-links|--trusted-host)\b|(?:^|[\s@])/\w")


class Rule(StrEnum):
    """The name a finding carries."""

    MODULE_COUNT = "module-count"
    MODULE_LENGTH = "module-length"
    FUNCTION_LENGTH = "function-length"
    FUNCTION_STATEMENTS = "function-statements"
    BROAD_EXCEPT = "broad-except"
    MODULE_STATE = "module-state"
    EMPTY_NAME = "empty-name"
    EDGE_STDLIB = "edge-stdlib"
    POSSESSIVE = "possessive"
    SUPPRESSION_REASON = "suppression-reason"
    SUPPRESSION_CEILING = "suppression-ceiling"
    TEST_SLEEP = "test-sleep"
    TEST_MOCK = "test-mock"
    HOST_NAME = "host-name"
    SESSION_CHANGE = "session-change"
    SOURCE_KIND_NAME = "source-kind-name"
    CLASS_NAME = "class-name"
    PARTICIPLE_CLASS = "participle-class"
    ONE_IMPORTER = "one-importer"
    IMPORT_CHAIN = "import-chain"
    VAGUE_DOCSTRING = "vague-docstring"
    LOCK_PLACE = "lock-place"
    LOCK_HASH = "lock-hash"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One broken rule at one place."""

    path: str
    line: int
    rule: Rule
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.why}"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file, read and parsed once; `path` is relative to the root and uses slashes."""

    path: str
    text: str
    tree: ast.Module

    def finding(self, line: int, rule: Rule, why: str) -> Finding:
        """Return a finding in this file."""
        return Finding(self.path, line, rule, why)


Check = Callable[[SourceFile], Iterator[Finding]]


def check(root: Path, max_suppressions: int = MAX_SUPPRESSIONS) -> list[Finding]:
    """Return everything below the root that breaks a rule, in order of place."""
    files = [_read(root, path) for path in _python_files(root)]
    findings = [finding for file in files for rule in _checks_for(file.path) for finding in rule(file)]
    findings += suppression_count(files, max_suppressions)
    findings += host_name(files, _templates(root))
    findings += source_kind_name(files)
    findings += class_name(files)
    findings += module_count(files)
    findings += one_importer(files)
    findings += import_chain(files)
    findings += vague_docstring(files)
    findings += [finding for name in LOCK_FILES for finding in lock_file(root, name)]
    return sorted(findings)


def module_length(file: SourceFile) -> Iterator[Finding]:
    """A module has one noun and can be read in one sitting."""
    lines = len(file.text.splitlines())
    if lines > MAX_MODULE_LINES:
        why = f"{lines} lines, at most {MAX_MODULE_LINES}: split it by noun, in a commit of its own"
        yield file.finding(lines, Rule.MODULE_LENGTH, why)


def function_size(file: SourceFile) -> Iterator[Finding]:
    """A function fits on a screen."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            why = f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}: what fits on a screen can be reviewed"
            yield file.finding(node.lineno, Rule.FUNCTION_LENGTH, why)
        statements = _count_statements(node)
        if statements > MAX_FUNCTION_STATEMENTS:
            why = f"{node.name} has {statements} statements, at most {MAX_FUNCTION_STATEMENTS}: name its steps"
            yield file.finding(node.lineno, Rule.FUNCTION_STATEMENTS, why)


def broad_except(file: SourceFile) -> Iterator[Finding]:
    """Only the supervisor may catch what nobody foresaw."""
    if file.path in CATCH_ALLS:
        return
    why = "a catch-all hides the bug that loses a message: catch by name, or let the supervisor see it"
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ExceptHandler):
            is_broad = node.type is None or _names_broad_error(node.type)
        else:
            is_broad = (
                isinstance(node, ast.Call)
                and _last_name(node.func) == "suppress"
                and any(_names_broad_error(argument) for argument in node.args)
            )
        if is_broad:
            yield file.finding(_line(node), Rule.BROAD_EXCEPT, why)


def module_state(file: SourceFile) -> Iterator[Finding]:
    """Two daemons in one process, or two tests, must not meet in a module."""
    why = "shared by everything that imports it: pass it in, or make it Final and read-only"
    for node in _module_statements(file.tree.body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or _assigns_all(node):
            continue
        if _is_mutable(node.value) and not (isinstance(node, ast.AnnAssign) and _is_final_read_only(node.annotation)):
            yield file.finding(node.lineno, Rule.MODULE_STATE, why)
    for inner in ast.walk(file.tree):
        if isinstance(inner, ast.Global):
            yield file.finding(inner.lineno, Rule.MODULE_STATE, "`global` rebinds what others see: pass the value in")


def empty_name(file: SourceFile) -> Iterator[Finding]:
    """A name says what is inside."""
    why = "says nothing and attracts everything: name it after its one noun"
    for part in Path(file.path).with_suffix("").parts:
        if EMPTY_NAMES & set(part.lower().split("_")):
            yield file.finding(1, Rule.EMPTY_NAME, f"{part!r} {why}")
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef):
            words = _CAMEL_WORD.findall(node.name)
            if words and words[-1].lower() in EMPTY_NAMES:
                yield file.finding(node.lineno, Rule.EMPTY_NAME, f"{node.name!r} {why}")


def edge_stdlib(file: SourceFile) -> Iterator[Finding]:
    """The edge starts on every tool call of an agent."""
    for node in ast.walk(file.tree):
        for module in _imported_modules(node, file.path):
            is_own = module == "harken.edge" or module.startswith("harken.edge.")
            if not is_own and module.partition(".")[0] not in sys.stdlib_module_names:
                why = f"imports {module}: the edge is standard library only, an agent waits for its start"
                yield file.finding(_line(node), Rule.EDGE_STDLIB, why)


def possessive(file: SourceFile) -> Iterator[Finding]:
    """An expression means the same under every Python that Harken runs with."""
    why = (
        "possessive or atomic: early releases of Python 3.11 match it wrongly; let nothing of a run be what follows it"
    )
    nodes = list(ast.walk(file.tree))
    if not any("re" in _imported_modules(node, file.path) for node in nodes):
        return
    compared = {id(operand) for node in nodes if isinstance(node, ast.Compare) for operand in node.comparators}
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in compared:
            continue
        if any(match["found"] for match in _POSSESSIVE.finditer(node.value)):
            yield file.finding(node.lineno, Rule.POSSESSIVE, why)


def suppression_reason(file: SourceFile) -> Iterator[Finding]:
    """Whoever silences a tool says which rule and why."""
    for line, comment in _suppressing_comments(file):
        if any(found[1] is None for pattern in _SUPPRESSIONS for found in pattern.finditer(comment)):
            yield file.finding(line, Rule.SUPPRESSION_REASON, "names no code: it would hide the next mistake as well")
        prose = comment
        for pattern in _SUPPRESSIONS:
            prose = pattern.sub(" ", prose)
        if len(_WORD.findall(prose)) < MIN_REASON_WORDS:
            why = "gives no reason: the next reader cannot tell when it may go"
            yield file.finding(line, Rule.SUPPRESSION_REASON, why)


def suppression_count(files: list[SourceFile], ceiling: int) -> Iterator[Finding]:
    """There are fewer suppressions after a change than before it."""
    found = [(file, line) for file in files for line, _ in _suppressing_comments(file)]
    if len(found) > ceiling:
        file, line = found[-1]
        why = f"{len(found)} suppressions, at most {ceiling}: fix one (this is merely the last of them)"
        yield file.finding(line, Rule.SUPPRESSION_CEILING, why)


def host_name(files: list[SourceFile], templates: Mapping[str, str]) -> Iterator[Finding]:
    """A host is known in its own folder only: another one needs no edit elsewhere, also none in other hosts."""
    declared = [file for file in files if file.path.startswith(HOSTS) and _is_declaration(file.path)]
    folders = {file.path.removesuffix(DECLARATION) for file in declared}
    words = sorted({word for file in declared for word in _declared_words(file.tree)})
    if not words:
        return
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, words))})(?![\w-])", re.IGNORECASE)
    for file in files:
        if file.path == EDGE_TABLE or not file.path.startswith("src/"):
            continue
        own = next((folder for folder in folders if file.path.startswith(folder)), "")
        others = [folder.removeprefix("src/").rstrip("/").replace("/", ".") for folder in folders - {own}]
        for node in _without_docstrings(file.tree):
            if not own and (found := pattern.search(_text(node))):
                why = f"names {found[0]!r}: what is known of one host is declared in its folder"
                yield file.finding(_line(node), Rule.HOST_NAME, why)
            for module in _imported_modules(node, file.path):
                if any(module == package or module.startswith(f"{package}.") for package in others):
                    why = f"imports {module}: a host's parts are reached by its declaration only"
                    yield file.finding(_line(node), Rule.HOST_NAME, why)
    for path, text in templates.items():
        yield from _host_named_in(path, text, pattern)


def _host_named_in(path: str, text: str, pattern: re.Pattern[str]) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := pattern.search(line):
            why = f"names {found[0]!r}: a template asks the registry for the names of hosts"
            yield Finding(path, number, Rule.HOST_NAME, why)


def session_change(file: SourceFile) -> Iterator[Finding]:
    """A session is changed by its own methods, in its own package: what changes with what is said in one place."""
    if file.path.startswith(SESSIONS) or not file.path.startswith("src/"):
        return
    for node in ast.walk(file.tree):
        if any(_last_name(place.value).endswith("session") for place in _changed_places(node)):
            why = f"only {SESSIONS} changes a session: call a method of it, or add one"
            yield file.finding(_line(node), Rule.SESSION_CHANGE, why)


def source_kind_name(files: list[SourceFile]) -> Iterator[Finding]:
    """A kind of source is known in its own folder only: another one needs no edit elsewhere."""
    declared = [file for file in files if file.path.startswith(SOURCES) and file.path.endswith(KIND_DECLARATION)]
    folders = tuple(file.path.removesuffix("kind.py") for file in declared)
    names = {name for file in declared for name in _kind_names(file.tree)} - NO_KIND_NAMES
    packages = tuple(folder.removeprefix("src/").rstrip("/").replace("/", ".") for folder in folders)
    for file in files:
        if file.path.startswith(folders) or not file.path.startswith("src/"):
            continue
        for node in _without_docstrings(file.tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if text in names and (file.path, text) not in OTHER_MEANINGS:
                why = f"names {text!r}: what is known of one kind of source is declared in its folder"
                yield file.finding(_line(node), Rule.SOURCE_KIND_NAME, why)
            for module in _imported_modules(node, file.path):
                if any(module == package or module.startswith(f"{package}.") for package in packages):
                    why = f"imports {module}: the parts of a kind of source are reached by its declaration only"
                    yield file.finding(_line(node), Rule.SOURCE_KIND_NAME, why)


def class_name(files: list[SourceFile]) -> Iterator[Finding]:
    """A class name means one thing: it is defined once in the package."""
    first: dict[str, str] = {}
    for file in files:
        if not file.path.startswith("src/"):
            continue
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef):
                if node.name in first:
                    why = f"{node.name} is defined in {first[node.name]} too: say in the name which one it is"
                    yield file.finding(_line(node), Rule.CLASS_NAME, why)
                first.setdefault(node.name, file.path)


def participle_class(file: SourceFile) -> Iterator[Finding]:
    """A class is named by a noun: a participle says what happened to something, and not what it is."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef):
            word = node.name.removeprefix("_")
            is_regular = re.fullmatch(r"[A-Z][a-z]+(?:ed|ing)", word) is not None
            if (is_regular or word in IRREGULAR_PARTICIPLES) and word not in PLAIN_NOUNS:
                why = f"{node.name} is a participle: name the thing, such as {word}Message"
                yield file.finding(_line(node), Rule.PARTICIPLE_CLASS, why)


def one_importer(files: list[SourceFile]) -> Iterator[Finding]:
    """Most modules are of use to several others: one that serves a single module is often a part of it."""
    imports = _imports(files)
    users = Counter(imported for names in imports.values() for imported in names)
    single = sorted(name for name in imports if users[name] == 1)
    percent = round(100 * len(single) / max(1, len(imports)))
    if len(imports) >= ENOUGH_MODULES and percent > MAX_ONE_IMPORTER_PERCENT:
        why = f"{percent} % of the modules have one importer, at most {MAX_ONE_IMPORTER_PERCENT} %: merge some"
        file = next(file for file in files if _module_of(file.path) == single[-1])
        yield file.finding(1, Rule.ONE_IMPORTER, why)


def module_count(files: list[SourceFile]) -> Iterator[Finding]:
    """A part that belongs to another is found beside it, not in a module that has to be known."""
    modules = [file for file in files if file.path.startswith("src/")]
    if len(modules) > MAX_MODULES:
        why = f"{len(modules)} modules, at most {MAX_MODULES}: first merge two that share a noun"
        yield modules[-1].finding(1, Rule.MODULE_COUNT, why)


def import_chain(files: list[SourceFile]) -> Iterator[Finding]:
    """What a module is built on is near: through a long chain nobody sees what a change at its end does."""
    imports = _imports(files)
    chains: dict[str, list[str]] = {}

    def longest(name: str, above: frozenset[str]) -> list[str]:
        if name not in chains:
            below = (longest(each, above | {name}) for each in imports[name] if each not in above)
            chains[name] = [name, *max(below, key=len, default=[])]
        return chains[name]

    chain = max((longest(name, frozenset({name})) for name in imports), key=len, default=[])
    if len(chain) > MAX_IMPORT_CHAIN:
        file = next(file for file in files if _module_of(file.path) == chain[0])
        why = f"{len(chain)} modules import each other in a row, at most {MAX_IMPORT_CHAIN}: {' > '.join(chain)}"
        yield file.finding(1, Rule.IMPORT_CHAIN, why)


def _imports(files: list[SourceFile]) -> Mapping[str, frozenset[str]]:
    """Return the modules of the package that each imports, also for types only."""
    modules = {_module_of(file.path): file for file in files if file.path.startswith("src/")}

    def imported(name: str, file: SourceFile) -> Iterator[str]:
        for node in ast.walk(file.tree):
            for each in _imported_names(node):
                found = each if each in modules else each.rpartition(".")[0]
                if found in modules and found != name:
                    yield found

    return {name: frozenset(imported(name, file)) for name, file in modules.items()}


def vague_docstring(files: list[SourceFile]) -> Iterator[Finding]:
    """Docstrings name who does what: a reader searches for the type, and finds no "whoever"."""
    found: list[tuple[SourceFile, int]] = []
    count = 0
    for file in files:
        for node in ast.walk(file.tree) if file.path.startswith("src/") else ():
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            words = _DOCSTRING_WORD.findall((ast.get_docstring(node) or "").lower())
            count += len(words)
            found += [(file, _line(node.body[0])) for word in words if word in VAGUE_WORDS]
    rate = 1_000 * len(found) / max(count, 1)
    if count >= ENOUGH_WORDS and rate > MAX_VAGUE_WORDS:
        file, line = found[-1]
        why = (
            f"{rate:.2f} of 1,000 words are whoever, whose and the like, at most {MAX_VAGUE_WORDS}: "
            "name the type (this is merely the last of them)"
        )
        yield file.finding(line, Rule.VAGUE_DOCSTRING, why)


def _module_of(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported_names(node: ast.AST) -> list[str]:
    """Return what a statement imports, by full names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _kind_names(tree: ast.Module) -> Iterator[str]:
    """Yield the name that a declaration gives its kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SourceKind":
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def test_sleep(file: SourceFile) -> Iterator[Finding]:
    """A test waits for an event, not for a time."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ImportFrom) and node.module in SLEEPING_MODULES
        for alias in node.names
        if alias.name == "sleep"
    }
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id=module), attr="sleep"):
                is_sleep = module in SLEEPING_MODULES
            case ast.Name(id=name):
                is_sleep = name in imported
            case _:
                is_sleep = False
        if is_sleep and _is_positive_literal(node.args[0]):
            why = "too short on a slow machine and wasted on a fast one: wait for an event inside fail_after"
            yield file.finding(node.lineno, Rule.TEST_SLEEP, why)


def test_mock(file: SourceFile) -> Iterator[Finding]:
    """A test uses real parts, or the public fakes."""
    why = "a patched name proves that the patch works: use a real part, or add the missing seam"
    for node in ast.walk(file.tree):
        is_patch = (
            (isinstance(node, ast.arg) and node.arg == "mocker")
            or (
                isinstance(node, ast.Attribute)
                and node.attr == "setattr"
                and isinstance(node.value, ast.Name)
                and "monkeypatch" in node.value.id
            )
            or any(module in MOCK_MODULES for module in _imported_modules(node, file.path))
        )
        if is_patch:
            yield file.finding(_line(node), Rule.TEST_MOCK, why)


def lock_file(root: Path, name: str) -> Iterator[Finding]:
    """A lock file holds versions and hashes, and installs from anywhere."""
    path = root / name
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if _NAMES_A_PLACE.search(line):
            why = "names a host or a folder of one machine: `make lock` writes only versions and hashes"
            yield Finding(name, number, Rule.LOCK_PLACE, why)
        is_pin = bool(line) and line[0].isalnum()
        if is_pin and not (number < len(lines) and lines[number].lstrip().startswith("--hash=")):
            why = "has no hash: anyone on the way could exchange the file"
            yield Finding(name, number, Rule.LOCK_HASH, why)


def main(arguments: list[str]) -> int:
    """Print the findings below a root (this checkout if none is given); return 1 if there are any."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"ratchets: {len(findings)} findings\n")
    return 1 if findings else 0


def _checks_for(path: str) -> tuple[Check, ...]:
    """Tests may be long and may hold state; they may not sleep or patch."""
    if path.startswith("tests/"):
        return (suppression_reason, test_sleep, test_mock)
    checks: tuple[Check, ...] = (module_length, function_size, broad_except, module_state, empty_name)
    checks = (*checks, possessive, suppression_reason, session_change, participle_class)
    return (*checks, edge_stdlib) if path.startswith(EDGE) else checks


def _python_files(root: Path) -> Iterator[Path]:
    for folder in ("src", "scripts", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            if not SKIPPED_FOLDERS & set(path.relative_to(root).parts):
                yield path


def _read(root: Path, path: Path) -> SourceFile:
    text = path.read_text(encoding="utf-8")
    return SourceFile(path.relative_to(root).as_posix(), text, ast.parse(text, filename=str(path)))


def _templates(root: Path) -> Mapping[str, str]:
    found = sorted((root / "src").rglob("*.j2"))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found}


def _suppressing_comments(file: SourceFile) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type == tokenize.COMMENT and any(pattern.search(token.string) for pattern in _SUPPRESSIONS):
            yield token.start[0], token.string


def _count_statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return sum(isinstance(node, ast.stmt) for statement in body for node in ast.walk(statement))


def _module_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs on import: also below `if`, `try` and `with`, not inside functions and classes."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            children = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
            handlers = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.ExceptHandler)]
            yield from _module_statements([*children, *(inner for handler in handlers for inner in handler.body)])


def _is_declaration(path: str) -> bool:
    folder, _, name = path.removeprefix(HOSTS).partition("/")
    return bool(folder) and name == DECLARATION


def _declared_words(tree: ast.Module) -> Iterator[str]:
    """Yield what a declaration calls its host, and the environment variables that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in NAMING_FIELDS:
            yield from filter(None, map(_text, ast.walk(node.value)))
        elif _VARIABLE.fullmatch(_text(node)):
            yield _text(node)


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _without_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(tree) if isinstance(node, owners) and ast.get_docstring(node) is not None]
    skipped = {id(node.body[0].value) for node in documented if isinstance(node.body[0], ast.Expr)}
    return (node for node in ast.walk(tree) if id(node) not in skipped)


def _assigns_all(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _last_name(value.func) in MUTABLE_CALLS
    return isinstance(value, MUTABLE_NODES)


def _is_final_read_only(annotation: ast.expr) -> bool:
    """Whether it reads `Final[T]` with a T through which nobody can write."""
    return (
        isinstance(annotation, ast.Subscript)
        and _last_name(annotation.value) == "Final"
        and _last_name(annotation.slice) in READ_ONLY_TYPES
    )


def _names_broad_error(node: ast.expr) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(_last_name(name) in BROAD_ERRORS for name in names)


def _is_positive_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int() | float() as seconds):
            return seconds > 0
        case ast.BinOp(left=left, right=right):
            return _is_positive_literal(left) and _is_positive_literal(right)
        case _:
            return False


def _changed_places(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns, deletes or changes by a method of their value."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        targets = [node.func.value]
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            place = each.value if isinstance(each, ast.Subscript) else each
            if isinstance(place, ast.Attribute):
                yield place


def _imported_modules(node: ast.AST, path: str) -> list[str]:
    """The absolute names a statement imports; none if it is no import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    if node.level:
        package = Path(path).with_suffix("").parts[1 : -node.level]
        modules = [node.module] if node.module else [alias.name for alias in node.names]
        return [".".join((*package, module)) for module in modules]
    names = [f"{node.module}.{alias.name}" for alias in node.names]
    return [node.module or "", *(name for name in names if name in MOCK_MODULES)]


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
        case _:
            return ""


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
