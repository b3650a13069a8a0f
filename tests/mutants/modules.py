"""The core modules, what correctness rests on most, each with the tests that have to notice."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent

_TESTS: Final = {
    "analytics/evidence/bundle.py": "test_bundle processes/test_cli_evidence",
    "analytics/evidence/dsse.py": "test_dsse",
    "analytics/evidence/policies.py": "test_policies test_bundle processes/test_cli_evidence",
    "analytics/evidence/receipts.py": (
        "test_receipts processes/test_cli_evidence service/audit/evidence/test_signed_receipts"
    ),
    "analytics/export/csv_json.py": (
        "analytics/imports/test_readers test_prefetch test_wire test_text_encoder test_writers"
    ),
    "analytics/export/gather.py": (
        "test_text_encoder analytics/imports/test_readers test_wire test_writers"
    ),
    "analytics/export/text_encoder.py": (
        "test_text_encoder analytics/imports/test_readers test_wire test_writers"
    ),
    "analytics/imports/items.py": "test_validation",
    "analytics/imports/validation.py": "test_validation",
    "analytics/model/cursors.py": "test_cursors service/audit/test_cursor_misuse",
    "analytics/model/filters.py": (
        "test_filters test_filter_meaning analytics/query/test_summaries "
        "analytics/query/test_groups analytics/query/test_newest_scan "
        "analytics/query/test_reader analytics/query/test_kept_sums "
        "service/audit/test_search service/audit/test_retention_everywhere"
    ),
    "analytics/model/ingest_validation.py": (
        "test_ingest_validation service/audit/test_ingest_items service/audit/test_accepted"
    ),
    "analytics/model/retention.py": (
        "test_retention service/audit/test_retention_everywhere service/audit/test_pruning"
    ),
    "analytics/model/schema.py": "test_schema analytics/storage/test_schema_versions",
    "analytics/model/strict_json.py": (
        "service/ci/issuers/test_jwks service/ci/verifier/test_attacks"
    ),
    "analytics/open_table/delta.py": "service/audit/open_table/test_bucket_faults",
    "analytics/open_table/metadata_files.py": "test_metadata_files",
    "analytics/open_table/storage_faults.py": "test_storage_faults",
    "analytics/query/closed_sums.py": "test_kept_sums",
    "analytics/query/kept_sums.py": "test_kept_sums",
    "analytics/query/newest_texts.py": (
        "service/audit/test_entry service/audit/test_newest_page "
        "service/audit/test_cursor_misuse test_newest_texts"
    ),
    "analytics/query/ordered_scan.py": "test_ordered_scan",
    "analytics/query/planner.py": (
        "test_newest_scan test_ordered_scan test_summaries "
        "analytics/model/test_filter_meaning test_reader analytics/cache/test_results "
        "analytics/statistics/test_value_index test_kept_sums service/audit/test_export_list "
        "service/audit/test_s3_reading"
    ),
    "analytics/query/row_mask.py": (
        "analytics/model/test_filter_meaning test_newest_scan test_ordered_scan "
        "analytics/cache/test_results test_reader"
    ),
    "analytics/query/scans.py": "analytics/cache/test_results",
    "analytics/query/sql.py": "service/audit/test_stable_pages",
    "analytics/statistics/top_values.py": (
        "test_top_values analytics/query/test_summaries analytics/query/test_reader "
        "analytics/query/test_kept_sums test_value_index "
        "analytics/query/test_successive_queries"
    ),
    "analytics/statistics/value_index.py": (
        "test_value_index analytics/model/test_filter_meaning analytics/query/test_summaries "
        "analytics/query/test_newest_scan analytics/query/test_reader"
    ),
    "analytics/statistics/zone_maps.py": (
        "test_zone_maps analytics/model/test_filter_meaning analytics/query/test_summaries "
        "analytics/query/test_newest_scan analytics/query/test_reader"
    ),
    "analytics/storage/cache_folder.py": "test_cache_folder test_s3_disk",
    "analytics/storage/compaction.py": (
        "test_compaction test_schema_versions test_integrity analytics/query/test_kept_sums "
        "service/audit/test_compaction"
    ),
    "analytics/storage/drop_order.py": "test_drop_order test_cache_folder",
    "analytics/storage/file_copy.py": "test_file_copy",
    "analytics/storage/fsync.py": "test_fsync test_segment_writer",
    "analytics/storage/import_claims.py": "test_s3_faults service/audit/test_s3_crashes",
    "analytics/storage/index_blocks.py": (
        "analytics/statistics/test_value_index test_integrity test_schema_versions "
        "analytics/query/test_summaries analytics/query/test_reader"
    ),
    "analytics/storage/integrity.py": "test_integrity service/audit/test_scrubber",
    "analytics/storage/journal_batches.py": (
        "test_journal_batches test_schema_versions test_integrity "
        "service/audit/test_accepted service/audit/test_entry service/audit/test_sealing "
        "analytics/query/test_kept_sums"
    ),
    "analytics/storage/object_fetcher.py": "service/audit/test_s3",
    "analytics/storage/objects.py": "test_objects test_s3_faults",
    "analytics/storage/prefix_owner.py": "service/audit/test_s3_prefix",
    "analytics/storage/s3_segments.py": "service/audit/test_s3_crashes test_s3_faults",
    "analytics/storage/segment_index.py": (
        "analytics/statistics/test_value_index test_integrity "
        "analytics/model/test_filter_meaning test_schema_versions "
        "analytics/query/test_summaries analytics/query/test_reader"
    ),
    "analytics/storage/segment_reader.py": (
        "test_verified_files test_schema_versions service/audit/test_received_at"
    ),
    "analytics/storage/segment_store.py": "service/audit/test_scrubber",
    "analytics/storage/segment_writer.py": (
        "test_segment_writer test_fsync test_verified_files test_schema_versions "
        "test_integrity analytics/query/test_newest_scan analytics/query/test_kept_sums "
        "test_compaction service/audit/test_crashes"
    ),
    "analytics/storage/slot_locks.py": "test_cache_folder",
    "analytics/storage/suspects.py": "test_suspects",
    "analytics/storage/verified_files.py": (
        "test_verified_files test_cache_folder test_schema_versions "
        "analytics/query/test_newest_scan analytics/cache/test_results "
        "service/audit/test_compaction test_s3_faults"
    ),
    "service/access/admin_tokens.py": "test_admin_tokens",
    "service/access/authenticate.py": (
        "test_known_callers test_sessions test_admin_tokens test_key_use "
        "test_denied_requests test_secrets_at_rest test_credentials service/orgs/test_keys "
        "service/pages/people/test_keys service/access/passkeys/test_signing_in_again "
        "service/audit/test_ingest"
    ),
    "service/access/authorization.py": (
        "test_roles test_reauthorized test_known_callers test_denied_requests "
        "test_credentials service/pages/profile/test_profile "
        "service/pages/profile/test_reauthorized service/pages/people/test_who "
        "service/orgs/test_beyond_own_role service/access/passkeys/test_signing_in_again "
        "service/ci/verifier/test_attribution service/audit/test_fair_queries "
        "service/core/test_loop_turns"
    ),
    "service/access/callers.py": (
        "service/packages/install_tokens/test_authorization test_credentials"
    ),
    "service/access/cross_site.py": "service/access/sign_in/test_signing_in",
    "service/access/device_sign_in.py": "test_device_sign_in",
    "service/access/passkeys/ceremonies.py": "test_signing_in test_registering",
    "service/access/passkeys/repository.py": "test_registering service/pages/profile/test_profile",
    "service/access/passkeys/sign_in.py": "test_signing_in_again test_signing_in",
    "service/access/roles.py": "test_roles",
    "service/access/sessions.py": "test_sessions service/access/passkeys/test_signing_in_again",
    "service/access/sign_in/cookies.py": "service/access/test_sessions",
    "service/access/sign_in/eligible_memberships.py": "test_attacks test_signing_in",
    "service/access/sign_in/exchange.py": "test_attacks",
    "service/access/sign_in/flow.py": "test_setting_up",
    "service/access/sign_in/id_tokens.py": "test_id_tokens",
    "service/access/sign_in/identity.py": "test_attacks",
    "service/access/sign_in/rate_limit.py": "test_attacks",
    "service/access/sign_in/signed_cookie.py": "test_attacks",
    "service/app/application.py": (
        "service/web/test_error_shape service/access/test_denied_requests "
        "service/pages/test_refusals service/pages/test_slow_page "
        "service/pages/test_audit_page"
    ),
    "service/app/hypercorn_server.py": "service/core/test_loop_turns processes/test_connections",
    "service/app/maintenance_process.py": "processes/test_maintenance_processes",
    "service/app/scrapes.py": "service/core/test_metrics",
    "service/app/server.py": "fleet/test_hangs",
    "service/app/supervisor.py": "processes/test_workers processes/test_maintenance_processes",
    "service/app/system.py": "service/core/test_metrics",
    "service/app/watchdog.py": "test_watchdog",
    "service/audit/actor_names.py": "test_search_endpoint service/pages/trust/test_bindings_page",
    "service/audit/backup/create.py": "test_create",
    "service/audit/backup/manifest.py": "test_restore",
    "service/audit/backup/object_versions.py": "test_by_version",
    "service/audit/backup/restore.py": (
        "test_restore test_postgresql service/audit/test_s3_maintenance"
    ),
    "service/audit/backup/segment_restore.py": "test_segment_restore test_segment_loss",
    "service/audit/clock_guard.py": "test_clock_guard test_wrong_clocks",
    "service/audit/compactor.py": (
        "test_compaction test_takeover service/audit/test_crashes service/test_closing"
    ),
    "service/audit/evidence/witnesses.py": "test_witness test_witnesses",
    "service/audit/export_entries.py": (
        "test_export_list service/audit/evidence/test_signed_receipts"
    ),
    "service/audit/garbage_collector.py": (
        "test_crashes test_s3_crashes test_takeover test_compaction "
        "service/audit/open_table/test_removal"
    ),
    "service/audit/importer.py": "test_import test_clock_guard test_received_at",
    "service/audit/ingest.py": "test_ingest service/ci/verifier/test_attribution",
    "service/audit/integrity_check.py": "test_integrity_check",
    "service/audit/lake.py": "test_s3_prefix test_scrubber",
    "service/audit/lake_queries.py": "test_fair_queries test_summary test_export_ahead",
    "service/audit/open_table/publisher.py": (
        "test_publishing service/audit/test_s3_prefix test_removal"
    ),
    "service/audit/open_table/registry.py": "test_removal test_publishing",
    "service/audit/pruner.py": (
        "test_pruning test_maintenance test_takeover service/audit/test_crashes test_clock_guard"
    ),
    "service/audit/saved_searches.py": "service/pages/investigate/test_saved_searches",
    "service/audit/scrubber.py": "test_scrubber",
    "service/audit/sealer.py": (
        "test_sealing test_maintenance test_takeover test_crashes test_ingest"
    ),
    "service/audit/segment_locks.py": "test_segment_locks",
    "service/audit/search.py": "service/audit/test_search test_search_endpoint",
    "service/audit/search_forms.py": "service/audit/test_search test_search_endpoint",
    "service/audit/tenant_log.py": (
        "service/pages/test_live service/pages/test_autocomplete "
        "service/pages/test_audit_page test_summary test_search_endpoint"
    ),
    "service/audit/unknown_values.py": "test_search_endpoint",
    "service/audit/worker_process.py": "processes/test_worker_process",
    "service/ci/issuers/issuers.py": "test_issuers",
    "service/ci/issuers/jwks.py": "test_jwks",
    "service/ci/issuers/key_source.py": (
        "test_key_source test_key_fetch test_issuer_process test_key_outages"
    ),
    "service/ci/issuers/urls.py": "test_issuers",
    "service/ci/verifier/attribution.py": "test_attribution test_proved_jobs test_ci_rows",
    "service/ci/verifier/candidates.py": "test_candidates test_attribution",
    "service/ci/verifier/parsing.py": "test_attacks",
    "service/ci/verifier/rejections.py": "test_attacks",
    "service/ci/verifier/rules.py": (
        "test_attacks test_attribution test_candidates test_proved_jobs test_mutations "
        "test_usage service/trust/explain/test_any_claims"
    ),
    "service/ci/verifier/signatures.py": (
        "test_attacks test_attacks_on_keys service/ci/issuers/test_key_source "
        "service/ci/issuers/test_jwks service/ci/issuers/test_issuer_process"
    ),
    "service/ci/verifier/token_cache.py": "test_attacks_on_keys",
    "service/ci/verifier/usage.py": "test_usage",
    "service/ci/verifier/verifier.py": "test_attacks_on_keys service/trust/rejected/test_holding",
    "service/cli/asking.py": "processes/test_cli_asking",
    "service/cli/bindings.py": "processes/test_cli_bindings_sync",
    "service/cli/files.py": "test_files",
    "service/cli/logins.py": "test_logins",
    "service/cli/policy.py": "processes/test_cli_asking",
    "service/cli/client.py": (
        "processes/test_cli_remote_failures processes/test_cli_hostile_servers test_in_process"
    ),
    "service/cli/output.py": "test_tables processes/test_cli_hostile_servers",
    "service/cli/target.py": "processes/test_cli_remote_failures processes/test_cli_places",
    "service/core/errors.py": "service/web/test_error_shape",
    "service/core/fair_queue.py": "test_fair_queue service/audit/test_fair_queries",
    "service/core/loop_turns.py": "test_loop_turns",
    "service/core/origins.py": "test_origins service/packages/proxy/test_first_party",
    "service/core/secrets.py": "test_secrets",
    "service/core/settings.py": "test_settings service/audit/test_compaction",
    "service/core/single_flight.py": "service/store/test_commit_cache",
    "service/orgs/api_keys.py": "test_keys",
    "service/orgs/members.py": "test_members service/access/test_roles test_beyond_own_role",
    "service/orgs/roles.py": "test_roles",
    "service/packages/attestations/attestation_api.py": "test_attestations",
    "service/packages/install_tokens/authorization.py": "test_authorization",
    "service/packages/install_tokens/exchange.py": "test_exchange",
    "service/packages/install_tokens/tokens.py": "test_exchange",
    "service/packages/intervals.py": "test_intervals service/packages/pypi/test_versions",
    "service/packages/names.py": (
        "test_names service/packages/policy/test_evaluation service/packages/npm/test_audit_queries"
    ),
    "service/packages/policy/advisories.py": "test_evaluation",
    "service/packages/policy/blocklist_generations.py": "test_blocklist",
    "service/packages/policy/blocklist_loading.py": "test_blocklist_feeds",
    "service/packages/policy/document.py": (
        "test_document test_evaluation test_routes service/pages/policy/test_edits"
    ),
    "service/packages/policy/evaluation.py": (
        "test_evaluation test_cure test_trust test_differences test_policy_cache "
        "service/packages/proxy/test_blocked service/packages/proxy/test_npm_routes"
    ),
    "service/packages/policy/exceptions.py": "test_exceptions",
    "service/packages/policy/osv_zip.py": "test_osv_zip",
    "service/packages/policy/policy_cache.py": "test_policy_cache",
    "service/packages/policy/preview.py": (
        "test_preview_steps service/packages/proxy/test_preview_dates"
    ),
    "service/packages/policy/repository.py": "test_exceptions test_routes",
    "service/packages/policy/rules.py": "test_evaluation test_trust",
    "service/packages/policy/sbom.py": "test_blocklist_api",
    "service/packages/proxy/admission.py": "test_admission test_limits test_request_rates",
    "service/packages/proxy/artifacts.py": "test_changed_artifacts test_withdrawn",
    "service/packages/proxy/blocked.py": "test_blocked",
    "service/packages/proxy/answers.py": "test_upstream",
    "service/packages/proxy/circuit_breaker.py": "test_circuit_breaker",
    "service/packages/proxy/credentials.py": "test_credentials",
    "service/packages/proxy/disk_cache.py": "test_file_cache test_document_cache",
    "service/packages/proxy/document_cache.py": "test_document_cache test_withdrawn",
    "service/packages/proxy/document_files.py": "test_document_cache",
    "service/packages/proxy/downloads.py": "test_file_cache",
    "service/packages/proxy/file_answer.py": "test_install_log test_changed_artifacts",
    "service/packages/proxy/file_cache.py": "test_file_cache",
    "service/packages/proxy/file_keys.py": "test_first_party test_withdrawn",
    "service/packages/proxy/install_log.py": (
        "test_install_log test_cut_installs test_changed_artifacts"
    ),
    "service/packages/proxy/install_marks.py": "test_install_marks test_cut_installs",
    "service/packages/proxy/installs.py": (
        "test_install_log test_pypi_routes test_changed_artifacts test_withdrawn test_attested"
        " test_attested_npm"
    ),
    "service/packages/npm/audit_queries.py": (
        "test_audit_queries service/packages/proxy/test_npm_routes"
    ),
    "service/packages/npm/packument.py": "test_packument",
    "service/packages/npm/tags.py": "test_tags",
    "service/packages/policy/search_ids.py": "test_search_ids",
    "service/packages/policy/trust.py": "test_trust",
    "service/packages/proxy/origins.py": "test_origins",
    "service/packages/pypi/html.py": "test_html",
    "service/packages/pypi/listing.py": "test_simple_json",
    "service/packages/pypi/metadata.py": "test_metadata",
    "service/packages/pypi/project.py": "test_simple_json",
    "service/packages/pypi/routes.py": "service/packages/proxy/test_pypi_routes",
    "service/packages/proxy/registries.py": "test_first_party",
    "service/packages/proxy/services.py": "test_ecosystems test_pypi_routes test_first_party",
    "service/packages/proxy/upstream.py": "test_upstream test_limits",
    "service/packages/pypi/versions.py": (
        "service/packages/pypi/test_versions service/packages/policy/test_evaluation"
    ),
    "service/packages/search_words.py": "test_search_words service/audit/test_search",
    "service/packages/versions.py": (
        "service/packages/npm/test_versions service/packages/pypi/test_versions "
        "service/packages/policy/test_document"
    ),
    "service/packages/retro/affected.py": "test_matcher test_affected_api test_withdrawn_installs",
    "service/packages/retro/matcher.py": "test_matcher test_withdrawn_installs",
    "service/pages/audit_page.py": "test_audit_page",
    "service/pages/live.py": "test_live",
    "service/pages/page.py": "test_page test_forms service/pages/people/test_members",
    "service/pages/sign_in/device.py": "service/access/test_device_sign_in",
    "service/pages/sign_in/passkey_routes.py": (
        "service/access/passkeys/test_signing_in service/access/passkeys/test_registering"
    ),
    "service/pages/sign_in/routes.py": (
        "service/access/sign_in/test_attacks service/access/sign_in/test_signing_in"
    ),
    "service/pages/summary_panel.py": "test_slow_page",
    "service/store/catalog.py": (
        "test_tenants_apart service/audit/test_snapshots service/audit/test_pruning "
        "service/audit/test_scrubber service/audit/test_indexer "
        "service/audit/test_maintenance service/audit/test_compaction "
        "service/audit/open_table/test_publishing service/audit/open_table/test_removal"
    ),
    "service/store/commit_cache.py": (
        "test_commit_cache service/access/test_known_callers service/audit/test_snapshots"
    ),
    "service/store/database_copy.py": "test_database_copy",
    "service/store/faults.py": "service/store/postgres/test_outages",
    "service/store/group_commit.py": (
        "test_group_commit test_batching service/test_cancelled_work service/test_closing"
    ),
    "service/store/journal.py": (
        "test_transaction test_work test_tenants_apart service/audit/test_ingest "
        "service/audit/test_received_at service/audit/test_exactly_once "
        "service/audit/test_snapshots service/audit/test_clock_guard "
        "service/audit/test_sealing service/audit/test_maintenance"
    ),
    "service/store/lease.py": (
        "service/audit/test_lease service/audit/test_takeover service/audit/test_pruning "
        "service/audit/test_sealing"
    ),
    "service/store/organisations.py": (
        "service/packages/install_tokens/test_exchange "
        "service/pages/people/test_teams_and_projects service/pages/people/test_keys"
    ),
    "service/store/postgres/connection.py": "test_durability test_half_open",
    "service/store/postgres/connection_url.py": "test_connection_url",
    "service/store/postgres/direct.py": "test_group_commit test_kept",
    "service/store/postgres/engine.py": "test_writer test_twins test_outages",
    "service/store/postgres/faults.py": "test_half_open",
    "service/store/postgres/probe.py": "test_probe",
    "service/store/sqlite/connection.py": (
        "service/audit/test_takeover service/store/test_connections "
        "service/store/test_connection service/store/test_commit_cache "
        "service/store/test_transaction service/store/test_work"
    ),
    "service/store/sqlite/engine.py": (
        "service/store/test_connections service/store/test_transaction"
    ),
    "service/store/segment_locks.py": "service/audit/test_segment_locks",
    "service/store/store.py": "service/audit/test_snapshots service/store/postgres/test_writer",
    "service/trust/bindings/cache.py": "test_cache service/ci/verifier/test_attribution",
    "service/trust/bindings/changes.py": (
        "test_states test_limits test_slots test_reason test_slot_rule test_replace "
        "test_revoke_repository test_audit_rows test_race "
        "service/ci/verifier/test_attribution"
    ),
    "service/trust/bindings/repository.py": (
        "service/ci/verifier/test_attribution service/pages/trust/test_bindings_page test_replace"
    ),
    "service/trust/bindings/repository_revocation.py": (
        "test_revoke_repository service/pages/trust/test_revoke_repository_page"
    ),
    "service/trust/bindings/rules.py": (
        "test_limits test_check_order test_visible_text test_event_names test_repository_id "
        "test_error_table test_status_table test_reason test_any_body"
    ),
    "service/trust/bindings/slots.py": "test_slots service/pages/trust/test_create",
    "service/trust/bindings/sync_api.py": "processes/test_cli_bindings_sync",
    "service/trust/explain/evaluation.py": "test_explanation",
    "service/trust/explain/explain_api.py": "test_routes",
    "service/trust/explain/nearest.py": "test_nearest",
    "service/trust/explain/proposals.py": "test_proposals test_nearest",
    "service/trust/rejected/rejected_api.py": "test_routes",
    "service/trust/rejected/rows.py": "test_subjects test_routes service/pages/trust/test_rejected",
    "service/trust/rejected/subjects.py": "test_subjects",
    "service/trust/reports/access_report.py": "test_access_report",
    "service/web/compression.py": "test_compression service/packages/proxy/test_not_modified",
    "service/web/asgi.py": "service/packages/proxy/test_not_modified",
    "service/web/turns.py": "service/core/test_loop_turns",
}
"""Files in the folder of tests that mirrors the module's, or by their path in `tests`.

A mutant is tried with one file after the other: quick ones of the module itself come first.
"""


def _path(module: str, test: str) -> str:
    return f"tests/{test}.py" if "/" in test else f"tests/{Path(module).parent}/{test}.py"


MODULES: Final[dict[str, tuple[str, ...]]] = {
    module: tuple(_path(module, test) for test in tests.split()) for module, tests in _TESTS.items()
}
