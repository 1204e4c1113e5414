"""The JSON Schema of `triggers.json`, for editors: what `fields` and `load` accept, as far as a schema can say it.

Pure. What a schema cannot say, only the loader checks: that names are unique and expressions are of RE2, how long a
duration may be, and that quiet hours have a length. The loader takes null, and an empty mode, for not given, because
older files may have them; the schema does not offer that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from harken.automation import EDIT_FILE, EDIT_INSTRUCTIONS, Mode
from harken.model import Trust
from harken.rules import fields, pattern
from harken.rules.load import MAX_KEYS, MAX_RULES
from harken.rules.prompt import WORDS

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
        "$defs": {"rule": _rule(agents), "line": _line(), "text": _text()},
    }


def _rule(agents: Sequence[str]) -> Json:
    return {
        "type": "object",
        "description": "One rule: which messages it is about, and what is to happen.",
        "maxProperties": MAX_KEYS,
        "required": ["name"],
        "properties": {**_older(), **_ours(agents)},
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


def _older() -> Json:
    """The fields of the documents."""
    words = " ".join(f"{{{{{word}}}}}" for word in WORDS)
    return {
        "name": _field(
            "What the rule is called, here and in every list.",
            {"$ref": "#/$defs/line", "maxLength": fields.NAME_CHARS, "pattern": r"\S"},
            "ci",
        ),
        "server": _short("The source that the message came from. Empty or *: any.", "github", "*"),
        "channel": _short(
            "The channel it came on: a name, * for any, or prefix/* for what is below prefix. Empty: any.",
            "alerts/critical", "alerts/*", "*",
        ),
        "contentRegex": _field(
            "A regular expression, RE2, to be found in the text. Empty: any text.",
            {"$ref": "#/$defs/text", "maxLength": pattern.MAX_CHARS, "format": "regex"},
            "(?i)fail(ed|ure)", r"\bsev-?1\b",
        ),
        "mode": _field(
            "notify tells you, and is the default. confirm asks you before it runs. auto runs by itself.",
            {"enum": [mode.value for mode in Mode], "default": Mode.NOTIFY.value},
        ),
        "prompt": _field(
            f"What the agent is told to do; needed for confirm and auto. It may use {words}.",
            {"$ref": "#/$defs/text", "maxLength": fields.PROMPT_CHARS},
            "Find out why this build failed.\n{{content}}",
        ),
        "tools": _field(
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
        "rateLimit": _duration("After it fired, the rule does not fire again for this long.", "5m", "1h30m"),
        "dedupWindow": _duration("A text that begins like one it fired for is ignored for this long.", "30m", "24h"),
    }  # fmt: skip


def _ours(agents: Sequence[str]) -> Json:
    """The fields that only Harken has."""
    return {
        "agent": _short("Which host runs it. Empty: the first that can.", *agents),
        "workdir": _field(
            "The folder it works in, written in full. Empty: one of its own.",
            {"$ref": "#/$defs/line", "maxLength": 4096, "pattern": f"^(?:$|{fields.WORKDIR})"},
            "~/src/shop",
        ),
        "trust": _field(
            "The least that the sender must be. Without it known for auto, unknown for the others.",
            {"enum": [trust.value for trust in Trust]},
        ),
        "timeout": _duration("How long a run may take, from 1s to 24h.", "10m", is_needed=True),
        "maxTurns": _field(
            "How many turns a run may take.", {"type": "integer", "minimum": 1, "maximum": fields.MAX_TURNS}, 20
        ),
        "reply": _field("Whether the run's answer goes back to the channel.", {"type": "boolean", "default": False}),
        "quietHours": _field(
            "A part of the day, by this machine's clock, in which the rule does not fire.",
            {"$ref": "#/$defs/line", "pattern": f"^(?:{fields.QUIET_HOURS})?$"},
            "22:00-07:00",
        ),
        "mailbox": _short("The mailbox it is about, inbox without it; * is any.", "inbox", "*"),
        "machine": _short("The machine that runs it. Empty: any that has the agent and the folder.", "buildbox"),
    }


def _field(description: str, accepts: Json, *examples: object) -> Json:
    return {"description": description, **accepts, **({"examples": list(examples)} if examples else {})}


def _short(description: str, *examples: str) -> Json:
    return _field(description, {"$ref": "#/$defs/line", "maxLength": fields.LINE_CHARS}, *examples)


def _duration(description: str, *examples: str, is_needed: bool = False) -> Json:
    needed = "" if is_needed else "?"
    accepts = {
        "$ref": "#/$defs/line",
        "maxLength": fields.MAX_CHARS,
        "pattern": f"^(?:{fields.PATTERN}){needed}$",
    }
    return _field(f"{description} A Go duration.", accepts, *examples)


def _line() -> Json:
    return {
        "description": "A text on one line, without control and invisible characters.",
        "type": "string",
        "pattern": rf"^(?![\s\S]*{fields.NOT_IN_A_LINE})",
    }


def _text() -> Json:
    return {
        "description": "A text without control and invisible characters; it may have several lines.",
        "type": "string",
        "pattern": rf"^(?![\s\S]*{fields.NOT_IN_A_TEXT})",
    }
