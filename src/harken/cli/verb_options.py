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
        "send": "Send a message, and see what will happen to it.",
        "unsend": "Withdraw a message that waits for its time: no agent ever hears of it.",
        "list": "Show the newest messages, newest last.",
        "read": "Show a message, who has read it, and the replies; or part of a long text.",
        "pull": "Take unread messages.",
        "wait": "Wait for unread messages, and take them.",
        "prove": "Say that deliveries were shown.",
        "ack": "Mark messages as seen without taking them.",
        "search": "Find messages that contain all the words, newest first.",
        "stats": "Count a consumer's unread messages.",
        "mailboxes": "Name every mailbox.",
        "evidence": "Say how deliveries through each surface went lately.",
        "notify": "Send any notification to a session, to see what its host does with it.",
        "journal": "Give events of the journal.",
        "source_list": "Show each source: its state, the last message, counts per channel.",
        "reload": "Take over config.toml as it is written now, all of it or nothing, and say what changed.",
        "reply": "Answer a message in the conversation it came from.",
        "allow": "Let a sender's messages reach your agents.",
        "deny": "Only store and count a sender's messages.",
        "pair": "Make a code that allows the sender who sends it.",
        "mute": "Mute a channel, sender or session. Its messages are still stored.",
        "unmute": "End a mute.",
        "whoami": "Say who the caller is taken for: the person, or an agent. Changes nothing.",
        "sign_in": "Make a link that signs a browser in, once.",
        "phone_link": "Make a link that signs your phone in to the page at the public address, once.",
        "browsers": "Show the browsers that are signed in to the page, and when each was used last.",
        "sign_out": "Sign browsers out of the page, also where it is open.",
        "machines": "Show the machines that are joined as satellites, and when each was here last.",
        "token_new": (
            "Make a token, which lets a program or another machine in. Its secret is shown once and not stored."
        ),
        "token_list": "Show the tokens: what each may do, and when and from where it was used last.",
        "token_revoke": "End a token, and at once every connection that was made with it.",
        "task_id": "Propose an id for a task.",
        "task_new": "Make a task: its mailbox, and its folder. Asked again for the same it is made once.",
        "task_make": (
            "Make a task with its folder: a worktree on a new branch, or a folder as it is, with its agent connected "
            "there."
        ),
        "task_list": "Show the tasks: state, unread messages, title and folder.",
        "task_show": "Show a task, its folder, its peers and who works on it.",
        "task_link": "Link tasks, so that their agents can message each other.",
        "task_unlink": "Unlink tasks.",
        "task_host": (
            "Run a task's agent without a terminal: the daemon talks to it, and takes its conversation up after a "
            "restart."
        ),
        "task_stop": "Stop the turn of a hosted agent. Its task goes on with the next message.",
        "task_done": "Let a task be done: it takes no more mail, and what it has not seen is refused.",
        "task_rm": "Forget a task that is done.",
        "send_to_task": "Send a message to a task, and see what will happen to it.",
        "send_to_peer": "Send a message to a peer of your task.",
        "check_inbox": "Take a task's unread messages, urgent ones first.",
        "inbox_status": "Count a task's unread messages.",
        "channels": "Show the channels that have messages, the last active first.",
        "channel": "Show the newest messages of one channel, or of all, newest last.",
        "channel_ack": "Mark the messages of one channel, or of all, as seen by you.",
        "channel_clear": (
            "Hide a channel's current messages from channels and prompts. You can still list and search them."
        ),
        "channel_inject": (
            "Pass the 10 newest channel messages to an agent, between two tool calls or with its next prompt."
        ),
        "questions": "Show unanswered questions, oldest first.",
        "question_done": "Mark questions as needing no answer, or as answered elsewhere. Reminders stop.",
        "approvals": "Show what hosts ask before a tool is used, oldest first.",
        "approval": "Show what a host asks, whole, and what became of it.",
        "approve": "Answer what a host asks before a tool is used. The first answer counts.",
        "conversations": "Show conversations, newest first: chats, threads, pull requests, alerts with their repeats.",
        "done": (
            "Mark conversations as done: they leave your list until somebody writes in them. Agents are not affected."
        ),
        "snooze": "Snooze conversations, for three hours by default. A new message brings one back earlier.",
        "reopen": "Put conversations back into your list (undoes `done` and `snooze`).",
        "unread": "Mark conversations as unread.",
        "needs": (
            "Show what needs you, oldest first: approvals, rules, questions, failed replies, sources, unknown senders."
        ),
        "put_away": "Put entries of `needs` away. The next occasion is shown again.",
        "status": "Show what needs you, your agents and your sources.",
        "outbox": "Show replies that have not been sent, or those in one state, newest first.",
        "outbox_retry": "Try again to send replies that could not be sent.",
        "export": "Give a page of a mailbox, oldest first.",
        "retention": "Show how long messages are kept, and what is over the limits.",
        "retention_run": "Do one round of retention; ask again until nothing is left to do.",
        "rules": "Show the rules: what each matches, how often it fired, what cannot run, and whether they are paused.",
        "rules_reload": "Load the rules file. If it has a mistake, the rules stay as they were.",
        "rules_test": "Test the rules on stored messages: which would fire, and why not. Runs nothing.",
        "rules_try": (
            "Try a rule that is not in force on stored messages: which it would fire for. Nothing is run or stored."
        ),
        "rules_add": (
            "Write one more rule into the file of rules, and put it in force. The file must be as it is in force."
        ),
        "rules_remove": "Take a rule out of the file of rules, and out of force.",
        "rules_explain": "Show what each rule did with a message when it arrived, and would do with it now.",
        "rules_pause": "Pause all rules until `resume`. Messages still arrive, and runs in progress continue.",
        "rules_resume": "Resume the rules. They do not catch up on messages that arrived meanwhile.",
        "actions": "Show what rules asked for, newest first.",
        "confirm": "Answer an action that waits. The first answer counts.",
        "run_now": "Start an agent on a message.",
        "runs": "Show the newest runs first: state, rule, message, agent, time and answer.",
        "run": "Show a run: its message, tools, denied calls, changed files and answer.",
        "run_output": "Show what a run told.",
        "run_abort": "End a run and everything it started, or cancel an action that waits to run.",
    }
)

VERB_OPTIONS: Final[Mapping[str, Mapping[str, VerbOption]]] = MappingProxyType(
    {
        "send": {
            "sender": ("--from", None, "The sender (default: you)."),
            "channel": ("--channel", "", "The channel."),
            "to": ("--to", "", "The mailbox (default: decided by routes)."),
            "priority": ("--priority", "normal", "high, normal or low."),
            "conversation": ("--conversation", "", "The conversation it belongs to."),
            "upstream_id": ("--id", "", "Your own id; a message with the same id is stored once."),
            "as_file": ("--as-file", False, "For a task: save the text as a file in its folder, and send its name."),
            "at": ("--at", "", "Deliver it then: 18:00, in 2h, tomorrow 9:00, 2026-01-05T09:00."),
            "when": ("--when", "", "Deliver it when its readers are `idle`, or after this `turn`."),
        },
        "list": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "channel": ("--channel", "", "Only this channel."),
            "sender": ("--sender", "", "Only from this sender."),
            "before": ("--before", 0, "Only sequence numbers below this."),
            "limit": ("--limit", 20, "Maximum number, up to 1000."),
        },
        "read": {
            "offset": ("--offset", None, "Only the text, from this character on."),
            "limit": ("--limit", None, "Only this many characters of the text; else to its end."),
        },
        "pull": {
            "consumer": ("--consumer", "", "Read as this consumer (default: you)."),
            "channel": ("--channel", "", "Only this channel."),
            "since_id": ("--since-id", "", "Only what came after this message."),
            "limit": ("--limit", 20, "Maximum number, up to 100."),
            "peek": ("--peek", False, "Look without taking."),
        },
        "wait": {
            "consumer": ("--consumer", "", "Read as this consumer (default: you)."),
            "timeout": ("--timeout", 50, "Seconds to wait; at most 55 are waited."),
            "limit": ("--limit", 10, "Maximum number, up to 100."),
        },
        "ack": {
            "consumer": ("--consumer", "", "For this consumer (default: you)."),
        },
        "search": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "channel": ("--channel", "", "Only this channel."),
            "sender": ("--sender", "", "Only from this sender."),
            "limit": ("--limit", 20, "Maximum number, up to 1000."),
        },
        "stats": {
            "consumer": ("--consumer", "", "For this consumer (default: you)."),
        },
        "journal": {
            "after": ("--after", 0, "Only events above this number; -1 for those still to come."),
            "limit": ("--limit", 500, "Maximum number."),
        },
        "reply": {
            "key": ("--key", "", "Sent again with the same key it is done once."),
        },
        "allow": {
            "source": ("--source", "*", "Only for messages from this source."),
            "as_owner": ("--as-owner", False, "Treat their messages as yours."),
            "is_undone": ("--undo", False, "Take back what you decided about them, whatever it was."),
        },
        "deny": {
            "source": ("--source", "*", "Only for messages from this source."),
            "is_undone": ("--undo", False, "Take back what you decided about them, whatever it was."),
        },
        "mute": {
            "seconds": ("--seconds", None, "For this long; until unmuted when null."),
        },
        "phone_link": {
            "name": ("--name", "", "The name of its token (default: phone)."),
            "seconds": ("--seconds", None, "For this long; until it is revoked when null."),
        },
        "sign_out": {
            "is_all": ("--all", False, "Every browser."),
        },
        "token_new": {
            "kind": ("--kind", "agent", "Who gets it: agent, sender (it only sends), machine or phone."),
            "task": ("--task", "", "Its agent works on this task, and has the task's mailbox alone."),
            "consumer": ("--consumer", "", "Its agent reads as this consumer (default: the token's name)."),
            "trust": ("--trust", "", "How far a sender is trusted: known, unknown or owner (default: known)."),
            "subject": ("--subject", "", "What the issuer of http.issuer calls its holder; then there is no secret."),
            "seconds": ("--seconds", None, "For this long; until it is revoked when null."),
        },
        "task_new": {
            "id": ("--id", "", "Its id (default: made from the title)."),
            "repo": ("--repo", "", "The git repository it belongs to."),
            "branch": ("--branch", "", "Its git branch."),
            "agent": ("--agent", "", "The agent to use."),
            "has_worktree": ("--has-worktree", False, "The folder is a git worktree made for it."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox, from you."),
        },
        "task_make": {
            "id": ("--id", "", "Its id (default: made from the title)."),
            "agent": ("--agent", "", "The agent to use."),
            "prompt": ("--prompt", "", "What to do: the first message in its mailbox, from you."),
            "branch": ("--branch", "", "The new branch (default: task/ID)."),
            "start": ("--from", "", "Where the branch starts (default: HEAD)."),
            "is_here": ("--here", False, "Use the folder as it is, without a worktree."),
            "is_trusted": ("--trust-repository", False, "Let git run programs that the repository's settings name."),
        },
        "task_list": {
            "all": ("--all", False, "Include tasks that are done."),
        },
        "task_host": {
            "agent": ("--agent", "", "The agent to use."),
        },
        "task_stop": {
            "is_end": ("--end", False, "End the agent, and host the task no more."),
        },
        "send_to_task": {
            "priority": ("--priority", "normal", "high, normal or low."),
            "key": ("--id", "", "Your own id; a message with the same id is stored once."),
            "as_file": ("--as-file", False, "Save the text as a file in the task's folder, and send its name."),
            "at": ("--at", "", "Deliver it then: 18:00, in 2h, tomorrow 9:00, 2026-01-05T09:00."),
            "when": ("--when", "", "Deliver it when its readers are `idle`, or after this `turn`."),
        },
        "send_to_peer": {
            "peer": ("--peer", "", "Which peer, if there are several."),
            "priority": ("--priority", "normal", "high, normal or low."),
            "key": ("--id", "", "Your own id; a message with the same id is stored once."),
            "cwd": ("--cwd", "", "The folder that says which task is yours."),
            "as_file": ("--as-file", False, "Save the text as a file in the task's folder, and send its name."),
            "at": ("--at", "", "Deliver it then: 18:00, in 2h, tomorrow 9:00, 2026-01-05T09:00."),
            "when": ("--when", "", "Deliver it when its readers are `idle`, or after this `turn`."),
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
            "limit": ("--limit", 20, "Maximum number, up to 200."),
        },
        "channel": {
            "channel": ("--channel", "", "The channel; all of them when empty."),
            "source": ("--source", "", "The source, if several have the channel."),
            "limit": ("--limit", 20, "Maximum number, up to 200."),
        },
        "channel_ack": {
            "channel": ("--channel", "", "The channel; all of them when empty."),
            "source": ("--source", "", "The source, if several have the channel."),
        },
        "channel_clear": {
            "channel": ("--channel", "", "The channel."),
            "source": ("--source", "", "The source, if several have the channel."),
            "all": ("--all", False, "All channels."),
        },
        "channel_inject": {
            "channel": ("--channel", "", "Of this channel; of all that go with prompts when empty."),
            "source": ("--source", "", "The source, if several have the channel."),
            "to": ("--to", "", "The mailbox (default: `inbox`)."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "questions": {
            "mailbox": ("--mailbox", "", "Only this mailbox."),
            "limit": ("--limit", 50, "Maximum number, up to 500."),
        },
        "approvals": {
            "all": ("--all", False, "Include those that are over."),
            "limit": ("--limit", 50, "Maximum number, up to 500."),
        },
        "approve": {
            "reason": ("--reason", "", "With `no`: why. With `answer`: a line per question. Up to 2000 characters."),
        },
        "conversations": {
            "view": ("--view", "open", "Which: `open`, `unread`, `for-you`, `snoozed`, `done` or `sent`."),
            "limit": ("--limit", 20, "Maximum number, up to 200."),
            "before": ("--before", 0, "Only conversations older than this position (from --json)."),
        },
        "snooze": {
            "seconds": ("--seconds", None, "For this long."),
            "until": ("--until", "", "Until this time, as `2026-01-05T09:00:00Z`."),
        },
        "unread": {
            "is_read": ("--read", False, "Mark them as read instead."),
        },
        "put_away": {
            "is_undone": ("--undo", False, "Show them again."),
        },
        "outbox": {
            "state": ("--state", "", "Only these: `queued`, `parked` or `sent`; else what has not left."),
        },
        "outbox_retry": {
            "is_unsent": ("--not-sent", False, "You have checked that it was not sent: do not ask the service."),
        },
        "export": {
            "mailbox": ("--mailbox", "inbox", "The mailbox."),
            "after": ("--after", 0, "Only sequence numbers above this."),
            "limit": ("--limit", 500, "Maximum number."),
            "channel": ("--channel", "", "Only this channel."),
            "source": ("--source", "", "Only from this source."),
            "sender": ("--sender", "", "Only from this sender: the id or the name."),
            "since": ("--since", "", "Only what was received at this time or later, as ISO 8601."),
            "until": ("--until", "", "Only what was received before this time, as ISO 8601."),
            "ledger": ("--with-ledger", False, "Include each message's ledger and replies."),
        },
        "rules_test": {
            "since": ("--since", 604800.0, "How far back, in seconds."),
            "limit": ("--limit", 1000, "Maximum number of messages, newest first."),
            "rule": ("--rule", "", "Only this rule."),
            "all": ("--all", False, "Include messages and rules that do not match, and why."),
        },
        "rules_try": {
            "since": ("--since", 604800.0, "How far back, in seconds."),
        },
        "actions": {
            "state": ("--state", "", "Only those in this state, such as waiting."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 50, "Maximum number, up to 200."),
        },
        "confirm": {
            "yes": ("--yes", True, "False declines it."),
        },
        "run_now": {
            "rule": ("--rule", "", "Use this rule's agent, tools and prompt."),
            "agent": ("--agent", "", "The agent to run."),
            "workdir": ("--workdir", "", "The folder it works in (default: one of its own)."),
            "prompt": ("--prompt", "", "What to do; {{content}} becomes the message."),
            "key": ("--key", "", "Asked again with the same key it is done once."),
        },
        "runs": {
            "running": ("--running", None, "True: only those that are going on. False: only those that are over."),
            "message": ("--message", "", "Only those about this message."),
            "limit": ("--limit", 20, "Maximum number, up to 200."),
        },
        "run_output": {
            "after": ("--after", 0, "Only what follows this line."),
            "wait": ("--wait", 0.0, "Seconds to wait for more; at most 55."),
        },
    }
)
