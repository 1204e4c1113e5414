"""What is allowed in a rule and probably not meant. Pure: a rule in, warnings out."""

from __future__ import annotations

from collections.abc import Iterator

from harken.model import Trust
from harken.reaction import Mode
from harken.rules.fault import RuleFault, closest, shown
from harken.rules.prompt import WORDS, words_in
from harken.rules.quoting import plain_or_quoted
from harken.rules.rule import ANY, EDIT_INSTRUCTIONS, Rule


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
