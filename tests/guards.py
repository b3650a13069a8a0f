"""The guards everything rests on, each with the test that fails when it is taken out."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Guard:
    """`text` in `file` is what guards; with `without` in its place `test` must fail."""

    name: str
    file: str
    text: str
    without: str
    test: str


_SEGMENTS = "tests/analytics/test_segments.py"
_DURABLE = "tests/analytics/test_durable.py"
_TAKEOVER = "tests/service/audit/test_takeover.py"
_COMPACTION = "tests/service/audit/test_compaction.py"
_PRUNING = "tests/service/audit/test_pruning.py"
_APART = "tests/service/store/test_tenants_apart.py"
_CHECKING = "tests/service/audit/test_checking.py"
_COPYING = "tests/analytics/test_copying.py"
_TAKING = "tests/service/backup/test_taking.py"
_RESTORING = "tests/service/backup/test_restoring.py"
_EXPLAIN = "tests/service/verifier/test_explain"

GUARDS: Final = [
    Guard(
        "a segment is synced before it has its name",
        "analytics/segments.py",
        "        fsync(pending)\n",
        "",
        f"{_SEGMENTS}::test_the_file_is_synced_whole_before_it_gets_its_name",
    ),
    Guard(
        "a segment's name is synced before the catalog has it",
        "analytics/segments.py",
        "    fsync(target.parent)",
        "    pass",
        f"{_SEGMENTS}::test_the_name_is_synced_after_the_rename",
    ),
    Guard(
        "a folder's name is synced",
        "analytics/durable.py",
        "        fsync(name.parent)\n",
        "",
        f"{_DURABLE}::test_each_created_directory_has_its_name_synced_in_its_parent",
    ),
    Guard(
        "fsync syncs",
        "analytics/durable.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        f"{_DURABLE}::test_fsync_reaches_files_and_directories",
    ),
    Guard(
        "a secret's bytes are synced before they have their name",
        "analytics/durable.py",
        "        os.fsync(file.fileno())\n",
        "",
        f"{_DURABLE}::test_a_file_is_synced_whole_then_renamed_then_its_name_is_synced",
    ),
    Guard(
        "a replaced file's name is synced",
        "analytics/durable.py",
        "    pending.replace(path)\n    fsync(path.parent)\n",
        "    pending.replace(path)\n",
        f"{_DURABLE}::test_a_file_is_synced_whole_then_renamed_then_its_name_is_synced",
    ),
    Guard(
        "a new secret's name is synced",
        "service/secrets.py",
        "        fsync(path.parent)\n",
        "",
        "tests/service/test_secrets.py::test_a_secret_survives_a_power_loss",
    ),
    Guard(
        "an exported file is synced before it has its name",
        "service/cli/files.py",
        "        fsync(part)\n",
        "",
        "tests/service/cli/test_files.py",
    ),
    Guard(
        "an exported file's name is synced",
        "service/cli/files.py",
        "        fsync(path.parent)\n",
        "",
        "tests/service/cli/test_files.py",
    ),
    Guard(
        "a commit is synced",
        "service/store/engine.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        "tests/service/store/test_connections.py::test_every_pooled_connection_is_durable_and_strict",
    ),
    Guard(
        "a read is one transaction",
        "service/store/engine.py",
        '(reader, "BEGIN")',
        '(reader, "SELECT 1")',
        f"{_TAKEOVER}::test_a_seal_that_commits_between_the_reads_of_a_snapshot_is_not_seen",
    ),
    Guard(
        "the snapshot's reads share that transaction",
        "service/store/engine.py",
        '(reader, "BEGIN")',
        '(reader, "SELECT 1")',
        "tests/service/store/test_connections.py::test_a_read_transaction_sees_one_instant",
    ),
    Guard(
        "a write begins with the write lock",
        "service/store/engine.py",
        '(writer, "BEGIN IMMEDIATE")',
        '(writer, "BEGIN")',
        "tests/service/store/test_connections.py::test_a_write_transaction_begins_with_the_write_lock",
    ),
    Guard(
        "a sealing commit checks its epoch",
        "service/audit/sealer.py",
        "lease.write()",
        "self._store.write()",
        f"{_TAKEOVER}::test_a_sealer_that_lost_its_lease_while_writing_commits_nothing",
    ),
    Guard(
        "a merging commit checks its epoch",
        "service/audit/compactor.py",
        "lease.write()",
        "self._store.write()",
        f"{_COMPACTION}::test_who_lost_the_lease_or_the_segments_meanwhile_commits_nothing",
    ),
    Guard(
        "an import's commit checks its epoch",
        "service/audit/importer.py",
        "lease.write() as work:\n            known",
        "self._store.write() as work:\n            known",
        "tests/service/audit/test_import.py::test_who_lost_the_lease_commits_nothing",
    ),
    Guard(
        "the epoch is part of that check",
        "service/audit/lease.py",
        ", Lease.epoch == self.epoch)",
        ")",
        "tests/service/audit/test_lease.py::test_nothing_is_committed_under_a_lost_lease",
    ),
    Guard(
        "a sealing commit checks that its batches are still there",
        "service/audit/sealer.py",
        "!= len(batches)",
        "< 0",
        f"{_TAKEOVER}::test_rows_that_somebody_else_sealed_are_not_sealed_again",
    ),
    Guard(
        "a merging commit checks that its segments are still there",
        "service/audit/compactor.py",
        "!= len(some)",
        "< 0",
        f"{_COMPACTION}::test_who_lost_the_lease_or_the_segments_meanwhile_commits_nothing",
    ),
    Guard(
        "the file lock excludes this machine's other processes",
        "service/audit/lease.py",
        "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        "tests/service/audit/test_lease.py"
        "::test_within_this_machine_one_holder_excludes_all_others",
    ),
    Guard(
        "orphans have a grace",
        "service/audit/sweeper.py",
        " - self._settings.orphan_grace_s",
        "",
        "tests/service/audit/test_crashes.py"
        "::test_a_crash_between_write_and_commit_loses_and_doubles_nothing",
    ),
    Guard(
        "retired files have a grace",
        "service/audit/sweeper.py",
        " - timedelta(seconds=self._settings.retired_grace_s)",
        "",
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "the grace is longer than the longest export",
        "service/settings.py",
        "        return self.export_max_s + self.query_max_s\n",
        "        return self.query_max_s\n",
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "a retired file goes before its line",
        "service/audit/sweeper.py",
        "            await self._lake.remove_segments(retired)\n",
        "",
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "a snapshot lists the tenant's segments only",
        "service/store/catalog.py",
        "        SegmentEntry.tenant_id == tenant_id, SegmentEntry.retired_at.is_(None)\n",
        "        SegmentEntry.retired_at.is_(None)\n",
        _APART,
    ),
    Guard(
        "segments are loaded for their tenant only",
        "service/store/catalog.py",
        "select(SegmentEntry).where(SegmentEntry.tenant_id == tenant_id)",
        "select(SegmentEntry)",
        f"{_APART}::test_what_another_tenant_is_named_is_not_loaded",
    ),
    Guard(
        "a snapshot lists the tenant's batches only",
        "service/store/journal.py",
        "select(JournalEntry.first_seq).where(JournalEntry.tenant_id == tenant_id)",
        "select(JournalEntry.first_seq)",
        _APART,
    ),
    Guard(
        "batches are loaded for their tenant only",
        "service/store/journal.py",
        "select(JournalEntry).where(JournalEntry.tenant_id == tenant_id)",
        "select(JournalEntry)",
        f"{_APART}::test_what_another_tenant_is_named_is_not_loaded",
    ),
    Guard(
        "a pruning commit checks its epoch",
        "service/audit/pruner.py",
        "lease.write() as work:\n            org",
        "self._store.write() as work:\n            org",
        f"{_PRUNING}::test_who_lost_the_lease_drops_nothing",
    ),
    Guard(
        "a pruning commit reads tier and hold again",
        "service/audit/pruner.py",
        "past = await _past_days(work.session, org, now)\n            if past.is_held",
        "past = await _past_days(work.session, org, now)\n            if not past",
        f"{_PRUNING}::test_a_hold_set_before_the_commit_wins",
    ),
    Guard(
        "pruning drops the tenant's segments only",
        "service/store/days.py",
        "SegmentEntry.tenant_id == tenant_id,\n            SegmentEntry.day <= through,",
        "SegmentEntry.day <= through,",
        f"{_PRUNING}::test_other_organisations_keep_theirs",
    ),
    Guard(
        "pruning drops the tenant's journal only",
        "service/store/days.py",
        ".where(JournalEntry.tenant_id == tenant_id, JournalEntry.day <= through)",
        ".where(JournalEntry.day <= through)",
        f"{_PRUNING}::test_other_organisations_keep_theirs",
    ),
    Guard(
        "a tier that was left counts for seven days",
        "analytics/retention.py",
        "now - left <= LEFT_TIER_COUNTS",
        "False",
        f"{_PRUNING}::test_after_a_lower_tier_nothing_more_goes_for_seven_days",
    ),
    Guard(
        "a clock that stepped is not trusted",
        "service/audit/clock_guard.py",
        "    if now - last_run_at > STEP_MAX:\n",
        "    if False:\n",
        "tests/service/audit/test_clock_guard.py"
        "::test_a_clock_far_past_the_last_run_is_refused_and_nothing_changes",
    ),
    Guard(
        "rows past the floor are hidden",
        "analytics/filters.py",
        "        return replace(self, since=floor)\n",
        "        return self\n",
        "tests/service/audit/test_retention_everywhere.py",
    ),
    Guard(
        "a cursor carries its watermark",
        "analytics/queries.py",
        '        bound["watermark"] = min(after.watermark, snapshot.watermark)\n',
        "        pass\n",
        "tests/service/audit/test_stable_pages.py::test_pages_are_those_of_the_first_pages_instant[asc]",
    ),
    Guard(
        "a file that turns out missing is asked for again",
        "service/audit/checking.py",
        "            if await self._is_gone(segment, found):\n                continue\n",
        "",
        f"{_CHECKING}::test_what_is_merged_and_unlinked_meanwhile_is_no_finding",
    ),
    Guard(
        "a copied file is synced",
        "analytics/copying.py",
        "            os.fsync(copy.fileno())",
        "            pass",
        f"{_COPYING}::test_a_copy_is_its_owners_and_durable",
    ),
    Guard(
        "the folders of a backup are synced before it has its name",
        "service/backup/taking.py",
        "        await here.lake.to_the_end(partial(sync_folders, part))\n",
        "",
        f"{_TAKING}::test_every_byte_and_name_is_durable_before_the_backup_has_its_own",
    ),
    Guard(
        "what a backup keeps is compared with the catalog",
        "service/backup/taking.py",
        'copy.size != segment.size or segment.sha256 not in {"", copy.sha256}',
        "copy is None",
        f"{_TAKING}::test_a_damaged_segment_is_not_taken_for_a_backup",
    ),
    Guard(
        "what is put back is compared with the manifest",
        "service/backup/restoring.py",
        "(copy.size, copy.sha256) != (file.size, file.sha256)",
        "copy is None",
        f"{_RESTORING}::test_every_flipped_bit_is_found_before_anything_is_in_place",
    ),
    Guard(
        "leases of the past end when a backup is put back",
        "service/backup/restoring.py",
        "        asyncio.run(_end_leases(part / database, settings.database_wait_s))\n",
        "",
        f"{_RESTORING}::test_a_lease_that_was_held_does_not_come_back",
    ),
    Guard(
        "a data dir that is in use stays where it is",
        "service/backup/restoring.py",
        "database.is_file() and is_in_use(database)",
        "database is None",
        f"{_RESTORING}::test_a_data_dir_a_service_works_on_is_left_alone",
    ),
    Guard(
        "an explanation wants its capability",
        "service/verifier/routes.py",
        "    _, org = await admit(slug, Capability.OIDC_READ)\n    query_parameters(request, ())\n"
        "    asked",
        "    _, org = await admit(slug, Capability.AUDIT_READ)\n    query_parameters(request, ())\n"
        "    asked",
        f"{_EXPLAIN}_endpoint.py::test_who_may_ask",
    ),
    Guard(
        "an explanation sees its own organisation's bindings",
        "service/verifier/known.py",
        ".where(Binding.tenant_id == tenant_id)",
        "",
        f"{_EXPLAIN}_endpoint.py::test_another_organisations_bindings_are_not_named",
    ),
    Guard(
        "nothing is proposed that would not help",
        "service/verifier/drafts.py",
        "proposal is None or not _would_match(proposal, unverified_claims, grounds, active)",
        "proposal is None",
        "tests/service/verifier/test_nearest.py::test_ambiguous_bindings_are_all_listed",
    ),
    Guard(
        "a terminal does not obey what a token says",
        "service/cli/explain.py",
        "c if c.isprintable() else ascii(c)[1:-1]",
        "c",
        "tests/processes/test_cli_explain.py::test_a_terminal_is_told_nothing_by_a_token",
    ),
    Guard(
        "claims are never taken for signed",
        "service/verifier/explain.py",
        "    if case.keys is not None:\n        rule_6",
        "    if case.keys is None:\n        trail.is_signed = True\n    else:\n        rule_6",
        f"{_EXPLAIN}.py::test_good_claims_pass_but_for_the_signature_they_lack",
    ),
]
