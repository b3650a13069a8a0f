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
_ISSUERS = "tests/service/bindings/test_issuers.py"
_JWKS = "tests/service/verifier/test_jwks.py"
_KEY_FETCH = "tests/service/verifier/test_key_fetch.py"
_KEY_SOURCE = "tests/service/verifier/test_key_source.py"
_KEY_OUTAGES = "tests/service/verifier/test_key_outages.py"
_ISSUER_PROCESS = "tests/service/verifier/test_issuer_process.py"

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
        "plain http to an issuer is for this machine",
        "service/bindings/issuer_urls.py",
        'parts.scheme == "https" or (is_loopback_allowed and _is_plain_loopback(parts))',
        'parts.scheme in {"http", "https"}',
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "an issuer's URL carries no name of a user",
        "service/bindings/issuer_urls.py",
        'if "@" in parts.netloc:',
        "if parts.netloc is None:",
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "two tables are never of one issuer",
        "service/bindings/issuers.py",
        "(first := names.setdefault(issuer.url, issuer.name)) != issuer.name",
        "(first := names.setdefault(issuer.url, issuer.name)) is None",
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "a typing error in the issuers file is no optional key left out",
        "service/bindings/issuers.py",
        'if key not in _KEYS or key == "name":',
        'if key == "name" and table.pop(key):',
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "an issuer elsewhere cannot send key requests to this machine",
        "service/verifier/key_fetch.py",
        "is_loopback_allowed=is_plain_loopback(issuer.url)",
        "is_loopback_allowed=True",
        f"{_KEY_FETCH}::test_an_issuer_elsewhere_cannot_have_keys_fetched_from_this_machine",
    ),
    Guard(
        "a configuration is that of the issuer it is asked of",
        "service/verifier/key_fetch.py",
        'configuration.get("issuer") != issuer.url',
        '"issuer" not in configuration',
        f"{_KEY_FETCH}::test_an_answer_that_gives_no_keys_is_a_failure",
    ),
    Guard(
        "keys are not fetched from where a redirect leads away",
        "service/verifier/key_fetch.py",
        "if not same_place or there.userinfo:",
        "if same_place is None:",
        f"{_KEY_FETCH}::test_a_redirect_to_another_place_is_not_followed",
    ),
    Guard(
        "redirects of keys come to an end",
        "service/verifier/key_fetch.py",
        "range(REDIRECTS_MAX + 1)",
        "range(10)",
        f"{_KEY_FETCH}::test_redirects_at_the_same_place_are_followed_three_times",
    ),
    Guard(
        "keys are not unpacked",
        "service/verifier/key_fetch.py",
        'if coding != "identity":',
        "if coding is None:",
        f"{_ISSUER_PROCESS}::test_an_outage_is_named_and_cached_keys_outlive_it",
    ),
    Guard(
        "a key set has a bounded size",
        "service/verifier/key_fetch.py",
        "len(body) > DOCUMENT_BYTES_MAX",
        "len(body) < 0",
        f"{_KEY_FETCH}::test_an_answer_that_gives_no_keys_is_a_failure",
    ),
    Guard(
        "a server that drips does not hold a request",
        "service/verifier/key_fetch.py",
        "asyncio.timeout(FETCH_S)",
        "asyncio.timeout(None)",
        f"{_ISSUER_PROCESS}::test_a_server_that_drips_is_given_up",
    ),
    Guard(
        "a key for something else does not verify",
        "service/verifier/jwks.py",
        'if jwk.get("use", "sig") != "sig":',
        'if jwk.get("use") == "":',
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a key whose operations leave verifying out does not verify",
        "service/verifier/jwks.py",
        'if not isinstance(operations, list) or "verify" not in operations:',
        "if operations is None:",
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a key is for pinned algorithms only",
        "service/verifier/jwks.py",
        "fitting & pinned",
        "fitting",
        f"{_JWKS}::test_a_curve_is_for_its_one_algorithm",
    ),
    Guard(
        "a key that names its algorithm is for no other",
        "service/verifier/jwks.py",
        'if "alg" in jwk:',
        "if jwk is None:",
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a weak or slow RSA modulus does not verify",
        "service/verifier/jwks.py",
        "not RSA_BITS_MIN <= bits <= RSA_BITS_MAX or modulus % 2 == 0",
        "bits < 0",
        f"{_JWKS}::test_an_rsa_modulus_out_of_bounds_is_refused",
    ),
    Guard(
        "an RSA exponent of one does not verify",
        "service/verifier/jwks.py",
        "exponent < 3 or exponent % 2 == 0 or exponent.bit_length() > RSA_EXPONENT_BITS_MAX",
        "exponent < 0",
        f"{_JWKS}::test_an_rsa_exponent_that_proves_nothing_or_takes_long_is_refused",
    ),
    Guard(
        "two keys of one name verify nothing",
        "service/verifier/jwks.py",
        "published[kid] > 1",
        "published[kid] < 0",
        f"{_JWKS}::test_two_keys_with_one_kid_are_both_refused",
    ),
    Guard(
        "private members of a published key are not read",
        "service/verifier/jwks.py",
        "return RSAKey.import_key(public)",
        "return RSAKey.import_key(dict(jwk))",
        f"{_JWKS}::test_a_private_part_that_is_published_is_not_read",
    ),
    Guard(
        "a key set without a usable key is a failure",
        "service/verifier/jwks.py",
        "if not by_kid:",
        "if by_kid is None:",
        f"{_JWKS}::test_what_holds_no_usable_key_is_a_fault",
    ),
    Guard(
        "a member named twice is no JSON",
        "service/verifier/strict_json.py",
        "len(members) < len(pairs)",
        "len(members) < 0",
        f"{_JWKS}::test_what_holds_no_usable_key_is_a_fault",
    ),
    Guard(
        "JSON has a bounded depth",
        "service/verifier/strict_json.py",
        "    _refuse_deep_nesting(value)\n",
        "",
        f"{_JWKS}::test_a_key_set_nested_too_deeply_is_a_fault",
    ),
    Guard(
        "a token no key would help costs no request",
        "service/verifier/key_source.py",
        "if unverified_kid is None:",
        "if self._http is None:",
        f"{_KEY_SOURCE}::test_a_token_that_no_key_would_help_costs_no_request",
    ),
    Guard(
        "an issuer's keys are fetched once at a time",
        "service/verifier/key_source.py",
        "        if held.renewal is None:\n",
        "        if self._http:\n",
        f"{_KEY_SOURCE}::test_all_who_wait_share_one_fetch",
    ),
    Guard(
        "who stops waiting for keys does not stop the others",
        "service/verifier/key_source.py",
        "await asyncio.wait({renewal})",
        "await renewal",
        f"{_KEY_SOURCE}::test_who_stops_waiting_does_not_stop_the_others",
    ),
    Guard(
        "unknown kids cause one fetch a minute",
        "service/verifier/key_source.py",
        "held.knows(unverified_kid) or self._is_younger(held.unknown_kid_at, UNKNOWN_KID_EVERY)",
        "held.knows(unverified_kid)",
        f"{_KEY_SOURCE}::test_random_kids_cause_one_fetch_a_minute_and_good_keys_stay",
    ),
    Guard(
        "keys fetched for a token are not fetched again for it",
        "service/verifier/key_source.py",
        " and held.renewals_begun == begun",
        "",
        f"{_KEY_SOURCE}::test_a_cold_source_fetches_once_for_a_random_kid",
    ),
    Guard(
        "a clock set back does not keep keys",
        "service/verifier/key_source.py",
        "abs(self._clock() - at)",
        "self._clock() - at",
        f"{_KEY_SOURCE}::test_a_clock_set_back_does_not_keep_keys_for_longer",
    ),
    Guard(
        "good keys outlive a failed renewal",
        "service/verifier/key_source.py",
        "replace(held.keys, fault=reason)",
        "SigningKeys(fault=reason)",
        f"{_KEY_SOURCE}::test_a_failed_fetch_for_a_random_kid_keeps_the_good_keys",
    ),
    Guard(
        "keys a day old serve nobody",
        "service/verifier/key_source.py",
        "        if self._is_younger(held.renewed_at, STALE_MAX):\n",
        "        if held.renewed_at:\n",
        f"{_KEY_OUTAGES}::test_in_an_outage_old_keys_serve_for_a_day",
    ),
    Guard(
        "an issuer that is down is not asked at each request",
        "service/verifier/key_source.py",
        "        if self._has_just_failed(held):\n            return\n",
        "",
        f"{_KEY_OUTAGES}::test_without_keys_an_outage_is_named_and_not_asked_about_again_at_once",
    ),
    Guard(
        "requests do not wait for an issuer that is down",
        "service/verifier/key_source.py",
        "not (has_stale_keys and held.keys.fault is not None)",
        "has_stale_keys is not None",
        f"{_KEY_OUTAGES}::test_in_an_outage_nobody_waits_a_second_time",
    ),
    Guard(
        "an issuer cannot make a log line long",
        "service/verifier/key_source.py",
        "reason[:REASON_CHARS_MAX]",
        "reason",
        f"{_KEY_OUTAGES}::test_every_failure_is_one_line_and_is_counted",
    ),
]
