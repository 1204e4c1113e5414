"""Your policy for what comes in: which sender to trust, where a draft goes, how far it may push, how long it may be.

Only the id that the source vouches for decides trust: names are the sender's own choice, and a message can never change
what is decided here. Of routes and attention rules the first match wins; text and channel are given cleaned. What is
said here and now is refused when it is too long; a mail or a webhook is cut, and its record says so. A message of the
owner that is nothing but `yes a-4k2m9x` answers an action, and `yes ap-7k2q8d` an approval: a quote, or an answer among
other words, answers nothing. What a host asks may meet a rule that refuses it, or has it asked each time; none allows.
Pure. Who is pushed how is decided later, by dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from harken.errors import TooLong
from harken.model import (
    INBOX,
    LOCAL,
    MAX_TEXT_BYTES,
    RUN,
    TASK,
    ApprovalRequest,
    Attention,
    Draft,
    Mailbox,
    Message,
    MessageKind,
    Priority,
    SenderRule,
    Trust,
)

_RAISED: Final[Mapping[Attention, Attention]] = {
    Attention.PROMPT: Attention.BOUNDARY,
    Attention.BOUNDARY: Attention.WAKE,
}
_LOWERED: Final[Mapping[Attention, Attention]] = {Attention.WAKE: Attention.BOUNDARY}


@dataclass(frozen=True, slots=True)
class Route:
    """Where matching drafts go. Empty fields match everything; `channel` may be `*` or `prefix/*`."""

    mailbox: Mailbox
    channel: str = ""
    sender: str = ""
    source: str = ""
    contains: str = ""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """How far matching drafts may push. An unknown sender's only where `allow_unknown` says so."""

    attention: Attention
    source: str = ""
    channel: str = ""
    sender: str = ""
    allow_unknown: bool = False


def route(draft: Draft, text: str, routes: Sequence[Route]) -> Mailbox:
    """Return the mailbox of the first route that matches the draft and its cleaned text, else `inbox`."""
    folded = text.casefold()
    for candidate in routes:
        if _matches(candidate, draft) and candidate.contains.casefold() in folded:
            return candidate.mailbox
    return INBOX


def attention(
    draft: Draft, trust: Trust, rules: Sequence[AttentionRule], default: Attention, *, mailbox: str = ""
) -> Attention:
    """Return how far the draft may push: the first matching rule or the default, then its priority.

    An unknown sender is only counted, unless a rule allows it; even then their priority never raises it. Mail to a task
    goes at the next boundary, as colleagues' words do: only what is urgent, or the answer to a question, wakes.
    """
    is_unknown = trust is Trust.UNKNOWN
    is_task_mail = mailbox.startswith(TASK) and not draft.refers_to
    base = Attention.COUNT if is_unknown else _LOWERED.get(default, default) if is_task_mail else default
    for rule in rules:
        if _matches(rule, draft) and (rule.allow_unknown or not is_unknown):
            base = rule.attention
            break
    if draft.priority is Priority.HIGH and not is_unknown:
        return _RAISED.get(base, base)
    return _LOWERED.get(base, base) if draft.priority is Priority.LOW else base


def channel_matches(pattern: str, channel: str) -> bool:
    """Whether a channel is the one named, any (`*`), or below a prefix (`alerts/*`)."""
    if pattern.endswith("/*"):
        return channel.startswith(pattern[:-1])
    return pattern in ("*", channel)


def _matches(rule: Route | AttentionRule, draft: Draft) -> bool:
    if rule.source not in ("", "*", draft.source):
        return False
    if rule.channel and not channel_matches(rule.channel.strip(), draft.channel):
        return False
    return not rule.sender or same_id(rule.sender, draft.sender.id)


ANYONE = "*"

_ASCII_LOWER: Final[Mapping[int, int]] = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def same_id(left: str, right: str) -> bool:
    """Whether two sender ids are one, apart from case and the spaces around them.

    ASCII only: folding more would make one id of two that the source tells apart.
    """
    return fold_id(left) == fold_id(right)


def judge(
    said: Draft | Message, rules: Sequence[SenderRule], default: Trust, *, decisions: Sequence[SenderRule] = ()
) -> Trust:
    """Return the trust of the sender of a draft, or of a message that is stored.

    A rule about this sender comes before one about everyone, a decision that the person made at run time before what
    is configured, one about this source before one about any; of equal ones the first.
    """
    closest, trust = (0, 0, 0), default
    for is_decision, group in ((1, decisions), (0, rules)):
        for rule in group:
            closeness = _closeness(rule, said, is_decision)
            if closeness is not None and closeness > closest:
                closest, trust = closeness, rule.trust
    return trust


def _closeness(rule: SenderRule, said: Draft | Message, is_decision: int) -> tuple[int, int, int] | None:
    """Return how close a rule is, None when it is about someone else. Any that fits is closer than none."""
    if rule.source not in (said.source, ANYONE):
        return None
    is_specific = 1 + (rule.source != ANYONE)
    if rule.sender.strip() == ANYONE:
        return 0, is_decision, is_specific
    if fold_id(rule.sender) and same_id(rule.sender, said.sender.id):
        return 1, is_decision, is_specific
    return None


def fold_id(sender_id: str) -> str:
    """Return the form under which an id is compared and kept."""
    return sender_id.strip(" \t\r\n").translate(_ASCII_LOWER)


MAX_SAID_CHARS: Final = 64_000
"""How many characters a person or an agent says in one message, unless `limits.max_message_chars` says otherwise."""

IN_PARTS: Final = "Send it in parts, or put it in a file and name that file."


def check_said(text: str, most: int, what: str, hint: str = IN_PARTS, *, can_be_file: bool = False) -> None:
    """Refuse a text that is written here and is too long. `what` names it: "A message"."""
    length = len(text)
    # No character takes more than four bytes.
    size = utf8_bytes(text) if 4 * length > MAX_TEXT_BYTES else 0
    if length > most:
        message = f"{what} has at most {most:,} characters, and this has {length:,}."
    elif size > MAX_TEXT_BYTES:
        message = f"{what} has at most {MAX_TEXT_BYTES:,} bytes, and this has {size:,}."
    else:
        return
    raise TooLong(message, hint, length=length, limit=most, can_be_file=can_be_file)


def utf8_bytes(text: str) -> int:
    """Return how many bytes a text has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def chars_within(text: str, max_bytes: int) -> int:
    """Return how many of the first characters of a text fit into so many bytes of UTF-8."""
    if text.isascii() or 4 * len(text) <= max_bytes:
        return min(len(text), max_bytes)
    # Of a character that is torn apart at the end nothing is left, so that it does not count.
    return len(text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore"))


_ANSWER: Final = re.compile(
    r"(?P<word>yes|no|confirm)\s+(?P<action>a-[0-9a-z]{6})(?:\s+(?P<after>yes|no))?\s*[.!]?", re.IGNORECASE | re.ASCII
)


# In one line: what stands below a reason in a chat or a mail is quoted, and not the owner's word.
_APPROVAL: Final = re.compile(
    r"(?P<word>yes|no|answer)[ \t]+(?P<approval>ap-[0-9a-z]{6})(?:[.!]|[ \t]+(?P<reason>[^\s.!][^\r\n]*))?",
    re.IGNORECASE | re.ASCII,
)
MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Which action or approval a message answers, and how."""

    action: str
    is_yes: bool
    reason: str = ""  # of a refusal, for the agent
    words: str = ""  # what is answered to a question

    @property
    def is_of_approval(self) -> bool:
        """Whether it answers what a host asks, and not what a rule asks."""
        return self.action.startswith("ap-")


def answer_in(message: Message) -> ChatAnswer | None:
    """Return the answer that a message is, if it is one."""
    return answer_of(message.text) if message.trust is Trust.OWNER and message.kind is MessageKind.MESSAGE else None


def answer_of(text: str) -> ChatAnswer | None:
    """Return the answer that a text is, if it is one, of any sender."""
    found = _ANSWER.fullmatch(text.strip())
    if found is None:
        return _approval_of(text)
    word = (found["after"] or found["word"]).lower()
    return ChatAnswer(found["action"].lower(), is_yes=word != "no")


def _approval_of(text: str) -> ChatAnswer | None:
    found = _APPROVAL.fullmatch(text.strip())
    reason = found["reason"] or "" if found else ""
    word, said = (found["word"].lower(), reason.strip()) if found else ("", "")
    if found is None or len(reason) > MAX_REASON or (said and word == "yes") or (not said and word == "answer"):
        return None
    if word == "answer":
        return ChatAnswer(found["approval"].lower(), is_yes=True, words=said)
    return ChatAnswer(found["approval"].lower(), is_yes=word == "yes", reason=said)


class ApprovalRuling(StrEnum):
    """What a rule does with what a host asks: nothing that the host would not do without it."""

    ASK = "ask"  # each time: nobody may answer *always*
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """What is done with what hosts ask. Empty fields match everything; patterns are as in a shell, in any case."""

    answer: ApprovalRuling
    host: str = ""
    tool: str = ""
    argument: str = ""  # of some text among the arguments
    reason: str = ""  # of a refusal, for the agent


def approval_rule(asked: ApprovalRequest, rules: Sequence[ApprovalRule]) -> tuple[int, ApprovalRule] | None:
    """Return the first rule that matches what a host asks, and its number; None: it is asked like anything else."""
    for number, rule in enumerate(rules, start=1):
        is_here = rule.host in ("", asked.host) and (not rule.tool or _fits(asked.tool, rule.tool))
        if is_here and (not rule.argument or any(_fits(text, rule.argument) for text in _texts(asked.arguments))):
            return number, rule
    return None


def _fits(text: str, pattern: str) -> bool:
    return fnmatchcase(text.casefold(), pattern.casefold())


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPolicy:
    """The owner's decisions about what comes in; the mappings are by source."""

    decisions: Sequence[SenderRule] = ()  # made by the person at run time; they come before what is configured
    sender_rules: Sequence[SenderRule] = ()
    machines: Collection[str] = ()  # sources through which programs speak
    default_trust: Mapping[str, Trust] = field(default_factory=dict[str, Trust])
    routes: Sequence[Route] = ()
    attention_rules: Sequence[AttentionRule] = ()
    default_attention: Mapping[str, Attention] = field(default_factory=dict[str, Attention])
    max_bytes: int = MAX_TEXT_BYTES

    def trust_of(self, said: Draft | Message) -> Trust:
        """Return how far the sender of a draft, or of a message that is stored, is trusted now."""
        # A run was told to look at somebody's text: what it says then is worth no more than a stranger's word.
        is_run = said.source == LOCAL and said.sender.id.startswith(RUN)
        default = Trust.UNKNOWN if is_run else self.default_trust.get(said.source, Trust.UNKNOWN)
        trust = judge(said, self.sender_rules, default, decisions=self.decisions)
        # A program may repeat what anybody wrote: it is never the person who speaks.
        return Trust.KNOWN if trust is Trust.OWNER and said.source in self.machines else trust
