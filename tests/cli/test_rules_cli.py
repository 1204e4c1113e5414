"""`harken rules`, and the verbs of `harken channel` that concern rules: with a real daemon, and a file on disk."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harken.cli.rule_show import EXAMPLE
from harken.rules.load import json_schema
from tests.cli.rig import SECONDS, Json, Rig, serving
from tests.cli.test_as_agent import hosting
from tests.docs.pages import DOCS, ROOT, commands, fences
from tests.loss import rig as waiting

WRONG, NOT_FOUND, REFUSED = 2, 3, 7
RULES = {
    "rules": [
        {"name": "ci-failed", "channel": "ci/*", "contentRegex": "(?i)failed", "dedupWindow": "1h"},
        {"name": "strange", "channel": "odd", "mode": "auto", "prompt": "x", "tools": ["no such tool"]},
    ]
}
BROKEN = """{"rules": [
 {"name": "a", "mode": "Notify", "rateLimit": "5min"},
 {"name": "a", "contentRegex": "(x"},
 {"name": "b", "mode": "auto", "prompt": "look"},
 {"name": "c", "mode": "confirm"}
]}"""


def write(rig: Rig, text: str) -> Path:
    """Put a file of rules into a home."""
    path = rig.home / "triggers.json"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def until(find: Callable[[], Json], is_so: Callable[[Json], bool]) -> Json:
    """Look again and again until something is so; return what was found."""

    def look() -> Json | None:
        found = find()
        return found if is_so(found) else None

    found: Json = waiting.until(look, "it is so", SECONDS)
    return found


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A home with two rules in force, and four messages that were judged by them."""
    with serving(tmp_path_factory.mktemp("rules") / "home") as rig:
        write(rig, json.dumps(RULES))
        rig.ok("rules", "reload")
        for channel, text in [("ci/main", "it failed"), ("ci/main", "it failed"), ("odd", "hm"), ("talk", "hello")]:
            rig.ok("send", text, "--channel", channel, "--from", "amy")
        until(lambda: rig.json("rules", "explain", "3"), lambda found: bool(found["decided"]))
        yield rig


def test_every_fault_is_told_with_what_would_be_accepted(fresh: Rig) -> None:
    """One look is enough to repair a file, and no daemon is started for it."""
    fresh.home.mkdir(mode=0o700)
    write(fresh, BROKEN)
    done = fresh.run("rules", "check")
    assert done.code == WRONG
    lines = done.out.splitlines()
    wanted = [
        ("a: mode", "write notify"),
        ("a: rateLimit", "write 5m"),
        ("a: name", "duplicate"),
        ("a: contentRegex", ""),
    ]
    wanted += [("b: tools", "whitelist"), ("c: prompt", "requires a prompt")]
    for place, accepted in wanted:
        assert [line for line in lines if f"rule {place}" in line and accepted in line], place
    assert all(line.startswith(str(fresh.home / "triggers.json") + ":") for line in lines)
    assert done.err.startswith(f"{len(lines)} faults.")
    assert not (fresh.home / "run").exists()


def test_check_answers_programs_in_json_and_reads_any_file(fresh: Rig, tmp_path: Path) -> None:
    """An editor or a build wants fields, not sentences."""
    file = tmp_path / "rules.json"
    file.write_text(BROKEN, encoding="utf-8")
    done = fresh.run("rules", "check", str(file), "--json")
    found = json.loads(done.out)
    assert (done.code, found["is_good"], found["rules"], found["file"]) == (WRONG, False, 0, str(file))
    assert found["faults"][0] == {
        "rule": "a",
        "field": "mode",
        "found": '"Notify"',
        "accepted": "write notify (it is one of notify, confirm or auto)",
        "line": 2,
        "column": 24,
        "sentence": found["faults"][0]["sentence"],
    }
    good = fresh.json("rules", "check", "-", stdin=json.dumps(RULES))
    assert (good["is_good"], good["rules"], good["faults"]) == (True, 2, [])
    assert good["warnings"][0]["rule"] == "strange"
    assert fresh.ok("rules", "check", "-", stdin='{"rules": []}') == "ok: 0 rules\n"


def test_the_rules_on_the_page_are_rules(fresh: Rig) -> None:
    """They are copied as they stand."""
    examples = [json.loads(block) for block in fences(DOCS / "howto" / "rules.md", "json")]
    named = [rule for example in examples for rule in example.get("rules", [example])]
    assert len(named) == 3
    good = fresh.json("rules", "check", "-", stdin=json.dumps({"rules": named}))
    assert (good["rules"], good["warnings"]) == (3, [])


def shown_rules() -> dict[str, list[dict[str, object]]]:
    """Return every rule that is shown to people as one to begin with, by where it is shown."""
    page = (ROOT / "src/harken/surfaces/web/page/templates/panels/rules.html.j2").read_text(encoding="utf-8")
    (on_page,) = re.findall(r'<pre[^>]*>(\{"rules".*?\})</pre>', page, re.DOTALL)
    (in_schema,) = json_schema()["examples"]
    shown = [json.loads(block) for block in fences(DOCS / "howto" / "rules.md", "json")]
    return {
        "the page": json.loads(on_page)["rules"],
        "the hint": json.loads(EXAMPLE)["rules"],
        "the schema": in_schema["rules"],
        "the document": [rule for example in shown for rule in example.get("rules", [example])],
    }


def test_every_rule_that_is_shown_fits_the_first_message_of_the_quickstart(fresh: Rig) -> None:
    """The first rule that people write is one of these, and the first message that they have is that one."""
    lines = [line for block in fences(DOCS / "quickstart.md", "sh") for line in block.splitlines()]
    first = next(line for line in lines if line.startswith("harken send "))
    fresh.ok(*next(iter(commands(first))))
    for place, rules in shown_rules().items():
        write(fresh, json.dumps({"rules": rules}))
        fresh.ok("rules", "reload")
        tried = fresh.json("rules", "test", "--all", "--since", "1h")
        silent = [each for each in tried["messages"][0]["verdicts"] if each["outcome"] == "no match"]
        assert (place, silent) == (place, [])


def test_what_a_file_says_cannot_act_on_the_terminal(fresh: Rig) -> None:
    """People check files that others sent them."""
    evil = json.dumps({"rules": [{"name": "x\x1b]0;owned\x07\u202e", "mode": "\x1b[2Jno"}]})
    for options in ((), ("--json",)):
        done = fresh.run("rules", "check", "-", *options, stdin=evil)
        assert done.code == WRONG
        assert [char for char in done.out + done.err if not (char.isprintable() or char == "\n")] == []


def test_a_missing_file_is_told_from_an_empty_one(fresh: Rig) -> None:
    """Whoever mistyped a name must not read `ok`."""
    done = fresh.run("rules", "check", "nothing.json")
    assert (done.code, "There is no file nothing.json" in done.err) == (NOT_FOUND, True)
    assert fresh.run("rules", "check").code == NOT_FOUND
    assert not fresh.home.exists()


def test_the_first_rule_can_be_pasted(fresh: Rig) -> None:
    """What the empty list says to do works as it stands."""
    done = fresh.run("rules", "list")
    assert (done.code, done.out) == (0, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("echo ")]
    subprocess.run(["/bin/sh", "-c", line], check=True, timeout=SECONDS)
    assert fresh.json("rules", "reload")["rules"][0]["name"] == "ci-failed"
    fresh.ok("send", "the build is red", "--from", "ci-bot", "--channel", "ci")  # what the README says to try
    found = until(lambda: fresh.json("rules", "list"), lambda found: bool(found["rules"][0]["fired"]))
    assert found["rules"][0]["last_fired_at"]


def test_a_broken_file_changes_nothing_and_says_so(ruled: Rig) -> None:
    """Half a set of rules would be worse than the old one."""
    before = ruled.json("rules", "list")
    write(ruled, BROKEN)
    try:
        assert "The file has changed" in ruled.ok("rules", "list")
        done = ruled.run("rules", "reload")
        assert (done.code, done.out) == (WRONG, "")
        assert "a: rateLimit" in done.err
        assert "c: prompt" in done.err
        after = ruled.json("rules", "list")
        assert after["rules"] == before["rules"]
        assert "The file is not in force:" in ruled.ok("rules", "list")
        faults = [line for line in ruled.ok("status").splitlines() if "rule" in line and line.startswith("  ")]
        assert faults[-1].endswith("more faults: harken rules check")
        write(ruled, BROKEN + " ")
        assert "not in force" not in ruled.ok("status")
        assert "triggers.json has changed" in ruled.ok("status")
    finally:
        write(ruled, json.dumps(RULES))
        ruled.ok("channel", "rules", "reload")
    assert "not in force" not in ruled.ok("rules", "list")


def test_the_list_shows_what_rules_did_and_what_cannot_run(ruled: Rig) -> None:
    """One look says why nothing happened."""
    first, second, reason = ruled.ok("rules", "list").splitlines()[:3]
    assert first.split()[:3] == ["ci-failed", "notify", "*/ci/*"]
    assert "fired 1  last " in first
    assert first.endswith("held back: 1 duplicate")
    assert second.split()[:2] == ["strange", "auto"]
    assert reason.startswith("    cannot run: ")
    assert "1 rule can neither ask nor run, for want of an agent: harken rules list" in ruled.ok("status")
    for number, said in ((1, "Rule ci-failed (notify): fired, a-"), (3, "Rule strange (auto): cannot run")):
        assert said in ruled.ok("read", str(number))
    assert ruled.ok("channel", "rules") == ruled.ok("rules", "list")


def test_a_trial_on_stored_mail_says_what_would_happen_and_runs_nothing(ruled: Rig) -> None:
    """A rule is tried before it is trusted."""
    lines = ruled.ok("rules", "test", "--since", "1h").splitlines()
    assert lines[0].startswith("#1 [local/ci/main ")
    assert lines[1] == "    ci-failed: fired"
    assert lines[3].startswith("    ci-failed: duplicate: the same as ")
    assert lines[5].startswith("    strange: cannot run: ")
    assert lines[-1].endswith("messages looked at: rules would have fired 1 time. Nothing was run.")
    assert not [line for line in lines if "hello" in line]
    assert ruled.json("run", "list") == {"runs": []}
    shown = ruled.ok("rules", "test", "--all", "--rule", "ci-failed")
    assert "strange" not in shown
    assert ruled.run("rules", "test", "--rule", "nothing").code == NOT_FOUND
    done = ruled.run("rules", "test", "--since", "7 days")
    assert (done.code, "90s, 30m, 1h30m, 7d" in done.err) == (WRONG, True)


def test_an_explanation_names_the_field_that_does_not_fit(ruled: Rig) -> None:
    """Why a rule was silent is the question people have."""
    found = ruled.json("rules", "explain", "4")
    assert [(each["rule"], each["outcome"]) for each in found["verdicts"]] == [
        ("ci-failed", "no match"),
        ("strange", "no match"),
    ]
    assert found["decided"] == []
    lines = [line.strip() for line in ruled.ok("rules", "explain", "2").splitlines()]
    assert lines[1] == "ci-failed  notify"
    assert lines[2].startswith("then: duplicate: ")
    assert lines[3].startswith("now: duplicate: ")
    assert ruled.run("rules", "explain", "99").code == NOT_FOUND


def test_paused_rules_hold_back_and_make_up_for_nothing(fresh: Rig) -> None:
    """Pausing is for a delicate hour; what came in it must not break loose at its end."""
    fresh.home.mkdir(mode=0o700)
    write(fresh, json.dumps(RULES))
    assert fresh.ok("channel", "pause").startswith("paused: ")
    assert fresh.run("channel", "pause").err == "The rules were paused before.\n"
    assert fresh.ok("rules", "list").startswith("PAUSED: ")
    fresh.ok("send", "it failed", "--channel", "ci/main")
    until(lambda: fresh.json("rules", "explain", "1"), lambda found: bool(found["decided"]))
    assert fresh.json("channel", "resume") == {"is_paused": False, "is_changed": True, "queued": 0, "running": 0}
    decided = fresh.json("rules", "explain", "1")["decided"]
    assert [(each["rule"], each["outcome"]) for each in decided] == [("ci-failed", "paused")]


def test_an_agent_looks_and_changes_nothing(ruled: Rig) -> None:
    """A message that talks an agent into changing the rules has won."""
    with hosting(ruled):
        for words in (("rules", "reload"), ("channel", "pause"), ("channel", "resume"), ("channel", "rules", "reload")):
            done = ruled.run(*words)
            assert (done.code, "An agent may not" in done.err) == (REFUSED, True), words
        assert ruled.run("channel", "run", "1", "--yes").code == REFUSED
        assert len(ruled.json("rules", "list")["rules"]) == 2


def test_the_schema_is_printed_without_a_daemon(fresh: Rig) -> None:
    """An editor is given it once."""
    schema = json.loads(fresh.ok("rules", "schema"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not fresh.home.exists()


def test_rule_names_are_completed(ruled: Rig) -> None:
    """Names are not to be typed."""
    words = "harken rules test --rule c"
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    assert Rig(ruled.home, variables).run().out == "plain,ci-failed\n"
