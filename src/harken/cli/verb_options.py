"""Verbs on the command line: the help of each, and of its arguments the flag, default and help.

Written by `scripts/verb_table.py` from the verbs: change those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VerbOption = tuple[str, str | float | bool | None, str]

VERB_HELP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "send": "Send a message, and say what will happen to it.",
        "list": "Show the newest messages, the newest last.",
        "read": "Show a message, who has it, and the replies to it; or a part of a long text.",
        "pull": "Take what is unread.",
        "wait": "Take what is unread, waiting for it.",
        "prove": "Say that deliveries were shown.",
        "ack": "Mark messages as seen without taking them.",
        "search": "Find messages that contain all the words, the newest first.",
        "stats": "Count what waits for a consumer.",
        "mailboxes": "Name every mailbox.",
        "evidence": "Say how deliveries through each surface went lately.",
        "notify": "Send any notification to a session, to see what its host does with it.",
        "journal": "Give events of the journal.",
        "source_list": "Show each source: whether it is listened to and why not, the last message, counts per channel.",
        "reload": "Take over config.toml as it is written now, all of it or nothing, and say what changed.",
        "reply": "Answer a message where it came from.",
        "allow": "Let a sender reach sessions.",
        "deny": "Let a sender only be counted: stored, and shown when asked for.",
        "pair": "Make a code that admits the one sender who sends it.",
        "mute": "Keep a channel, sender or session from being pushed to. What comes is stored all the same.",
        "unmute": "End a mute.",
        "whoami": "Say who the caller is taken for: the person, or an agent. Changes nothing.",
        "sign_in": "Make a link that signs a browser in, once.",
        "browsers": "Show the browsers that are signed in to the page, and when each was used last.",
        "sign_out": "Sign browsers out of the page. What is open in them ends too.",
        "token_new": "Make a token, which lets another machine in. Its secret is shown once and not stored.",
        "token_list": "Show the tokens: what each is for, when and from where it was used last.",
        "token_revoke": "End a token, and at once every connection that was made with it.",
        "task_id": "Propose an id for a task.",
        "task_new": "Make a task: its mailbox, and its folder. Asked again for the same it is made once.",
        "task_make": (
            "Make a task with its folder: a worktree on a new branch, or a folder as it is, with its agent connected "
            "there."
        ),
        "task_list": "Show the tasks: state, unread messages, title and folder.",
        "task_show": "Show a task, its folder, its peers and who works on it.",
        "task_link": "Make tasks peers: their agents can send each other messages.",
        "task_unlink": "Let tasks no longer be peers.",
        "task_done": "Let a task be done: it takes no more mail, and what it has not seen is refused.",
        "task_rm": "Forget a task that is done.",
        "send_to_task": "Send a message to a task, and say what will happen to it.",
        "send_to_peer": "Send a message to a peer of your task.",
        "check_inbox": "Take what a task has not seen, what is urgent first.",
        "inbox_status": "Count what a task has not seen.",
        "channels": "Show the channels that messages came through, the last active first.",
        "channel": "Show the newest messages of a channel, or of all of them; the newest last.",
        "channel_ack": "Mark what is in a channel, or in all of them, as seen by you.",
        "channel_clear": (
            "Hide what a channel holds now from channels and prompts. It stays in its mailbox, and can be listed and "
            "found."
        ),
        "channel_inject": (
            "Hand the 10 most recent channel messages to an agent: between two tool calls, or with its next prompt."
        ),
        "questions": "Show what was asked and not answered, the oldest first.",
        "question_done": (
            "Say that messages need no answer, or have got one elsewhere. Nobody is reminded of them any more."
        ),
        "conversations": (
            "Show conversations, the newest first: a chat, a thread, a pull request, an alert with its repeats."
        ),
        "done": (
            "Be done with conversations: they leave your list until somebody writes in them. For agents nothing "
            "changes."
        ),
        "snooze": (
            "Put conversations off, for three hours if you do not say how long. What is said in one brings it back "
            "before."
        ),
        "reopen": "Put conversations back into your list: undo `done` and `snooze`.",
        "unread": "Let conversations count as unread until you read them again.",
        "needs": "Show what needs you, the oldest first: rules that ask, questions, replies, sources, unknown senders.",
        "put_away": "Put entries of `needs` away. The next occasion is shown again.",
        "status": "Show the daemon, sessions, consumers, what waits and what is parked.",
        "outbox": "Show replies that have not left, or those of one state, the newest first.",
        "outbox_retry": "Try replies that could not be sent once more, now.",
        "export": "Give a page of a mailbox, oldest first.",
        "retention": "Show how long messages are kept, what is over that, and what happens to it next.",
        "retention_run": "Do one round of retention; ask again until nothing is left to do.",
        "rules": (
            "Show the rules in force: what each is about, how often it fired, what cannot run, and whether they are "
            "paused."
        ),
        "rules_reload": "Put the file of rules in force. With a fault in it, the rules stay as they were.",
        "rules_test": "Try the rules in force on stored messages: which would fire, and why not. Nothing is run.",
        "rules_try": (
            "Try a rule that is not in force on stored messages: which it would fire for. Nothing is run or stored."
        ),
        "rules_add": (
            "Write one more rule into the file of rules, and put it in force. The file must be as it is in force."
        ),
        "rules_remove": "Take a rule out of the file of rules, and out of force.",
        "rules_explain": "Say what each rule made of a message when it came, and what it would make of it now.",
        "rules_pause": (
            "Let no rule fire, and start no run of one, until `resume`. Messages keep arriving, and runs that began go "
            "on."
        ),
        "rules_resume": "Let rules fire again. What came meanwhile was judged, and stays held back.",
        "actions": "Show what rules asked for, newest first.",
        "confirm": "Answer an action that waits. The first answer counts.",
        "run_now": "Start an agent on a message.",
        "runs": "Show the newest runs, the newest first: state, rule, message, agent, time and answer.",
        "run": "Show a run: its message, the tools it had, what it was denied, the files it changed, and its answer.",
        "run_output": "Show what a run told.",
        "run_abort": "End a run, its agent and everything that it started; or an action that waits to be run.",
    }
)

VERB_OPTIONS: Final[Mapping[str, Mapping[str, VerbOption]]] = MappingProxyType(
    {
        "send": {
            "sender": ("--from", None, "Who it is from; else you."),
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
            "limit": ("--limit", 20, "At most this many, and 1000 at once."),
        },
        "read": {
            "offset": ("--offset", None, "Only the text, from this character on."),
            "limit": ("--limit", None, "Only this many characters of the text; else to its end."),
        },
        "pull": {
            "consumer": ("--consumer", "", "Read as this consumer; else as yourself."),
            "channel": ("--channel", "", "Only this channel."),
            "since_id": ("--since-id", "", "Only what came after this message."),
            "limit": ("--limit", 20, "At most this many, and 100 at once."),
            "peek": ("--peek", False, "Look without taking."),
        },
        "wait": {
            "consumer": ("--consumer", "", "Read as this consumer; else as yourself."),
            "timeout": ("--timeout", 50, "Seconds to wait; at most 55 are waited."),
            "limit": ("--limit", 10, "At most this many, and 100 at once."),
        },
        "ack": {
            "consumer": ("--consumer", "", "For this consumer; else for you."),
        },
        "search": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "channel": ("--channel", "", "Only this channel."),
            "sender": ("--sender", "", "Only from this sender."),
            "limit": ("--limit", 20, "At most this many, and 1000 at once."),
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
        "token_new": {
            "kind": ("--kind", "machine", "What it is for: machine."),
            "seconds": ("--seconds", None, "For this long; until it is revoked when null."),
        },
        "task_new": {
            "id": ("--id", "", "Its id; else made from the title."),
            "repo": ("--repo", "", "The git repository it belongs to."),
            "branch": ("--branch", "", "Its git branch."),
            "agent": ("--agent", "", "The agent that does it."),
            "has_worktree": ("--has-worktree", False, "The folder is a git worktree made for it."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox, from you."),
        },
        "task_make": {
            "id": ("--id", "", "Its id; else made from the title."),
            "agent": ("--agent", "", "The agent that does it."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox, from you."),
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
            "key": ("--id", "", "Your own id: sent again with the same id it is stored once."),
            "as_file": ("--as-file", False, "Put the text into a file in the task's folder, and name that."),
        },
        "send_to_peer": {
            "peer": ("--peer", "", "Which peer, when there are several."),
            "priority": ("--priority", "normal", "high, normal or low."),
            "key": ("--id", "", "Your own id: sent again with the same id it is stored once."),
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
            "limit": ("--limit", 20, "At most this many, and 200 at once."),
        },
        "channel": {
            "channel": ("--channel", "", "The channel; all of them when empty."),
            "source": ("--source", "", "Of this source, when several have the channel."),
            "limit": ("--limit", 20, "At most this many, and 200 at once."),
        },
        "channel_ack": {
            "channel": ("--channel", "", "The channel; all of them when empty."),
            "source": ("--source", "", "Of this source, when several have the channel."),
        },
        "channel_clear": {
            "channel": ("--channel", "", "The channel."),
            "source": ("--source", "", "Of this source, when several have the channel."),
            "all": ("--all", False, "All channels."),
        },
        "channel_inject": {
            "channel": ("--channel", "", "Of this channel; of all that go with prompts when empty."),
            "source": ("--source", "", "Of this source, when several have the channel."),
            "to": ("--to", "", "The mailbox; else `inbox`."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "questions": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "limit": ("--limit", 50, "At most this many, and 500 at once."),
        },
        "conversations": {
            "view": ("--view", "open", "Which: `open`, `unread`, `for-you`, `snoozed`, `done` or `sent`."),
            "limit": ("--limit", 20, "At most this many, and 200 at once."),
            "before": ("--before", 0, "Only what follows this position."),
        },
        "snooze": {
            "seconds": ("--seconds", None, "For this long."),
            "until": ("--until", "", "Until this time, as `2026-01-05T09:00:00Z`."),
        },
        "unread": {
            "is_read": ("--read", False, "The other way round: you have read them."),
        },
        "put_away": {
            "is_undone": ("--undo", False, "Show them again."),
        },
        "outbox": {
            "state": ("--state", "", "Only these: `queued`, `parked` or `sent`; else what has not left."),
        },
        "outbox_retry": {
            "is_unsent": ("--not-sent", False, "You have looked: it is not there. Send it without looking again."),
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
            "limit": ("--limit", 1000, "At most this many messages, the newest."),
            "rule": ("--rule", "", "Only this rule."),
            "all": ("--all", False, "Also messages and rules that do not fit, and why."),
        },
        "rules_try": {
            "since": ("--since", 604800.0, "How far back, in seconds."),
        },
        "actions": {
            "state": ("--state", "", "Only those in this state, such as waiting."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 50, "At most this many, and 200 at once."),
        },
        "confirm": {
            "yes": ("--yes", True, "False declines it."),
        },
        "run_now": {
            "rule": ("--rule", "", "As this rule says."),
            "agent": ("--agent", "", "The agent that runs."),
            "workdir": ("--workdir", "", "The folder it works in; else one of its own."),
            "prompt": ("--prompt", "", "What to do; {{content}} becomes the message."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "runs": {
            "running": ("--running", None, "True: only those that are going on. False: only those that are over."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 20, "At most this many, and 200 at once."),
        },
        "run_output": {
            "after": ("--after", 0, "Only what follows this line."),
            "wait": ("--wait", 0.0, "Seconds to wait for more; at most 55."),
        },
    }
)
