"""A file of rules is taken whole or not at all, and everything that is wrong with it is told at once."""

from __future__ import annotations

import json
from datetime import time, timedelta
from typing import Final

import pytest

from harken.automation import Mode, QuietHours, Rule
from harken.model import Trust
from harken.rules.load import MAX_BYTES, InvalidRules, RuleFault, RuleFile, load
from tests.rules.made import file_of

AUTO: Final = {
    "name": "a",
    "mode": "auto",
    "prompt": "Look.",
    "tools": ["read_file"],
    "rateLimit": "5m",
    "channel": "x",
}
OLDER: Final = """{"rules":[
 {"name":"ci","server":"github","channel":"ci/*","contentRegex":"(?i)fail","mode":"notify"},
 {"name":"sev1","channel":"incidents","mode":"confirm","prompt":
  "Triage {{server}}/{{channel}} #{{seq}} {{timestamp}}: {{content}}","rateLimit":"5m","dedupWindow":"30m"},
 {"name":"auto","channel":"alerts/*","mode":"auto","prompt":"Investigate {{content}}",
  "tools":["read_file"],"rateLimit":"10m"},
 {"name":"plain","server":"","mode":"","tools":null,"rateLimit":""}]}
"""


def faults_of(data: bytes) -> tuple[RuleFault, ...]:
    """Return what is wrong with a file."""
    with pytest.raises(InvalidRules) as caught:
        load(data)
    assert caught.value.message == "\n".join(fault.sentence for fault in caught.value.faults)
    return caught.value.faults


def test_an_older_file_is_read_as_it_is() -> None:
    """Whoever comes from the older tool changes nothing; empty and null mean not given, as they did there."""
    assert load(OLDER.encode()) == RuleFile(
        (
            Rule(name="ci", server="github", channel="ci/*", content_regex="(?i)fail"),
            Rule(
                name="sev1",
                channel="incidents",
                mode=Mode.CONFIRM,
                prompt="Triage {{server}}/{{channel}} #{{seq}} {{timestamp}}: {{content}}",
                rate_limit=timedelta(minutes=5),
                dedup_window=timedelta(minutes=30),
            ),
            Rule(
                name="auto",
                channel="alerts/*",
                mode=Mode.AUTO,
                prompt="Investigate {{content}}",
                tools=("read_file",),
                rate_limit=timedelta(minutes=10),
                trust=Trust.KNOWN,
            ),
            Rule(name="plain"),
        )
    )


def test_our_own_fields_are_read() -> None:
    """Each of them changes the rule, and none is needed."""
    ours = {
        "agent": "codex",
        "workdir": "~/src",
        "trust": "owner",
        "timeout": "90s",
        "maxTurns": 5.0,
        "reply": True,
        "quietHours": "22:00-07:30",
        "mailbox": "*",
    }
    assert load(file_of({**AUTO, **ours})).rules == (
        Rule(
            name="a",
            mode=Mode.AUTO,
            prompt="Look.",
            tools=("read_file",),
            rate_limit=timedelta(minutes=5),
            channel="x",
            agent="codex",
            workdir="~/src",
            trust=Trust.OWNER,
            timeout=timedelta(seconds=90),
            max_turns=5,
            has_reply=True,
            quiet_hours=QuietHours(time(22), time(7, 30)),
            mailbox="*",
        ),
    )


@pytest.mark.parametrize("data", [b"{}", b'{"rules": null}', b'\xef\xbb\xbf{"rules": []}', b'{"$schema": "x"}'])
def test_a_file_without_rules_has_none(data: bytes) -> None:
    """Also with the mark that some editors put in front."""
    assert load(data) == RuleFile()


@pytest.mark.parametrize(
    ("rule", "field", "found", "accepted"),
    [
        ({}, "name", "missing", "every rule has a name of its own"),
        ({"name": ""}, "name", '""', "it needs 1 to 64 characters that can be seen"),
        ({"name": " "}, "name", '" "', "it needs 1 to 64 characters that can be seen"),
        ({"name": 7}, "name", "7", "it must be a text in quotes"),
        ({"name": "a" * 65}, "name", '"' + "a" * 59 + '\u2026"', "at most 64 characters, and has 65"),
        ({"name": "a\nb"}, "name", '"a\\nb"', "control or invisible characters, and has U+000A"),
        ({"name": "a\u202eb"}, "name", '"a\\u202eb"', "and has U+202E"),
        ({"name": "a\x00"}, "name", '"a\\u0000"', "and has U+0000"),
        ({"name": "a\ud800"}, "name", '"a\\ud800"', "and has U+D800"),
        ({"name": "a\U000e0041"}, "name", '"a\\udb40\\udc41"', "and has U+E0041"),
        ({"server": ["x"]}, "server", "a list", "it must be a text in quotes"),
        ({"server": "\x1b[2J"}, "server", '"\\u001b[2J"', "and has U+001B"),
        ({"channel": {}}, "channel", "an object", "it must be a text in quotes"),
        ({"channel": "a" * 257}, "channel", '"' + "a" * 59 + '\u2026"', "at most 256 characters, and has 257"),
        ({"contentRegex": "a**"}, "contentRegex", '"a**"', "(bad repetition operator: **, at character 2)"),
        ({"contentRegex": "(a"}, "contentRegex", '"(a"', "(missing ): (a, at character 3)"),
        ({"contentRegex": "a" * 10_001}, "contentRegex", '"' + "a" * 59 + '\u2026"', "at most 10,000 characters"),
        ({"contentRegex": 5}, "contentRegex", "5", "it must be a text in quotes"),
        ({"mode": "Notify"}, "mode", '"Notify"', "write notify (it is one of notify, confirm or auto)"),
        ({"mode": "ask"}, "mode", '"ask"', "it must be notify, confirm or auto"),
        ({"mode": True}, "mode", "true", "it must be notify, confirm or auto"),
        ({"mode": "confirm"}, "prompt", "missing", 'mode "confirm" requires a prompt'),
        ({"mode": "confirm", "prompt": " \n"}, "prompt", "without a word", 'mode "confirm" requires a prompt'),
        ({"mode": "Confirm", "prompt": "x"}, "mode", '"Confirm"', "write confirm"),
        ({"prompt": ["x"]}, "prompt", "a list", "it must be a text in quotes"),
        ({"prompt": "a\u2066b"}, "prompt", '"a\\u2066b"', "and has U+2066"),
        ({"prompt": "a" * 64_001}, "prompt", '"' + "a" * 59 + '\u2026"', "at most 64,000 characters"),
        ({"mode": "auto", "prompt": "x"}, "tools", "missing", 'mode "auto" requires a non-empty tools whitelist'),
        ({"mode": "auto", "prompt": "x", "tools": []}, "tools", "an empty list", "non-empty tools whitelist"),
        ({"mode": "auto", "prompt": "x", "tools": None}, "tools", "missing", "non-empty tools whitelist"),
        ({"tools": ["edit_instructions"]}, "tools", '"edit_instructions" without "edit_file"', 'add "edit_file"'),
        ({"tools": "read_file"}, "tools", '"read_file"', "it must be a list: put the tool in brackets"),
        ({"tools": {}}, "tools", "an object", "it must be a list of tools"),
        ({"tools": ["x", " "]}, "tools", "a list", "of number 2: it needs 1 to 256 characters"),
        ({"tools": ["x"] * 201}, "tools", "a list", "at most 200 tools, and has 201"),
        ({"rateLimit": "5min"}, "rateLimit", '"5min"', "write 5m: it must be a duration such as"),
        ({"rateLimit": 5}, "rateLimit", "5", 'write "5s" or "5m": it must be a duration'),
        ({"rateLimit": "-5m"}, "rateLimit", '"-5m"', "write 5m:"),
        ({"dedupWindow": "30sec"}, "dedupWindow", '"30sec"', "write 30s:"),
        ({"dedupWindow": "1d"}, "dedupWindow", '"1d"', "write 24h:"),
        ({"dedupWindow": True}, "dedupWindow", "true", "it must be a duration"),
        ({"agent": 1}, "agent", "1", "it must be a text in quotes"),
        ({"workdir": "src/x"}, "workdir", '"src/x"', "written in full, beginning with / or ~/"),
        ({"workdir": "~other/x"}, "workdir", '"~other/x"', "written in full, beginning with / or ~/"),
        ({"trust": "Known"}, "trust", '"Known"', "write known"),
        ({"trust": ""}, "trust", '""', "it must be owner, known or unknown"),
        ({"timeout": "0"}, "timeout", '"0"', "it must be from 1s to 24h"),
        ({"timeout": "25h"}, "timeout", '"25h"', "it must be from 1s to 24h"),
        ({"maxTurns": 0}, "maxTurns", "0", "it must be a whole number from 1 to 200"),
        ({"maxTurns": 201}, "maxTurns", "201", "it must be a whole number from 1 to 200"),
        ({"maxTurns": 1.5}, "maxTurns", "1.5", "it must be a whole number from 1 to 200"),
        ({"maxTurns": 1e400}, "maxTurns", "inf", "it must be a whole number from 1 to 200"),
        ({"maxTurns": True}, "maxTurns", "true", "it must be a whole number from 1 to 200"),
        ({"reply": "yes"}, "reply", '"yes"', "it must be true or false"),
        ({"quietHours": "9-17"}, "quietHours", '"9-17"', "write 09:00-17:00:"),
        ({"quietHours": "22:00-24:00"}, "quietHours", '"22:00-24:00"', 'two times of the day, such as "22:00-07:00"'),
        ({"quietHours": "07:00-07:00"}, "quietHours", '"07:00-07:00"', "begin and end must differ"),
        ({"mailbox": 3}, "mailbox", "3", "it must be a text in quotes"),
        ({"chanel": "x"}, '"chanel"', "not a field of a rule", "write channel"),
        ({"rate_limit": "5m"}, '"rate_limit"', "not a field of a rule", "write rateLimit"),
    ],
)
def test_a_fault_names_the_field_what_was_found_and_what_would_do(
    rule: dict[str, object], field: str, found: str, accepted: str
) -> None:
    """The table of the documents, and ours: the person corrects the file without looking anything up."""
    data = json.dumps({"rules": [{"name": "ci", **rule} if rule else {}]}).replace("Infinity", "1e400").encode()
    (fault,) = faults_of(data)
    assert (fault.field, fault.found) == (field, found)
    assert accepted in fault.accepted
    assert fault.rule == ("#1" if field == "name" else "ci")
    assert fault.sentence.isprintable()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", 'line 1, column 1: the file is not JSON; it must be JSON, such as {"rules": []}: the file is empty.'),
        (b'{"rules": [\n {"name": "x"},\n]}', "line 3, column 1: the file is not JSON;"),
        (b'{"rules": [\n {"name": "x"},\n]}', "there is a comma too many before it."),
        (b"{\n // mine\n}", "JSON has no comments."),
        (b"{'rules': []}", "texts are in double quotes"),
        (b'{"rules": [}', "expecting value."),
        (b'{"rules":\n "\xff"}', "line 2, column 3: the file is not UTF-8; save it as UTF-8."),
        ('{"rules": []}'.encode("utf-16"), "the file is not UTF-8"),
        (b'{"x": NaN}', "the file is one with a number that cannot be read"),
        (b'{"x": ' + b"1" * 5000 + b"}", "the file is one with a number that cannot be read"),
        (b"[" * 100_000, "the file is nested too deeply"),
        (b" " * (MAX_BYTES + 1), "the file is 1,000,001 bytes long; at most 1,000,000 are read."),
        (b"[]", 'the file is an empty list; it must be an object: {"rules": [...]}.'),
        (b"null", "the file is null; it must be an object"),
        (b'{"rules": {}}', "the file: rules is an object; it must be a list of rules in brackets."),
        (b'{"rule": []}', 'the file: "rule" is not known; write rules.'),
        (b'{"$schema": 1}', "the file: $schema is 1; it must be a text in quotes."),
        (b'{"rules": [], "rules": []}', "the file: rules is there twice; write it once"),
        (b'{"rules": [' + b"{}," * 1000 + b"{}]}", "the file: rules is 1,001 rules long; at most 1,000 are read."),
        (b'{"rules": [3]}', "line 1, column 12: rule #1 is 3; a rule is an object in braces."),
        (
            b'{"rules": [{"name": "x",\n "mode": "auto", "mode": "notify"}]}',
            "line 2, column 26: rule x: mode is there twice; write it once: it is not clear which counts.",
        ),
        (
            b'{"rules": [{"name": "x"},\n {"name": "x"}]}',
            'line 2, column 11: rule x: name is "x"; duplicate rule name: rule #1 has it too, and names must be',
        ),
    ],
)
def test_a_fault_of_the_file_says_where(data: bytes, sentence: str) -> None:
    """An editor jumps to line and column."""
    assert any(sentence in fault.sentence for fault in faults_of(data))


def test_a_rule_with_too_many_fields_is_refused_in_one_sentence() -> None:
    """Comparing each of a hundred thousand unknown words with the known ones would take minutes."""
    (fault,) = faults_of(file_of({"name": "x", **{f"chanel{number}": 1 for number in range(10_000)}}))
    assert fault.found == "10,001 fields long"


def test_every_fault_of_every_rule_is_told_at_once() -> None:
    """One round of correcting, not ten."""
    data = file_of(
        {"name": "ci", "mode": "Auto", "rateLimit": "5min", "contentRegex": "("},
        {"name": "fine"},
        {"name": "ci", "dedupWindow": "x", "trust": 1},
        {"channel": 1, "typo": 1, "quiethour": "x"},
    )
    assert [(fault.rule, fault.field) for fault in faults_of(data)] == [
        ("ci", "mode"),
        ("ci", "contentRegex"),
        ("ci", "rateLimit"),
        ("ci", "prompt"),
        ("ci", "tools"),
        ("ci", "name"),
        ("ci", "dedupWindow"),
        ("ci", "trust"),
        ("#4", "name"),
        ("#4", '"quiethour"'),
        ("#4", "channel"),
    ]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (AUTO | {"rateLimit": ""}, "rule a: rateLimit is missing, and dedupWindow too; every message that matches"),
        (AUTO | {"tools": ["edit_file", "edit_instructions"]}, "every later session of an agent obeys"),
        (AUTO | {"channel": "*"}, "rule a is without server, channel and contentRegex; it runs for every message"),
        (AUTO | {"trust": "unknown"}, 'rule a: trust is "unknown"; anybody who can write to you can start this run.'),
        ({"name": "n", "tools": ["x"]}, "rule n: tools is given, and never used"),
        ({"name": "n", "reply": True}, "rule n: reply is given, and has no effect"),
        ({"name": "n", "channel": "a*"}, 'rule n: channel is "a*"; it stands for itself here'),
        ({"name": "n", "server": "git/*"}, 'rule n: server is "git/*"; it stands for itself here'),
        ({"name": "n", "comment": "mine"}, 'rule n: "comment" is not a field of a rule; it has no effect'),
        (AUTO | {"prompt": "{{contnt}}"}, 'with "{{contnt}}", which stays as it is; write {{content}}.'),
        (AUTO | {"prompt": "{{ seq }}"}, 'with "{{ seq }}", which stays as it is; write {{seq}}.'),
        (AUTO | {"prompt": "{{zzz}}"}, "known are content, channel, server, seq, timestamp."),
    ],
)
def test_what_is_probably_not_meant_is_a_warning(rule: dict[str, object], sentence: str) -> None:
    """It is allowed, so the rules are in force; but the person is told."""
    file = load(file_of(rule))
    assert len(file.rules) == 1
    assert [warning.sentence for warning in file.warnings if sentence in warning.sentence]
    assert len(file.warnings) == 1


@pytest.mark.parametrize("rule", [AUTO, AUTO | {"rateLimit": "", "dedupWindow": "1m"}, {"name": "n", "channel": "a/*"}])
def test_what_is_meant_gets_no_warning(rule: dict[str, object]) -> None:
    """Warnings that are always there are read by nobody."""
    assert load(file_of(rule)).warnings == ()
