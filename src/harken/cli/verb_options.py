"""The arguments of verbs as options: flag, default, help.

Written by `scripts/verb_table.py` from the verbs: change those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VerbOption = tuple[str, str | float | bool | None, str]

VERB_OPTIONS: Final[Mapping[str, Mapping[str, VerbOption]]] = MappingProxyType(
    {
        "send": {
            "sender": ("--from", "", "Who it is from; you when left out."),
            "channel": ("--channel", "", "The channel it belongs to."),
            "to": ("--to", "", "The mailbox; else routes decide."),
            "priority": ("--priority", "normal", "high, normal or low."),
            "conversation": ("--conversation", "", "The conversation it belongs to."),
            "upstream_id": ("--id", "", "Your own id: sent again with the same id it is stored once."),
            "as_file": ("--as-file", False, "To a task: put the text into a file in its folder, and name that."),
        },
        "list": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "channel": ("--channel", "", "Only this channel."),
            "sender": ("--sender", "", "Only from this sender."),
            "before": ("--before", 0, "Only sequence numbers below this."),
            "limit": ("--limit", 20, "At most this many."),
        },
        "read": {
            "offset": ("--offset", None, "Only the text, from this character on."),
            "limit": ("--limit", None, "Only this many characters of the text."),
        },
        "pull": {
            "consumer": ("--consumer", "", "Read as this consumer; else as yourself."),
            "channel": ("--channel", "", "Only this channel."),
            "since_id": ("--since-id", "", "Only what came after this message."),
            "limit": ("--limit", 20, "At most this many."),
            "peek": ("--peek", False, "Look without taking."),
        },
        "wait": {
            "consumer": ("--consumer", "", "Read as this consumer; as you, `watch` in records, when empty."),
            "timeout": ("--timeout", 50, "Seconds to wait; at most 55 are waited."),
            "limit": ("--limit", 10, "At most this many."),
        },
        "ack": {
            "consumer": ("--consumer", "", "For this consumer; for you, `watch` in records, when empty."),
        },
        "search": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "channel": ("--channel", "", "Only this channel."),
            "sender": ("--sender", "", "Only from this sender."),
            "limit": ("--limit", 20, "At most this many."),
        },
        "stats": {
            "consumer": ("--consumer", "", "For this consumer; else for you."),
        },
        "journal": {
            "after": ("--after", 0, "Only events above this number; -1 for those still to come."),
            "limit": ("--limit", 500, "At most this many."),
        },
        "reply": {
            "key": ("--key", "", "Sent again with the same key it is done once."),
        },
        "allow": {
            "source": ("--source", "*", "Only where it comes from this source."),
            "as_owner": ("--as-owner", False, "Treat their word as yours."),
        },
        "deny": {
            "source": ("--source", "*", "Only where it comes from this source."),
        },
        "mute": {
            "seconds": ("--seconds", None, "For this long; until unmuted when null."),
        },
        "sign_out": {
            "is_all": ("--all", False, "Every browser."),
        },
        "task_new": {
            "id": ("--id", "", "Its id; made from the title when empty."),
            "repo": ("--repo", "", "The git repository it belongs to."),
            "branch": ("--branch", "", "Its git branch."),
            "agent": ("--agent", "", "The agent host that is meant to do it."),
            "has_worktree": ("--has-worktree", False, "The folder is a git worktree made for it."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox, from you."),
        },
        "task_make": {
            "id": ("--id", "", "Its id; made from the title when empty."),
            "agent": ("--agent", "", "The agent host that is meant to do it."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox."),
            "branch": ("--branch", "", "The new branch; else task/ID."),
            "start": ("--from", "", "Where the branch begins; else at HEAD."),
            "is_here": ("--here", False, "Use the folder as it is, without a worktree."),
            "is_trusted": ("--trust-repository", False, "Let git run programs that its settings name."),
        },
        "task_list": {
            "all": ("--all", False, "Those that are done too."),
        },
        "send_to_task": {
            "priority": ("--priority", "normal", "high, normal or low."),
            "key": ("--key", "", "Sent again with the same key it is stored once."),
            "as_file": ("--as-file", False, "Put the text into a file in the task's folder, and name that."),
        },
        "send_to_peer": {
            "peer": ("--peer", "", "Which peer, when there are several."),
            "priority": ("--priority", "normal", "high, normal or low."),
            "key": ("--key", "", "Sent again with the same key it is stored once."),
            "cwd": ("--cwd", "", "The folder that says which task is yours."),
            "as_file": ("--as-file", False, "Put the text into a file in the task's folder, and name that."),
        },
        "check_inbox": {
            "task_id": ("--task-id", "", "The task; the caller's own when empty."),
            "peek": ("--peek", False, "Look without taking."),
            "cwd": ("--cwd", "", "The folder that says which task is yours."),
        },
        "inbox_status": {
            "task_id": ("--task-id", "", "The task; the caller's own when empty."),
            "cwd": ("--cwd", "", "The folder that says which task is yours."),
        },
        "channels": {
            "limit": ("--limit", 20, "At most this many."),
        },
        "channel": {
            "source": ("--source", "", "Of this source, when several have the channel."),
            "limit": ("--limit", 20, "At most this many."),
        },
        "channel_ack": {
            "channel": ("--channel", "", "The channel; all of them when empty."),
            "source": ("--source", "", "Of this source, when several have the channel."),
        },
        "channel_inject": {
            "channel": ("--channel", "", "Of this channel; of all that go with prompts when empty."),
            "source": ("--source", "", "Of this source, when several have the channel."),
            "to": ("--to", "", "The mailbox; else inbox."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "questions": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "limit": ("--limit", 50, "At most this many."),
        },
        "outbox": {
            "state": ("--state", "", "`queued`, `parked` or `sent`; what has not left when empty."),
        },
        "outbox_retry": {
            "is_unsent": ("--is-unsent", False, "You have looked, and none of them was sent."),
        },
        "export": {
            "mailbox": ("--mailbox", "inbox", "The mailbox."),
            "after": ("--after", 0, "Only sequence numbers above this."),
            "limit": ("--limit", 500, "At most this many."),
            "channel": ("--channel", "", "Only this channel."),
            "source": ("--source", "", "Only from this source."),
            "sender": ("--sender", "", "Only from this sender: the id or the name."),
            "since": ("--since", "", "Only what was received at this time or later, as ISO 8601."),
            "until": ("--until", "", "Only what was received before this time, as ISO 8601."),
            "ledger": ("--with-ledger", False, "With the ledger of each message, and the replies to it."),
        },
        "rules_test": {
            "since": ("--since", 604800.0, "How far back, in seconds."),
            "limit": ("--limit", 1000, "The newest so many messages of that time."),
            "rule": ("--rule", "", "Only this rule."),
            "all": ("--all", False, "Also messages that no rule fits."),
        },
        "actions": {
            "state": ("--state", "", "Only those in this state, such as waiting."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 50, "At most this many."),
        },
        "confirm": {
            "yes": ("--yes", True, "False declines it."),
        },
        "run_now": {
            "rule": ("--rule", "", "As this rule says."),
            "agent": ("--agent", "", "The agent that runs."),
            "workdir": ("--workdir", "", "The folder it works in."),
            "prompt": ("--prompt", "", "What to do; {{content}} becomes the message."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "runs": {
            "running": ("--running", None, "True: only those that are going on. False: only those that are over."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 20, "At most this many."),
        },
        "run_output": {
            "after": ("--after", 0, "Only what follows this line."),
            "wait": ("--wait", 0.0, "Seconds to wait for more; at most 55."),
        },
    }
)
