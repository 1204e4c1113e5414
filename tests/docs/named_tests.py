"""Finds the tests that `make test`, `make test-hosts` and `make soak` run, by reading the modules as pytest would."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_HOSTS_FOLDER = "hosts"  # `make test-hosts` collects there only


def collected(root: Path) -> frozenset[str]:
    """Return the names of all tests below a folder that some make target runs."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(root.rglob("*.py"))
        if "node_modules" not in path.parts
    }
    suites = {each.name: each for tree in trees.values() for each in tree.body if isinstance(each, ast.ClassDef)}
    found: set[str] = set()
    for path, tree in trees.items():
        is_hosts = path.relative_to(root).parts[0] == _HOSTS_FOLDER
        if path.name.startswith("test_") and (is_hosts or not _is_marked(_marks(tree), "hosts")):
            found.update(_in_body(tree.body, suites, is_hosts=is_hosts))
    return frozenset(found)


def _in_body(body: Iterable[ast.stmt], suites: Mapping[str, ast.ClassDef], *, is_hosts: bool = False) -> Iterator[str]:
    """Yield the tests of a module or a class, with those of the suites that it has, and those that it imports."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                marks = node.decorator_list
                if not _is_marked(marks, "skip") and (is_hosts or not _is_marked(marks, "hosts")):
                    yield name
            case ast.ClassDef(name=name) if name.startswith("Test"):
                yield from _in_suite(node, suites)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=suite)) if name.startswith("Test"):
                yield from _in_suite(suites[suite], suites)
            case ast.ImportFrom(names=names):
                yield from (each.name for each in names if each.name.startswith("test_"))


def _in_suite(suite: ast.ClassDef, suites: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    yield from _in_body(suite.body, suites)
    for base in suite.bases:
        if isinstance(base, ast.Name) and base.id in suites:
            yield from _in_suite(suites[base.id], suites)


def _marks(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the marks of a whole module."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield value


def _is_marked(nodes: Iterable[ast.expr], mark: str) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == mark for node in nodes for each in ast.walk(node))
