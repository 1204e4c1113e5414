"""The promises of README.md."""

from __future__ import annotations

from typing import Final

from tests.promises.promise import PromisePage, held

_PROMISES: Final = (
    held(
        "**Message your coding agent while it works, and know that it read it.**",
        "test_every_surface_of_a_connected_host_is_proven",
        "test_what_is_called_seen_was_on_the_wire",
    ),
    held(
        "It delivers messages from CI, chat, mail, scripts and other agents",
        "test_what_a_server_announces_becomes_mail",
        "test_a_chat_message_arrives_after_the_sign_in_and_is_answered_once",
        "test_a_mail_reaches_the_inbox_and_is_answered",
        "test_two_tasks_that_are_peers_ask_and_answer_until_one_is_done",
        "test_of_several_hosts_one_session_is_woken",
    ),
    held("keeps each one until the agent has seen it", "test_sessions_that_are_gone_give_back_their_mail"),
    held("and any other MCP client", "test_the_inspector_lists_and_calls_every_tool"),
    held(
        "`connect` shows each change to the agent's settings, asks first, and keeps a backup.",
        "test_connect_and_disconnect_leave_a_home_as_it_was",
    ),
    held(
        "It gets the message with your first prompt, or between two tool calls",
        "test_every_surface_of_a_connected_host_is_proven",
    ),
    held(
        "`harken open` shows every message and who has read it, live in your browser.",
        "test_what_is_said_about_a_sent_message_follows_its_ledger",
        "test_message_sent_in_one_page_appears_in_the_other_with_its_badge",
    ),
    held("To see it work before you connect anything, run `harken demo`.", "test_the_quickstart_does_what_it_says"),
    held(
        "busy | delivers between two tool calls",
        "test_every_surface_of_a_connected_host_is_proven",
        "test_what_is_called_seen_was_on_the_wire",
    ),
    held(
        "idle | wakes it (not Gemini CLI; Copilot CLI only with `--wake`)",
        "test_idle_session_without_a_wake_is_told_with_its_next_prompt",
        "test_idle_session_in_tmux_is_woken_and_told_once",
        "test_it_cannot_be_asked_to_wake",
    ),
    held(
        "closed | delivers with the first prompt of the next session",
        "test_every_surface_of_a_connected_host_is_proven",
        "test_mail_waits_for_the_next_start_of_a_task_that_has_ended",
    ),
    held(
        "killed halfway | delivers again, unless there is proof that the model had it",
        "test_expired_lease_is_offered_again_as_a_repeat",
        "test_sessions_that_are_gone_give_back_their_mail",
    ),
    held(
        "on a full disk | `send` fails and says so; accepted messages stay readable",
        "test_full_disk_refuses_and_recovers",
        "test_agents_pull_and_people_read_on_a_full_disk",
    ),
    held(
        "an accepted message is never lost",
        "test_the_story_ends_well_whichever_commit_is_the_last",
        "test_nothing_is_lost_or_doubled_while_the_daemon_is_killed",
        "test_nothing_accepted_is_lost_whatever_happens_to_the_files",
    ),
    held(
        "never silently unread",
        "test_what_expired_unread_stays_to_be_seen",
        "test_what_a_consumer_is_not_given_is_counted_by_its_reason",
        "test_everything_that_waits_is_told_or_counted",
        "test_sessions_that_are_gone_give_back_their_mail",
    ),
    held(
        "You can always see its state.",
        "test_the_ledger_has_a_line_for_every_agent_that_reads",
        "test_read_shows_the_message_its_ledger_and_replies",
        "test_ledger_says_each_state_in_a_line",
    ),
    held(
        "**One daemon** per person owns the store and all connections.",
        "test_twenty_daemons_started_at_once_are_one",
        "test_daemon_whose_lock_or_socket_is_gone_leaves",
    ),
    held(
        "which costs milliseconds and a few megabytes",
        "test_json_is_imported_only_after_the_first_answer",
        "test_the_edge_is_small",
    ),
    held(
        "You can kill the daemon at any time.",
        "test_nothing_is_lost_or_doubled_while_the_daemon_is_killed",
        "test_a_new_daemon_gets_the_handshake_the_settings_and_the_unanswered_requests",
    ),
    held(
        "**Each message is stored once** and synced to disk before its sender gets an answer.",
        "test_same_message_from_two_sides_is_stored_once",
        "test_killed_process_keeps_its_promises",
    ),
    held(
        "Delivered means proven.** Handing text to an agent is only an offer. A message counts as *seen* when there is",
        "test_04_an_offer_is_not_proof",
        "test_what_is_called_seen_was_on_the_wire",
    ),
    held(
        "**Inbound text is treated as hostile.** Harken caps it, cleans it and names its sender.",
        "test_cleaned_text_is_short_normal_visible_and_harmless",
        "test_any_draft_becomes_a_message_that_can_be_stored",
        "test_a_record_has_the_documented_fields",
    ),
    held(
        "It reaches the model as data, unless it is from you or from someone you allowed.",
        "test_trust_says_whose_word_a_message_is",
        "test_without_a_policy_a_sender_is_unknown_and_only_counted",
    ),
    held(
        "Without any configuration you have a working inbox on SQLite.",
        "test_the_quickstart_does_what_it_says",
        "test_nothing_configured_gives_the_defaults",
    ),
    held("Everything stays on your machine.", "test_daemon_without_settings_speaks_to_this_machine_only"),
    held(
        "messages from the command line, scripts, the HTTP API, agents",
        "test_send_says_id_mailbox_number_and_what_will_happen",
        "test_send_reads_a_pipe_when_there_is_no_text_or_a_dash",
        "test_message_can_be_sent_with_the_token",
        "test_what_an_agents_shell_sends_has_the_agents_id",
    ),
    held(
        "[MCP servers and their events]",
        "test_what_a_server_announces_becomes_mail",
        "test_events_arrive_and_a_broken_stream_goes_on_at_its_cursor",
    ),
    held(
        "Teams and Outlook",
        "test_a_chat_message_arrives_after_the_sign_in_and_is_answered_once",
        "test_a_mail_arrives_after_the_sign_in_and_is_answered_once",
    ),
    held("a Teams bot", "test_somebody_writes_and_gets_one_answer_in_the_same_conversation"),
    held("any mail account", "test_a_mail_reaches_the_inbox_and_is_answered"),
    held("[webhooks]", "test_what_was_accepted_is_stored_when_the_daemon_is_killed_under_load"),
    held(
        "each connected with one command: messages between tool calls, with prompts, and as a wake-up when idle",
        "test_every_surface_of_a_connected_host_is_proven",
        "test_what_is_called_seen_was_on_the_wire",
    ),
    held(
        "[answering what Claude Code, Codex, Copilot CLI and opencode ask]",
        "test_allowed_elsewhere_runs_and_is_called_obeyed_by_evidence",
        "test_command_line_shows_it_whole_and_answers",
        "test_page_shows_everything_that_is_asked_and_takes_the_answer",
    ),
    held("that notify you", "test_rule_that_tells_makes_one_toast_with_the_text"),
    held("ask you", "test_a_yes_starts_the_run_and_its_record_tells_everything"),
    held(
        "run an agent with exactly the tools you listed",
        "test_rule_with_a_tool_of_a_server_runs_with_that_tool_and_no_other",
        "test_rule_that_its_host_cannot_be_fenced_to_never_runs",
    ),
    held(
        ": a worktree, a mailbox and an agent for each piece of work",
        "test_a_task_has_a_worktree_a_branch_and_a_mailbox",
        "test_a_task_begins_with_the_mail_that_waits_for_it",
    ),
    held("the agents can message each other", "test_two_tasks_talk_through_a_crash_and_the_ledger_tells_it_all"),
    held(
        "that shows every message, who got it and how, as it happens",
        "test_message_sent_in_one_page_appears_in_the_other_with_its_badge",
        "test_what_is_said_about_a_sent_message_follows_its_ledger",
        "test_opened_ledger_stays_open_while_it_changes",
        "test_older_messages_are_loaded_in_parts_and_none_is_missing",
    ),
    held(
        "over stdio: tools to pull, wait, answer, acknowledge and search",
        "test_the_inspector_lists_and_calls_every_tool",
        "test_the_sdk_lists_and_calls_every_tool",
    ),
    held("and instructions to listen", "test_client_without_hooks_is_told_to_wait_at_the_end_of_a_turn"),
    held(
        "the delivery ledger with leases and repeats, the journal, search and export",
        "test_store_agrees_with_the_model",
        "test_expired_lease_is_offered_again_as_a_repeat",
        "test_the_journal_has_a_line_for_everything_without_gaps",
        "test_search_finds_all_words_newest_first",
        "test_export_gives_every_message_of_every_mailbox",
    ),
    held(
        "trust, pairing, mutes, routes and projects",
        "test_a_decision_counts_from_the_next_message_on",
        "test_a_pairing_code_admits_the_one_who_sends_it",
        "test_a_mute_ends_by_itself_or_by_hand",
        "test_a_muted_sender_is_in_no_hook",
        "test_first_matching_route_wins_and_none_means_inbox",
        "test_a_session_reads_the_mailbox_of_the_project_in_which_it_works",
    ),
    held("SQLite, or [PostgreSQL]", "test_store_agrees_with_the_model", "test_killed_process_keeps_its_promises"),
    held("that the daemons of several machines share", "test_two_machines_have_one_inbox_and_a_journal_each"),
    held("that join without a database", "test_machine_joins_works_and_leaves"),
)

README: Final = PromisePage(
    path="README.md",
    promises=_PROMISES,
    no_promise={
        "The [quickstart](docs/quickstart.md) covers the rest of the first day.": "leads elsewhere",
        'srcset="docs/images/demo-dark.svg"': "a picture; tests/docs/test_recording.py holds it",
        'srcset="docs/images/page-dark.png"': "a picture; tests/browser/test_recording.py holds it",
        "You need Linux, Python 3.11 or newer, and a clone of this repository.": "what the reader needs",
        "There is no release yet: a package called `harken` on an index is not ours.": "warns",
        "Install it from the clone": "introduces a command",
        "Three commands take you to the first message that your agent has read:": "introduces commands, which are run",
        "Checked on 2026-11-17 against the others' source code": "says how the others were looked at",
        "[comparison](docs/explanation/comparison.md) cites the sources": "leads elsewhere",
        "Now start the agent.": "what the reader does",
        "Version 0.1 is under construction. Formats may still change": "says what to expect of the project",
    },
    without=("Uninstall", "Learn more"),
)
