"""The core modules, what correctness rests on most, each with the tests that have to notice."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "analytics/model/cursors.py": (
        "tests/analytics/model/test_cursors.py",
        "tests/service/audit/test_cursor_misuse.py",
    ),
    "analytics/model/filters.py": (
        "tests/analytics/model/test_filters.py",
        "tests/analytics/model/test_filter_meaning.py",
    ),
    "analytics/model/retention.py": (
        "tests/analytics/model/test_retention.py",
        "tests/service/audit/test_retention_everywhere.py",
    ),
    "analytics/model/ingest_validation.py": (
        "tests/analytics/model/test_ingest_validation.py",
        "tests/service/audit/test_ingest_items.py",
    ),
    "analytics/statistics/top_values.py": ("tests/analytics/statistics/test_top_values.py",),
    "analytics/statistics/value_index.py": ("tests/analytics/statistics/test_value_index.py",),
    "analytics/statistics/zone_maps.py": ("tests/analytics/statistics/test_zone_maps.py",),
    "analytics/storage/segment_writer.py": (
        "tests/analytics/storage/test_segment_writer.py",
        "tests/analytics/storage/test_fsync.py",
    ),
    "analytics/storage/segment_index.py": (
        "tests/analytics/statistics/test_value_index.py",
        "tests/analytics/storage/test_integrity.py",
    ),
    "analytics/storage/index_blocks.py": ("tests/analytics/statistics/test_value_index.py",),
    "analytics/storage/journal_batches.py": ("tests/analytics/storage/test_journal_batches.py",),
    "analytics/storage/verified_files.py": ("tests/analytics/storage/test_verified_files.py",),
    "analytics/storage/compaction.py": (
        "tests/analytics/storage/test_compaction.py",
        "tests/service/audit/test_compaction.py",
    ),
    "analytics/query/row_mask.py": (
        "tests/analytics/model/test_filter_meaning.py",
        "tests/analytics/query/test_ordered_scan.py",
    ),
    "analytics/query/planner.py": (
        "tests/analytics/query/test_reader.py",
        "tests/analytics/query/test_ordered_scan.py",
        "tests/analytics/query/test_newest_scan.py",
    ),
    "analytics/query/newest_texts.py": (
        "tests/analytics/query/test_newest_texts.py",
        "tests/service/audit/test_newest_page.py",
    ),
    "analytics/query/closed_sums.py": ("tests/analytics/query/test_kept_sums.py",),
    "analytics/query/kept_sums.py": ("tests/analytics/query/test_kept_sums.py",),
    "analytics/export/text_encoder.py": (
        "tests/analytics/export/test_text_encoder.py",
        "tests/analytics/export/test_wire.py",
    ),
    "analytics/export/gather.py": ("tests/analytics/export/test_text_encoder.py",),
    "analytics/export/csv_json.py": (
        "tests/analytics/export/test_text_encoder.py",
        "tests/analytics/export/test_wire.py",
    ),
    "service/fair_queue.py": ("tests/service/test_fair_queue.py",),
    "service/loop_turns.py": ("tests/service/test_loop_turns.py",),
    "service/store/journal.py": (
        "tests/service/audit/test_exactly_once.py",
        "tests/service/audit/test_sealing.py",
        "tests/service/audit/test_snapshots.py",
    ),
    "service/store/group_commit.py": ("tests/service/store/test_group_commit.py",),
    "service/store/commit_cache.py": ("tests/service/store/test_commit_cache.py",),
    "service/store/catalog.py": (
        "tests/service/audit/test_compaction.py",
        "tests/service/audit/test_snapshots.py",
        "tests/service/audit/test_pruning.py",
    ),
    "service/audit/lease.py": ("tests/service/audit/test_lease.py",),
    "service/audit/sealer.py": (
        "tests/service/audit/test_sealing.py",
        "tests/service/audit/test_crashes.py",
    ),
    "service/audit/compactor.py": ("tests/service/audit/test_compaction.py",),
    "service/audit/pruner.py": (
        "tests/service/audit/test_pruning.py",
        "tests/service/audit/test_pruning_crashes.py",
    ),
    "service/audit/clock_guard.py": (
        "tests/service/audit/test_clock_guard.py",
        "tests/service/audit/test_wrong_clocks.py",
    ),
    "service/access/authenticate.py": (
        "tests/service/access/test_credentials.py",
        "tests/service/access/test_known_callers.py",
        "tests/service/access/test_sessions.py",
    ),
    "service/access/authorization.py": (
        "tests/service/access/test_roles.py",
        "tests/service/access/test_reauthorized.py",
        "tests/service/access/test_credentials.py",
    ),
    "service/bindings/rules.py": (
        "tests/service/bindings/test_limits.py",
        "tests/service/bindings/test_check_order.py",
        "tests/service/bindings/test_visible_text.py",
        "tests/service/bindings/test_event_names.py",
        "tests/service/bindings/test_repository_id.py",
    ),
    "service/bindings/changes.py": (
        "tests/service/bindings/test_states.py",
        "tests/service/bindings/test_limits.py",
        "tests/service/bindings/test_slots.py",
        "tests/service/bindings/test_reason.py",
    ),
    "service/verifier/rules.py": ("tests/service/verifier",),
    "service/verifier/signatures.py": ("tests/service/verifier",),
    "service/verifier/attribution.py": ("tests/service/verifier/test_attribution.py",),
    "service/policy/evaluation.py": ("tests/service/policy/test_evaluation.py",),
    "service/policy/parsing.py": ("tests/service/policy/test_parsing.py",),
    "service/packages/intervals.py": ("tests/service/packages/test_intervals.py",),
    "service/packages/names.py": ("tests/service/packages/test_names.py",),
    "service/packages/versions.py": ("tests/service/packages",),
}
