"""The promises of SECURITY.md."""

from __future__ import annotations

from typing import Final

from tests.promises.promise import PromisePage, held

_PROMISES: Final = (
    held(
        "Its socket accepts only your user account",
        "test_another_user_cannot_connect",
        "test_another_user_is_refused_when_the_folders_were_opened_by_mistake",
    ),
    held(
        "files are `0600` in folders `0700`",
        "test_everything_in_the_home_is_private",
        "test_modes_do_not_depend_on_the_umask",
    ),
    held("needs a token", "test_without_the_token_nothing_is_served"),
    held(
        "It binds to the loopback address unless you say otherwise",
        "test_daemon_without_settings_speaks_to_this_machine_only",
        "test_listening_for_other_machines_needs_an_explicit_yes",
    ),
    held(
        "checks the token, `Host` and `Origin` of every request",
        "test_without_the_token_nothing_is_served",
        "test_host_header_must_be_ours_also_with_good_credentials",
        "test_post_of_another_origin_is_refused_whatever_it_proves",
    ),
    held(
        "`GET /healthz`, which tells the version, and `GET /readyz` need no token.",
        "test_health_is_open_and_says_little",
        "test_probes_are_for_everyone",
    ),
    held(
        "refuses other accounts, unless `http.allow_remote` is set",
        "test_other_account_gets_nothing_also_with_the_token",
        "test_server_in_front_may_be_another_account_when_other_machines_are_let_in",
    ),
    held(
        "**The page sends no secret.** There is no cookie.",
        "test_cookies_are_not_looked_at",
        "test_server_at_another_port_gets_nothing_of_worth_from_the_browser",
    ),
    held("A signed-in browser holds a key that no script can read", "test_key_cannot_be_read_by_scripts"),
    held(
        "for that request, that address and that run of the daemon, once",
        "test_proof_is_good_for_what_it_was_made_for_only",
        "test_session_is_good_at_its_address_only",
        "test_request_of_an_earlier_run_is_worth_nothing_and_says_how_to_go_on",
        "test_proof_counts_once",
    ),
    held("The daemon proves itself with each answer.", "test_answer_to_a_page_proves_that_it_is_ours"),
    held(
        "What a browser sends to another port, or to another program at this one, is useless there.",
        "test_server_at_another_port_gets_nothing_of_worth_from_the_browser",
        "test_program_that_takes_the_port_gets_nothing_that_works_later",
    ),
    held(
        "Harken caps its size",
        "test_text_up_to_a_million_bytes_is_kept_in_full_and_above_that_the_cut_is_a_fact",
        "test_text_of_a_source_is_whole_at_the_limit_and_one_byte_above_it_the_cut_is_told",
    ),
    held("turns markup into plain text", "test_html_becomes_what_a_person_would_read"),
    held(
        "makes control and invisible characters and look-alikes of an agent's own markers harmless",
        "test_what_acts_or_hides_is_removed",
        "test_lookalike_of_a_host_wrapper_is_readable_but_harmless",
        "test_nothing_in_a_stored_text_looks_like_a_frame",
    ),
    held("redacts secrets of known forms", "test_secret_is_replaced_by_its_kind"),
    held("all before it stores anything", "test_02_what_comes_from_outside_is_made_harmless_on_the_way_in"),
    held(
        "as an instruction only from you, as a request from someone known, as data from everyone else",
        "test_trust_says_whose_word_a_message_is",
    ),
    held(
        "An unknown sender interrupts no agent",
        "test_unknown_senders_are_in_no_hook",
        "test_unknown_senders_and_noise_never_wake",
        "test_an_unknown_sender_does_not_ping",
        "test_what_may_not_push_wakes_nobody",
    ),
    held(
        "no message can change who is trusted, except with the code that you made for it with `harken pair`",
        "test_a_code_inside_a_text_admits_nobody",
        "test_a_pairing_code_cannot_be_guessed",
        "test_a_pairing_code_admits_the_one_who_sends_it",
        "test_an_agents_shell_is_refused_what_is_the_persons",
    ),
    held(
        "A caller whose process descends from an agent that Harken knows",
        "test_an_agents_shell_is_refused_what_is_the_persons",
        "test_command_below_a_hosts_program_is_refused_where_no_daemon_runs",
    ),
    held(
        "or that has an agent's mark in its environment",
        "test_each_mark_makes_an_agent",
        "test_marked_command_is_refused_where_no_daemon_runs",
    ),
    held(
        "may not write in your name, read as someone else, allow senders or mute",
        "test_an_agents_shell_is_refused_what_is_the_persons",
        "test_an_agent_never_has_the_owners_word",
    ),
    held(
        "stop Harken, connect hosts, or copy everything that was received",
        "test_marked_command_is_refused_beside_a_daemon",
    ),
    held(
        "recognises what a rule's run has started, whatever it does",
        "test_what_a_run_has_started_is_its_agents_while_it_goes_on",
        "test_process_with_the_limit_of_a_run_is_the_runs_without_variable_or_parent",
    ),
    held("and ends it with the run", "test_nothing_that_a_run_has_started_outlives_it"),
    held(
        "The configuration names where a secret is",
        "test_plain_secret_is_refused_and_not_repeated",
        "test_a_secret_is_never_written",
    ),
    held(
        "its value is neither logged nor shown",
        "test_description_is_json_and_shows_references_only",
        "test_nothing_secret_is_logged",
        "test_no_token_code_or_assertion_is_anywhere_but_in_the_sign_in",
        "test_address_of_the_phone_is_in_no_log_and_no_error",
    ),
)

SECURITY: Final = PromisePage(
    path="SECURITY.md",
    promises=_PROMISES,
    no_promise={},
    without=("Security", "What is not promised", "Supported versions", "Reporting"),
)
