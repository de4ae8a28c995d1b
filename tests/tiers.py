"""The tiers of the test suite: which tests run only with ``scripts/test --all``, and why.

The default tier needs a shell, coreutils, git and Python, and ``scripts/test`` runs it with nothing else on the PATH.
A test belongs to a tier when its id begins with an entry of the table: a folder, a file, or the beginning of an id. A
parameter may carry its own marker, as the older runtimes of ``tests/support/emulator.py`` do and all but a sample of a
long table (``tests/support/sampled.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

# Every marker and what it stands for; pytest knows them from here.
MARKERS: Mapping[str, str] = {
    "matrix": "the same tests with other runtime versions, protocol revisions, families and rows of long tables",
    "external": "programs of other projects, installed from npm or a package index",
    "browser": "pages in a real Chromium, and their parts in Node",
    "compiler": "programs in C, compiled against the headers and the sources of the emulator",
    "system": "several boards and their database, systemd, containers, sandboxes, tools of a system",
    "docs_run": "commands run as the documents print them; the wheel, built and installed",
    "long": "soak, load, fuzz, recall, and tests over 5 s",
    "arm64": "the product on aarch64 under qemu-user, where scripts/arm64 has fetched it",
    "board": "an RK3588 board with the real runtime",
}

TABLE: Mapping[str, Sequence[str]] = {
    "matrix": (
        "tests/end_to_end/test_conversation.py::test_ten_questions_with_three_tool_calls_prefill_each_token_once",
        "tests/end_to_end/test_seeing.py",
    ),
    "external": (
        "tests/scripts/test_packages.py::test_an_unreachable_npm_",
        "tests/conformance/",
        "tests/end_to_end/test_clients.py",
        "tests/end_to_end/test_programs.py",
        "tests/end_to_end/test_agents.py",
        "tests/end_to_end/test_node_red.py",
        "tests/end_to_end/test_litellm.py",
        "tests/mcp_servers/knowledge/importing/test_real_files.py",
        "tests/mcp_servers/knowledge/importing/test_oracle.py",
        "tests/end_to_end/test_schemathesis.py",
        "tests/end_to_end/test_smollm2.py",
        "tests/end_to_end/test_mission.py::test_example_2_",
        "tests/end_to_end/test_mission.py::test_example_3_",
        "tests/end_to_end/test_mission.py::test_example_4_",
        "tests/end_to_end/test_mission.py::test_the_demo_of_a_clone_",
        "tests/end_to_end/test_third_party_servers.py",
        "tests/docs/test_clients.py::test_an_example_is_answered",
        "tests/tools/test_search_recall.py::test_over_github_",
        "tests/tools/test_search_recall.py::test_requests_over_github_",
        "tests/tools/test_search_recall.py::test_the_set_over_github_",
    ),
    "browser": (
        "tests/surfaces/web/test_scripts.py::test_the_pure_parts_",
        "tests/end_to_end/test_page.py",
        "tests/surfaces/web/test_accessibility.py",
        "tests/surfaces/web/test_chat.py",
        "tests/surfaces/web/test_fleet.py",
        "tests/surfaces/web/test_hostile_texts.py",
        "tests/surfaces/web/test_interruptions.py",
        "tests/surfaces/web/test_languages.py",
        "tests/surfaces/web/test_memory.py",
        "tests/surfaces/web/test_panels.py",
        "tests/surfaces/web/test_schedules.py",
        "tests/surfaces/web/test_spoken_conversation.py",
        "tests/surfaces/web/test_tour.py",
        "tests/surfaces/web/test_voice.py",
    ),
    "compiler": (
        "tests/native/test_c_programs.py",
        "tests/native/test_build.py::test_a_refusal_of_the_compiler_",
        "tests/native/test_weights.py::test_a_conversation_is_answered_by_the_weights_",
        "tests/native/test_weights.py::test_the_tokens_of_weights_are_those_that_a_grammar_allows",
        "tests/native/test_weights.py::test_a_library_of_another_release_",
        "tests/native/test_weights.py::test_weights_refuse_an_adapter",
        "tests/runtime/test_abi.py::test_every_offset_and_size_",
        "tests/runtime/test_emulator.py::test_an_installed_package_builds_",
        "tests/runtime/test_library.py::test_a_missing_libgomp_",
        "tests/runtime/test_library.py::test_defaults_that_look_like_no_family_",
    ),
    "system": (
        "tests/speech/test_real_speech.py",
        "tests/scripts/test_packages.py::test_what_a_stopped_script_",
        "tests/surfaces/cli/test_boards.py::test_haproxy_accepts_",
        "tests/surfaces/cli/test_servers_new.py::test_a_server_of_the_gallery_is_installed_pinned_",
        "tests/surfaces/cli/test_boards.py::test_a_request_goes_",
        "tests/surfaces/cli/test_boards.py::test_a_conversation_stays_",
        "tests/surfaces/cli/test_boards.py::test_a_client_cannot_name_",
        "tests/surfaces/cli/test_setup.py::test_on_a_board_",
        "tests/surfaces/cli/test_setup.py::test_ctrl_c_",
        "tests/surfaces/cli/test_setup.py::test_files_changed_since_then_",
        "tests/surfaces/cli/test_setup.py::test_setup_for_the_cpu_",
        "tests/scripts/test_demo_script.py",
        "tests/end_to_end/test_several_boards.py",
        "tests/end_to_end/test_shared_store.py",
        "tests/end_to_end/test_boards_killed.py::test_a_minute_",
        "tests/deploy/test_compose.py::test_its_parts_",
        "tests/store/test_postgres.py",
        "tests/store/test_schedules.py",
        "tests/end_to_end/test_systemd.py",
        "tests/end_to_end/test_unwritable_state.py",
        "tests/surfaces/systemd/test_unit.py",
        "tests/mcp_client/test_sandbox.py",
    ),
    "docs_run": (
        "tests/docs/test_python.py",
        "tests/docs/test_readme.py::test_a_printed_",
        "tests/docs/test_walk.py::test_the_walk_",
        "tests/docs/test_deploy_walk.py",
        "tests/test_packaging.py",
    ),
    "long": (
        "tests/speech/test_hostile_recordings.py",
        "tests/surfaces/cli/test_languages.py",
        "tests/end_to_end/test_load.py",
        "tests/app/test_slow_servers.py",
        "tests/runtime/vision/test_picture.py::test_the_largest_",
        "tests/toolcalls/test_fuzz.py",
        "tests/mcp_servers/knowledge/importing/test_attacks.py::test_a_large_attack_",
        "tests/test_installation.py::test_a_part_is_installed_by_pip_",
        "tests/scripts/test_packages.py::test_a_registry_that_takes_a_connection_",
        "tests/surfaces/cli/test_killed_commands.py",
        "tests/test_changes.py::test_changes_by_their_rows_alone_",
        "tests/surfaces/test_invitations.py::test_boards_that_join_",
        "tests/surfaces/test_invitations.py::test_a_board_that_cannot_join_",
        "tests/test_real_model_bench.py::test_both_sets_run_",
        "tests/end_to_end/test_token_path.py::test_a_token_costs_",
        "tests/conversations/test_titles.py::test_a_question_ends_the_request_at_once_",
        "tests/surfaces/http/test_two_services.py::test_a_program_that_locks_the_file_",
        "tests/surfaces/cli/test_setup.py::test_the_page_is_shown_",
        "tests/surfaces/cli/test_main.py::test_tools_are_listed_called_and_fail_without_a_model",
        "tests/surfaces/cli/test_servers_new.py::test_a_new_server_passes_its_own_tests_and_is_called_through_the_host",
        "tests/end_to_end/test_killed_service.py::test_a_document_whose_upload_is_killed_",
        "tests/end_to_end/test_killed_service.py::test_a_service_killed_while_it_exchanges_models_",
        "tests/end_to_end/test_attached.py::test_ctrl_c_stops_one_answer_and_a_killed_service_fails_one",
        "tests/end_to_end/test_knowledge.py::test_a_question_about_a_pdf_is_answered_with_the_figure_and_its_page",
        "tests/end_to_end/test_chat.py::test_text_typed_during_an_answer_waits_for_the_prompt_and_approves_nothing",
        "tests/surfaces/http/test_all_boards.py::test_an_odd_board_is_left_out_of_lists_and_shown_as_unreadable[dripping]",
        "tests/surfaces/cli/test_knowledge.py::test_the_first_document_makes_its_knowledge_base",
        "tests/surfaces/cli/test_servers_new.py::test_the_knowledge_server_is_in_the_gallery_",
        "tests/surfaces/cli/test_run_input.py::test_documents_are_read_by_the_reader_of_documents",
        "tests/surfaces/http/test_model_unavailable.py::test_the_service_goes_on_where_a_fallback_answers_",
        "tests/surfaces/http/test_model_unavailable.py::test_another_model_is_put_in_force_",
        "tests/surfaces/http/test_service.py::test_a_terminated_service_lets_answers_end_",
        "tests/surfaces/http/test_service.py::test_a_changed_configuration_is_put_in_force_",
        "tests/surfaces/http/test_two_services.py::test_a_conversation_goes_on_at_either_",
        "tests/surfaces/test_mcp_server.py::test_over_http_a_key_is_required_",
        "tests/surfaces/chat/test_speech.py::test_a_microphone_that_hears_nothing_gives_up",
        "tests/end_to_end/test_chat.py::test_ctrl_z_gives_the_shell_back_",
        "tests/end_to_end/test_trust.py::test_an_unattended_run_writes_nothing_",
        "tests/store/test_database.py::test_a_migration_that_is_killed_at_any_moment_",
        "tests/tools/test_hostile_servers.py::test_no_hostile_server_harms_",
        "tests/app/test_warmup.py::test_a_file_with_a_slow_function_",
        "tests/diagnostics/test_report.py::test_two_fault_profiles_",
        "tests/mcp_servers/knowledge/test_program.py::test_terminated_during_an_import_",
        "tests/mcp_servers/knowledge/importing/test_attacks.py::test_no_document_holds_the_parser",
        "tests/surfaces/cli/test_setup.py::test_setup_without_an_npu_",
    ),
    "arm64": ("tests/end_to_end/test_arm64.py",),
    "board": (),
}

# The files that take longest. They begin first, in this order: with a long one at the end one of two workers would have
# nothing to do.
LONGEST: Sequence[str] = (
    "tests/surfaces/web/test_tour.py",
    "tests/docs/test_readme.py",
    "tests/end_to_end/test_load.py",
    "tests/end_to_end/test_several_boards.py",
    "tests/end_to_end/test_shared_store.py",
    "tests/end_to_end/test_boards_killed.py",
    "tests/test_packaging.py",
    "tests/toolcalls/test_cases.py",
    "tests/toolcalls/test_cost.py",
    "tests/surfaces/web/test_panels.py",
    "tests/surfaces/web/test_interruptions.py",
    "tests/surfaces/web/test_chat.py",
    "tests/surfaces/web/test_accessibility.py",
    "tests/end_to_end/test_page.py",
)

# Tests that cut their inputs (tests/support/cuts.py): with --all they run a second time, and cut everywhere.
CUTTING: Sequence[str] = (
    "tests/mcp_servers/knowledge/storage/test_crash.py",
    "tests/mcp_servers/knowledge/test_malformed.py",
    "tests/surfaces/chat/test_screen.py",
    "tests/toolcalls/",
)


# Fixtures of a PostgreSQL server, whose tests are of the tier system.
DATABASE_FIXTURES = frozenset({"postgres", "mortal"})
_ENTRIES = tuple(entry for entries in TABLE.values() for entry in entries)
# A marker, or what tests/support/emulator.py and tests/support/sampled.py give one to.
_OWN_MARKER = re.compile(
    rf"\bmark\.({'|'.join(MARKERS)})\b|\b(?:EVERY_VERSION|sampled)\b|\bemulator\b"
    rf"|\b(?:postgres|mortal|database_url|database)\b"
)


def cuts_its_inputs(test: str) -> bool:
    """Whether a test cuts its inputs, in the middle or at every point."""
    return test.startswith(tuple(CUTTING))


def tier_of(test: str) -> str:
    """The marker that the table gives to a test's id; empty for the default run."""
    if not test.startswith(_ENTRIES):
        return ""
    return next(marker for marker, entries in TABLE.items() if test.startswith(tuple(entries)))


def is_left_out_whole(file: str) -> bool:
    """Whether the default run has nothing of a file."""
    return bool(tier_of(file))


def may_have_other_tiers(file: str, path: Path) -> bool:
    """Whether a test of a file has a tier's marker, or cuts its inputs; its own marker is seen in the text."""
    is_named = any(entry.partition("::")[0] == file for entry in _ENTRIES)
    return is_named or bool(tier_of(file)) or cuts_its_inputs(file) or bool(_OWN_MARKER.search(path.read_text("utf-8")))
