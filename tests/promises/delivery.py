"""The promises of docs/explanation/delivery.md."""

from __future__ import annotations

from typing import Final

from tests.promises.promise import PromisePage, held

_PROMISES: Final = (
    # The ledger
    held("queued --> offered", "test_offer_is_visible_in_the_ledger"),
    held("offered --> offered", "test_expired_lease_is_offered_again_as_a_repeat"),
    held("offered --> queued", "test_a_hook_that_is_killed_before_it_printed_leaves_the_message_queued"),
    held("offered --> seen", "test_proof_makes_an_offer_seen_once"),
    held("queued --> seen: ack", "test_message_can_be_acknowledged_without_an_offer"),
    held("seen --> answered", "test_a_message_that_was_seen_can_still_be_answered"),
    held("offered --> answered", "test_reply_waits_in_the_outbox_and_answers_the_delivery"),
    held("queued --> answered", "test_a_reply_is_proof_and_reaches_the_person"),
    held("queued --> expired", "test_open_mail_expires_before_it_is_deleted"),
    held("offered --> expired", "test_open_mail_expires_before_it_is_deleted"),
    held("queued --> refused", "test_what_was_not_seen_is_refused_when_a_task_is_done"),
    held("offered --> refused", "test_what_was_not_seen_is_refused_when_a_task_is_done"),
    held("[*] --> queued", "test_the_ledger_has_a_line_for_every_agent_that_reads"),
    held(
        "For each message and consumer there is one delivery, with one state.",
        "test_store_agrees_with_the_model",
    ),
    held("`harken read ID` shows it", "test_read_shows_the_message_its_ledger_and_replies"),
    held(
        "it is stored, but was not given to this consumer yet", "test_the_ledger_has_a_line_for_every_agent_that_reads"
    ),
    held("its text was handed to a surface", "test_offer_is_visible_in_the_ledger"),
    held(
        "there is evidence that it arrived",
        "test_proof_makes_an_offer_seen_once",
        "test_seen_message_is_not_offered_again",
    ),
    held(
        "a reply was sent | yes",
        "test_reply_waits_in_the_outbox_and_answers_the_delivery",
        "test_proof_after_the_answer_changes_nothing",
    ),
    held(
        "the mailbox no longer keeps it",
        "test_open_mail_expires_before_it_is_deleted",
        "test_proof_of_an_expired_delivery_is_ignored",
    ),
    held(
        "or another agent had seen it before this consumer started",
        "test_what_another_agent_had_seen_is_expired_in_the_ledger_with_its_name",
    ),
    held(
        "its task was done before there was proof",
        "test_what_was_not_seen_is_refused_when_a_task_is_done",
        "test_a_proof_that_comes_too_late_changes_nothing",
    ),
    held("not used in this version", "test_store_agrees_with_the_model"),
    held(
        "A delivery without a row is `queued`.",
        "test_withdrawn_offer_never_happened",
        "test_the_ledger_has_a_line_for_every_agent_that_reads",
    ),
    held("`harken read` says `not given`", "test_what_a_consumer_was_not_given_is_shown_with_the_way_to_it"),
    # Offered is not seen
    held(
        "Text that was handed to an agent may never reach the model. You pressed Esc.",
        "test_after_an_interruption_it_is_offered_again_as_a_repeat",
        "test_prompt_that_was_taken_back_takes_its_message_along_and_it_comes_again",
    ),
    held(
        "The agent cut the result.",
        "test_ten_messages_of_two_thousand_characters_are_not_seen_before_copilot_showed_them",
    ),
    held("It ran several calls at once and was stopped.", "test_a_call_beside_the_one_that_carried_it_proves_nothing"),
    held(
        "**cursors move on evidence, never on offer.**",
        "test_cursor_moves_only_over_what_is_final_without_a_gap",
        "test_04_an_offer_is_not_proof",
    ),
    held(
        "the session called a tool after the answer that carried the message was written",
        "test_a_result_is_only_an_offer_until_a_later_call_proves_it",
    ),
    held(
        "a tool ran after the model had read the prompt, or the earlier step, that carried the message",
        "test_a_tool_proves_what_came_with_the_prompt",
        "test_a_second_tool_proves_the_first_only_where_it_is_another_step",
    ),
    held("the turn that carried the message ended by itself", "test_the_end_of_a_turn_proves_all_of_it"),
    held(
        "the text, up to the closing line with its delivery id, is in the host's own record before an answer",
        "test_record_proves_what_stands_above_an_answer",
        "test_record_proves_what_stands_before_a_new_answer",
        "test_telling_that_was_cut_is_not_found",
    ),
    held("or came back in a prompt whose turn continued", "test_what_a_prompt_shows_is_proven_when_its_turn_goes_on"),
    held(
        "the agent, or you, named the message or its delivery id",
        "test_an_acknowledgement_is_proof",
        "test_ack_marks_as_seen_by_id_and_number",
    ),
    held(
        "or the agent acknowledged with `channels` what that tool had given it in full",
        "test_channels_lists_what_the_agent_may_read_and_acknowledges_what_it_was_given",
    ),
    held(
        "`harken pull` or `harken wait` has printed it",
        "test_pull_takes_and_peek_does_not",
        "test_wait_gets_a_message_that_comes_later",
        "test_what_could_not_be_printed_is_offered_again_as_a_repeat",
    ),
    held("or a program said so with `prove`", "test_what_a_program_was_offered_is_its_own_again_after_a_killed_daemon"),
    held("a reply | the message was answered", "test_a_reply_is_proof_and_reaches_the_person"),
    # The rules of proof
    held("**The unknown proves nothing.**", "test_proof_is_never_early_and_never_missing"),
    held(
        "a tool that runs later in the same turn, or its end",
        "test_a_tool_proves_what_came_with_the_prompt",
        "test_the_end_of_a_turn_proves_all_of_it",
        "test_what_held_up_the_end_is_proven_when_it_comes_back_as_a_prompt",
    ),
    held(
        "the same before the hook has said that it printed; anything after an interruption",
        "test_a_hook_that_is_killed_before_it_printed_leaves_the_message_queued",
        "test_the_end_of_the_next_turn_does_not_prove_an_interrupted_one",
    ),
    held(
        "the next step of the same turn, where … tool that ran side by side",
        "test_a_second_tool_proves_the_first_only_where_it_is_another_step",
        "test_the_end_of_a_turn_proves_all_of_it",
    ),
    held(
        "the whole text in a prompt of the host, and then a step or the end of that turn",
        "test_a_program_beside_a_host_is_given_the_text_and_says_that_it_was_taken",
        "test_a_prompt_that_shows_half_of_it_proves_nothing",
    ),
    held(
        "or in its own record, above an answer",
        "test_the_transcript_proves_a_wake",
        "test_what_qwens_own_inbox_brought_is_proven_by_its_record_alone",
    ),
    held(
        "that the host took it; the delivery id alone, which anybody may quote",
        "test_a_text_that_quotes_an_id_proves_nothing_for_another_consumer",
        "test_quoted_id_is_not_the_text",
    ),
    held(
        "any other step or end of a turn, because the queued text may not be in it yet",
        "test_proof_is_never_early_and_never_missing",
    ),
    held(
        "a later call on the same connection that does not overlap",
        "test_a_call_that_overlaps_proves_nothing_and_the_next_one_does",
    ),
    held(
        "the end of the turn in which it was asked for, where hooks tell of it",
        "test_what_the_tool_gave_is_proven_by_the_end_of_the_turn",
    ),
    held(
        "a parallel call; a call of another conversation (Codex names them)",
        "test_a_call_beside_the_one_that_carried_it_proves_nothing",
        "test_call_of_one_thread_proves_nothing_of_another_on_the_same_connection",
    ),
    held(
        "the end of another turn; a call that was cancelled, even if its answer was on the way or the daemon was away",
        "test_what_a_tool_gave_in_an_interrupted_turn_is_not_proven_by_the_next_one",
        "test_answer_that_crosses_its_cancellation_is_not_taken_for_read",
        "test_call_that_is_cancelled_around_a_restart_is_proven_by_nothing",
    ),
    held("a message that the result shows cut", "test_message_that_is_too_long_is_listed_and_stays"),
    held(
        "the plugin says which conversation had the result; then the next step or the end of that turn",
        "test_what_a_result_carried_is_proven_by_the_end_of_the_turn",
        "test_result_belongs_to_the_conversation_that_had_it",
    ),
    held("a later call: it may be of another conversation", "test_later_call_over_a_shared_connection_proves_nothing"),
    held(
        "anything after a restart that came before the plugin has said so",
        "test_result_that_opencode_had_not_reported_is_proven_by_no_conversation_after_a_restart",
    ),
    held(
        "the same, if the event names the very turn that carried it (Claude Code, Codex, opencode, Qwen Code)",
        "test_a_turn_that_goes_on_after_a_restart_proves_what_it_carried_where_it_has_a_name",
    ),
    held(
        "the host's own record (Claude Code, Copilot CLI, Gemini CLI, Qwen Code)",
        "test_after_a_restart_the_transcript_still_proves",
        "test_record_of_each_host_that_keeps_one_proves_after_a_restart",
    ),
    held(
        "an event that names no turn: what happened meanwhile was heard by nobody",
        "test_after_a_restart_only_the_very_same_turn_proves",
    ),
    held(
        "Without proof, Harken offers a message again, marked as a repeat: after an interruption with the next prompt",
        "test_after_an_interruption_it_is_offered_again_as_a_repeat",
    ),
    held(
        "one minute after an unproven wake",
        "test_the_next_way_is_used_when_nothing_proved_the_first",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "when the session is gone",
        "test_sessions_that_are_gone_give_back_their_mail",
        "test_what_a_closed_session_did_not_prove_is_offered_again_as_a_repeat",
    ),
    held("at the latest when the lease ends", "test_expired_lease_is_offered_again_as_a_repeat"),
    held(
        "A call that was already in progress when … to one step of the model.",
        "test_a_call_that_overlaps_proves_nothing_and_the_next_one_does",
    ),
    held(
        "An answer to a call that was cancelled … as if it had not happened.",
        "test_a_message_that_meets_a_cancellation_is_not_lost",
    ),
    held(
        "An event after an interruption. When you press … offers unproven messages again",
        "test_after_an_interruption_it_is_offered_again_as_a_repeat",
    ),
    held("unless the host's own record shows that the model answered them", "test_an_id_in_the_transcript_proves_it"),
    held(
        "That a hint was sent, a resource updated, or a wake accepted.",
        "test_only_tool_calls_are_evidence",
        "test_hints_leave_the_message_queued",
        "test_a_program_beside_a_host_is_given_the_text_and_says_that_it_was_taken",
    ),
    # After a restart of the daemon
    held(
        "Harken keeps the state of each session in small files below `run/sessions`",
        "test_a_turn_that_goes_on_after_a_restart_proves_what_it_carried_where_it_has_a_name",
        "test_a_damaged_record_of_a_session_costs_only_that",
    ),
    held(
        "not only the number, which the system reuses, … system and not by a clock",
        "test_another_process_with_the_number_of_a_session_is_not_it",
        "test_living_session_is_known_again_although_the_clock_was_set",
    ),
    held(
        "So a restarted daemon knows the sessions whose processes are still there before anybody speaks to it.",
        "test_a_session_that_works_is_known_as_such_before_anybody_speaks",
        "test_a_session_whose_process_is_gone_is_not_known_again",
    ),
    held(
        "until its next hook, call or connection, … that its state is unknown",
        "test_a_session_that_works_is_known_as_such_before_anybody_speaks",
    ),
    held(
        "What a tool's result carried before the restart … connection that carried it is back.",
        "test_turn_that_goes_on_before_the_edge_is_back_proves_what_a_tool_gave_in_it",
    ),
    held(
        "If a hook reports another turn … the message again, as a repeat.",
        "test_prompt_before_the_edge_is_back_lets_go_of_what_a_tool_gave_in_the_turn_before",
    ),
    # Leases
    held(
        "Sessions of one host share a consumer, and … to the session that got it.",
        "test_two_sessions_of_a_host_do_not_get_the_same_message",
        "test_concurrent_sessions_never_get_the_same_message",
    ),
    held(
        "Another session gets it only when",
        "test_two_sessions_of_a_host_do_not_get_the_same_message",
        "test_lease_holds_against_a_shorter_one",
    ),
    held(
        "the first session is gone without evidence",
        "test_what_a_closed_session_did_not_prove_is_offered_again_as_a_repeat",
    ),
    held(
        "15 minutes have passed without evidence (`limits.lease`)",
        "test_an_offer_without_proof_comes_back_after_its_lease_as_a_repeat",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "the call that carried it was cancelled",
        "test_message_of_a_cancelled_call_is_offered_again_by_the_next_daemon",
        "test_answer_that_crosses_its_cancellation_is_not_taken_for_read",
    ),
    held(
        "a message goes to the one that was active last",
        "test_of_two_waiting_sessions_the_last_active_gets_the_message",
    ),
    # Repeats
    held(
        "`repeat` is true, and a note says that the model may have seen it",
        "test_what_a_closed_session_did_not_prove_is_offered_again_as_a_repeat",
        "test_after_an_interruption_it_is_offered_again_as_a_repeat",
    ),
    held(
        "The same consumer never gets a message twice without that mark.",
        "test_what_is_called_seen_was_on_the_wire",
        "test_a_daemon_that_dies_again_and_again_gives_everything_and_marks_what_it_gives_twice",
    ),
    # Consumers
    held(
        "Each consumer has its own cursor in each mailbox. One cannot consume for another",
        "test_03_every_consumer_reads_for_itself",
        "test_each_of_two_consumers_gets_a_message",
    ),
    held("the offer says so in `answered_by`", "test_the_other_consumer_is_told_who_answered"),
    held(
        "A consumer is named after its host",
        "test_whom_a_connection_reads_for",
        "test_a_host_is_known_by_the_name_it_gives_itself",
    ),
    held("`harken mcp --consumer NAME` chooses another.", "test_the_consumer_can_be_named_on_the_command"),
    held(
        "`watch` is you.",
        "test_person_reads_every_mailbox_from_its_beginning",
        "test_a_client_with_a_reserved_name_does_not_read_as_that",
    ),
    held(
        "A new consumer starts with messages … (`limits.new_consumer_window`) that no agent has seen",
        "test_new_consumer_begins_with_recent_mail_no_agent_has_seen",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "the newest 10,000 at most (`limits.new_consumer_most`)",
        "test_new_consumer_begins_with_the_newest_of_too_many",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "A project's first reader gets all of its mail, … start with the newest there, too.",
        "test_mail_to_a_project_waits_for_its_first_reader",
        "test_all_mail_to_a_project_waits_for_its_first_reader",
    ),
    held(
        "Harken counts what it does not give a new consumer, by reason",
        "test_what_a_consumer_is_not_given_is_counted_by_its_reason",
        "test_what_was_left_out_stays_what_it_was",
    ),
    held("`older` in `left_out`", "test_what_a_consumer_is_not_given_is_counted_by_its_reason"),
    held("`surplus` in `left_out`", "test_what_a_consumer_was_not_given_is_shown_with_the_way_to_it"),
    held(
        "`expired` in the ledger of the message, with the name of that agent",
        "test_what_another_agent_had_seen_is_expired_in_the_ledger_with_its_name",
    ),
    held(
        "`left_out` is in `harken status --all`, in `harken stats --consumer NAME`",
        "test_what_a_consumer_was_not_given_is_shown_with_the_way_to_it",
    ),
    held("on the page under the sessions of the agent", "test_agent_is_shown_with_what_it_was_not_given"),
    held(
        "in `inbound_queue_stats`, and in the journal",
        "test_inbound_queue_stats_tells_what_the_agent_was_not_given",
        "test_beginning_is_journaled_with_what_was_left_out",
    ),
    held(
        "with the highest sequence number. None of these messages is lost",
        "test_what_a_consumer_was_not_given_is_shown_with_the_way_to_it",
    ),
    held("An agent finds them with `inbox_search`.", "test_agent_finds_with_search_what_it_was_not_given"),
    held(
        "For a consumer that started with an earlier version, Harken does not know and shows nothing.",
        "test_who_began_before_it_was_counted_is_shown_with_nothing",
    ),
    # Order
    held(
        "Within a mailbox, messages have sequence numbers without gaps, in the order in which they were committed.",
        "test_concurrent_appends_are_gap_free_and_in_commit_order",
    ),
    held(
        "They are offered in that order, except that high priority goes first.",
        "test_offer_hands_out_each_message_once",
        "test_high_priority_goes_first",
    ),
    # Waiting
    held(
        "return at once if something is unread, … with nothing when the time is up",
        "test_what_arrived_while_the_agent_was_busy_is_returned_at_once",
        "test_a_wait_that_began_before_the_message_returns_it",
        "test_a_wait_without_messages_ends_with_an_empty_list",
        "test_wait_gets_a_message_that_comes_later",
        "test_wait_ends_well_when_nothing_comes",
    ),
    held(
        "Harken tells a client without its hooks … does not tell a host that has them",
        "test_client_without_hooks_is_told_to_wait_at_the_end_of_a_turn",
        "test_host_with_hooks_is_not_told_to_wait",
    ),
    held(
        "The server waits 55 seconds at most, whatever was asked",
        "test_a_wait_of_an_hour_returns_within_fifty_six_seconds",
        "test_no_wait_is_longer_than_the_configured_cap",
    ),
    held(
        "A cancelled wait has consumed nothing.",
        "test_a_cancelled_wait_consumes_nothing",
        "test_ctrl_c_during_wait_takes_nothing",
    ),
    held(
        "ends only one wait of a session, which lists it",
        "test_wait_is_ended_once_by_what_is_too_long",
        "test_wait_of_an_agent_is_ended_once_by_what_is_too_long",
        "test_one_session_of_a_consumer_hears_of_what_is_too_long",
    ),
    # Through what a message reaches an agent
    held(
        "messages with attention `wake` or `boundary`, and the five newest channel messages (`prompt`)",
        "test_a_prompt_carries_what_waits_once",
        "test_the_five_most_recent_channel_messages_go_with_a_prompt_oldest_first",
    ),
    held(
        "the same without channel messages, high priority first",
        "test_a_tool_carries_only_what_may_push",
        "test_high_priority_is_not_crowded_out",
    ),
    held(
        "the same as between two tool calls; the turn continues, a bounded number of times",
        "test_the_end_of_a_turn_is_held_up_within_the_hosts_limit",
        "test_noise_and_strangers_do_not_hold_up_the_end",
    ),
    held(
        "messages with attention `wake`, and along with them those with `boundary`",
        "test_an_idle_session_is_woken_with_the_message",
        "test_what_may_interrupt_rides_along_with_a_wake",
        "test_noise_does_not_ride_along_with_a_wake",
    ),
    held(
        "everything, from every sender, as far as it fits",
        "test_trust_says_whose_word_a_message_is",
        "test_no_result_is_longer_than_the_host_shows",
    ),
    held(
        "messages with attention `count` and muted ones come only this way",
        "test_unknown_senders_are_in_no_hook",
        "test_a_muted_sender_is_in_no_hook",
    ),
    held("`harken connect` installs the hooks.", "test_message_sent_while_a_tool_runs_is_in_the_next_request"),
    held(
        "it first checks a small file, the host's **bell**. If the bell is silent, nothing else happens",
        "test_an_empty_bell_costs_a_megabyte_of_input_nothing",
        "test_a_ringing_bell_lets_the_line_ask",
    ),
    held(
        "The bell rings before the message is committed, and is silenced only after another check.",
        "test_the_bell_rings_before_the_message_is_there",
        "test_a_message_between_looking_and_silencing_keeps_its_ring",
    ),
    held(
        "Harken wakes one of the sessions that read the mailbox: the most recently active idle one.",
        "test_of_several_hosts_one_session_is_woken",
    ),
    held(
        "It prefers a session that waits or works, which needs no waking.",
        "test_a_session_in_a_long_poll_is_not_woken",
        "test_a_busy_session_is_woken_only_when_it_took_nothing",
    ),
    held(
        "one of their sessions that seems busy but takes nothing for 20 seconds is woken too",
        "test_a_busy_session_is_woken_only_when_it_took_nothing",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "Codex, opencode and Qwen Code say it, and … left alone for half an hour",
        "test_a_host_that_tells_of_interruptions_is_believed",
        "test_hosts_that_tell_of_interruptions_are_those_of_the_page",
        "test_message_in_a_long_tool_comes_between_two_tools",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "a late hook of an interrupted turn's tool does not count as work",
        "test_tool_of_an_interrupted_turn_that_comes_late_leaves_the_session_idle",
    ),
    held(
        "A run that answers one prompt and ends … run`, `qwen -p`) is never woken",
        "test_a_run_that_answers_one_prompt_is_known_by_its_command_line",
        "test_a_run_that_answers_one_prompt_is_never_woken",
    ),
    held(
        "A Codex conversation is woken only when a terminal is sure to show it",
        "test_thread_is_woken_only_when_a_terminal_is_sure_to_show_it",
    ),
    held(
        "A wake that nothing proves within a minute … another way, marked as repeats.",
        "test_the_next_way_is_used_when_nothing_proved_the_first",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "Messages that were waiting when a session started … within 10 seconds",
        "test_what_waited_for_a_session_is_left_to_its_first_prompt",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "Mail that waited for more than an hour wakes nobody.",
        "test_old_mail_does_not_wake",
        "test_figures_of_the_delivery_page_are_those_of_the_code",
    ),
    held(
        "On some paths, text looks to the model as if … told only that they are waiting",
        "test_a_known_sender_is_told_whole_or_by_number",
        "test_whoever_speaks_with_the_users_voice_quotes_nobody",
    ),
    held(
        'the forecast says so too ("is announced")',
        "test_a_host_that_is_told_only_that_something_waits_is_promised_no_text",
    ),
    held(
        "Every text stands between two lines with its … no text can fake its own end.",
        "test_a_text_cannot_end_its_own_frame",
        "test_what_stands_around_a_text_does_not_depend_on_it",
    ),
    held(
        "**Helpers of an agent** (subagents) are told nothing",
        "test_helpers_of_an_agent_are_told_nothing",
        "test_helper_of_the_agent_gets_nothing",
    ),
    held(
        "what it was given counts as given to the session",
        "test_hook_and_tool_are_one_session",
        "test_what_the_tool_gave_no_hook_gives_again",
    ),
    # How long
    held(
        "what the model did not get must not count as seen. So Harken chooses before it offers.",
        "test_only_what_goes_whole_is_offered",
        "test_ten_messages_of_two_thousand_characters_are_not_seen_before_copilot_showed_them",
    ),
    held(
        "each below what it was measured to show its model",
        "test_result_that_uses_the_budget_is_shown_whole",
        "test_long_message_that_waits_goes_whole_with_the_next_prompt",
    ),
    held("For an unknown client, Harken assumes the smallest.", "test_least_is_assumed_of_a_host_that_is_not_known"),
    held(
        "What does not fit is listed by its … and stays queued; `inbox_pull` gives it.",
        "test_what_is_too_long_is_announced_and_can_be_pulled",
        "test_everything_that_waits_is_told_or_counted",
    ),
    held(
        "Each host has a budget in bytes. A result carries whole messages up to that, in order.",
        "test_no_result_is_longer_than_the_host_shows",
    ),
    held(
        "What does not fit is listed by its … delivery id that could prove it.",
        "test_message_that_is_too_long_is_listed_and_stays",
        "test_list_of_what_is_cut_takes_a_quarter_at_most",
    ),
    held(
        "Later messages do not overtake what comes with … any result blocks no other.",
        "test_order_is_kept_among_those_that_fit",
        "test_long_message_does_not_stand_before_short_ones",
    ),
    held(
        "`inbox_read` gives one message in pieces. It is … next call proves it as usual.",
        "test_pieces_fit_and_are_the_whole_text",
        "test_all_pieces_prove_the_message_with_the_next_call",
        "test_the_last_piece_alone_proves_nothing",
    ),
    held(
        "after a restart of the daemon, or in … read from the beginning again (`unread_from`)",
        "test_message_is_read_from_the_beginning_again_after_a_restart",
        "test_cleared_conversation_has_to_read_from_the_beginning",
    ),
    held(
        "What `harken pull`, `wait` and `check-inbox` print to … a line each and stays queued.",
        "test_agent_is_shown_what_its_host_shows_and_nothing_else_is_taken",
        "test_mail_of_a_task_is_shown_to_its_agent_only_as_far_as_its_host_shows_it",
        "test_wait_of_an_agent_is_ended_once_by_what_is_too_long",
    ),
    held(
        "`harken read ID --offset N` reads it in pieces, `harken ack ID` marks it.",
        "test_agent_reads_what_is_cut_in_parts_and_marks_it",
    ),
    held("You see everything.", "test_person_is_shown_everything"),
    # How much waits
    held(
        "Every result of a Harken tool ends with the number of unread messages, if any.",
        "test_every_tool_result_ends_with_how_many_wait",
    ),
    held(
        "A session that may be interrupted also gets a hint … `notifications/resources/updated`.",
        "test_every_message_of_a_burst_is_hinted_at",
        "test_a_subscriber_hears_that_the_inbox_grew",
        "test_an_unknown_sender_does_not_ping",
    ),
    held("Hints have no text", "test_a_log_ping_says_who_and_where_and_nothing_else"),
    held("They are never counted as delivery.", "test_hints_leave_the_message_queued"),
    # What is never claimed
    held("`seen` says that the text was in front of it.", "test_what_is_called_seen_was_on_the_wire"),
    held(
        "a repeat is possible. It is marked.",
        "test_05_what_was_not_proven_is_offered_again_and_says_so",
        "test_what_is_called_seen_was_on_the_wire",
    ),
    held(
        "who waits, works, is idle and can be woken, that nobody is here, or that something is not known",
        "test_the_promise_follows_attention_and_what_the_session_does",
        "test_a_waiting_session_gets_it_now",
        "test_without_a_session_it_waits_for_the_next",
        "test_after_a_restart_it_is_said_that_nobody_knows",
    ),
)

DELIVERY: Final = PromisePage(
    path="docs/explanation/delivery.md",
    promises=_PROMISES,
    no_promise={
        'How a message gets from "accepted" to "the agent has it"': "says what the page is about",
        "The same in plain text:": "leads to what follows",
        "A delivery gets a row in the store when it is offered": "says how it is stored",
        "Evidence is:": "leads to what follows",
        "These are **never** evidence:": "leads to what follows",
        "**Which model of a session had it.**": "is not claimed",
        "**That a hint arrived.**": "is not claimed",
    },
)
