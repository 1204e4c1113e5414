"""The published schema and the loader say the same, and no file whatever makes the loader fail in another way."""

from __future__ import annotations

import itertools
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from harken.hosts.registry import host_names
from harken.rules.fields import KEYS
from harken.rules.load import InvalidRules, RuleFault, json_schema, load
from tests.examples import examples

PUBLISHED: Final = Path(__file__).parents[2] / "docs" / "reference" / "triggers.schema.json"
CHECK: Final[Any] = import_module("jsonschema").Draft202012Validator(json_schema())  # it comes without types

ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)
# What each field is probably given, right and wrong. Not among them is what a schema cannot say: see its docstring.
ODD: Final = st.sampled_from([5, True, [], {}, "\x00", "a\u202eb", "a\nb", "\ud800", " ", "\U000e0020"])
LIKELY: Final[dict[str, SearchStrategy[object]]] = {
    "server": st.sampled_from(["github", "*", "", "x" * 256, "x" * 257]),
    "channel": st.sampled_from(["alerts", "alerts/*", "*", "", "caf\u00e9 \u2615"]),
    "contentRegex": st.sampled_from(["fail", "(?i)a|b", "", "a\tb\n", "x" * 10_000, "x" * 10_001]),
    "mode": st.sampled_from(["notify", "confirm", "auto", "auto", "Notify", "run"]),
    "prompt": st.sampled_from(["Look.", "{{content}}\r\n", "", "\n\t", "x" * 64_001]),
    "tools": st.lists(st.sampled_from(["read_file", "shell:git log", "", " "]), max_size=3)
    | st.sampled_from([[], ["x"] * 200, ["x"] * 201, [5], "read_file"]),
    "rateLimit": st.sampled_from(["5m", "1h30m", "", "0", "+1.5h", "5min", "5", "-5m", " 5m", "5m\n", "1\u00b5s"]),
    "dedupWindow": st.sampled_from([".5s", "1.h", ".s", "1d", "s"]),
    "agent": st.sampled_from(["codex", ""]),
    "workdir": st.sampled_from(["/x", "~", "~/x", "~x", "x/y", "", "C:\\x", "~\n", "~/a\nb"]),
    "trust": st.sampled_from(["owner", "known", "unknown", "Owner", ""]),
    "timeout": st.sampled_from(["1s", "24h", "10 m", ""]),
    "maxTurns": st.sampled_from([0, 1, 200, 201, 5.0, 1.5, "5", False]),
    "reply": st.sampled_from([True, False, "yes", 0]),
    "quietHours": st.sampled_from(["22:00-07:00", "", "9-17", "24:00-01:00", "22:00-07:00\n"]),
    "mailbox": st.sampled_from(["inbox", "*", "task:t1", ""]),
    "comment": st.just("mine"),
}
NAMES: Final = st.sampled_from(["ci", "a b", "x" * 64, "x" * 65, "", " "]) | st.text(min_size=1, max_size=6)


@st.composite
def likely_rules(draw: st.DrawFn) -> object:
    """Return what could stand for a rule: mostly right, with few fields, so that some are right altogether."""
    keys = draw(st.lists(st.sampled_from(sorted(LIKELY)), max_size=5, unique=True))
    rule = {key: draw(st.one_of(LIKELY[key], LIKELY[key], LIKELY[key], ODD)) for key in keys}
    name = draw(st.one_of(st.just({"name": "ci"}), st.just({"name": "ci"}), st.fixed_dictionaries({"name": NAMES})))
    return draw(st.one_of(st.just(name | rule), st.just(name | rule), st.just(name | rule), st.just(rule), ODD))


def faults_of(data: bytes) -> tuple[RuleFault, ...]:
    """Return what is wrong with a file, nothing when it is taken."""
    try:
        load(data)
    except InvalidRules as fault:
        return fault.faults
    return ()


def is_loaded(document: object) -> bool:
    """Whether the loader takes a document."""
    return not faults_of(json.dumps(document).encode())


@settings(max_examples=examples(300))
@given(likely_rules(), st.sampled_from([{}, {}, {"$schema": "x"}, {"$schema": 5}, {"version": 1}]))
def test_the_loader_and_the_schema_agree(rule: object, around: dict[str, object]) -> None:
    """What an editor underlines is refused, and what it lets pass is in force."""
    document = {**around, "rules": [rule]}
    assert is_loaded(document) is CHECK.is_valid(document)


@pytest.mark.parametrize("mode", [{}, {"mode": "notify"}, {"mode": "confirm"}, {"mode": "auto"}])
def test_they_agree_about_what_each_mode_needs(mode: dict[str, object]) -> None:
    """A run without an order, or with any tool, must not look right in an editor."""
    prompts: list[dict[str, object]] = [{}, {"prompt": ""}, {"prompt": " \n"}, {"prompt": "Look."}]
    tools: list[dict[str, object]] = [{}, {"tools": []}, {"tools": ["read_file"]}]
    for prompt, tool in itertools.product(prompts, tools):
        document = {"rules": [{"name": "x", **mode, **prompt, **tool}]}
        is_right = (mode.get("mode") in (None, "notify") or prompt == prompts[3]) and (
            mode.get("mode") != "auto" or tool == tools[2]
        )
        assert (is_loaded(document), CHECK.is_valid(document)) == (is_right, is_right)


@pytest.mark.parametrize("document", [[], None, "x", {}, {"rules": {}}, {"rules": 5}, {"rules": []}, {"rules": [[]]}])
def test_they_agree_about_the_file_itself(document: object) -> None:
    """Whatever is around the rules."""
    assert is_loaded(document) is CHECK.is_valid(document)


def test_the_schema_is_one_and_its_examples_are_right() -> None:
    """An example is copied: each must be accepted by the schema, and by the loader."""
    schema = json_schema()
    CHECK.check_schema(schema)
    (example,) = schema["examples"]
    assert CHECK.is_valid(example)
    assert len(load(json.dumps(example).encode()).rules) == 2
    for key, about in schema["$defs"]["rule"]["properties"].items():
        assert about["description"]
        for value in about.get("examples", ()):
            rule = {"name": "x", "mode": "notify", key: value}
            assert CHECK.is_valid({"rules": [rule]})
            assert is_loaded({"rules": [rule]})


def test_the_schema_knows_every_field() -> None:
    """A field that it does not know, no editor completes."""
    assert tuple(json_schema()["$defs"]["rule"]["properties"]) == KEYS


def test_the_published_schema_is_current() -> None:
    """`python scripts/reference.py` writes it."""
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == json_schema(host_names())


@given(st.binary() | st.binary().map(lambda data: b'{"rules": [' + data + b"]}"))
def test_any_bytes_are_rules_or_a_fault(data: bytes) -> None:
    """The file is the person's, and may be anything; nothing but a fault may come of it."""
    assert all(fault.accepted for fault in faults_of(data))


@given(ANYTHING | ANYTHING.map(lambda rule: {"rules": [rule]}) | st.lists(ANYTHING).map(lambda rules: {"rules": rules}))
def test_any_json_is_rules_or_faults_that_can_be_shown(document: object) -> None:
    """A fault repeats what it found: on a terminal, where a file must not be able to do anything."""
    assert all(fault.sentence.isprintable() for fault in faults_of(json.dumps(document).encode()))
