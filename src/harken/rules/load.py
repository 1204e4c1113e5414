"""Reading `triggers.json`: every rule of it, or everything that is wrong with it. There is nothing in between.

Pure: bytes in, rules out. A file written for the older tool is read as it is. What each field accepts is in `fields`.
Faults and warnings name the line of their rule and field. The caller reads the file from disk, and keeps the previous
rules when this fails.

`json_schema` says the same to editors, as far as JSON Schema can. What it cannot, only the loader checks: that names
are unique and expressions are of RE2, how long a duration may be, and that quiet hours have a length. The loader takes
null, and an empty mode, for not given, because older files may have them; the schema does not offer that.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from harken.automation import ANY, DEFAULT_TIMEOUT, DEFAULT_TURNS, EDIT_FILE, EDIT_INSTRUCTIONS, Mode, Rule
from harken.model import INBOX, Trust
from harken.rules import fields
from harken.rules.fault import FieldMisfit, InvalidRules, RuleFault, closest, plain_or_quoted, shown
from harken.rules.match import MAX_PATTERN_CHARS
from harken.rules.prompt import WORDS, words_in

MAX_BYTES: Final = 1_000_000
MAX_RULES: Final = 1_000
MAX_KEYS: Final = 100  # of one object: each that is not known is compared with those that are
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_TOP_KEYS: Final = ("rules", "$schema")
_Value = TypeVar("_Value")
__all__ = ["MAX_BYTES", "MAX_KEYS", "MAX_RULES", "InvalidRules", "RuleFault", "RuleFile", "load"]
Json: TypeAlias = dict[str, Any]
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_EXAMPLE: Final[Mapping[str, Any]] = {
    "rules": [
        {"name": "ci-failed", "channel": "ci", "contentRegex": "(?i)red|fail", "mode": "notify"},
        {
            "name": "ci-cause",
            "channel": "ci",
            "mode": "confirm",
            "prompt": "Find the cause of this failure.\n{{content}}",
            "tools": ["read_file", "search_files"],
            "rateLimit": "5m",
            "dedupWindow": "30m",
        },
    ]
}


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of a file, in its order, and what is probably not meant in it."""

    rules: tuple[Rule, ...] = ()
    warnings: tuple[RuleFault, ...] = ()


def load(data: bytes) -> RuleFile:
    """Return the rules of a file. Raises `InvalidRules` with every fault in it."""
    text = _decoded(data)
    document = _parsed(text)
    raw_rules, faults, warnings = _top(document)
    places = RulePositions(text)
    rules = list[Rule]()
    names = dict[str, int]()
    for number, raw in enumerate(raw_rules):
        reading = _RuleReader(raw, number, names)
        rule = reading.rule()
        placed = [_placed(fault, places, number) for fault in reading.faults]
        faults += placed
        if rule is not None and not placed:
            rules.append(rule)
            found = [*reading.warnings, *advice(rule, is_trust_given="trust" in reading.keys)]
            warnings += [_placed(fault, places, number) for fault in found]
    if faults:
        raise InvalidRules(faults)
    return RuleFile(tuple(rules), tuple(warnings))


class _JsonObject(dict[str, object]):
    """A JSON object that remembers which keys it had twice."""

    repeated: tuple[str, ...] = ()


class _RuleReader:
    """One rule being read, and what was found wrong with it so far."""

    def __init__(self, raw: object, number: int, names: dict[str, int]) -> None:
        self._raw: Mapping[str, object] = raw if isinstance(raw, _JsonObject) else {}
        self._found = raw
        self._number = number
        self._names = names
        self._label = f"#{number + 1}"
        self._misfits = set[str]()
        self.faults = list[RuleFault]()
        self.warnings = list[RuleFault]()

    @property
    def keys(self) -> frozenset[str]:
        """The keys that say something: null is as good as not there."""
        return frozenset(key for key, value in self._raw.items() if value is not None)

    def rule(self) -> Rule | None:
        """Return the rule; it counts only when there are no faults."""
        if not isinstance(self._found, _JsonObject):
            self._fault("", shown(self._found), "a rule is an object in braces")
            return None
        name = self._name()
        self._unknown_keys(self._found)
        mode = self._field("mode", fields.mode, Mode.NOTIFY)
        rule = Rule(
            name=name,
            mode=mode,
            server=self._field("server", fields.line, ""),
            channel=self._field("channel", fields.line, ""),
            content_regex=self._field("contentRegex", fields.content_regex, ""),
            prompt=self._field("prompt", fields.prompt, ""),
            tools=self._field("tools", fields.tools, ()),
            rate_limit=self._field("rateLimit", fields.duration, timedelta(0)),
            dedup_window=self._field("dedupWindow", fields.duration, timedelta(0)),
            agent=self._field("agent", fields.line, ""),
            workdir=self._field("workdir", fields.workdir, ""),
            trust=self._field("trust", fields.trust, fields.MIN_TRUST.get(mode, Trust.UNKNOWN)),
            timeout=self._field("timeout", fields.timeout, DEFAULT_TIMEOUT),
            max_turns=self._field("maxTurns", fields.max_turns, DEFAULT_TURNS),
            has_reply=self._field("reply", fields.truth, default=False),
            quiet_hours=self._field("quietHours", fields.quiet_hours, None),
            mailbox=self._field("mailbox", fields.line, "") or INBOX,
            machine=self._field("machine", fields.line, ""),
        )
        self._needs(rule, self._meant_mode(mode))
        return rule

    def _name(self) -> str:
        name = self._field("name", fields.name, "")
        if not name:
            if "name" not in self._misfits:
                self._fault("name", "missing", "every rule has a name of its own")
            return ""
        self._label = plain_or_quoted(name)
        if name in self._names:
            accepted = f"duplicate rule name: rule #{self._names[name] + 1} has it too, and names must be unique"
            self._fault("name", shown(name), accepted)
        self._names.setdefault(name, self._number)
        return name

    def _field(self, key: str, read: Callable[[object], _Value], default: _Value) -> _Value:
        value = self._raw.get(key)
        if value is None:
            return default
        try:
            return read(value)
        except FieldMisfit as exc:
            self._misfits.add(key)
            self._fault(key, shown(value), str(exc))
            return default

    def _meant_mode(self, mode: Mode) -> Mode:
        """Return the mode, or the one that was meant: what that needs is told at the same time."""
        said = self._raw.get("mode")
        meant = closest(said, list(Mode)) if "mode" in self._misfits and isinstance(said, str) else ""
        return Mode(meant) if meant else mode

    def _needs(self, rule: Rule, mode: Mode) -> None:
        if mode is not Mode.NOTIFY and not rule.prompt and "prompt" not in self._misfits:
            found = "without a word" if self._raw.get("prompt") is not None else "missing"
            self._fault("prompt", found, f'mode "{mode}" requires a prompt, what the agent is to do')
        if mode is Mode.AUTO and not rule.tools and "tools" not in self._misfits:
            found = "an empty list" if self._raw.get("tools") is not None else "missing"
            accepted = (
                'mode "auto" requires a non-empty tools whitelist: name the tools that its runs may use, such as '
                '["read_file"], or write "mode": "confirm"'
            )
            self._fault("tools", found, accepted)
        if EDIT_INSTRUCTIONS in rule.tools and EDIT_FILE not in rule.tools:
            accepted = f'add "{EDIT_FILE}": "{EDIT_INSTRUCTIONS}" alone lets nothing be edited'
            self._fault("tools", f'"{EDIT_INSTRUCTIONS}" without "{EDIT_FILE}"', accepted)

    def _unknown_keys(self, raw: _JsonObject) -> None:
        if len(raw) > MAX_KEYS:
            self._fault("", f"{len(raw):,} fields long", f"the fields are {', '.join(fields.KEYS)}")
            return
        for key in raw.repeated:
            self._fault(plain_or_quoted(key), "there twice", "write it once: it is not clear which counts")
        for key in raw:
            if key not in fields.KEYS:
                name, near = shown(key), closest(key, fields.KEYS)
                if near:
                    self._fault(name, "not a field of a rule", f"write {near}")
                else:
                    accepted = f"it has no effect; the fields are {', '.join(fields.KEYS)}"
                    self.warnings.append(RuleFault(self._label, name, "not a field of a rule", accepted))

    def _fault(self, field: str, found: str, accepted: str) -> None:
        self.faults.append(RuleFault(self._label, field, found, accepted))


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        _refuse(f"{len(data):,} bytes long", f"at most {MAX_BYTES:,} are read")
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        line, column = position(data[: exc.start].decode(), exc.start)
        raise InvalidRules([RuleFault("", "", "not UTF-8", "save it as UTF-8", line, column)]) from exc


def _parsed(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as exc:
        said = exc.msg[:1].lower() + exc.msg[1:]
        position = _position(text, exc)
        accepted = f'it must be JSON, such as {{"rules": []}}: {_cause(text, position) or said}'
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        raise InvalidRules([RuleFault("", "", "not JSON", accepted, line, column)]) from exc
    except (RecursionError, ValueError) as exc:
        what = "nested too deeply" if isinstance(exc, RecursionError) else "one with a number that cannot be read"
        raise InvalidRules([RuleFault("", "", what, "it must be JSON as the documents describe it")]) from exc


def _position(text: str, exc: json.JSONDecodeError) -> int:
    """Return where the fault is. Of a comma too many, Python from 3.13 on names the comma, others what follows it."""
    rest = text[exc.pos :]
    after = rest.removeprefix(",").lstrip(" \t\n\r")
    return len(text) - len(after) if rest[:1] == "," and after[:1] in ("}", "]") else exc.pos


def _cause(text: str, position: int) -> str:
    """Return what is probably wrong, where people usually err and the parser says something else."""
    rest, before = text[position : position + 2], text[:position].rstrip()
    if not text.strip():
        return "the file is empty"
    if rest in ("//", "/*") or rest[:1] == "#":
        return "JSON has no comments"
    if rest[:1] == "'":
        return 'texts are in double quotes, "'
    if rest[:1] in ("}", "]") and before.endswith(","):
        return "there is a comma too many before it"
    return ""


def _object(pairs: list[tuple[str, object]]) -> _JsonObject:
    found = _JsonObject(pairs)
    if len(found) < len(pairs):
        times = Counter(key for key, _ in pairs)
        found.repeated = tuple(key for key in found if times[key] > 1)
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def _top(document: object) -> tuple[list[object], list[RuleFault], list[RuleFault]]:
    """Return the rules as the file has them, and what is wrong with what is around them."""
    if not isinstance(document, _JsonObject):
        _refuse(shown(document), 'it must be an object: {"rules": [...]}')
    if len(document) > MAX_KEYS:
        _refuse(f"{len(document):,} keys long", f"the keys are {' and '.join(_TOP_KEYS)}")
    faults, warnings = list[RuleFault](), list[RuleFault]()
    for key in document.repeated:
        faults.append(RuleFault("", plain_or_quoted(key), "there twice", "write it once: it is not clear which counts"))
    for key in document:
        if key in _TOP_KEYS:
            continue
        if near := closest(key, _TOP_KEYS):
            faults.append(RuleFault("", shown(key), "not known", f"write {near}"))
        else:
            warnings.append(RuleFault("", shown(key), "not known", "it has no effect"))
    schema = document.get("$schema")
    if schema is not None and not isinstance(schema, str):
        faults.append(RuleFault("", "$schema", shown(schema), "it must be a text in quotes"))
    rules = document.get("rules")
    if rules is not None and not isinstance(rules, list):
        faults.append(RuleFault("", "rules", shown(rules), "it must be a list of rules in brackets"))
    found: list[object] = rules if isinstance(rules, list) else []
    if len(found) > MAX_RULES:
        faults.append(RuleFault("", "rules", f"{len(found):,} rules long", f"at most {MAX_RULES:,} are read"))
        found = []
    return found, faults, warnings


def _refuse(found: str, accepted: str) -> NoReturn:
    raise InvalidRules([RuleFault("", "", found, accepted)])


def _placed(fault: RuleFault, places: RulePositions, number: int) -> RuleFault:
    line, column = places.of(number, _unquoted(fault.field))
    return replace(fault, line=line, column=column)


def _unquoted(field: str) -> str:
    return str(json.loads(field)) if field.startswith('"') else field


def advice(rule: Rule, *, is_trust_given: bool = False) -> Iterator[RuleFault]:
    """Yield what its author should look at again."""
    label = plain_or_quoted(rule.name)
    if rule.mode is Mode.AUTO:
        yield from _of_auto(rule, label, is_trust_given=is_trust_given)
    if rule.mode is Mode.CONFIRM and rule.trust is Trust.UNKNOWN and not rule.rate_limit:
        found = 'missing, and trust is "unknown"'
        yield RuleFault(label, "rateLimit", found, "anybody who can write to you can fill the queue: give one of them")
    if rule.mode is Mode.NOTIFY and rule.tools:
        yield RuleFault(label, "tools", "given, and never used", 'a rule of mode "notify" runs nothing')
    if rule.mode is Mode.NOTIFY and rule.has_reply:
        yield RuleFault(label, "reply", "given, and has no effect", 'a rule of mode "notify" runs nothing')
    yield from _of_tools(rule, label)
    if rule.mode is Mode.AUTO and EDIT_INSTRUCTIONS in rule.tools:
        accepted = "every later session of an agent obeys what a message talks a run into writing there"
        yield RuleFault(label, "tools", shown(EDIT_INSTRUCTIONS), accepted)
    for field, value in (("server", rule.server), ("channel", rule.channel)):
        fits_below = field == "channel" and value.endswith("/*") and ANY not in value[:-1]
        if ANY in value and value != ANY and not fits_below:
            accepted = "it stands for itself here; * alone fits any" + (
                ", and prefix/* what is below prefix" if field == "channel" else ""
            )
            yield RuleFault(label, field, shown(value), accepted)
    for word in words_in(rule.prompt):
        if word not in WORDS:
            near = closest(word.strip(), WORDS)
            meant = f"write {{{{{near}}}}}" if near else f"known are {', '.join(WORDS)}"
            yield RuleFault(label, "prompt", f"a text with {shown('{{' + word + '}}')}, which stays as it is", meant)


def _of_tools(rule: Rule, label: str) -> Iterator[RuleFault]:
    for tool in rule.tools:
        if tool.startswith("shell:"):
            accepted = (
                "the rest of the line is not limited: many commands can write files or run others by their options"
            )
            yield RuleFault(label, "tools", shown(tool), accepted)


def _of_auto(rule: Rule, label: str, *, is_trust_given: bool) -> Iterator[RuleFault]:
    if not rule.rate_limit and not rule.dedup_window:
        found = "missing, and dedupWindow too"
        yield RuleFault(label, "rateLimit", found, "every message that matches starts a run: give one of them")
    if rule.server in ("", ANY) and rule.channel in ("", ANY) and not rule.content_regex:
        found = "without server, channel and contentRegex"
        yield RuleFault(label, "", found, "it runs for every message: name at least one of them")
    if is_trust_given and rule.trust is Trust.UNKNOWN:
        yield RuleFault(label, "trust", '"unknown"', "anybody who can write to you can start this run")


_SPACE: Final = re.compile(r"[ \t\n\r]*")


class RulePositions:
    """The places of a text's rules, by their number from 0, and of their fields."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: Mapping[tuple[int, str], int] = dict(_rules(text))

    def of(self, rule: int, field: str = "") -> tuple[int, int]:
        """Return line and column, from 1, of a field's value, else of its rule; zeros when there is no such rule."""
        place = self._found.get((rule, field), self._found.get((rule, "")))
        return (0, 0) if place is None else position(self._text, place)


def position(text: str, place: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a place in a text."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _rules(text: str) -> Iterator[tuple[tuple[int, str], int]]:
    for key, place in _members(text, _skip(text, 0)):
        if key == "rules" and text[place] == "[":
            for number, begin in enumerate(_items(text, place)):
                yield (number, ""), begin
                if text[begin] == "{":
                    yield from (((number, field), value) for field, value in _members(text, begin) if field)


def _members(text: str, place: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of the object that begins at a place, each with where its value begins."""
    decoder = json.JSONDecoder()
    place = _skip(text, place + 1)
    while text[place] != "}":
        key, place = decoder.raw_decode(text, place)
        place = _skip(text, _skip(text, place) + 1)
        yield key, place
        place = _next(text, decoder.raw_decode(text, place)[1])


def _items(text: str, place: int) -> Iterator[int]:
    """Yield where the items of the list begin that begins at a place."""
    decoder = json.JSONDecoder()
    place = _skip(text, place + 1)
    while text[place] != "]":
        yield place
        place = _next(text, decoder.raw_decode(text, place)[1])


def _next(text: str, place: int) -> int:
    """Return where the next member begins, or the end of what it is a member of."""
    place = _skip(text, place)
    return _skip(text, place + 1) if text[place] == "," else place


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def json_schema(agents: Sequence[str] = ()) -> Json:
    """Return the schema of a file of rules; `agents` are the hosts that can run one."""
    return {
        "$schema": DRAFT,
        "title": "Rules of Harken",
        "description": "Which messages Harken reacts to, and how: ~/.harken/triggers.json.",
        "type": "object",
        "maxProperties": MAX_KEYS,
        "properties": {
            "$schema": {"type": "string", "description": "Where this schema is, for the editor."},
            "rules": {
                "type": "array",
                "maxItems": MAX_RULES,
                "description": "The rules. Each is judged on its own; names are unique.",
                "items": {"$ref": "#/$defs/rule"},
            },
        },
        "examples": [dict(_EXAMPLE)],
        "$defs": {"rule": _rule_schema(agents), "line": _line_schema(), "text": _text_schema()},
    }


def _rule_schema(agents: Sequence[str]) -> Json:
    return {
        "type": "object",
        "description": "One rule: which messages it is about, and what is to happen.",
        "maxProperties": MAX_KEYS,
        "required": ["name"],
        "properties": {**_older_fields(), **_own_fields(agents)},
        "allOf": [
            {
                "if": {"properties": {"mode": {"enum": ["confirm", "auto"]}}, "required": ["mode"]},
                "then": {"required": ["prompt"], "properties": {"prompt": {"pattern": r"\S"}}},
            },
            {
                "if": {"properties": {"mode": {"const": "auto"}}, "required": ["mode"]},
                "then": {"required": ["tools"], "properties": {"tools": {"minItems": 1}}},
            },
            {
                "if": {"properties": {"tools": {"contains": {"const": EDIT_INSTRUCTIONS}}}, "required": ["tools"]},
                "then": {"properties": {"tools": {"contains": {"const": EDIT_FILE}}}},
            },
        ],
    }


def _older_fields() -> Json:
    """The fields of the documents."""
    words = " ".join(f"{{{{{word}}}}}" for word in WORDS)
    return {
        "name": _field_schema(
            "What the rule is called, here and in every list.",
            {"$ref": "#/$defs/line", "maxLength": fields.NAME_CHARS, "pattern": r"\S"},
            "ci",
        ),
        "server": _short_schema("The source that the message came from. Empty or *: any.", "github", "*"),
        "channel": _short_schema(
            "The channel it came on: a name, * for any, or prefix/* for what is below prefix. Empty: any.",
            "alerts/critical", "alerts/*", "*",
        ),
        "contentRegex": _field_schema(
            "A regular expression, RE2, to be found in the text. Empty: any text.",
            {"$ref": "#/$defs/text", "maxLength": MAX_PATTERN_CHARS, "format": "regex"},
            "(?i)fail(ed|ure)", r"\bsev-?1\b",
        ),
        "mode": _field_schema(
            "notify tells you, and is the default. confirm asks you before it runs. auto runs by itself.",
            {"enum": [mode.value for mode in Mode], "default": Mode.NOTIFY.value},
        ),
        "prompt": _field_schema(
            f"What the agent is told to do; needed for confirm and auto. It may use {words}.",
            {"$ref": "#/$defs/text", "maxLength": fields.PROMPT_CHARS},
            "Find out why this build failed.\n{{content}}",
        ),
        "tools": _field_schema(
            "The tools that the run may use, and no others; needed for auto. read_file, list_files, search_files, "
            "edit_file, edit_instructions (with edit_file: what agents read as well), shell, shell:git log (commands "
            "that begin so), server/tool, or a host's own name.",
            {
                "type": "array",
                "maxItems": fields.MAX_TOOLS,
                "items": {"$ref": "#/$defs/line", "maxLength": fields.LINE_CHARS, "pattern": r"\S"},
            },
            ["read_file", "shell:git log"],
        ),
        "rateLimit": _duration_schema("After it fired, the rule does not fire again for this long.", "5m", "1h30m"),
        "dedupWindow": _duration_schema(
            "A text that begins like one it fired for is ignored for this long.", "30m", "24h"
        ),
    }  # fmt: skip


def _own_fields(agents: Sequence[str]) -> Json:
    """The fields that only Harken has."""
    return {
        "agent": _short_schema("Which host runs it. Empty: the first that can.", *agents),
        "workdir": _field_schema(
            "The folder it works in, written in full. Empty: one of its own.",
            {"$ref": "#/$defs/line", "maxLength": 4096, "pattern": f"^(?:$|{fields.WORKDIR})"},
            "~/src/shop",
        ),
        "trust": _field_schema(
            "The least that the sender must be. Without it known for auto, unknown for the others.",
            {"enum": [trust.value for trust in Trust]},
        ),
        "timeout": _duration_schema("How long a run may take, from 1s to 24h.", "10m", is_needed=True),
        "maxTurns": _field_schema(
            "How many turns a run may take.", {"type": "integer", "minimum": 1, "maximum": fields.MAX_TURNS}, 20
        ),
        "reply": _field_schema(
            "Whether the run's answer goes back to the channel.", {"type": "boolean", "default": False}
        ),
        "quietHours": _field_schema(
            "A part of the day, by this machine's clock, in which the rule does not fire.",
            {"$ref": "#/$defs/line", "pattern": f"^(?:{fields.QUIET_HOURS})?$"},
            "22:00-07:00",
        ),
        "mailbox": _short_schema("The mailbox it is about, inbox without it; * is any.", "inbox", "*"),
        "machine": _short_schema("The machine that runs it. Empty: any that has the agent and the folder.", "buildbox"),
    }


def _field_schema(description: str, accepts: Json, *examples: object) -> Json:
    return {"description": description, **accepts, **({"examples": list(examples)} if examples else {})}


def _short_schema(description: str, *examples: str) -> Json:
    return _field_schema(description, {"$ref": "#/$defs/line", "maxLength": fields.LINE_CHARS}, *examples)


def _duration_schema(description: str, *examples: str, is_needed: bool = False) -> Json:
    needed = "" if is_needed else "?"
    accepts = {
        "$ref": "#/$defs/line",
        "maxLength": fields.MAX_CHARS,
        "pattern": f"^(?:{fields.PATTERN}){needed}$",
    }
    return _field_schema(f"{description} A Go duration.", accepts, *examples)


def _line_schema() -> Json:
    return {
        "description": "A text on one line, without control and invisible characters.",
        "type": "string",
        "pattern": rf"^(?![\s\S]*{fields.NOT_IN_A_LINE})",
    }


def _text_schema() -> Json:
    return {
        "description": "A text without control and invisible characters; it may have several lines.",
        "type": "string",
        "pattern": rf"^(?![\s\S]*{fields.NOT_IN_A_TEXT})",
    }
