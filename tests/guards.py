"""The guards everything rests on, each with the test that fails when it is taken out."""

from dataclasses import dataclass
from typing import Final

from tests.mutations import Drop, DropCall, Mutation, Replace, mutate


@dataclass(frozen=True)
class Guard:
    """With `mutation` of `symbol` (`file::Class.method`, or any other dotted path) `test` fails."""

    name: str
    symbol: str
    mutation: Mutation
    test: str

    @property
    def file(self) -> str:
        """The file that has the symbol."""
        return self.symbol.partition("::")[0]

    def without(self, code: str) -> str:
        """The file's `code` with the guard taken out. Raises MutationError."""
        return mutate(code, self.symbol.partition("::")[2], self.mutation)


_ERRORS = "tests/service/web/test_error_shape.py"
_DENIED = "tests/service/access/test_denied_requests.py"
_CONNECTIONS = "tests/processes/test_connections.py"
_HANGS = "tests/fleet/test_hangs.py"
_MAINTENANCE = "tests/processes/test_maintenance_processes.py"
_FOUND = "tests/analytics/cache/test_results.py"
_STRAIGHT = "tests/analytics/query/test_ordered_scan.py"
_TEXTS = "tests/analytics/export/test_text_encoder.py"
_SEGMENTS = "tests/analytics/storage/test_segment_writer.py"
_WHOLE = "tests/analytics/storage/test_verified_files.py"
_BATCHES = "tests/analytics/storage/test_journal_batches.py"
_DURABLE = "tests/analytics/storage/test_fsync.py"
_VERSIONS = "tests/analytics/storage/test_schema_versions.py"
_IMPORTED = "tests/analytics/imports/test_validation.py"
_TAKEOVER = "tests/service/audit/test_takeover.py"
_MERGING = "tests/analytics/storage/test_compaction.py"
_COMPACTION = "tests/service/audit/test_compaction.py"
_IMPORT = "tests/service/audit/test_import.py"
_PRUNING = "tests/service/audit/test_pruning.py"
_CLOCKS = "tests/service/audit/test_clock_guard.py"
_RECEIVED = "tests/service/audit/test_received_at.py"
_REMOVAL = "tests/service/audit/open_table/test_removal.py"
_PUBLISHING = "tests/service/audit/open_table/test_publishing.py"
_APART = "tests/service/store/test_tenants_apart.py"
_CHECKING = "tests/service/audit/test_integrity_check.py"
_SEGMENT_RESTORE = "tests/service/audit/backup/test_segment_restore.py"
_SCRUBBING = "tests/service/audit/test_scrubber.py"
_COPYING = "tests/analytics/storage/test_file_copy.py"
_TAKING = "tests/service/audit/backup/test_create.py"
_RESTORING = "tests/service/audit/backup/test_restore.py"
_EXPLAIN = "tests/service/trust/explain"
_ISSUERS = "tests/service/ci/issuers/test_issuers.py"
_JWKS = "tests/service/ci/issuers/test_jwks.py"
_KEY_FETCH = "tests/service/ci/issuers/test_key_fetch.py"
_KEY_SOURCE = "tests/service/ci/issuers/test_key_source.py"
_KEY_OUTAGES = "tests/service/ci/issuers/test_key_outages.py"
_ISSUER_PROCESS = "tests/service/ci/issuers/test_issuer_process.py"
_ATTACKS = "tests/service/ci/verifier/test_attacks.py"
_ATTACKS_ON_KEYS = "tests/service/ci/verifier/test_attacks_on_keys.py"
_ATTRIBUTION = "tests/service/ci/verifier/test_attribution.py"
_HOLDING = "tests/service/trust/rejected/test_holding.py"
_USAGE = "tests/service/ci/verifier/test_usage.py"
_FAIR = "tests/service/audit/test_fair_queries.py"
_TURNS = "tests/service/core/test_fair_queue.py"
_LOOP = "tests/service/core/test_loop_turns.py"
_REPLACE = "tests/service/trust/bindings/test_replace.py"
_REPOSITORY = "tests/service/trust/bindings/test_revoke_repository.py"
_REJECTED = "tests/service/trust/rejected/test_subjects.py"
_REJECTED_ROUTES = "tests/service/trust/rejected/test_routes.py"
_SIGN_IN = "tests/service/access/sign_in/test_signing_in.py"
_SIGN_IN_ATTACKS = "tests/service/access/sign_in/test_attacks.py"
_DEVICE = "tests/service/access/device_sign_in/test_device_sign_in.py"
_REMOTE_FAILURES = "tests/processes/test_cli_remote_failures.py"
_ID_TOKENS = "tests/service/access/sign_in/test_id_tokens.py"
_LIVE = "tests/service/pages/test_live.py"
_PASSKEYS = "tests/service/access/passkeys/test_signing_in.py"
_NEW_PASSKEYS = "tests/service/access/passkeys/test_registering.py"
_PROFILE = "tests/service/pages/profile/test_profile.py"
_PEOPLE = "tests/service/pages/people"
_ORGS = "tests/service/orgs"
_ROLES = "tests/service/access/test_roles.py"
_AUDIT_PAGE = "tests/service/pages/test_audit_page.py"
_POSTGRES = "tests/service/store/postgres"
_COMMIT_CACHE = "tests/service/store/test_commit_cache.py"
_TRANSACTION = "tests/service/store/test_transaction.py"
_WORK = "tests/service/store/test_work.py"
_AGAIN = "tests/service/access/passkeys/test_signing_in_again.py"
_KNOWN_CALLERS = "tests/service/access/test_known_callers.py"

_EXCHANGE = "tests/service/packages/install_tokens/test_exchange.py"
_INSTALLERS = "tests/service/packages/install_tokens/test_authorization.py"
_CARRIERS = "tests/service/packages/proxy/test_credentials.py"
_EXPORTS = "tests/service/audit/test_export_list.py"
_FILES = "tests/service/packages/proxy/test_file_cache.py"
_DOCUMENTS = "tests/service/packages/proxy/test_document_cache.py"
_UPSTREAM = "tests/service/packages/proxy/test_upstream.py"
_REPORTS = "tests/service/trust/reports/test_access_report.py"
_PROXY = "tests/service/packages/proxy"

_S3: Final = "tests/service/audit/test_s3.py"
_S3_DISK: Final = "tests/analytics/storage/test_s3_disk.py"
_BY_VERSION: Final = "tests/service/audit/backup/test_by_version.py"
_S3_FAULTS: Final = "tests/analytics/storage/test_s3_faults.py"
_S3_PREFIX: Final = "tests/service/audit/test_s3_prefix.py"
_S3_MAINTENANCE: Final = "tests/service/audit/test_s3_maintenance.py"
_S3_CRASHES: Final = "tests/service/audit/test_s3_crashes.py"

GUARDS: Final = [
    Guard(
        "what ended a worker process is not computed in the server",
        "service/audit/worker_process.py::WorkerProcess._run",
        Replace("raise WorkersUnavailable", "return await self._lake.run_in_thread(function)"),
        "tests/processes/test_worker_process.py"
        "::test_what_ends_its_process_is_never_computed_in_the_server",
    ),
    Guard(
        "an expired install token is refused",
        "service/packages/install_tokens/authorization.py::InstallAuthorizer._live_token",
        Replace("self._clock() >= token.expires_at", "self._clock().year < 1"),
        f"{_INSTALLERS}::test_an_expired_token_is_refused_with_the_remedy",
    ),
    Guard(
        "a known install token is that of its hash",
        "service/packages/install_tokens/authorization.py::InstallAuthorizer._live_token",
        Replace("('install_token', hashed)", "('install_token', '')"),
        f"{_INSTALLERS}::test_a_token_is_not_taken_for_one_that_came_before",
    ),
    Guard(
        "a revoked key stops its install tokens",
        "service/packages/install_tokens/authorization.py::InstallAuthorizer._key_of",
        Drop("if token.key_is_revoked:\n    raise InstallTokenEnded"),
        f"{_INSTALLERS}::test_the_token_of_a_revoked_key_stops_at_once",
    ),
    Guard(
        "a key that reads does not install",
        "service/access/callers.py::ApiKeyPrincipal.require_install_rights",
        Replace(
            "self.scopes and Capability.PACKAGES_INSTALL not in self.scopes", "not self.tenant_id"
        ),
        f"{_INSTALLERS}::test_a_key_that_reads_does_not_install",
    ),
    Guard(
        "an install token is issued as trust stands in its transaction",
        "service/packages/install_tokens/exchange.py::InstallTokenIssuer.issue",
        Drop("key = await self._access.revalidated_ci(key, now_org)"),
        f"{_EXCHANGE}::test_a_key_revoked_or_a_binding_revoked_meanwhile_gets_none",
    ),
    Guard(
        "an install token is issued to a key that still works",
        "service/store/organisations.py::find_key_in_use",
        Replace("key is not None and is_live(key, now)", "key is not None and now"),
        f"{_EXCHANGE}::test_a_key_revoked_or_a_binding_revoked_meanwhile_gets_none",
    ),
    Guard(
        "one CI token gets a limited number of install tokens",
        "service/packages/install_tokens/tokens.py::_check_room",
        Drop("raise TooManyInstallTokens(value='this CI token')"),
        f"{_EXCHANGE}::test_one_ci_token_gets_a_limited_number",
    ),
    Guard(
        "none is chosen of credentials that differ",
        "service/packages/proxy/credentials.py::_only",
        Drop("if len(secrets) > 1:\n    raise CredentialsDiffer(value=what)"),
        f"{_CARRIERS}::test_credentials_that_differ_are_refused",
    ),
    Guard(
        "the organisation that used the least time begins next",
        "service/core/fair_queue.py::FairQueue.begin_next",
        Replace("(share.used_at(now), share.served)", "-share.jobs_waiting"),
        f"{_TURNS}::test_two_organisations_take_turns",
    ),
    Guard(
        "an organisation that becomes active has saved up no time",
        "service/core/fair_queue.py::FairQueue.add",
        Replace("level = self._level(now)", "level = 0.0"),
        f"{_TURNS}::test_no_time_is_saved_up",
    ),
    Guard(
        "long jobs leave a place to short ones",
        "service/core/fair_queue.py::FairQueue._that_may_begin",
        Drop(
            "if length is Length.LONG and self.count_running(length) >= bounds.long_at_once:\n"
            "    return"
        ),
        f"{_TURNS}::test_long_jobs_leave_a_place_to_short_ones",
    ),
    Guard(
        "a turn at queries ends with the thread and not with its caller",
        "service/audit/lake.py::Lake.query",
        Replace(
            "answer.add_done_callback(lambda _: self._query_turns.end(job))",
            "self._query_turns.end(job)",
        ),
        f"{_FAIR}::test_a_query_that_has_ended_gives_its_turn_back_also_if_its_caller_is_gone",
    ),
    Guard(
        "what an organisation runs besides its first query has low priority",
        "service/audit/lake.py::Lake.query",
        Replace("job.is_only and length is Length.SHORT", "length is Length.SHORT"),
        f"{_FAIR}::test_what_is_long_or_not_the_first_has_low_priority",
    ),
    Guard(
        "one organisation leaves a thread to the others",
        "service/core/fair_queue.py::FairQueue._that_may_begin",
        Drop("len(share.running) < bounds.per_tenant"),
        f"{_TURNS}::test_one_organisation_leaves_a_place_to_the_others",
    ),
    Guard(
        "beside others an organisation runs fewer jobs",
        "service/core/fair_queue.py::FairQueue._that_may_begin",
        Drop(
            "if self._clock() < self._shared_until or self._is_shared():\n"
            "    most = min(most, bounds.beside_others)"
        ),
        f"{_TURNS}::test_beside_others_an_organisation_runs_fewer_jobs",
    ),
    Guard(
        "steps of a heavy organisation wait",
        "service/core/loop_turns.py::LoopTurns.may_run",
        Replace("share.is_light(now)", "True"),
        f"{_LOOP}::test_a_light_request_waits_for_at_most_one_step_of_a_heavy_one_at_each_of_its_own",
    ),
    Guard(
        "steps of an organisation alone do not wait",
        "service/core/loop_turns.py::LoopTurns.charge",
        Replace("share is not self._last", "True"),
        f"{_LOOP}::test_an_organisation_alone_never_waits",
    ),
    Guard(
        "heavy steps are held while a light request is about to continue",
        "service/core/loop_turns.py::LoopTurns._begin_next",
        Replace("held_s > 0 and not share.is_light(now)", "False"),
        f"{_LOOP}::test_heavy_steps_are_held_until_a_light_request_continues",
    ),
    Guard(
        "a cancelled request leaves its place at the event loop",
        "service/core/loop_turns.py::Stepwise.__await__",
        DropCall("turns.leave"),
        f"{_LOOP}::test_a_request_that_is_cancelled_while_it_waits_leaves",
    ),
    Guard(
        "organisations that are gone are forgotten by the event loop",
        "service/core/loop_turns.py::LoopTurns._forget",
        Drop("del self._shares[group]"),
        f"{_LOOP}::test_organisations_are_forgotten_once_their_time_has_faded",
    ),
    Guard(
        "strangers use the event loop as their address",
        "service/core/loop_turns.py::RequestTurns.__init__",
        Replace("f'address {address}'", "'address'"),
        f"{_LOOP}::test_what_a_stranger_uses_is_that_of_their_address",
    ),
    Guard(
        "credentials that are not valid any more are forgotten",
        "service/core/loop_turns.py::RequestTurns.end",
        Drop("self._turns.remembered.pop(self._credentials, None)"),
        f"{_LOOP}::test_credentials_that_are_not_valid_any_more_are_those_of_a_stranger",
    ),
    Guard(
        "credentials are told apart by the organisation, too",
        "service/web/turns.py::credentials_of",
        Replace("hash((lines, slug and slug[1]))", "hash(lines)"),
        f"{_LOOP}::test_credentials_are_told_apart_by_the_organisation_too",
    ),
    Guard(
        "what was held for an open stream holds nothing later",
        "service/core/loop_turns.py::LoopTurns.release",
        Replace("next(iter(self._held_until.values())) <= now", "False"),
        f"{_LOOP}::test_what_was_held_for_an_open_stream_holds_nothing_later",
    ),
    Guard(
        "nothing is held for a connection that is closed",
        "service/app/hypercorn_server.py::Connection.run",
        DropCall("self._hold_turns"),
        f"{_LOOP}::test_nothing_is_held_for_a_connection_that_is_closed",
    ),
    Guard(
        "others that have no job in a queue count, too",
        "service/core/fair_queue.py::FairQueue._that_may_begin",
        Replace(
            "self._clock() < self._shared_until or self._is_shared()",
            "self._clock() < self._shared_until",
        ),
        f"{_TURNS}::test_others_that_have_no_job_count_too",
    ),
    Guard(
        "a request takes the turns of the organisation that it proves to belong to",
        "service/access/authorization.py::Authorizer.attributed",
        DropCall("assign_to"),
        f"{_LOOP}::test_a_page_of_another_organisation_is_answered_before_those_of_a_heavy_one",
    ),
    Guard(
        "an answer that is not read to its end is closed",
        "service/web/turns.py::_Pieces.aclose",
        Replace("async with self._body:\n    pass", "pass"),
        f"{_LOOP}::test_an_answer_that_is_not_read_to_its_end_is_closed",
    ),
    Guard(
        "the queries of a key are limited",
        "service/access/authorization.py::Authorizer._authenticate",
        Drop("CALLER.set(caller.limited_as)"),
        f"{_FAIR}::test_a_key_has_a_limit_of_its_own",
    ),
    Guard(
        "a caller that goes leaves the queue",
        "service/core/fair_queue.py::FairTurns._wait",
        Drop("self.end(job)"),
        f"{_TURNS}::test_a_caller_that_goes_leaves_the_queue",
    ),
    Guard(
        "an export is one organisation's",
        "service/audit/export_entries.py::find_export",
        Drop("ExportEntry.tenant_id == tenant_id"),
        f"{_EXPORTS}::test_exports_of_another_organisation_are_not_found",
    ),
    Guard(
        "an export whose process died is not running forever",
        "service/audit/export_entries.py::state_of",
        Replace("now - entry.progress_at >= SILENT_AFTER", "now < entry.progress_at"),
        f"{_EXPORTS}::test_a_state_follows_from_the_entry_alone",
    ),
    Guard(
        "no part of a file is served without a row",
        "service/packages/proxy/installs.py::_gets_no_byte",
        Replace(
            "request.method == 'HEAD' or is_known(request, file.key)", "'range' in request.headers"
        ),
        f"{_PROXY}/test_install_log.py::test_no_part_is_served_without_a_row",
    ),
    Guard(
        "a file that the client has is refused all the same",
        "service/packages/proxy/installs.py::Installer._serve",
        Replace("decision.is_refused", "decision.is_refused and not is_known(request, file.key)"),
        f"{_PROXY}/test_pypi_routes.py::test_a_file_known_to_the_client_is_refused_all_the_same",
    ),
    Guard(
        "a range that may bring all of a file is no continuation",
        "service/packages/proxy/file_answer.py::is_later_part",
        Drop("first != ''"),
        f"{_PROXY}/test_install_log.py"
        "::test_a_range_that_may_bring_all_is_no_continuation[headers2-206]",
    ),
    Guard(
        "the same bytes under another name are another install",
        "service/packages/proxy/install_log.py::Install.identity",
        Drop("release.name"),
        f"{_PROXY}/test_install_log.py::test_the_same_bytes_under_two_names_are_two_installs",
    ),
    Guard(
        "after a cut the next attempt is recorded",
        "service/packages/proxy/install_log.py::InstallLog._commit_cut",
        Drop("remove_mark(work.transaction, recorded.key)"),
        f"{_PROXY}/test_cut_installs.py::test_the_next_attempt_is_recorded_by_every_process",
    ),
    Guard(
        "a file that changed is refused",
        "service/packages/proxy/installs.py::Installer.serve",
        Replace("known.is_same(file.release.digests)", "True"),
        f"{_PROXY}/test_changed_artifacts.py"
        "::test_without_the_old_file_the_name_is_refused_in_every_mode[audit]",
    ),
    Guard(
        "what is served is remembered with its row",
        "service/packages/proxy/install_log.py::_keep_artifact",
        Replace("install.is_served_whole", "False"),
        f"{_PROXY}/test_changed_artifacts.py::test_the_page_has_the_digest_that_was_served",
    ),
    Guard(
        "a file is remembered before its last byte is sent",
        "service/packages/proxy/file_answer.py::followed",
        DropCall("install.verified"),
        f"{_PROXY}/test_changed_artifacts.py"
        "::test_a_large_file_is_known_before_its_last_byte_is_sent",
    ),
    Guard(
        "a row is cut once",
        "service/packages/proxy/install_log.py::InstallLog._commit_cut",
        Replace("current is None or current.seq != mark.seq", "False"),
        f"{_PROXY}/test_cut_installs.py::test_a_row_is_cut_once",
    ),
    Guard(
        "a rule saved while the registry answers holds",
        "service/packages/proxy/services.py::ProxyServices._locate",
        Replace(
            "return Located(policy, registry, document)",
            "return Located(asked_for, registry, document)",
        ),
        f"{_PROXY}/test_pypi_routes.py::test_a_rule_saved_while_the_registry_answers_holds",
    ),
    Guard(
        "a rule saved while a large document is read holds",
        "service/packages/proxy/services.py::ProxyServices._find",
        Replace("return replace(located, policy=policy), entry", "return located, entry"),
        f"{_PROXY}/test_pypi_routes.py::test_a_rule_saved_while_a_large_document_is_read_holds",
    ),
    Guard(
        "a first-party name never reaches the public registry",
        "service/packages/proxy/services.py::_registry",
        Drop("raise FirstPartyNotServed(value=policy.registry)"),
        f"{_PROXY}/test_first_party.py::test_a_first_party_name_never_reaches_the_public_registry",
    ),
    Guard(
        "an own registry serves the organisations that it lists",
        "service/packages/proxy/registries.py::Registries.own_of",
        Drop("slug in own.orgs"),
        f"{_PROXY}/test_first_party.py"
        "::test_a_registry_serves_only_the_organisations_that_it_lists",
    ),
    Guard(
        "what one account may read is not remembered for another",
        "service/core/origins.py::Registry.identity",
        Replace("self.authorization or ''", "''"),
        f"{_PROXY}/test_first_party.py"
        "::test_what_one_account_may_read_is_not_remembered_for_another",
    ),
    Guard(
        "npm audit tells no first-party name",
        "service/packages/proxy/npm/audit_queries.py::_without",
        Drop("not is_hidden(name)"),
        f"{_PROXY}/test_npm_routes.py::test_an_audit_query_is_passed_on_without_first_party_names",
    ),
    Guard(
        "a file with another digest is not completed",
        "service/packages/proxy/downloads.py::Download._verify",
        Replace("self._hash.hexdigest() != expected.key.file.hex", "False"),
        f"{_FILES}::TestLies::test_the_last_bytes_are_held_back[True-digest]",
    ),
    Guard(
        "the last bytes wait for the digest",
        "service/packages/proxy/downloads.py::Download.readable",
        Replace("max(0, self.written - HOLD_BACK_BYTES)", "self.written"),
        f"{_FILES}::TestLies::test_no_more_than_that_is_sent_while_the_end_is_awaited",
    ),
    Guard(
        "a cached file is read through before it is served",
        "service/packages/proxy/file_cache.py::_check",
        Replace("content_hash.hexdigest() == key.file.hex", "True"),
        f"{_FILES}::TestOnDisk::test_a_damaged_file_is_fetched_again[True-flipped]",
    ),
    Guard(
        "a file that is being downloaded is not swept",
        "service/packages/proxy/disk_cache.py::_remove_unlocked",
        DropCall("fcntl.flock"),
        f"{_FILES}::TestEviction::test_a_process_does_not_evict_what_another_one_downloads",
    ),
    Guard(
        "the files of one registry push out none of another",
        "service/packages/proxy/artifacts.py::_surplus",
        Replace("(_C.registry_url == url) & (_C.served_at <= last)", "_C.served_at <= last"),
        f"{_PROXY}/test_changed_artifacts.py"
        "::test_many_files_of_one_registry_push_out_none_of_another",
    ),
    Guard(
        "a file counts for the organisation whose request fetched it",
        "service/packages/proxy/disk_cache.py::DiskCache.new_part",
        DropCall("_set_owner"),
        f"{_FILES}::TestEviction::test_the_downloads_of_one_organisation_leave_the_files_of_others",
    ),
    Guard(
        "the owner who holds most gives way",
        "analytics/storage/drop_order.py::drop_order",
        Replace("-size", "0"),
        "tests/analytics/storage/test_cache_folder.py"
        "::test_the_copies_of_one_organisation_leave_those_of_another",
    ),
    Guard(
        "a cached file is synced before it has its name",
        "service/packages/proxy/disk_cache.py::DiskCache.keep",
        DropCall("os.fsync"),
        f"{_DOCUMENTS}::TestOnDisk::test_the_file_is_synced_before_it_has_its_name",
    ),
    Guard(
        "a cached document's checksum is checked",
        "service/packages/proxy/document_files.py::unpack",
        Replace("hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]", "False"),
        f"{_DOCUMENTS}::TestOnDisk::test_every_flipped_bit_is_noticed",
    ),
    Guard(
        "a stale document is served for a limited time",
        "service/packages/proxy/document_cache.py::DocumentCache._stale",
        Replace("now >= ends_at", "False"),
        f"{_DOCUMENTS}::TestOutage::test_the_last_one_is_served_up_to_a_limit",
    ),
    Guard(
        "an empty list does not replace one with files at once",
        "service/packages/proxy/document_cache.py::DocumentCache._ask",
        Replace("packed.is_empty and document is not None", "False"),
        f"{_DOCUMENTS}::TestEmptied::test_an_empty_list_does_not_replace_one_with_files",
    ),
    Guard(
        "an HTML page without files must be that of an index",
        "service/packages/proxy/pypi/html.py::_check_index",
        Replace("not meta", "False"),
        f"{_PROXY}/pypi/test_html.py::test_a_page_that_is_no_index_is_refused",
    ),
    Guard(
        "a registry that does not answer is not asked",
        "service/packages/proxy/upstream.py::Upstream._admit",
        Replace("not self._circuits[origin].allows_requests", "False"),
        f"{_UPSTREAM}::TestCircuit::test_nothing_is_asked_while_it_is_open",
    ),
    Guard(
        "waits end when a registry is not asked any more",
        "service/packages/proxy/upstream.py::Upstream._circuit_changed",
        DropCall("self.admission.refuse"),
        f"{_UPSTREAM}::TestCircuit::test_requests_that_wait_are_refused_when_it_opens",
    ),
    Guard(
        "a place is not lost with a request that is cancelled",
        "service/packages/proxy/admission.py::AdmissionQueue._wait",
        DropCall("self._release"),
        f"{_PROXY}/test_admission.py::TestTurns"
        "::test_a_place_given_to_a_request_that_is_cancelled_goes_on_to_the_next",
    ),
    Guard(
        "an organisation has no more than its share of the connections",
        "service/packages/proxy/admission.py::Shares._has_share_left",
        Replace("self._by_org[holder.org] < free * ORG_PER_FREE", "True"),
        f"{_PROXY}/test_admission.py::TestShares"
        "::test_an_organisation_leaves_places_at_however_many_registries",
    ),
    Guard(
        "an organisation has no more than its share of the connections to one registry",
        "service/packages/proxy/admission.py::Shares._has_share_left",
        Replace("self._by_holder[holder] < free * REGISTRY_PER_FREE", "True"),
        f"{_PROXY}/test_admission.py::TestShares::test_an_organisation_leaves_places_for_others",
    ),
    Guard(
        "HTTP/2 without TLS is not served",
        "service/app/hypercorn_server.py::Http1._create_stream",
        Replace("request.http_version in _VERSIONS", "True"),
        f"{_CONNECTIONS}::test_http_2_without_tls_is_refused",
    ),
    Guard(
        "the head of a request has a time limit",
        "service/app/hypercorn_server.py::Connection.protocol_send",
        DropCall("self._begin_head"),
        f"{_CONNECTIONS}::test_headers_that_come_too_slowly_end_the_connection",
    ),
    Guard(
        "an answer to a request that is still being sent arrives",
        "service/app/hypercorn_server.py::Connection.protocol_send",
        DropCall("self._count_unread"),
        f"{_CONNECTIONS}::test_a_client_that_still_sends_its_body_gets_the_whole_answer",
    ),
    Guard(
        "what is read of an answered request is bounded",
        "service/app/hypercorn_server.py::Connection._count_unread",
        Replace("self._unread_bytes > LINGER_BYTES", "False"),
        f"{_CONNECTIONS}::test_a_client_that_sends_on_after_its_answer_is_disconnected",
    ),
    Guard(
        "connections of one address are limited",
        "service/app/hypercorn_server.py::Connection.run",
        Replace("not self.config.admit(self)", "not (self.config.admit(self) or True)"),
        f"{_CONNECTIONS}::test_an_address_has_its_part_of_the_connections",
    ),
    Guard(
        "connections of all addresses are limited",
        "service/app/hypercorn_server.py::ServerConfig.admit",
        Replace("is_full or has_many", "has_many"),
        f"{_CONNECTIONS}::test_of_too_many_connections_the_one_that_is_idle_longest_ends",
    ),
    Guard(
        "a flood from one address ends no connection of another",
        "service/app/hypercorn_server.py::ServerConfig.admit",
        Replace("not has_many or it.address == address", "True"),
        f"{_CONNECTIONS}::test_an_address_with_too_many_connections_loses_one_of_its_own",
    ),
    Guard(
        "a connection with a request under way is not idle",
        "service/app/hypercorn_server.py::Connection.protocol_send",
        DropCall("self.config.set_idle"),
        f"{_CONNECTIONS}::test_an_address_has_its_part_of_the_connections",
    ),
    Guard(
        "a connection that has ended counts no longer",
        "service/app/hypercorn_server.py::Connection.run",
        DropCall("self.config.release"),
        f"{_CONNECTIONS}::test_connections_that_end_during_a_request_take_no_place",
    ),
    Guard(
        "the time limit of a head ends with it",
        "service/app/hypercorn_server.py::Connection.protocol_send",
        DropCall("self._end_head"),
        f"{_CONNECTIONS}::test_a_body_may_take_longer_than_a_head",
    ),
    Guard(
        "a piece of a body begins no head",
        "service/app/hypercorn_server.py::Http1.handle",
        Drop("self.stream is None"),
        f"{_CONNECTIONS}::test_a_body_may_take_longer_than_a_head",
    ),
    Guard(
        "a head has one time limit, in however many pieces it comes",
        "service/app/hypercorn_server.py::Connection._begin_head",
        Drop("self._head_timer is None"),
        f"{_CONNECTIONS}::test_a_body_may_take_longer_than_a_head",
    ),
    Guard(
        "a file of one organisation's registry is not served for its digest at another",
        "service/packages/proxy/file_keys.py::CacheKey.name",
        Replace('f"{self.file}{self.registry[:_REGISTRY_CHARS]}"', "str(self.file)"),
        f"{_PROXY}/test_first_party.py"
        "::test_a_digest_that_another_registry_lists_does_not_open_its_file",
    ),
    Guard(
        "a download that breaks off does not keep others from the registry",
        "service/packages/proxy/circuit_breaker.py::CircuitBreaker.fail",
        Replace("attempt not in self._under_way", "False"),
        f"{_PROXY}/test_circuit_breaker.py::TestOpening"
        "::test_a_download_that_began_and_breaks_off_says_nothing",
    ),
    Guard(
        "answers of the proxy to one key are bounded",
        "service/packages/proxy/admission.py::AnswerLimiter.count",
        Replace("self._by_key[key] >= self._per_key", "False"),
        f"{_PROXY}/test_limits.py::TestAnswers::test_those_of_a_key_are_bounded",
    ),
    Guard(
        "answers of the proxy to one organisation are bounded",
        "service/packages/proxy/admission.py::AnswerLimiter.count",
        Replace("self._by_org[org] >= self._per_org", "False"),
        f"{_PROXY}/test_limits.py::TestAnswers::test_those_of_an_organisation_are_bounded",
    ),
    Guard(
        "an answer of the proxy that ends no longer counts",
        "service/packages/proxy/admission.py::AnswerLimiter.count",
        DropCall("task.add_done_callback"),
        f"{_PROXY}/test_limits.py::TestAnswers::test_an_answer_that_ends_makes_room",
    ),
    Guard(
        "requests of one organisation to a registry are bounded",
        "service/packages/proxy/admission.py::RequestRates.charge",
        Replace("full_at - now > BURST_S", "False"),
        f"{_PROXY}/test_request_rates.py::test_a_burst_is_allowed_and_no_more",
    ),
    Guard(
        "each request to a registry is charged to its organisation",
        "service/packages/proxy/upstream.py::Upstream._admit",
        DropCall("self._rates.charge"),
        f"{_PROXY}/test_limits.py::TestRequestsToARegistry"
        "::test_very_many_names_of_one_organisation_do_not_keep_another_from_it",
    ),
    Guard(
        "a registry that refuses requests pauses the organisation that sent most",
        "service/packages/proxy/upstream.py::Upstream._faults",
        DropCall("self._rates.pause_heaviest"),
        f"{_UPSTREAM}::TestLimits::test_only_the_organisation_that_asked_most_is_not_asked_for",
    ),
    Guard(
        "a registry that refuses requests is not spared as one that does not answer",
        "service/packages/proxy/upstream.py::_check_status",
        Replace("status == _TOO_MANY", "False"),
        f"{_UPSTREAM}::TestLimits::test_only_the_organisation_that_asked_most_is_not_asked_for",
    ),
    Guard(
        "some connections are for organisations that hold none",
        "service/packages/proxy/admission.py::Shares._has_share_left",
        Replace("self._units // RESERVED", "0"),
        f"{_PROXY}/test_admission.py::TestShares"
        "::test_however_many_organisations_leave_places_for_one_more",
    ),
    Guard(
        "a place goes to the organisation that holds the fewest",
        "service/packages/proxy/admission.py::AdmissionQueue._admit_next",
        Replace("sorted(self._queues, key=self._connections.held_by)", "list(self._queues)"),
        f"{_PROXY}/test_admission.py::TestTurns"
        "::test_a_place_goes_to_the_organisation_that_holds_the_fewest",
    ),
    Guard(
        "a registry's credentials go to its own origin alone",
        "service/packages/proxy/upstream.py::Upstream._send",
        Drop("_origin(url) == self.registry.origin"),
        f"{_UPSTREAM}::TestRedirects::test_a_configured_origin_gets_no_credentials",
    ),
    Guard(
        "a registry directs us to configured origins alone",
        "service/packages/proxy/upstream.py::Upstream._checked",
        Drop("not self.registry.allows(origin)"),
        f"{_UPSTREAM}::TestRedirects::test_any_other_origin_is_not_asked[other]",
    ),
    Guard(
        "a registry's document is bounded once it is decompressed",
        "service/packages/proxy/bodies.py::read_body",
        Replace("size > bytes_max", "False"),
        f"{_UPSTREAM}::TestDocument::test_a_body_out_of_all_limits_is_a_failure[bomb]",
    ),
    Guard(
        "a page does not decide which origins its files come from",
        "service/packages/proxy/origins.py::Origins._resolved",
        Replace("key is None", "not parts.scheme"),
        f"{_PROXY}/test_origins.py::test_a_url_that_leaves_the_origins_is_dropped",
    ),
    Guard(
        "a file's path on its origin has one reading",
        "service/packages/proxy/origins.py::Origins.locate",
        Replace("_DOT_SEGMENT.search(location.path)", "not location.path"),
        f"{_PROXY}/test_origins.py::test_a_url_that_leaves_the_origins_is_dropped",
    ),
    Guard(
        "a file's version is that of the name which clients read",
        "service/packages/proxy/pypi/listing.py::Listing._parse",
        Replace("link.filename != filename", "not filename"),
        f"{_PROXY}/pypi/test_simple_json.py::test_a_file_that_cannot_be_trusted_is_dropped",
    ),
    Guard(
        "a page of one project offers no files of another",
        "service/packages/proxy/pypi/listing.py::Listing._parse",
        Replace("distribution.project != self._name", "not distribution.project"),
        f"{_PROXY}/pypi/test_simple_json.py::test_a_file_that_cannot_be_trusted_is_dropped",
    ),
    Guard(
        "a file is found on its own origin alone",
        "service/packages/proxy/pypi/project.py::find_file",
        Replace("is_path and file.origin == origin", "is_path"),
        f"{_PROXY}/pypi/test_simple_json.py::test_a_file_is_found_by_its_path_alone",
    ),
    Guard(
        "metadata is that of the wheel's own version",
        "service/packages/proxy/pypi/metadata.py::_metadata_entry",
        Replace("_is_of(directories[0], name, version)", "directories[0]"),
        f"{_PROXY}/pypi/test_metadata.py::test_a_wheel_that_is_not_in_order_has_no_metadata",
    ),
    Guard(
        "a version of a package is described as itself",
        "service/packages/proxy/npm/packument.py::_parse_version",
        Replace('_text(members.get("version")) != version', "not version"),
        f"{_PROXY}/npm/test_packument.py::test_a_version_that_cannot_be_trusted_is_dropped",
    ),
    Guard(
        "a dist-tag never moves up",
        "service/packages/proxy/npm/tags.py::_replacement",
        Replace("choice[0] <= old", "choice"),
        f"{_PROXY}/npm/test_tags.py::test_a_tag_moves_down_to_what_its_users_want",
    ),
    Guard(
        "an expired key is refused",
        "service/access/authenticate.py::Authenticator.key_principal",
        Replace("now >= key.expires_at", "now.year < 1"),
        f"{_PEOPLE}/test_keys.py::test_an_expired_key_is_refused_and_listed_as_ended",
    ),
    Guard(
        "imported rows do not rewrite who could do what",
        "service/trust/reports/access_report.py::_without_imported",
        Replace("first <= change.seq", "False"),
        f"{_REPORTS}::test_imported_rows_tell_nothing_of_this_organisation",
    ),
    Guard(
        "an index of another segment answers nothing",
        "analytics/storage/segment_index.py::_check_owner",
        Replace(
            "not is_own or segment.sha256 not in {'', directory.segment_sha256}",
            "not segment.segment_id and segment.sha256 not in {'', directory.segment_sha256}",
        ),
        "tests/analytics/statistics/test_value_index.py::test_a_damaged_index_is_reported_and_rebuilt",
    ),
    Guard(
        "a block of an index is checked before it is read",
        "analytics/storage/index_blocks.py::decode_block",
        Replace("zlib.crc32(data) != crc32", "not data"),
        "tests/analytics/statistics/test_value_index.py"
        "::test_no_flipped_bit_of_a_block_changes_a_count",
    ),
    Guard(
        "an index is durable before the catalog names it",
        "analytics/storage/segment_writer.py::_write_files",
        Replace(
            "files.add(index_path(files.root, tenant_id, day, segment_id))",
            "index_path(files.root, tenant_id, day, segment_id)",
        ),
        "tests/service/audit/test_import_crashes.py"
        "::test_every_file_is_durable_before_the_commit_begins",
    ),
    Guard(
        "an address does not make a page out of all proportion",
        "service/pages/audit_page.py::load_audit_view",
        Replace("state.is_too_long", "state is None"),
        "tests/service/pages/test_audit_page.py::"
        "test_an_address_out_of_all_proportion_is_a_short_page[values]",
    ),
    Guard(
        "a package without a version is not taken for harmless",
        "service/packages/policy/sbom.py::_ids_on",
        Replace("not release.version", "False"),
        "tests/processes/test_cli_policy.py::"
        "test_a_component_is_compared_in_every_spelling[pkg:npm/%40acme/evil-True]",
    ),
    Guard(
        "the bytes of a segment are those that the catalog says",
        "analytics/storage/verified_files.py::_compare",
        Replace("sha256 != file.sha256", "False"),
        f"{_WHOLE}::test_rows_of_a_folder_are_used_only_if_they_are_whole",
    ),
    Guard(
        "a file that changed is verified again",
        "analytics/storage/verified_files.py::VerifiedFiles.knows",
        Replace("known == identity_of(file.path.stat())", "True"),
        f"{_WHOLE}::test_what_changes_while_the_process_runs_is_found",
    ),
    Guard(
        "the time of change tells that a file was written to",
        "analytics/storage/verified_files.py::identity_of",
        Replace("(*identity, status.st_ctime_ns)", "identity"),
        f"{_WHOLE}::test_what_changes_while_the_process_runs_is_found",
    ),
    Guard(
        "what is read while its file changes is not given out",
        "analytics/storage/verified_files.py::VerifiedFiles.unchanged",
        Replace("yield\nself.check(files, on_read)", "yield"),
        f"{_WHOLE}::test_what_is_damaged_while_it_is_used_is_a_fault_of_the_use",
    ),
    Guard(
        "pages have checksums",
        "analytics/storage/segment_writer.py::PARQUET_OPTIONS",
        Replace("'write_page_checksum'", "'store_schema'"),
        f"{_WHOLE}::test_a_page_that_changed_since_is_not_decoded",
    ),
    Guard(
        "the checksums of pages are compared",
        "analytics/storage/segment_reader.py::open_segment",
        Replace("page_checksum_verification=True", "page_checksum_verification=False"),
        f"{_WHOLE}::test_a_page_that_changed_since_is_not_decoded",
    ),
    Guard(
        "the file of another segment is not read",
        "analytics/storage/segment_reader.py::open_segment",
        DropCall("_check_owner"),
        f"{_WHOLE}::test_a_file_says_whose_it_is",
    ),
    Guard(
        "a journal batch is what was stored",
        "analytics/storage/journal_batches.py::decode_batch",
        DropCall("_compare_checksum"),
        f"{_BATCHES}::test_every_flipped_bit_of_a_batch_is_found",
    ),
    Guard(
        "a journal batch is that of its line",
        "analytics/storage/journal_batches.py::_checksum",
        Drop("batch.tenant_id"),
        f"{_BATCHES}::test_a_batch_in_another_line_is_found[tenant_id]",
    ),
    Guard(
        "days that cannot be sealed together are sealed each on its own",
        "service/audit/sealer.py::Sealer._seal_days",
        Replace("suppress(StoreFault, StoreUnavailable)", "suppress()"),
        "tests/service/audit/test_maintenance.py"
        "::test_a_damaged_batch_keeps_no_other_day_from_being_sealed",
    ),
    Guard(
        "a damaged batch is not sealed",
        "service/audit/sealer.py::Sealer._parts",
        Replace(
            "partial(in_parts, whole, SEGMENT_ROWS_MAX, SEGMENT_BYTES_MAX)",
            "partial(in_parts, batches, SEGMENT_ROWS_MAX, SEGMENT_BYTES_MAX)",
        ),
        "tests/service/audit/test_maintenance.py"
        "::test_a_damaged_batch_keeps_no_other_row_of_its_day_from_being_sealed",
    ),
    Guard(
        "a claim keeps the segments that it was written for",
        "analytics/storage/import_claims.py::_listed_ids",
        Replace("ids.pop() != _checksum(ids)", "not ids.pop()"),
        "tests/analytics/storage/test_s3_faults.py::test_every_flipped_bit_of_a_claim_is_found",
    ),
    Guard(
        "a segment and its index are synced before they have their names",
        "analytics/storage/fsync.py::NewFiles.publish",
        Drop("deque(threads.map(fsync, self._targets), maxlen=0)"),
        f"{_SEGMENTS}::test_the_file_is_synced_whole_before_it_gets_its_name",
    ),
    Guard(
        "the names of segments are synced before the catalog has them",
        "analytics/storage/fsync.py::NewFiles.publish",
        Drop("deque(threads.map(fsync, folders), maxlen=0)"),
        f"{_SEGMENTS}::test_the_names_are_synced_after_the_renames",
    ),
    Guard(
        "the folders of new segments are synced up to the root",
        "analytics/storage/fsync.py::NewFiles.publish",
        Replace("self._up(target)", "[target.parent]"),
        f"{_SEGMENTS}::test_each_directory_on_the_way_is_synced_after_it_was_made",
    ),
    Guard(
        "files that were not published are removed",
        "analytics/storage/fsync.py::new_files",
        DropCall("files.discard"),
        f"{_SEGMENTS}::test_a_segment_that_cannot_be_written_leaves_no_half_file",
    ),
    Guard(
        "a file has the columns that the catalog says",
        "analytics/storage/segment_reader.py::open_segment",
        DropCall("_check_version"),
        f"{_VERSIONS}::test_a_file_of_another_version_than_the_catalog_says_is_a_fault",
    ),
    Guard(
        "null is read only where a column came later",
        "analytics/storage/segment_reader.py::SegmentFile._rows",
        Replace("self.schema", "rows.schema"),
        f"{_VERSIONS}::test_an_old_file_that_lacks_a_column_of_its_own_version_is_a_fault",
    ),
    Guard(
        "rows of a later version are refused",
        "analytics/model/schema.py::schema_of",
        Replace(
            "if version not in _SCHEMAS:\n    raise NewerSchema(what)\nreturn _SCHEMAS[version]",
            "return _SCHEMAS.get(version, AUDIT_SCHEMA)",
        ),
        f"{_VERSIONS}::test_a_file_of_a_later_version_is_refused_with_a_remedy",
    ),
    Guard(
        "a journal batch of a later version is refused as such",
        "analytics/storage/journal_batches.py::decode_batch",
        Replace("_is_newer(rows.schema)", "False"),
        f"{_VERSIONS}::test_a_batch_of_a_later_version_is_refused_with_a_remedy",
    ),
    Guard(
        "a backup with rows of a later version is not put back",
        "service/audit/backup/manifest.py::read_manifest",
        Replace("(manifest.audit_schema or 1) > SCHEMA_VERSION", "False"),
        f"{_RESTORING}::test_a_backup_of_a_newer_audit_schema_is_refused",
    ),
    Guard(
        "a segment that counts from 0 is rewritten even alone",
        "service/audit/compactor.py::Compactor._merge_some",
        Drop("not any((segment.seq_base for segment in smallest))"),
        f"{_COMPACTION}::test_a_segment_that_counts_from_0_is_rewritten_even_alone",
    ),
    Guard(
        "an imported row's CI columns agree with its payload",
        "analytics/imports/validation.py::_ci_columns",
        Replace("text is not None and claim and (text != claim)", "False"),
        f"{_IMPORTED}::TestCi::test_the_two_agree[another-run_id]",
    ),
    Guard(
        "only an imported row of a CI job has CI columns",
        "analytics/imports/validation.py::_read_audit_context",
        Replace("ci_field is not None", "ci_field == 'ci'"),
        f"{_IMPORTED}::TestCi::test_only_a_ci_job_has_the_columns[who0-run_id]",
    ),
    Guard(
        "a folder's name is synced",
        "analytics/storage/fsync.py::mkdir_synced",
        DropCall("fsync"),
        f"{_DURABLE}::test_each_created_directory_has_its_name_synced_in_its_parent",
    ),
    Guard(
        "fsync syncs",
        "analytics/storage/fsync.py::fsync",
        DropCall("os.fsync"),
        f"{_DURABLE}::test_fsync_reaches_files_and_directories",
    ),
    Guard(
        "a secret's bytes are synced before they have their name",
        "analytics/storage/fsync.py::write_synced",
        Drop("fsync(pending)"),
        f"{_DURABLE}::test_a_file_is_synced_whole_then_renamed_then_its_name_is_synced",
    ),
    Guard(
        "a replaced file's name is synced",
        "analytics/storage/fsync.py::write_synced",
        Drop("fsync(path.parent)"),
        f"{_DURABLE}::test_a_file_is_synced_whole_then_renamed_then_its_name_is_synced",
    ),
    Guard(
        "a new secret's name is synced",
        "service/core/secrets.py::_create",
        DropCall("fsync"),
        "tests/service/core/test_secrets.py::test_a_secret_survives_a_power_loss",
    ),
    Guard(
        "an exported file is synced before it has its name",
        "service/cli/files.py::new_file",
        Drop("fsync(part)"),
        "tests/service/cli/test_files.py",
    ),
    Guard(
        "an exported file's name is synced",
        "service/cli/files.py::new_file",
        Drop("fsync(path.parent)"),
        "tests/service/cli/test_files.py",
    ),
    Guard(
        "a commit is synced",
        "service/store/sqlite/engine.py::_open_durably.on_connect",
        Replace(
            "cursor.execute('PRAGMA synchronous = FULL')",
            "cursor.execute('PRAGMA synchronous = NORMAL')",
        ),
        "tests/service/store/test_connections.py::test_every_pooled_connection_is_durable_and_strict",
    ),
    Guard(
        "a read is one transaction",
        "service/store/sqlite/connection.py::_run",
        DropCall("cursor.execute"),
        f"{_TAKEOVER}::test_a_read_transaction_stays_at_its_instant",
    ),
    Guard(
        "the snapshot's reads share that transaction",
        "service/store/sqlite/connection.py::_run",
        DropCall("cursor.execute"),
        "tests/service/store/test_connections.py::test_a_read_transaction_sees_one_instant",
    ),
    Guard(
        "a transaction whose caller is gone is rolled back",
        "service/store/sqlite/connection.py::Connection._execute",
        Drop("self._is_settled = False"),
        "tests/service/store/test_connection.py::"
        "test_a_transaction_whose_beginning_was_abandoned_is_rolled_back",
    ),
    Guard(
        "what was read of the database is forgotten with the next commit",
        "service/store/commit_cache.py::CommitCache.get",
        Replace("version != self._as_of", "self._as_of is None"),
        f"{_COMMIT_CACHE}::test_a_commit_of_another_program_is_met_at_once",
    ),
    Guard(
        "rights outlast only a commit of rows that began at their version",
        "service/store/commit_cache.py::CommitCache.advance",
        Replace("self._as_of == before", "True"),
        f"{_COMMIT_CACHE}::test_rights_are_read_again_after_another_program_committed",
    ),
    Guard(
        "and only one that no other commit follows unseen",
        "service/store/sqlite/connection.py::CommitVersions.note_after",
        Replace("others == self._others", "others is not None"),
        f"{_COMMIT_CACHE}::test_a_commit_right_after_that_of_rows_is_met",
    ),
    Guard(
        "and so is who may do what",
        "service/store/commit_cache.py::CommitCache.get",
        Replace("version != self._as_of", "self._as_of is None"),
        f"{_KNOWN_CALLERS}::test_what_another_worker_changes_the_next_request_meets",
    ),
    Guard(
        "and so is which rows there are",
        "service/store/commit_cache.py::CommitCache.get",
        Replace("version != self._as_of", "self._as_of is None"),
        "tests/service/audit/test_snapshots.py::"
        "test_a_retired_segment_is_gone_although_its_line_is_kept",
    ),
    Guard(
        "what was begun before a commit is not kept for those after it",
        "service/store/commit_cache.py::CommitCache._read_once.read",
        Replace(
            "kept.keep(key, value, size_of(value))", "self._kept.keep(key, value, size_of(value))"
        ),
        f"{_COMMIT_CACHE}::test_what_began_before_a_commit_is_not_kept_for_those_after_it",
    ),
    Guard(
        "what is being read since before a commit is not for those after it",
        "service/store/commit_cache.py::CommitCache.get",
        Replace(
            "self._as_of, self._kept, self._loads = "
            "(version, ByteCache(KEPT_BYTES_MAX), SingleFlight())",
            "self._as_of, self._kept = (version, ByteCache(KEPT_BYTES_MAX))",
        ),
        f"{_COMMIT_CACHE}::test_who_asks_after_a_commit_does_not_join_who_asked_before_it",
    ),
    Guard(
        "who leaves does not end what others wait for",
        "service/core/single_flight.py::SingleFlight.run",
        Replace("asyncio.shield(self.start(key, work))", "self.start(key, work)"),
        f"{_COMMIT_CACHE}::test_a_client_that_leaves_cancels_no_other",
    ),
    Guard(
        "the version of one connection is none of another's",
        "service/store/sqlite/connection.py::CommitWatcher.look",
        Replace("self._opened, count", "0, count"),
        f"{_COMMIT_CACHE}::test_a_watch_that_looks_again_repeats_no_version",
    ),
    Guard(
        "a session that is known ends by the clock",
        "service/access/authenticate.py::Authenticator._session_of",
        Replace("now >= self.lifetimes.end_of(known.entry)", "now is None"),
        f"{_KNOWN_CALLERS}::test_a_session_that_no_one_uses_ends_although_nothing_is_committed",
    ),
    Guard(
        "a known session is that of its cookie",
        "service/access/authenticate.py::Authenticator._session_of",
        Replace("('session', hashed)", "('session', '')"),
        f"{_KNOWN_CALLERS}::test_no_one_is_taken_for_who_came_before",
    ),
    Guard(
        "without a token the metrics are closed",
        "service/app/system.py::_may_scrape",
        Drop("bool(token)"),
        "tests/service/core/test_metrics.py::test_without_a_token_the_metrics_are_closed_to_all",
    ),
    Guard(
        "a file without a valid admin token opens nothing",
        "service/access/admin_tokens.py::AdminTokens._read_if_changed",
        Replace("self._tokens = ()", "pass"),
        "tests/service/access/test_admin_tokens.py::test_a_file_that_is_gone_opens_nothing",
    ),
    Guard(
        "the admin token is not changed without its rows",
        "service/access/admin_tokens.py::_change",
        DropCall("work.record"),
        "tests/service/access/test_admin_tokens.py"
        "::test_every_organisation_has_a_row_of_each_change",
    ),
    Guard(
        "a key may do no more than its issuer",
        "service/orgs/api_keys.py::request_api_key",
        DropCall("_require_all"),
        "tests/service/orgs/test_keys.py::test_a_key_may_do_no_more_than_its_issuer",
    ),
    Guard(
        "a rotation shows no secret that may do more than its issuer",
        "service/orgs/api_keys.py::rotate_api_key",
        DropCall("_require_all"),
        "tests/service/orgs/test_keys.py::test_a_rotation_gives_no_more_than_its_issuer_has",
    ),
    Guard(
        "no key is issued without scopes",
        "service/orgs/api_keys.py::_key_scopes",
        Replace("not scopes", "False"),
        "tests/service/orgs/test_keys.py::test_a_request_without_scopes_is_told_which_there_are",
    ),
    Guard(
        "a longest life rules out keys without an end",
        "service/orgs/api_keys.py::KeyTerms.parse_expiry",
        Replace("text == NEVER and self.allows_never", "text == NEVER"),
        "tests/service/orgs/test_keys.py::test_the_operator_sets_a_longest_life",
    ),
    Guard(
        "a change that gives access needs a recent sign-in",
        "service/access/authenticate.py::Authenticator.require_recent_sign_in",
        Drop("if abs(self._clock() - caller.authenticated_at) >= recent:\n    raise SignInAgain"),
        f"{_AGAIN}::test_the_api_asks_for_a_recent_sign_in",
    ),
    Guard(
        "a sign-in that a clock dated ahead is not recent",
        "service/access/authenticate.py::Authenticator.require_recent_sign_in",
        Replace(
            "abs(self._clock() - caller.authenticated_at)",
            "self._clock() - caller.authenticated_at",
        ),
        f"{_AGAIN}::test_a_sign_in_under_a_clock_that_was_ahead_is_not_recent",
    ),
    Guard(
        "a short part of an admin token with a comma is no token",
        "service/core/settings.py::_check_tokens",
        Replace("len(token) < SECRET_CHARS_MIN", "False"),
        "tests/service/core/test_settings.py::test_admin_tokens_are_at_most_two_from_one_place",
    ),
    Guard(
        "the passkey of another member confirms nothing",
        "service/access/passkeys/sign_in.py::sign_in_again_with_passkey",
        Replace("proved.member.id != caller.member_id", "False"),
        f"{_AGAIN}::test_the_passkey_of_another_member_confirms_nothing",
    ),
    Guard(
        "a new sign-in ends the former cookie",
        "service/access/sessions.py::renew_session",
        Drop("entry.token_hash = token_hash(token)"),
        f"{_AGAIN}::test_the_former_cookie_ends",
    ),
    Guard(
        "a database on another machine is verified",
        "service/store/postgres/connection_url.py::_verified",
        Replace("mode != _VERIFY", "False"),
        "tests/service/store/postgres/test_connection_url.py"
        "::test_a_server_on_another_machine_is_always_verified",
    ),
    Guard(
        "a bucket on another machine is reached by https",
        "service/core/settings.py::_check_endpoints",
        Replace("parts.scheme.lower() == 'http'", "False"),
        "tests/service/core/test_settings.py::test_a_bucket_on_another_machine_is_reached_by_https",
    ),
    Guard(
        "a known organisation is that of its path",
        "service/access/authorization.py::Authorizer.org",
        Replace("('org', slug)", "('org', '')"),
        f"{_KNOWN_CALLERS}::test_no_one_is_taken_for_who_came_before",
    ),
    Guard(
        "a known snapshot is its tenant's",
        "service/store/store.py::Store.snapshot",
        Replace("('snapshot', tenant_id)", "('snapshot', '')"),
        "tests/service/audit/test_snapshots.py::test_another_tenant_is_not_served_what_is_kept",
    ),
    Guard(
        "a write begins with the write lock",
        "service/store/sqlite/engine.py::_BEGIN_WRITING",
        Replace("'BEGIN IMMEDIATE'", "'BEGIN'"),
        "tests/service/store/test_connections.py::test_a_write_transaction_begins_with_the_write_lock",
    ),
    Guard(
        "so does a write in one trip",
        "service/store/sqlite/engine.py::SqliteEngines.write_at_once",
        Replace(
            "self._at_once(self.writer, _BEGIN_WRITING, work, versions)",
            "self._at_once(self.writer, _BEGIN_READING, work, versions)",
        ),
        f"{_TRANSACTION}::test_a_write_begins_with_the_write_lock[in one trip]",
    ),
    Guard(
        "on PostgreSQL a write takes the lock that all nodes share",
        "service/store/postgres/engine.py::_begin_writing.on_begin",
        Replace(
            "connection.exec_driver_sql(_BEGIN_WRITING).scalar_one()",
            "connection.exec_driver_sql('SELECT clock_timestamp()').scalar_one()",
        ),
        f"{_POSTGRES}/test_writer.py::test_a_write_has_the_lock_before_it_has_its_time",
    ),
    Guard(
        "so seq and time follow commit order",
        "service/store/postgres/engine.py::_begin_writing.on_begin",
        Replace(
            "connection.exec_driver_sql(_BEGIN_WRITING).scalar_one()",
            "connection.exec_driver_sql('SELECT clock_timestamp()').scalar_one()",
        ),
        f"{_POSTGRES}/test_writer.py::test_seq_and_time_follow_commit_order_on_all_nodes",
    ),
    Guard(
        "and twins are performed once",
        "service/store/postgres/engine.py::PostgresEngines.write_at_once",
        Replace("lock=_BEGIN_WRITING", "lock='SELECT clock_timestamp()'"),
        f"{_POSTGRES}/test_twins.py",
    ),
    Guard(
        "the time of a write is the database's",
        "service/store/store.py::Store._now",
        Replace(
            "began_at if began_at and self._has_database_clock else self.clock()",
            "datetime.now().astimezone()",
        ),
        f"{_POSTGRES}/test_writer.py::test_a_clock_that_is_given_is_the_clock",
    ),
    Guard(
        "a commit of another node is looked for",
        "service/store/postgres/probe.py::SnapshotProbe._ask",
        Replace("(self._opened, visible)", "(self._opened, '')"),
        f"{_POSTGRES}/test_probe.py::test_a_read_on_one_node_sees_what_another_has_confirmed",
    ),
    Guard(
        "a look that was sent before a request came is not for it",
        "service/store/postgres/probe.py::SnapshotProbe._look_while_asked",
        Drop("self._next = None"),
        f"{_POSTGRES}/test_probe.py",
    ),
    Guard(
        "what a writer has counted is not for the next one if a third was between them",
        "service/store/postgres/direct.py::KeptValues.take",
        Replace("self.visible == position.visible", "True"),
        f"{_POSTGRES}/test_kept.py::test_another_nodes_commit_is_counted",
    ),
    Guard(
        "nor if one was under way beside it",
        "service/store/postgres/direct.py::KeptValues.leave",
        Replace("position.is_next", "True"),
        f"{_POSTGRES}/test_kept.py::test_a_program_that_takes_no_lock_is_noticed",
    ),
    Guard(
        "a look at another server is another version",
        "service/store/postgres/probe.py::SnapshotProbe._ask",
        Replace("(self._opened, visible)", "(0, visible)"),
        f"{_POSTGRES}/test_probe.py::test_a_new_connection_repeats_no_version",
    ),
    Guard(
        "a connection to a server that has gone is replaced",
        "service/store/postgres/engine.py::_listen.on_checkout",
        Replace("_driver(connection).is_closed()", "False"),
        f"{_POSTGRES}/test_outages.py::test_an_outage_that_no_request_saw_is_not_seen_later",
    ),
    Guard(
        "a connection whose end the server has announced is an outage",
        "service/store/postgres/faults.py::is_connection_unusable",
        Drop("asyncpg.InternalClientError"),
        f"{_POSTGRES}/test_half_open.py",
    ),
    Guard(
        "a database to which a service is connected is not restored",
        "service/audit/backup/restore.py::_RestoredDump.check",
        Replace("others and not self._is_forced", "False"),
        "tests/service/audit/backup/test_postgresql.py::"
        "test_a_running_service_is_not_given_another_database",
    ),
    Guard(
        "a database that is copied to another one is open in no service",
        "service/store/database_copy/copy.py::_alone",
        DropCall("lock_out_others"),
        "tests/service/store/database_copy/test_copy.py::test_a_service_started_just_before_the_copy_is_seen",
    ),
    Guard(
        "a copy goes on after the rows that it has copied",
        "service/store/database_copy/copy.py::_copy_tables",
        DropCall("_check_found"),
        "tests/service/store/database_copy/test_copy.py::test_a_source_changed_after_a_kill_is_found",
    ),
    Guard(
        "a transaction that a statement has broken is not taken for stored",
        "service/store/postgres/direct.py::DirectTransaction.commit",
        Replace("answer != _COMMIT", "not answer"),
        f"{_POSTGRES}/test_group_commit.py",
    ),
    Guard(
        "a database that confirms too early is refused",
        "service/store/postgres/connection.py::Connector.open",
        DropCall("_check"),
        f"{_POSTGRES}/test_durability.py::test_a_database_that_confirms_too_early_is_refused",
    ),
    Guard(
        "another data dir's lease on this machine is not ours",
        "service/store/lease.py::_place_of",
        Replace(
            "f'{socket.gethostname()}/{os.fstat(descriptor).st_ino:x}-{mark}/'",
            "f'{socket.gethostname()}/'",
        ),
        "tests/service/audit/test_lease.py::"
        "test_another_data_dirs_lease_on_this_machine_is_respected",
    ),
    Guard(
        "a read in one trip is one transaction",
        "service/store/sqlite/connection.py::_transact",
        Drop("transaction.execute(begin)"),
        f"{_TRANSACTION}::test_a_read_sees_one_instant[in one trip]",
    ),
    Guard(
        "a sealing commit checks its epoch",
        "service/audit/sealer.py::Sealer._seal_parts",
        Replace("lease.write()", "self._store.write()"),
        f"{_TAKEOVER}::test_a_sealer_that_lost_its_lease_while_writing_commits_nothing",
    ),
    Guard(
        "a merging commit checks its epoch",
        "service/audit/compactor.py::Compactor._replace",
        Replace("lease.write()", "self._store.write()"),
        f"{_COMPACTION}::test_who_lost_the_lease_or_the_segments_meanwhile_commits_nothing",
    ),
    Guard(
        "an import's commit checks its epoch",
        "service/audit/importer.py::Importer._commit",
        Replace("lease.write()", "self._store.write()"),
        f"{_IMPORT}::test_who_lost_the_lease_commits_nothing",
    ),
    Guard(
        "an import's commit makes sure that its files are there",
        "service/audit/importer.py::Importer.take",
        DropCall("files.confirm"),
        f"{_IMPORT}::test_files_that_go_before_the_commit_are_missed",
    ),
    Guard(
        "the files of a long import stay young",
        "service/audit/importer.py::UnnamedFiles.keep",
        DropCall("self.confirm"),
        f"{_IMPORT}::test_a_sweep_spares_the_files_of_an_import_however_long_it_takes",
    ),
    Guard(
        "the epoch is part of that check",
        "service/store/lease.py::HeldLease._confirm",
        Drop("Lease.epoch == self.epoch"),
        "tests/service/audit/test_lease.py::test_nothing_is_committed_under_a_lost_lease",
    ),
    Guard(
        "a sealing commit checks that its batches are still there",
        "service/audit/sealer.py::Sealer._seal_parts",
        Replace(
            "await remove_batches(work.session, part.batches) != len(part.batches)",
            "await remove_batches(work.session, part.batches) < 0",
        ),
        f"{_TAKEOVER}::test_rows_that_another_process_sealed_are_not_sealed_again",
    ),
    Guard(
        "a merging commit checks that its segments are still there",
        "service/audit/compactor.py::Compactor._replace",
        Replace(
            "await retire_segments(work.session, parts, work.now) != len(parts)",
            "await retire_segments(work.session, parts, work.now) < 0",
        ),
        f"{_COMPACTION}::test_who_lost_the_lease_or_the_segments_meanwhile_commits_nothing",
    ),
    Guard(
        "a merge holds no more than it may",
        "analytics/storage/compaction.py::merged_rows",
        Drop("raise MergeTooLarge"),
        f"{_MERGING}::test_files_whose_rows_would_take_too_much_are_refused_but_for_two",
    ),
    Guard(
        "long rows are written before many of them are held",
        "analytics/storage/segment_writer.py::in_row_groups",
        Replace(
            "by_rows(tables, ROW_GROUP_ROWS, ROW_GROUP_BYTES)", "by_rows(tables, ROW_GROUP_ROWS)"
        ),
        f"{_SEGMENTS}::test_long_rows_are_written_before_many_of_them_are_held",
    ),
    Guard(
        "the file lock excludes this machine's other processes",
        "service/store/lease.py::_lock",
        DropCall("fcntl.flock"),
        "tests/service/audit/test_lease.py"
        "::test_within_this_machine_one_holder_excludes_all_others",
    ),
    Guard(
        "orphans have a grace",
        "service/audit/garbage_collector.py::GarbageCollector.clear_orphans",
        Replace("self._settings.orphan_grace_s", "0.0"),
        "tests/service/audit/test_crashes.py"
        "::test_a_crash_between_write_and_commit_loses_and_doubles_nothing",
    ),
    Guard(
        "the bytes of an object are compared with the catalog",
        "analytics/storage/object_fetcher.py::ObjectFetcher._copy_of",
        DropCall("check_content"),
        f"{_S3}::test_a_faulty_object_is_a_503_and_never_an_empty_page",
    ),
    Guard(
        "no object takes the place of another",
        "analytics/storage/s3_segments.py::S3Segments._create",
        Replace("self._objects.create(key, path)", "self._objects.replace(key, path) is None"),
        f"{_S3_CRASHES}::test_of_two_sealers_with_one_name_only_one_can_have_it",
    ),
    Guard(
        "a version is compared with the catalog before it is in place",
        "service/audit/backup/object_versions.py::BroughtBack._download",
        Replace("found != (entry.size, entry.sha256)", "False"),
        f"{_BY_VERSION}::test_a_version_that_is_gone_ends_the_restore_with_nothing_in_place",
    ),
    Guard(
        "an object of another installation is not replaced by a version",
        "service/audit/backup/object_versions.py::BroughtBack._put",
        Replace("current is not None and self._is_same_place", "current is not None"),
        f"{_BY_VERSION}::test_another_object_of_that_name_elsewhere_is_left",
    ),
    Guard(
        "a backup by version is of a bucket that keeps them",
        "service/audit/backup/object_versions.py::versioned_bucket",
        Replace("not await run_uncancellable(segments.keeps_versions)", "False"),
        f"{_BY_VERSION}::test_without_versions_there_is_no_backup_by_version",
    ),
    Guard(
        "a full disk is half emptied",
        "analytics/storage/cache_folder.py::CacheFolder.with_room",
        DropCall("self.drop_to"),
        f"{_S3_DISK}::test_a_disk_that_is_smaller_than_the_setting_says_holds_what_it_can",
    ),
    Guard(
        "copies make room for a full disk one thread at a time",
        "analytics/storage/cache_folder.py::CacheFolder.with_room",
        Replace("self._counted() >= counted_before", "True"),
        "tests/analytics/storage/test_cache_folder.py"
        "::test_threads_that_find_the_disk_full_make_room_once",
    ),
    Guard(
        "a probe that fails in any way answers those who wait",
        "service/store/postgres/probe.py::SnapshotProbe._look_while_asked",
        Replace("Exception", "StoreUnavailable"),
        "tests/service/store/postgres/test_probe.py::test_a_look_that_fails_in_any_way_ends",
    ),
    Guard(
        "a table that was begun again is another one",
        "service/audit/open_table/publisher.py::Publisher._read",
        Replace(
            "(line.published_at, version) == (published_at, known.version)",
            "version == known.version",
        ),
        f"{_PUBLISHING}::test_a_table_that_another_process_began_again_is_not_taken_for_the_former",
    ),
    Guard(
        "an attempt to restore gives up no prefix of an earlier one",
        "service/audit/backup/restore.py::RestoredSegments.claimed",
        Replace("is_adopted and not self._has_uploaded", "not self._has_uploaded"),
        f"{_S3_MAINTENANCE}::test_an_attempt_that_failed_early_leaves_the_prefix_to_the_next",
    ),
    Guard(
        "a second restore has an id of its own",
        "service/audit/backup/restore.py::restore_backup",
        DropCall("attempt.end"),
        f"{_S3_MAINTENANCE}::test_a_second_restore_is_another_installation",
    ),
    Guard(
        "programs get no variable that the driver does not read",
        "service/store/postgres/connection_url.py::program_environment",
        Replace("name not in _OF_LIBPQ_ALONE", "True"),
        "tests/service/store/postgres/test_connection_url.py"
        "::test_programs_have_the_variables_that_the_driver_reads",
    ),
    Guard(
        "a cache folder that was removed has locks that others see",
        "analytics/storage/cache_folder.py::CacheFolder._renew",
        DropCall("self._locks.renew"),
        f"{_S3_DISK}::test_after_the_folder_was_removed_processes_still_see_what_others_use",
    ),
    Guard(
        "an object that was sent is asked for",
        "analytics/storage/s3_segments.py::S3Segments._create",
        Replace("stored is None or stored.size != size", "False"),
        f"{_S3_FAULTS}::test_what_is_not_stored_is_never_said_to_be",
    ),
    Guard(
        "a list that begins again is no list",
        "analytics/storage/objects.py::Objects.entries",
        Replace("entry.key == remembered", "False"),
        f"{_S3_FAULTS}::test_a_list_that_begins_again_ends_with_a_fault",
    ),
    Guard(
        "a list without the prefix's owner has no claims to tell",
        "analytics/storage/import_claims.py::ImportClaims._list",
        Replace(
            "raise ListDamaged(f'{OWNER} is not in the list: it is not whole, or has no owner')",
            "return claims",
        ),
        f"{_S3_FAULTS}::test_a_claim_that_cannot_be_read_is_not_taken_for_none",
    ),
    Guard(
        "no object is removed from the prefix of another installation",
        "service/audit/lake.py::Lake.remove_orphans",
        DropCall("self.confirm_prefix"),
        f"{_S3_PREFIX}::test_another_installation_removes_nothing",
    ),
    Guard(
        "no table is published into the prefix of another installation",
        "service/audit/open_table/publisher.py::Publisher._publish_table",
        DropCall("self._lake.confirm_prefix"),
        f"{_S3_PREFIX}::test_another_installation_publishes_no_table_there",
    ),
    Guard(
        "no retired object is removed from the prefix of another installation",
        "service/audit/lake.py::Lake.remove_segments",
        DropCall("self.confirm_prefix"),
        f"{_S3_PREFIX}::test_another_installation_removes_nothing",
    ),
    Guard(
        "nothing is sealed into the prefix of another installation",
        "service/audit/lake.py::Lake._store",
        DropCall("self.confirm_prefix"),
        f"{_S3_PREFIX}::test_another_installation_writes_nothing_and_keeps_its_rows",
    ),
    Guard(
        "a prefix with the segments of another installation is not adopted",
        "analytics/storage/prefix_owner.py::PrefixOwner.adopt",
        Replace("self._has_only_unknown(known)", "False"),
        f"{_S3_PREFIX}::test_a_prefix_from_before_is_adopted_by_the_installation_that_has_segments_there",
    ),
    Guard(
        "a restored installation is not the one that was backed up",
        "service/audit/backup/restore.py::_begin",
        DropCall("renew_installation"),
        f"{_S3_MAINTENANCE}::test_a_restored_installation_is_not_the_one_that_was_backed_up",
    ),
    Guard(
        "an import keeps its objects by its claim",
        "service/audit/garbage_collector.py::GarbageCollector.clear_orphans",
        Replace("known | claimed", "known"),
        f"{_S3_CRASHES}::test_a_long_import_keeps_its_objects",
    ),
    Guard(
        "a sealer whose file may have been swept commits nothing",
        "service/audit/garbage_collector.py::GarbageCollector.clear_orphans",
        Drop("await revoke(work, SEAL)"),
        "tests/service/audit/test_takeover.py"
        "::test_a_sealer_that_is_paused_before_its_commit_loses_and_doubles_nothing",
    ),
    Guard(
        "an import that was suspended gives its objects up",
        "analytics/storage/import_claims.py::ImportClaim._renew",
        Replace("self._grace_s / 2", "self._grace_s * 100"),
        f"{_S3_CRASHES}::test_an_import_suspended_for_too_long_gives_up",
    ),
    Guard(
        "copies in use are not dropped",
        "analytics/storage/slot_locks.py::SlotLocks.unused",
        Replace("not self._shared[slot] and self._try(fcntl.F_WRLCK, place)", "True"),
        "tests/analytics/storage/test_cache_folder.py::test_a_copy_in_use_is_not_dropped",
    ),
    Guard(
        "retired files have a grace",
        "service/audit/garbage_collector.py::GarbageCollector._retired_before",
        Replace("now - timedelta(seconds=self._settings.retired_grace_s)", "now"),
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "a file outlives the snapshots that name it",
        "service/audit/garbage_collector.py::GarbageCollector._retired_before",
        Replace("min(before, now - kept_for, published_at)", "before"),
        f"{_REMOVAL}::test_a_segment_retired_before_it_was_published_is_fenced_first",
    ),
    Guard(
        "what a snapshot names is not unlinked",
        "service/audit/open_table/publisher.py::Publisher.released",
        Replace("segment.segment_id not in held", "True"),
        f"{_REMOVAL}::test_a_retired_file_is_kept_until_it_is_published_and_expired",
    ),
    Guard(
        "a retirement is followed by a publication that refuses older ones",
        "service/audit/open_table/registry.py::LakeState.is_fenced",
        Replace("line.published_at > self.last_retired_at", "True"),
        f"{_REMOVAL}::test_a_segment_retired_before_it_was_published_is_fenced_first",
    ),
    Guard(
        "a publication commits on what it was made from",
        "service/audit/open_table/registry.py::_set_metadata",
        Drop("if changed is None:\n    raise TableOvertaken(key.name)"),
        f"{_PUBLISHING}::test_a_foreign_commit_is_not_overwritten",
    ),
    Guard(
        "a table is not started over because something else than the store answered",
        "analytics/open_table/delta.py::DeltaLakeTable.read",
        Drop(
            "if any(map(_NUMBERED.fullmatch, self._files.names(self._log))):\n"
            '    raise StorageFailed(f"{self._log}: the log is there and cannot be read") from None'
        ),
        "tests/service/audit/open_table/test_bucket_faults.py"
        "::test_a_publication_that_is_answered_wrongly_leaves_the_table",
    ),
    Guard(
        "manifests are durable before a snapshot names them",
        "analytics/open_table/metadata_files.py::LocalMetadataFiles.sync",
        DropCall("in_parallel"),
        "tests/analytics/open_table/test_metadata_files.py::test_new_files_are_synced_with_their_names",
    ),
    Guard(
        "what an S3 server answered is not repeated in errors",
        "analytics/open_table/storage_faults.py::storage_faults",
        Replace("_reason(error)", "error"),
        "tests/analytics/open_table/test_storage_faults.py"
        "::test_an_answer_of_the_server_is_not_repeated",
    ),
    Guard(
        "a table is not said to be complete while rows are missing",
        "service/audit/open_table/registry.py::LakeState.complete_through",
        Replace("[*journal, *(segment.min_seq for segment in absent)]", "[]"),
        f"{_PUBLISHING}::test_complete_through_is_the_row_before_the_first_one_that_is_missing",
    ),
    Guard(
        "the grace is longer than the longest export",
        "service/core/settings.py::Settings.retired_grace_s",
        Replace("self.export_max_s + self.query_max_s", "self.query_max_s"),
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "a retired file goes before its line",
        "service/audit/garbage_collector.py::GarbageCollector.unlink_retired",
        DropCall("self._lake.remove_segments"),
        f"{_COMPACTION}::test_retired_files_outlive_every_export_that_found_them",
    ),
    Guard(
        "a snapshot reads the tenant's segments only",
        "service/store/catalog.py::_IS_LIVE_OF_TENANT",
        Replace("and_(SegmentEntry.tenant_id == bindparam('tenant_id'), _IS_LIVE)", "_IS_LIVE"),
        _APART,
    ),
    Guard(
        "a snapshot reads the tenant's batches only",
        "service/store/journal.py::_IS_OF_TENANT",
        Replace("JournalEntry.tenant_id == bindparam('tenant_id')", "JournalEntry.rows >= 0"),
        _APART,
    ),
    Guard(
        "a pruning commit checks its epoch",
        "service/audit/pruner.py::Pruner._drop",
        Replace("lease.write()", "self._store.write()"),
        f"{_PRUNING}::test_who_lost_the_lease_drops_nothing",
    ),
    Guard(
        "a pruning commit reads tier and hold again",
        "service/audit/pruner.py::Pruner._drop",
        Replace("past.is_held", "not past"),
        f"{_PRUNING}::test_a_hold_set_before_the_commit_wins",
    ),
    Guard(
        "pruning drops the tenant's days only",
        "service/audit/pruner.py::_is_past",
        Drop("table.tenant_id == tenant_id"),
        f"{_PRUNING}::test_other_organisations_keep_theirs",
    ),
    Guard(
        "pruning spares days that a slow clock dated",
        "service/audit/pruner.py::_is_past",
        Drop("table.day.not_in(received_since)"),
        f"{_CLOCKS}::test_rows_that_a_slow_clock_dated_are_kept_as_if_it_were_right",
    ),
    Guard(
        "days that a slow clock dates are noted",
        "service/store/journal.py::append_batches",
        Drop("record_misdated(transaction, days, received_at, now)"),
        f"{_CLOCKS}::test_rows_that_a_slow_clock_dated_are_kept_as_if_it_were_right",
    ),
    Guard(
        "days of a file that a slow clock dates are noted",
        "service/audit/importer.py::_name",
        Drop("await within(work.session, record_misdated, days, allocated.received_at, work.now)"),
        f"{_CLOCKS}::test_rows_that_a_slow_clock_dated_are_kept_as_if_it_were_right",
    ),
    Guard(
        "a day is deleted 48 hours after its retention",
        "service/audit/pruner.py::_past_days",
        Replace("now - PRUNE_DELAY", "now"),
        f"{_PRUNING}::test_after_a_lower_tier_nothing_more_goes_for_seven_days",
    ),
    Guard(
        "a tier that was left counts for seven days",
        "analytics/model/retention.py::tiers_held",
        Replace("now - left <= LEFT_TIER_COUNTS", "False"),
        f"{_PRUNING}::test_after_a_lower_tier_nothing_more_goes_for_seven_days",
    ),
    Guard(
        "received_at never falls",
        "service/store/journal.py::_TAKE_SEQ",
        Replace("case((Counter.received_at > _NOW, Counter.received_at), else_=_NOW)", "_NOW"),
        f"{_RECEIVED}::test_it_never_falls_when_the_clock_does",
    ),
    Guard(
        "rows of a file are received when they get their ids",
        "service/audit/importer.py::_name",
        Replace(
            "await add_segments(work.session, placed, allocated.received_at)",
            "await add_segments(work.session, placed, work.now)",
        ),
        f"{_RECEIVED}::test_it_never_falls_when_the_clock_does",
    ),
    Guard(
        "a merge keeps when imported rows were received",
        "analytics/storage/segment_reader.py::SegmentFile._rows",
        Replace("self.segment.received_at is not None", "False"),
        f"{_RECEIVED}::test_rows_of_a_file_are_received_when_they_get_their_ids",
    ),
    Guard(
        "a clock that stepped is not trusted",
        "service/audit/clock_guard.py::ClockRecord._refusal",
        Replace("clocks.now - self.last_run_at > STEP_MAX", "False"),
        f"{_CLOCKS}::test_a_clock_far_past_the_last_run_is_refused_and_nothing_changes",
    ),
    Guard(
        "many small steps of a clock are not trusted",
        "service/audit/clock_guard.py::ClockRecord._refusal",
        Replace("ahead_s > STEP_MAX.total_seconds()", "False"),
        f"{_CLOCKS}::test_jumps_that_each_pass_do_not_add_up",
    ),
    Guard(
        "a clock that goes back gains nothing",
        "service/audit/clock_guard.py::ClockRecord.ahead_s",
        Replace(
            "max(0.0, last.ahead_s + moved_s - (clocks.uptime.seconds - last.uptime_s))",
            "last.ahead_s + moved_s - (clocks.uptime.seconds - last.uptime_s)",
        ),
        f"{_CLOCKS}::test_a_clock_that_goes_back_gains_nothing",
    ),
    Guard(
        "clocks that differ are not trusted",
        "service/audit/clock_guard.py::ClockRecord._refusal",
        Replace("abs(clocks.store - clocks.machine) > DIFFERENCE_MAX", "False"),
        f"{_CLOCKS}::test_two_clocks_must_agree",
    ),
    Guard(
        "of two clocks the earlier one counts",
        "service/audit/clock_guard.py::Clocks.now",
        Replace("min", "max"),
        f"{_CLOCKS}::test_two_clocks_must_agree",
    ),
    Guard(
        "rows past the floor are hidden",
        "analytics/model/filters.py::Query.not_before",
        Replace("replace(self, since=floor)", "self"),
        "tests/service/audit/test_retention_everywhere.py",
    ),
    Guard(
        "found rows are shown of the snapshot's files alone",
        "analytics/query/scans.py::CachedRowsScan._held",
        Replace("known.of(self.part.segments)", "known"),
        f"{_FOUND}::test_rows_of_files_that_were_merged_are_shown_once",
    ),
    Guard(
        "cached rows are shown up to the watermark",
        "analytics/query/row_mask.py::matches",
        Replace(
            "pc.less_equal(rows['seq'], pa.scalar(watermark, _SEQ))", "pc.is_valid(rows['seq'])"
        ),
        f"{_FOUND}::test_rows_of_a_pruned_day_are_gone_and_those_past_the_watermark_unseen",
    ),
    Guard(
        "cached rows are shown up to the cursor's watermark",
        "analytics/query/row_mask.py::matches",
        Replace(
            "pc.less_equal(rows['seq'], pa.scalar(after.watermark, _SEQ))",
            "pc.is_valid(rows['seq'])",
        ),
        f"{_FOUND}::test_later_pages_show_no_row_accepted_after_the_first",
    ),
    Guard(
        "sums are of files that are asked for whole",
        "analytics/query/planner.py::Planner.heads",
        Replace("is_within(segment, query, part.watermark)", "segment.rows"),
        "tests/analytics/query/test_summaries.py"
        "::test_the_most_frequent_values_are_those_of_the_window",
    ),
    Guard(
        "a cursor of another version is refused",
        "analytics/model/cursors.py::decode_cursor",
        Replace("raw[:1] != bytes([VERSION])", "not raw"),
        "tests/analytics/model/test_cursors.py::test_a_cursor_of_any_other_version_is_refused",
    ),
    Guard(
        "a filter value that no row can have is refused",
        "analytics/model/filters.py::_parse_condition",
        Replace("not parameter.can_match(term.text, is_prefix=term.is_prefix)", "False"),
        "tests/analytics/model/test_filters.py"
        "::test_a_value_that_no_row_can_have_is_refused_with_those_that_there_are",
    ),
    Guard(
        "a cursor carries its watermark",
        "analytics/query/sql.py::condition",
        Drop("bound['watermark'] = min(after.watermark, watermark)"),
        "tests/service/audit/test_stable_pages.py::test_pages_are_those_of_the_first_pages_instant",
    ),
    Guard(
        "a file that turns out missing is asked for again",
        "service/audit/integrity_check.py::Check._check_segments",
        Drop("if await self._is_gone(segment, findings):\n    continue"),
        f"{_CHECKING}::test_what_is_merged_and_unlinked_meanwhile_is_no_finding",
    ),
    Guard(
        "an object store that does not answer damages no segment",
        "analytics/storage/integrity.py::_stored_fault",
        Drop("if isinstance(fault, StoreUnreachable):\n    raise"),
        f"{_SCRUBBING}::test_a_bucket_that_does_not_answer_is_no_damage",
    ),
    Guard(
        "what was removed meanwhile is not damaged",
        "service/audit/scrubber.py::Scrubber._record",
        Replace("segment.segment_id in live", "True"),
        f"{_SCRUBBING}::test_a_segment_that_is_merged_meanwhile_is_not_damaged",
    ),
    Guard(
        "an index that was built again meanwhile is kept",
        "service/store/catalog.py::clear_index",
        Replace("SegmentEntry.index_sha256 == segment.index_sha256", "True"),
        f"{_SCRUBBING}::test_an_index_that_is_built_again_meanwhile_is_not_damaged",
    ),
    Guard(
        "a file that is damaged without a new time is verified by all processes",
        "analytics/storage/segment_store.py::LocalFolder.verify",
        DropCall("os.utime"),
        f"{_SCRUBBING}::test_damage_that_leaves_a_files_times_is_no_longer_served",
    ),
    Guard(
        "a restored file is verified before it has its name",
        "analytics/storage/segment_writer.py::place_segment",
        DropCall("verify_file"),
        f"{_SEGMENTS}::test_a_copy_that_changed_meanwhile_is_not_put_in_place",
    ),
    Guard(
        "the name of a restored file is durable",
        "analytics/storage/segment_writer.py::place_segment",
        DropCall("fsync"),
        f"{_SEGMENTS}::test_a_restored_file_is_durable_before_and_after_it_has_its_name",
    ),
    Guard(
        "a copy that does not match the catalog is not used",
        "service/audit/backup/segment_restore.py::SegmentRestore._fetch",
        Replace("fault is None", "True"),
        f"{_SEGMENT_RESTORE}::test_a_copy_that_does_not_match_is_not_used",
    ),
    Guard(
        "a segment that was removed is not restored",
        "service/audit/backup/segment_restore.py::SegmentRestore._put_in_place",
        Replace("not await is_live(work.session, segment.segment_id)", "False"),
        f"{_SEGMENT_RESTORE}::test_a_segment_that_is_merged_meanwhile_is_not_restored",
    ),
    Guard(
        "what a query cannot read is verified",
        "service/audit/lake.py::Lake.query",
        DropCall("self.suspects.record"),
        f"{_SCRUBBING}::test_damage_that_a_request_meets_is_named_at_once",
    ),
    Guard(
        "what an export cannot read is verified",
        "service/audit/lake.py::Lake._make_piece",
        DropCall("self.suspects.record"),
        f"{_SCRUBBING}::test_damage_that_an_export_meets_is_named_at_once",
    ),
    Guard(
        "a bucket that does not answer is no suspicion",
        "analytics/storage/suspects.py::Suspects.record",
        Drop("if isinstance(fault, StoreUnreachable):\n    return"),
        "tests/analytics/storage/test_suspects.py::test_what_is_out_of_reach_is_not_suspected",
    ),
    Guard(
        "a segment that is whole is not given up",
        "service/audit/backup/segment_restore.py::find_damage",
        Replace("fault is None", "False"),
        "tests/service/audit/backup/test_segment_loss.py::test_a_whole_segment_is_not_given_up",
    ),
    Guard(
        "a segment that was removed is not given up",
        "service/audit/backup/segment_restore.py::give_up",
        Replace("not await is_live(work.session, segment.segment_id)", "False"),
        "tests/service/audit/backup/test_segment_loss.py::test_a_segment_is_given_up_once",
    ),
    Guard(
        "a version that is known to be damaged is not recorded",
        "service/audit/backup/object_versions.py::record_versions",
        Replace("segment.segment_id not in damaged", "True"),
        "tests/service/audit/backup/test_by_version.py"
        "::test_a_segment_that_is_known_to_be_damaged_is_left_out_and_listed",
    ),
    Guard(
        "a copied file is synced",
        "analytics/storage/file_copy.py::FileCopy.__iter__",
        DropCall("os.fsync"),
        f"{_COPYING}::test_a_copy_is_its_owners_and_durable",
    ),
    Guard(
        "the folders of a backup are synced before it has its name",
        "service/audit/backup/create.py::take_backup",
        Drop("await run_uncancellable(partial(sync_folders, part))"),
        f"{_TAKING}::test_every_byte_and_name_is_durable_before_the_backup_has_its_own",
    ),
    Guard(
        "what a backup keeps is compared with the catalog",
        "service/audit/backup/create.py::_Copier._fault_of",
        Replace("None if segment.sha256 in {'', copy.sha256} else Kind.WRONG_SHA256", "None"),
        f"{_TAKING}::test_a_damaged_segment_is_named_and_left_out_and_all_else_is_there",
    ),
    Guard(
        "bytes that are not those of the catalog are not kept",
        "service/audit/backup/create.py::_Copier.copy_segment",
        DropCall("copy.target.unlink"),
        f"{_TAKING}::test_a_damaged_segment_is_named_and_left_out_and_all_else_is_there",
    ),
    Guard(
        "what cannot be written is not taken for a damaged segment",
        "service/audit/backup/create.py::_Copier._fault_of",
        Replace("SourceFault", "OSError"),
        f"{_TAKING}::test_a_target_that_takes_no_more_is_no_damage_of_a_segment",
    ),
    Guard(
        "what is put back is compared with the manifest",
        "service/audit/backup/restore.py::_copy",
        Replace("(copy.size, copy.sha256) != (file.size, file.sha256)", "copy is None"),
        f"{_RESTORING}::test_every_flipped_bit_is_found_before_anything_is_in_place",
    ),
    Guard(
        "leases of the past end when a backup is put back",
        "service/audit/backup/restore.py::_RestoredFile.put_in",
        DropCall("asyncio.run"),
        f"{_RESTORING}::test_a_lease_that_was_held_does_not_come_back",
    ),
    Guard(
        "a data dir that is in use stays where it is",
        "service/audit/backup/restore.py::_check_data_dir",
        Replace("database.is_file() and is_in_use(database)", "database is None"),
        f"{_RESTORING}::test_a_data_dir_a_service_works_on_is_left_alone",
    ),
    Guard(
        "an explanation wants its capability",
        "service/trust/explain/explain_api.py::explain",
        Replace("Capability.OIDC_READ", "Capability.AUDIT_READ"),
        f"{_EXPLAIN}/test_routes.py::test_who_may_ask",
    ),
    Guard(
        "an explanation sees its own organisation's bindings",
        "service/trust/explain/binding_history.py::list_known_bindings",
        Replace("select(*columns).where(Binding.tenant_id == tenant_id)", "select(*columns)"),
        f"{_EXPLAIN}/test_routes.py::test_another_organisations_bindings_are_not_named",
    ),
    Guard(
        "nothing is proposed that would not help",
        "service/trust/explain/proposals.py::proposal_for",
        Drop("_would_match(proposal, unverified_claims, context, active)"),
        "tests/service/trust/explain/test_nearest.py::test_ambiguous_bindings_are_all_listed",
    ),
    Guard(
        "a terminal does not obey what a token says",
        "service/cli/proposals.py::printable",
        Replace("c if c.isprintable() else ascii(c)[1:-1]", "c"),
        "tests/processes/test_cli_explain.py::test_a_terminal_is_told_nothing_by_a_token",
    ),
    Guard(
        "claims are never taken for signed",
        "service/trust/explain/evaluation.py::run_rules",
        Replace(
            "if evaluation.keys is not None:\n"
            "    rule_6_signature(evaluation.token, issuer, evaluation.keys)\n"
            "    trace.is_signed = True",
            "if evaluation.keys is None:\n"
            "    trace.is_signed = True\n"
            "else:\n"
            "    rule_6_signature(evaluation.token, issuer, evaluation.keys)\n"
            "    trace.is_signed = True",
        ),
        f"{_EXPLAIN}/test_explanation.py::test_good_claims_pass_but_for_the_signature_they_lack",
    ),
    Guard(
        "plain http to an issuer is for this machine",
        "service/ci/issuers/urls.py::key_url_fault",
        Replace(
            "parts.scheme == 'https' or (is_loopback_allowed and _is_plain_loopback(parts))",
            "parts.scheme in {'http', 'https'}",
        ),
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "an issuer's URL carries no name of a user",
        "service/ci/issuers/urls.py::key_url_fault",
        Replace("'@' in parts.netloc", "parts.netloc is None"),
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "two tables are never of one issuer",
        "service/ci/issuers/issuers.py::_issuers",
        Replace(
            "(first := names.setdefault(issuer.url, issuer.name)) != issuer.name",
            "(first := names.setdefault(issuer.url, issuer.name)) is None",
        ),
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "a typing error in the issuers file is no optional key left out",
        "service/ci/issuers/issuers.py::_issuer",
        Replace("key not in _KEYS or key == 'name'", "key == 'name' and table.pop(key)"),
        f"{_ISSUERS}::test_a_wrong_value_is_refused_with_its_line",
    ),
    Guard(
        "an issuer elsewhere cannot send key requests to this machine",
        "service/ci/issuers/key_source.py::_discover",
        Replace("is_plain_loopback(issuer.url)", "True"),
        f"{_KEY_FETCH}::test_an_issuer_elsewhere_cannot_have_keys_fetched_from_this_machine",
    ),
    Guard(
        "a configuration is that of the issuer it is asked of",
        "service/ci/issuers/key_source.py::_discover",
        Replace("configuration.get('issuer') != issuer.url", "'issuer' not in configuration"),
        f"{_KEY_FETCH}::test_an_answer_that_gives_no_keys_is_a_failure",
    ),
    Guard(
        "keys are not fetched from where a redirect leads away",
        "service/ci/issuers/key_source.py::_redirect_target",
        Replace("not same_place or there.userinfo", "same_place is None"),
        f"{_KEY_FETCH}::test_a_redirect_to_another_place_is_not_followed",
    ),
    Guard(
        "redirects of keys come to an end",
        "service/ci/issuers/key_source.py::_document",
        Replace("REDIRECTS_MAX + 1", "10"),
        f"{_KEY_FETCH}::test_redirects_at_the_same_place_are_followed_three_times",
    ),
    Guard(
        "keys are not unpacked",
        "service/ci/issuers/key_source.py::_body",
        Replace("coding != 'identity'", "coding is None"),
        f"{_ISSUER_PROCESS}::test_an_outage_is_named_and_cached_keys_outlive_it",
    ),
    Guard(
        "a key set has a bounded size",
        "service/ci/issuers/key_source.py::_body",
        Replace("len(body) > DOCUMENT_BYTES_MAX", "len(body) < 0"),
        f"{_KEY_FETCH}::test_an_answer_that_gives_no_keys_is_a_failure",
    ),
    Guard(
        "a server that drips does not hold a request",
        "service/ci/issuers/key_source.py::fetch_keys",
        Replace("asyncio.timeout(FETCH_S)", "asyncio.timeout(None)"),
        f"{_ISSUER_PROCESS}::test_a_server_that_drips_is_given_up",
    ),
    Guard(
        "a key for something else does not verify",
        "service/ci/issuers/jwks.py::_check_purpose",
        Replace("jwk.get('use', 'sig') != 'sig'", "jwk.get('use') == ''"),
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a key whose operations leave verifying out does not verify",
        "service/ci/issuers/jwks.py::_check_purpose",
        Replace(
            "not isinstance(operations, list) or 'verify' not in operations", "operations is None"
        ),
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a key is for pinned algorithms only",
        "service/ci/issuers/jwks.py::_algorithms",
        Replace("fitting & pinned", "fitting"),
        f"{_JWKS}::test_a_curve_is_for_its_one_algorithm",
    ),
    Guard(
        "a key that names its algorithm is for no other",
        "service/ci/issuers/jwks.py::_algorithms",
        Replace("'alg' in jwk", "jwk is None"),
        f"{_JWKS}::test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays",
    ),
    Guard(
        "a weak or slow RSA modulus does not verify",
        "service/ci/issuers/jwks.py::_check_rsa",
        Replace("not RSA_BITS_MIN <= bits <= RSA_BITS_MAX or modulus % 2 == 0", "bits < 0"),
        f"{_JWKS}::test_an_rsa_modulus_out_of_bounds_is_refused",
    ),
    Guard(
        "an RSA exponent of one does not verify",
        "service/ci/issuers/jwks.py::_check_rsa",
        Replace(
            "exponent < 3 or exponent % 2 == 0 or exponent.bit_length() > RSA_EXPONENT_BITS_MAX",
            "exponent < 0",
        ),
        f"{_JWKS}::test_an_rsa_exponent_that_proves_nothing_or_takes_long_is_refused",
    ),
    Guard(
        "two keys of one name verify nothing",
        "service/ci/issuers/jwks.py::parse_jwks",
        Replace("published[kid] > 1", "published[kid] < 0"),
        f"{_JWKS}::test_two_keys_with_one_kid_are_both_refused",
    ),
    Guard(
        "private members of a published key are not read",
        "service/ci/issuers/jwks.py::_public_key",
        Replace("RSAKey.import_key(public)", "RSAKey.import_key(dict(jwk))"),
        f"{_JWKS}::test_a_private_part_that_is_published_is_not_read",
    ),
    Guard(
        "a key set without a usable key is a failure",
        "service/ci/issuers/jwks.py::parse_jwks",
        Replace("not by_kid", "by_kid is None"),
        f"{_JWKS}::test_what_holds_no_usable_key_is_a_fault",
    ),
    Guard(
        "a member named twice is no JSON",
        "analytics/model/strict_json.py::unique_members",
        Replace("len(pairs)", "0"),
        f"{_JWKS}::test_what_holds_no_usable_key_is_a_fault",
    ),
    Guard(
        "JSON has a bounded depth",
        "analytics/model/strict_json.py::strict_object",
        DropCall("_refuse_deep_nesting"),
        f"{_JWKS}::test_a_key_set_nested_too_deeply_is_a_fault",
    ),
    Guard(
        "a token no key would help costs no request",
        "service/ci/issuers/key_source.py::KeySource.keys_for",
        Replace("unverified_kid is None", "self._http is None"),
        f"{_KEY_SOURCE}::test_a_token_that_no_key_would_help_costs_no_request",
    ),
    Guard(
        "an issuer's keys are fetched once at a time",
        "service/ci/issuers/key_source.py::KeySource._begin",
        Replace("held.renewal is None", "self._http"),
        f"{_KEY_SOURCE}::test_all_who_wait_share_one_fetch",
    ),
    Guard(
        "who stops waiting for keys does not stop the others",
        "service/ci/issuers/key_source.py::_wait_for",
        Replace("asyncio.wait({renewal})", "renewal"),
        f"{_KEY_SOURCE}::test_who_stops_waiting_does_not_stop_the_others",
    ),
    Guard(
        "unknown kids cause one fetch a minute",
        "service/ci/issuers/key_source.py::KeySource._renew_for",
        Drop("self._is_younger(held.unknown_kid_at, UNKNOWN_KID_EVERY)"),
        f"{_KEY_SOURCE}::test_random_kids_cause_one_fetch_a_minute_and_good_keys_stay",
    ),
    Guard(
        "keys fetched for a token are not fetched again for it",
        "service/ci/issuers/key_source.py::KeySource.keys_for",
        Drop("held.renewals_begun == begun"),
        f"{_KEY_SOURCE}::test_a_cold_source_fetches_once_for_a_random_kid",
    ),
    Guard(
        "a clock set back does not keep keys",
        "service/ci/issuers/key_source.py::KeySource._is_younger",
        Replace("abs(self._clock() - at)", "self._clock() - at"),
        f"{_KEY_SOURCE}::test_a_clock_set_back_does_not_keep_keys_for_longer",
    ),
    Guard(
        "good keys outlive a failed renewal",
        "service/ci/issuers/key_source.py::KeySource._record_failure",
        Replace("replace(held.keys, fault=reason)", "SigningKeys(fault=reason)"),
        f"{_KEY_SOURCE}::test_a_failed_fetch_for_a_random_kid_keeps_the_good_keys",
    ),
    Guard(
        "keys a day old are not used",
        "service/ci/issuers/key_source.py::KeySource._current",
        Replace("self._is_younger(held.renewed_at, STALE_MAX)", "held.renewed_at"),
        f"{_KEY_OUTAGES}::test_in_an_outage_old_keys_serve_for_a_day",
    ),
    Guard(
        "an issuer that is down is not asked at each request",
        "service/ci/issuers/key_source.py::KeySource._renew_old",
        Drop("if self._has_just_failed(held):\n    return"),
        f"{_KEY_OUTAGES}::test_without_keys_an_outage_is_named_and_not_asked_about_again_at_once",
    ),
    Guard(
        "requests do not wait for an issuer that is down",
        "service/ci/issuers/key_source.py::KeySource._renew_old",
        Replace(
            "not (has_stale_keys and held.keys.fault is not None)", "has_stale_keys is not None"
        ),
        f"{_KEY_OUTAGES}::test_in_an_outage_no_request_waits_a_second_time",
    ),
    Guard(
        "an issuer cannot make a log line long",
        "service/ci/issuers/key_source.py::KeySource._renew",
        Replace("reason[:REASON_CHARS_MAX]", "reason"),
        f"{_KEY_OUTAGES}::test_every_failure_is_one_line_and_is_counted",
    ),
    Guard(
        "uses are added up by the database",
        "service/ci/verifier/usage.py::_COUNT_UP",
        Replace("Binding.use_count + bindparam('uses')", "bindparam('uses')"),
        f"{_USAGE}::test_workers_that_flush_at_once_count_together",
    ),
    Guard(
        "uses that could not be written are kept",
        "service/ci/verifier/usage.py::BindingUse.flush",
        DropCall("self._add"),
        f"{_USAGE}::test_what_could_not_be_written_is_written_with_what_came_meanwhile",
    ),
    Guard(
        "uses that wait are bounded",
        "service/ci/verifier/usage.py::BindingUse._add",
        Replace("len(self._pending) < PENDING_USES_MAX", "True"),
        f"{_USAGE}::test_what_waits_to_be_written_is_bounded",
    ),
    Guard(
        "rejections that wait are bounded for each organisation",
        "service/trust/rejected/subjects.py::RejectedSubjects._has_room",
        Drop("len(pending) < PENDING_PER_ORG_MAX"),
        f"{_REJECTED}::test_a_flood_of_unverified_ones_takes_a_bounded_room",
    ),
    Guard(
        "rejections that wait are bounded in all",
        "service/trust/rejected/subjects.py::RejectedSubjects._has_room",
        Drop("self._size < PENDING_MAX"),
        f"{_REJECTED}::test_floods_of_all_organisations_together_are_bounded",
    ),
    Guard(
        "a verified rejection finds room in a flood",
        "service/trust/rejected/subjects.py::RejectedSubjects._add",
        Drop("record.is_verified and self._make_room(pending)"),
        f"{_REJECTED}::test_a_verified_one_finds_room_in_the_midst_of_a_flood",
    ),
    Guard(
        "unverified rejections go before verified ones",
        "service/trust/rejected/rows.py::keep_newest",
        Drop("RejectedSubject.is_verified.desc()"),
        f"{_REJECTED}::test_what_is_stored_is_bounded_and_the_oldest_unverified_go_first",
    ),
    Guard(
        "verified and unverified are never one entry",
        "service/trust/rejected/rows.py::RejectionRecord.identity",
        Drop("self.is_verified"),
        f"{_REJECTED}::test_what_differs_in_anything_that_counts_is_another_entry",
    ),
    Guard(
        "an unverified rejection gets no draft",
        "service/trust/rejected/proposals.py::is_askable",
        Drop("row.is_verified"),
        f"{_REJECTED_ROUTES}::test_nothing_is_proposed_where_none_can_be_trusted_or_would_be_taken",
    ),
    Guard(
        "a subject that was cut gets no draft",
        "service/trust/rejected/proposals.py::is_askable",
        Drop("not is_cut(row.sub)"),
        f"{_REJECTED_ROUTES}::test_nothing_is_proposed_where_none_can_be_trusted_or_would_be_taken",
    ),
    Guard(
        "a slot of another organisation is not proposed",
        "service/trust/rejected/proposals.py::_without_taken",
        Replace("holders.get(slot, tenant_id) != tenant_id", "False"),
        f"{_REJECTED_ROUTES}::test_a_slot_that_another_organisation_holds_cannot_be_proposed",
    ),
    Guard(
        "an organisation lists its own rejected subjects",
        "service/trust/rejected/rows.py::_lately",
        Drop("RejectedSubject.tenant_id == tenant_id"),
        f"{_REJECTED_ROUTES}::test_an_organisation_lists_only_its_own",
    ),
    Guard(
        "an organisation's bound counts its own rejected subjects",
        "service/trust/rejected/rows.py::keep_newest",
        Replace(
            "select(RejectedSubject.digest).where(RejectedSubject.tenant_id == tenant_id)",
            "select(RejectedSubject.digest)",
        ),
        f"{_REJECTED}::test_one_organisations_flood_is_its_own",
    ),
    Guard(
        "an organisation's bound deletes no other's rejected subjects",
        "service/trust/rejected/rows.py::keep_newest",
        Replace(
            "delete(RejectedSubject).where(RejectedSubject.tenant_id == tenant_id, "
            "RejectedSubject.digest.in_(beyond))",
            "delete(RejectedSubject).where(RejectedSubject.digest.in_(beyond))",
        ),
        f"{_REJECTED}::test_one_organisations_flood_is_its_own",
    ),
    Guard(
        "a terminal is sent nothing it obeys",
        "service/cli/tables.py::Table._cells",
        Replace(
            "printable(relative_time(str(cell), now) if name in self.times and now is not None"
            " and cell is not None else cell)",
            "str(cell)",
        ),
        "tests/processes/test_cli_rejected.py::test_people_see_what_to_send_and_nothing_a_terminal_obeys",
    ),
    Guard(
        "a team's binding keeps to its envelope's project",
        "service/ci/verifier/candidates.py::_within",
        Replace("binding.project_id or envelope.project_id", "binding.project_id"),
        f"{_ATTRIBUTION}::test_a_narrower_envelope_narrows_the_teams_binding",
    ),
    Guard(
        "a team's binding does not leave its envelope's project",
        "service/ci/verifier/candidates.py::_within",
        Drop(
            "if binding.project_id and envelope.project_id not in {None, "
            "binding.project_id}:\n"
            "    return None"
        ),
        f"{_ATTRIBUTION}::test_a_teams_binding_never_reaches_another_project",
    ),
    Guard(
        "a new binding moves trust on",
        "service/trust/bindings/changes.py::add_binding",
        DropCall("move_trust_on"),
        f"{_ATTRIBUTION}::test_a_revoke_is_seen_by_the_next_request",
    ),
    Guard(
        "a revoke moves trust on",
        "service/trust/bindings/changes.py::revoke_bindings",
        DropCall("move_trust_on"),
        f"{_ATTRIBUTION}::test_a_revoke_is_seen_by_the_next_request",
    ),
    Guard(
        "a revoke is seen in every process",
        "service/trust/bindings/cache.py::BindingCache.candidates",
        Replace("org.trust_revision", "1"),
        f"{_ATTRIBUTION}::test_a_revoke_is_seen_in_every_process",
    ),
    Guard(
        "tokens meet their own organisation's bindings",
        "service/trust/bindings/repository.py::list_active",
        Drop("Binding.tenant_id == tenant_id"),
        f"{_ATTRIBUTION}::test_another_organisations_binding_is_not_ours",
    ),
    Guard(
        "a token beside another organisation's credential is not looked at",
        "service/access/authorization.py::Authorizer.attributed",
        Drop("if not principal.belongs_to(org):\n    return principal"),
        f"{_ATTRIBUTION}::test_a_token_beside_a_foreign_credential_is_not_looked_at",
    ),
    Guard(
        "a change is attributed as trust stands in its transaction",
        "service/access/authorization.py::Authorizer.reauthorize",
        Drop("present = await self.revalidated_ci(present, present_org)"),
        f"{_ATTRIBUTION}::test_a_slow_change_does_not_outlast_a_revoke",
    ),
    Guard(
        "what another connection changed is counted again",
        "service/store/sqlite/connection.py::_transact",
        Replace(
            "kept.version == (others, connection.total_changes) and len(kept.values) <= KEPT_MAX",
            "kept.version and kept.version[1] == connection.total_changes and "
            "(len(kept.values) <= KEPT_MAX)",
        ),
        f"{_WORK}::test_the_journals_size_is_counted_again_when_anything_else_changed"
        "[sealed_by_another_program]",
    ),
    Guard(
        "and what a session changed",
        "service/store/sqlite/connection.py::_transact",
        Replace(
            "kept.version == (others, connection.total_changes) and len(kept.values) <= KEPT_MAX",
            "kept.version and kept.version[0] == others and (len(kept.values) <= KEPT_MAX)",
        ),
        f"{_WORK}::test_the_journals_size_is_counted_again_when_anything_else_changed"
        "[sealed_by_a_session]",
    ),
    Guard(
        "the journal is bounded in bytes",
        "service/audit/sealer.py::check_journal_room",
        Drop("waiting.bytes + added.bytes > max(rows_max * ROW_BYTES, BYTES_MIN)"),
        "tests/service/audit/test_ingest.py::TestBounds::test_long_rows_fill_the_journal_sooner",
    ),
    Guard(
        "rows are attributed as trust stands in their transaction",
        "service/audit/ingest.py::Ingest._try.change",
        Replace(
            "ci and ci.trust_revision != find_trust_revision(work.transaction, tenant_id)", "False"
        ),
        f"{_ATTRIBUTION}::test_rows_that_wait_for_their_commit_do_not_outlast_a_revoke",
    ),
    Guard(
        "trust that keeps changing holds up no row",
        "service/audit/ingest.py::Ingest.take",
        Replace("principal.with_ci(None)", "principal"),
        f"{_ATTRIBUTION}::test_trust_that_keeps_changing_holds_up_no_row",
    ),
    Guard(
        "a project's binding is for its keys",
        "service/ci/verifier/candidates.py::Candidates.of",
        Drop("candidate.project_id in {None, project_id}"),
        f"{_ATTRIBUTION}::test_a_binding_of_a_project_is_for_its_keys",
    ),
    Guard(
        "a team's binding needs its envelope",
        "service/ci/verifier/candidates.py::candidates_of",
        Replace(
            "_within(binding, envelope) if binding.team_id else _alone(binding)", "_alone(binding)"
        ),
        f"{_ATTRIBUTION}::test_a_teams_binding_ends_with_its_envelope",
    ),
    Guard(
        "a team's binding allows no more events than its envelope",
        "service/ci/verifier/candidates.py::_within",
        Replace("(*_event_sets(binding), *_event_sets(envelope))", "_event_sets(binding)"),
        f"{_ATTRIBUTION}::test_a_teams_binding_never_allows_more_events",
    ),
    Guard(
        "which of two bindings is meant is not guessed",
        "service/ci/verifier/rules.py::rule_5_event",
        Replace("len(first) > 1", "not first"),
        f"{_ATTRIBUTION}::test_two_teams_are_ambiguous",
    ),
    Guard(
        "what bindings take in memory is counted",
        "service/trust/bindings/cache.py::bytes_of",
        Replace(
            "_CANDIDATE_BYTES + getsizeof(sub) + sum(map(_bytes_of_set, candidate.event_sets))",
            "_CANDIDATE_BYTES + getsizeof(sub)",
        ),
        "tests/service/trust/bindings/test_cache.py",
    ),
    Guard(
        "a token is sent once",
        "service/ci/verifier/parsing.py::read_header",
        Replace("len(values) != 1", "not values"),
        f"{_ATTACKS}::test_what_is_not_one_compact_token_is_malformed",
    ),
    Guard(
        "a token that is too long is not decoded",
        "service/ci/verifier/parsing.py::parse_token",
        Replace("len(compact) > TOKEN_CHARS_MAX", "not compact"),
        f"{_ATTACKS}::test_what_is_too_long_is_not_even_decoded",
    ),
    Guard(
        "a token has one spelling",
        "service/ci/verifier/parsing.py::_decode",
        Replace(
            "len(part) % 4 and base64.urlsafe_b64encode(raw).rstrip(b'=') != part.encode()",
            "not raw and part",
        ),
        f"{_ATTACKS}::test_stray_bits_are_malformed_in_every_part",
    ),
    Guard(
        "an item with a key twice is no row",
        "analytics/model/ingest_validation.py::_row",
        DropCall("check_keys"),
        "tests/analytics/model/test_ingest_validation.py"
        "::test_an_item_is_refused_exactly_if_a_key_is_in_it_twice",
    ),
    Guard(
        "a line with a key twice is no row",
        "analytics/imports/items.py::_check_keys",
        DropCall("check_keys"),
        "tests/analytics/imports/test_validation.py::TestKeys::test_no_key_of_a_line_is_given_twice",
    ),
    Guard(
        "half of a surrogate pair is no text",
        "analytics/model/strict_json.py::strict_object",
        DropCall("_refuse_lone_surrogates"),
        f"{_ATTACKS}::test_claims_are_one_strict_json_object",
    ),
    Guard(
        "an integer has a bounded length",
        "analytics/model/strict_json.py::_integer",
        Replace("len(digits.lstrip('-')) > INTEGER_DIGITS_MAX", "not digits"),
        f"{_ATTACKS}::test_claims_are_one_strict_json_object",
    ),
    Guard(
        "the audience is this service alone",
        "service/ci/verifier/rules.py::rule_2_audience",
        Replace(
            "unverified_claims.members.get('aud') not in (audience, [audience])",
            "audience not in str(unverified_claims.members.get('aud'))",
        ),
        f"{_ATTACKS}::test_the_audience_is_this_service_alone",
    ),
    Guard(
        "the rules are asked in their order",
        "service/ci/verifier/rules.py::match_binding",
        Replace(
            "rule_2_audience(unverified_claims, context.audience)\n"
            "same_sub = rule_3_subject(unverified_claims, issuer, context)",
            "same_sub = rule_3_subject(unverified_claims, issuer, context)\n"
            "rule_2_audience(unverified_claims, context.audience)",
        ),
        f"{_ATTACKS}::test_the_first_rule_broken_names_the_failure",
    ),
    Guard(
        "a repository is the one that was bound",
        "service/ci/verifier/rules.py::rule_4_repository",
        Replace(
            "candidate.repository_id is None or candidate.repository_id == repository_id",
            "candidate is not None",
        ),
        f"{_ATTACKS}::test_the_same_name_with_another_repository_is_unbound",
    ),
    Guard(
        "an issuer that has repository ids has to name one",
        "service/ci/verifier/rules.py::rule_4_repository",
        Replace("issuer.requires_repository_id", "not issuer"),
        f"{_ATTACKS}::test_a_missing_repository_id_has_its_code",
    ),
    Guard(
        "an expiry has no leeway",
        "service/ci/verifier/rules.py::rule_7_time",
        Replace("expires_at_s <= seconds", "expires_at_s < seconds"),
        f"{_ATTACKS}::test_an_expiry_must_be_ahead",
    ),
    Guard(
        "true is no instant",
        "service/ci/verifier/rules.py::_is_number",
        Drop("not isinstance(value, bool)"),
        f"{_ATTACKS}::test_a_token_from_the_future_is_not_valid_yet",
    ),
    Guard(
        "a token from the future waits",
        "service/ci/verifier/rules.py::rule_7_time",
        Replace("starts_at_s > seconds + LEEWAY_S", "not seconds"),
        f"{_ATTACKS}::test_a_token_from_the_future_is_not_valid_yet",
    ),
    Guard(
        "time is asked of tokens that were seen before",
        "service/ci/verifier/verifier.py::Verifier._verify",
        DropCall("rule_7_time"),
        f"{_ATTACKS_ON_KEYS}::test_a_token_is_not_trusted_longer_than_it_lasts",
    ),
    Guard(
        "extensions of a header are refused",
        "service/ci/verifier/signatures.py::_unverified_choice",
        Replace(
            "if extensions:\n"
            "    raise SignatureFault(f\"{' and '.join(extensions)} in the header\")",
            "if extensions is None:\n"
            "    raise SignatureFault(f\"{' and '.join(extensions)} in the header\")",
        ),
        f"{_ATTACKS}::test_extensions_are_not_understood",
    ),
    Guard(
        "no key is looked for under an algorithm that is not pinned",
        "service/ci/verifier/signatures.py::_unverified_choice",
        Drop("algorithm not in algorithms"),
        f"{_ATTACKS}::test_an_algorithm_that_is_not_pinned_costs_no_request",
    ),
    Guard(
        "a key verifies under its own algorithms",
        "service/ci/verifier/signatures.py::check_signature",
        Replace("algorithm not in signing_key.algorithms", "not signing_key.algorithms"),
        f"{_ATTACKS_ON_KEYS}::test_a_key_is_used_with_the_algorithm_it_names",
    ),
    Guard(
        "a kid is a name",
        "service/ci/verifier/signatures.py::_unverified_choice",
        Replace("not isinstance(kid, str) or not kid", "kid is None"),
        f"{_ATTACKS}::test_a_kid_is_a_name_and_nothing_else",
    ),
    Guard(
        "a signature that held is checked again after a while",
        "service/ci/verifier/token_cache.py::VerifiedTokenCache.find",
        Replace("not timedelta(0) <= now - entry[1] < KEPT_FOR", "now < entry[1]"),
        f"{_ATTACKS_ON_KEYS}::test_a_signature_that_held_is_checked_again_after_a_while",
    ),
    Guard(
        "what is logged of a token is cut",
        "service/ci/verifier/rejections.py::_cut",
        Replace("text[:LOGGED_CHARS_MAX]", "text"),
        f"{_ATTACKS}::test_hostile_text_changes_no_code",
    ),
    Guard(
        "a rejected token is verified only with a good signature",
        "service/ci/verifier/verifier.py::Verifier._holds",
        Replace(
            "self._sign(parsed, claims, issuer, self._keys.cached(issuer))",
            "parsed.unverified_claims",
        ),
        f"{_HOLDING}::test_what_could_be_forged_is_not",
    ),
    Guard(
        "a rejected token is verified only at a valid time",
        "service/ci/verifier/verifier.py::Verifier._holds",
        DropCall("rule_7_time"),
        f"{_HOLDING}::test_what_could_be_forged_is_not",
    ),
    Guard(
        "hostile subjects are not all taken apart",
        "service/trust/explain/nearest.py::_respelt",
        Replace("islice(hard, FOLDS_MAX)", "hard"),
        "tests/service/trust/explain/test_nearest.py::test_hostile_subjects_are_not_all_taken_apart",
    ),
    Guard(
        "a sign-in ends in the browser that began it",
        "service/pages/sign_in/routes.py::_flow_under_way",
        Drop("if not flow.has_state(_only('state')):\n    raise SignInNotUnderWay"),
        f"{_SIGN_IN_ATTACKS}::test_a_state_of_another_sign_in_is_refused[wrong]",
    ),
    Guard(
        "a sign-in ends at the provider it began with",
        "service/pages/sign_in/routes.py::_flow_under_way",
        Drop("flow.provider != provider.name"),
        f"{_SIGN_IN_ATTACKS}::test_a_sign_in_with_one_provider_is_not_one_with_another",
    ),
    Guard(
        "a device's session needs the one in which it was approved",
        "service/access/device_sign_in/grants.py::_redeem",
        Drop("approving is None"),
        f"{_DEVICE}::test_an_approval_ends_with_the_session_it_was_given_in",
    ),
    Guard(
        "an approval is no sign-in",
        "service/access/device_sign_in/grants.py::_redeem",
        Replace(
            "issue_session(work.session, member, work.now, origin, proved_at)",
            "issue_session(work.session, member, work.now, origin)",
        ),
        f"{_DEVICE}::test_an_approval_proves_nothing_anew",
    ),
    Guard(
        "a device code expires",
        "service/access/device_sign_in/grants.py::poll",
        Drop("if entry.expires_at <= work.now:\n    return DeviceCodeExpired()"),
        f"{_DEVICE}::test_codes_expire_after_ten_minutes",
    ),
    Guard(
        "a user code expires",
        "service/access/device_sign_in/grants.py::get_undecided",
        Drop("entry.expires_at <= work.now"),
        f"{_DEVICE}::test_codes_expire_after_ten_minutes",
    ),
    Guard(
        "a decision on a device is final",
        "service/access/device_sign_in/grants.py::get_undecided",
        Drop("entry.decided_at is not None"),
        f"{_DEVICE}::test_a_denial_is_recorded_and_final",
    ),
    Guard(
        "a device that polls too soon waits longer",
        "service/access/device_sign_in/grants.py::_wait",
        Drop("entry.interval_s += SLOWER_S"),
        f"{_DEVICE}::test_a_device_that_polls_too_soon_is_told_to_slow_down",
    ),
    Guard(
        "a device is approved by a form of the member's own session",
        "service/pages/sign_in/device_page.py::decision",
        Replace("await own_form(services.settings, caller)", "await request.form"),
        f"{_DEVICE}::test_forms_of_other_sites_and_sessions_are_refused",
    ),
    Guard(
        "devices that wait are bounded",
        "service/access/device_sign_in/grants.py::request_sign_in",
        Drop("if (pending or 0) >= PENDING_MAX:\n    raise TooManySignIns"),
        f"{_DEVICE}::test_waiting_sign_ins_are_bounded",
    ),
    Guard(
        "a key reads what its scopes say",
        "service/access/callers.py::ApiKeyPrincipal.require",
        Drop("if capability not in self.scopes:\n    raise LacksCapability(capability)"),
        "tests/service/access/test_credentials.py::test_who_gets_in_where",
    ),
    Guard(
        "a key reads its own organisation",
        "service/access/callers.py::ApiKeyPrincipal.require",
        Drop("if not self.belongs_to(org):\n    raise KeyOfAnotherOrg"),
        "tests/service/access/test_credentials.py::test_who_gets_in_where",
    ),
    Guard(
        "a key that reads sends no rows",
        "service/access/callers.py::ApiKeyPrincipal.require_sending_rights",
        Replace("Capability.AUDIT_INGEST not in self.scopes", "False"),
        "tests/service/access/test_credentials.py::test_a_key_that_reads_sends_no_rows",
    ),
    Guard(
        "a command line's credential goes to one server",
        "service/cli/server_client.py::ServerClient.__init__",
        Replace("follow_redirects=False", "follow_redirects=True"),
        f"{_REMOTE_FAILURES}::test_a_redirect_takes_no_credential_anywhere",
    ),
    Guard(
        "a stored login can be read by its owner alone",
        "service/cli/logins.py::_store",
        Replace("384", "438"),
        "tests/service/cli/test_logins.py::test_a_login_is_stored_for_its_owner_alone",
    ),
    Guard(
        "http is for this machine",
        "service/cli/target.py::parse_server",
        Replace("parts.scheme == 'http' and not (is_insecure or is_loopback(host))", "False"),
        f"{_REMOTE_FAILURES}::test_an_address_that_is_none_or_not_safe_is_refused",
    ),
    Guard(
        "an answer of a provider counts once",
        "service/pages/sign_in/routes.py::callback",
        Drop("if not is_first:\n    raise SignInNotUnderWay"),
        f"{_SIGN_IN_ATTACKS}::test_an_answer_counts_once",
    ),
    Guard(
        "what a browser keeps is signed",
        "service/access/sign_in/signed_cookie.py::Signer.read",
        Replace("self._signer.unsign(text)", "text.encode().rpartition(b'.')[0]"),
        f"{_SIGN_IN_ATTACKS}::test_a_cookie_that_was_changed_is_refused",
    ),
    Guard(
        "what a browser keeps expires",
        "service/access/sign_in/signed_cookie.py::Signer.read",
        Replace("value if now.timestamp() < value.expires_at else None", "value"),
        f"{_SIGN_IN_ATTACKS}::test_a_sign_in_may_take_ten_minutes[600-400]",
    ),
    Guard(
        "an id token is signed",
        "service/access/sign_in/id_tokens.py::check_id_token",
        Replace(
            "check_signature(token, issuer.algorithms, keys)",
            "Claims(token.unverified_claims.members)",
        ),
        f"{_ID_TOKENS}::test_a_signature_of_another_key_is_none",
    ),
    Guard(
        "an id token is of its issuer",
        "service/access/sign_in/id_tokens.py::_check_issuer",
        Replace("claims.members.get('iss') != expected", "False"),
        f"{_ID_TOKENS}::test_one_fault_is_enough_and_is_named",
    ),
    Guard(
        "an id token is of the tenant it names",
        "service/access/sign_in/id_tokens.py::_check_issuer",
        Replace(
            "tenant is None or not is_tenant(tenant) or tenant in issuer.refused_tenants",
            "tenant is None",
        ),
        f"{_ID_TOKENS}::test_a_tenant_speaks_for_itself_alone",
    ),
    Guard(
        "an id token is for this service",
        "service/access/sign_in/id_tokens.py::_check_audience",
        Replace("claims.members.get('aud') not in (client_id, [client_id])", "False"),
        f"{_ID_TOKENS}::test_one_fault_is_enough_and_is_named",
    ),
    Guard(
        "an id token was asked for by this service",
        "service/access/sign_in/id_tokens.py::_check_audience",
        Replace("'azp' in claims.members and claims.members['azp'] != client_id", "False"),
        f"{_ID_TOKENS}::test_one_fault_is_enough_and_is_named",
    ),
    Guard(
        "an id token expires",
        "service/access/sign_in/id_tokens.py::_check_times",
        Replace("_number(claims, 'exp') <= now.timestamp()", "False"),
        f"{_ID_TOKENS}::test_an_expired_token_is_not_granted_the_leeway",
    ),
    Guard(
        "an id token is of this sign-in",
        "service/access/sign_in/id_tokens.py::check_id_token",
        Replace("not hmac.compare_digest(given.encode(), nonce.encode())", "False"),
        f"{_ID_TOKENS}::test_one_fault_is_enough_and_is_named",
    ),
    Guard(
        "a subject is one within its issuer",
        "service/access/sign_in/eligible_memberships.py::has_identity",
        Drop("Member.identity_namespace == identity.namespace"),
        f"{_SIGN_IN_ATTACKS}::test_one_subject_in_two_tenants_is_two_people",
    ),
    Guard(
        "an invitation is for a verified address",
        "service/access/sign_in/eligible_memberships.py::_invited",
        Drop("if not identity.is_verified:\n    return []"),
        f"{_SIGN_IN}::test_an_unverified_address_takes_up_no_invitation[google]",
    ),
    Guard(
        "an invitation is taken up once",
        "service/access/sign_in/eligible_memberships.py::_invited",
        Drop("Member.identity_subject.is_(None)"),
        f"{_SIGN_IN}::test_another_account_with_the_same_address_is_another_person[google]",
    ),
    Guard(
        "an invitation is for one provider",
        "service/access/sign_in/eligible_memberships.py::_invited",
        Drop("Member.identity_provider == identity.provider"),
        f"{_SIGN_IN}::test_an_invitation_is_for_one_provider",
    ),
    Guard(
        "a removed member is not let in",
        "service/access/sign_in/eligible_memberships.py::_linked",
        Drop("Member.removed_at.is_(None)"),
        f"{_SIGN_IN}::test_a_removed_member_stays_out",
    ),
    Guard(
        "a removed member does not come back by a domain",
        "service/access/sign_in/eligible_memberships.py::_of_domain",
        Drop("~is_known"),
        f"{_SIGN_IN}::test_a_removed_member_stays_out",
    ),
    Guard(
        "a domain lets in its own people only",
        "service/access/sign_in/eligible_memberships.py::_of_domain",
        Drop("if not identity.is_of_domain:\n    return []"),
        f"{_SIGN_IN}::test_no_one_else_becomes_a_member",
    ),
    Guard(
        "Microsoft's word for an address is xms_edov",
        "service/access/sign_in/identity.py::identity_of",
        Replace(
            "claims.members.get(provider.verified_claim)",
            "claims.members.get(provider.verified_claim) or claims.members.get('email_verified')",
        ),
        f"{_SIGN_IN_ATTACKS}::test_microsoft_vouches_for_an_address_in_one_way",
    ),
    Guard(
        "a choice is made on our own page",
        "service/access/csrf.py::check_form_token",
        Replace(
            "not hmac.compare_digest((given or '').encode(errors='replace'), expected.encode())",
            "False",
        ),
        f"{_SIGN_IN}::TestTheChoice::test_another_site_cannot_make_it",
    ),
    Guard(
        "a choice is made once",
        "service/pages/sign_in/routes.py::choose",
        Drop("if not await consume(work, choice):\n    raise SignInNotUnderWay"),
        f"{_SIGN_IN}::TestTheChoice::test_it_is_made_once",
    ),
    Guard(
        "a page to come back to is an own one",
        "service/access/sign_in/flow.py::own_page",
        Drop("not _OWN_PAGE.fullmatch(text)"),
        "tests/service/access/sign_in/test_setting_up.py::test_an_own_page_to_come_back_to_is_passed_on",
    ),
    Guard(
        "a provider's answer is bounded",
        "service/access/sign_in/exchange.py::_fetch",
        Replace("len(body) > ANSWER_BYTES_MAX", "False"),
        f"{_SIGN_IN_ATTACKS}::test_a_provider_that_fails_is_no_fault_of_the_persons[google-/token-oversized]",
    ),
    Guard(
        "attempts to sign in are limited",
        "service/access/sign_in/rate_limit.py::Attempts.admit",
        Drop("count >= self._per_address_max"),
        f"{_SIGN_IN_ATTACKS}::test_attempts_are_limited_by_address",
    ),
    Guard(
        "a challenge for a passkey is answered once",
        "service/access/passkeys/sign_in.py::_proved",
        Drop("if not await consume(work, challenge):\n    raise PasskeyNotUnderWay"),
        f"{_PASSKEYS}::test_a_challenge_is_answered_once",
    ),
    Guard(
        "a passkey is unlocked by its owner",
        "service/access/passkeys/ceremonies.py::check_assertion",
        Replace("require_user_verification=True", "require_user_verification=False"),
        f"{_PASSKEYS}::test_one_fault_is_enough[flags=1]",
    ),
    Guard(
        "a passkey is for this site",
        "service/access/passkeys/ceremonies.py::check_assertion",
        Replace("expected_rp_id=party.id", "expected_rp_id='evil.example'"),
        f"{_PASSKEYS}::test_one_fault_is_enough[rp_id=evil.example]",
    ),
    Guard(
        "a passkey is asked for by our own pages",
        "service/access/passkeys/ceremonies.py::check_assertion",
        Replace(
            "expected_origin=party.origin", "expected_origin=[party.origin, 'https://evil.example']"
        ),
        f"{_PASSKEYS}::test_one_fault_is_enough[origin=https://evil.example]",
    ),
    Guard(
        "a passkey answers in no frame of another site",
        "service/access/passkeys/ceremonies.py::_refuse_framed",
        Replace("webauthn.helpers.parse_client_data_json(client_data).cross_origin", "False"),
        f"{_PASSKEYS}::test_one_fault_is_enough[cross_origin=True]",
    ),
    Guard(
        "a copy of a passkey is given away by its counter",
        "service/access/passkeys/sign_in.py::_reason_against",
        Replace("not has_grown(passkey.sign_count, sign_count)", "False"),
        f"{_PASSKEYS}::test_a_counter_that_does_not_grow_gives_a_copy_away[3]",
    ),
    Guard(
        "a passkey answers for its own member",
        "service/access/passkeys/sign_in.py::_reason_against",
        Replace("assertion.unverified_user_handle != member.user_handle", "False"),
        f"{_PASSKEYS}::test_a_passkey_speaks_for_its_own_member",
    ),
    Guard(
        "a removed member's passkey admits no one",
        "service/access/passkeys/sign_in.py::_reason_against",
        Replace("member.removed_at is not None", "False"),
        f"{_PASSKEYS}::test_a_removed_member_stays_out",
    ),
    Guard(
        "a removed passkey admits no one",
        "service/access/passkeys/sign_in.py::_reason_against",
        Replace("passkey.removed_at is not None", "False"),
        f"{_PASSKEYS}::test_a_removed_passkey_stays_out",
    ),
    Guard(
        "a passkey is signed in with from our own pages",
        "service/pages/sign_in/passkey_routes.py::_admit_step",
        DropCall("refuse_cross_site_form"),
        f"{_PASSKEYS}::test_another_site_cannot_sign_a_visitor_in",
    ),
    Guard(
        "a new passkey is unlocked by its owner",
        "service/access/passkeys/ceremonies.py::check_registration",
        Replace("require_user_verification=True", "require_user_verification=False"),
        f"{_NEW_PASSKEYS}::test_one_fault_is_enough[flags=1]",
    ),
    Guard(
        "a new passkey is made on our own pages",
        "service/access/passkeys/ceremonies.py::check_registration",
        Replace(
            "expected_origin=party.origin", "expected_origin=[party.origin, 'https://evil.example']"
        ),
        f"{_NEW_PASSKEYS}::test_one_fault_is_enough[origin=https://evil.example]",
    ),
    Guard(
        "a passkey is made for the session that asked",
        "service/pages/sign_in/passkey_routes.py::finish_registration",
        Drop("challenge.session_id != caller.session_id"),
        f"{_NEW_PASSKEYS}::test_a_challenge_of_another_session_is_none",
    ),
    Guard(
        "a challenge makes one passkey",
        "service/access/passkeys/changes.py::add_passkey",
        Drop("not await consume(work, challenge)"),
        f"{_NEW_PASSKEYS}::test_a_challenge_makes_one_passkey",
    ),
    Guard(
        "a passkey is added from its owner's own page",
        "service/pages/sign_in/passkey_routes.py::_own_json",
        DropCall("check_form_token"),
        f"{_NEW_PASSKEYS}::test_another_site_cannot_add_one",
    ),
    Guard(
        "members remove their own passkeys only",
        "service/access/passkeys/repository.py::get_own_passkey",
        Drop("Passkey.member_id == member_id"),
        f"{_PROFILE}::test_a_member_cannot_remove_another_members_passkey",
    ),
    Guard(
        "a session that ended meanwhile changes nothing of its member's",
        "service/access/authorization.py::Authorizer.reauthorize_self",
        Replace("await self._authenticator.refreshed_member(session, caller)", "caller"),
        "tests/service/pages/profile/test_reauthorized.py::test_what_ended_before_the_body_did_is_over",
    ),
    Guard(
        "what is a member's own is changed from their own page",
        "service/access/authorization.py::Authorizer.authorize_self",
        Drop("if caller.is_cross_site:\n    raise CrossSite"),
        f"{_PROFILE}::test_another_site_cannot_send_them",
    ),
    Guard(
        "no override makes a member an owner",
        "service/access/roles.py::covers",
        Drop("not is_higher"),
        f"{_ROLES}::test_no_role_covers_a_higher_one_whatever_it_is_granted",
    ),
    Guard(
        "who rises has to sign in again",
        "service/orgs/members.py::set_role",
        Replace("not covers(Role(before), Role(after), org.role_overrides)", "False"),
        f"{_ROLES}::test_who_rises_has_to_sign_in_again",
    ),
    Guard(
        "no one decides over a member beyond their own role",
        "service/orgs/members.py::managed_member",
        DropCall("call.caller.require_outranks"),
        f"{_ORGS}/test_beyond_own_role.py::test_no_one_decides_over_a_higher_role",
    ),
    Guard(
        "no one gives a role beyond their own",
        "service/orgs/members.py::give_role",
        DropCall("call.caller.require_outranks"),
        f"{_ORGS}/test_beyond_own_role.py::test_no_one_gives_a_role_beyond_their_own",
    ),
    Guard(
        "no one invites a member with a role beyond their own",
        "service/orgs/members.py::invite",
        DropCall("call.caller.require_outranks"),
        f"{_ORGS}/test_beyond_own_role.py::test_no_one_gives_a_role_beyond_their_own",
    ),
    Guard(
        "no one grants a capability that they lack",
        "service/orgs/roles.py::grant",
        DropCall("call.caller.require"),
        f"{_ORGS}/test_roles.py::test_no_one_grants_what_they_lack",
    ),
    Guard(
        "an old page does not restore a revoked grant",
        "service/orgs/roles.py::grant",
        Drop("raise OverrideMoved"),
        f"{_ORGS}/test_roles.py::test_a_change_based_on_older_grants_restores_none",
    ),
    Guard(
        "who runs an organisation still may when a change commits",
        "service/access/authorization.py::Authorizer.change",
        Replace(
            "await self.reauthorize(work.session, caller, org, capability)",
            "(caller, await work.session.merge(org))",
        ),
        f"{_PEOPLE}/test_who.py::test_rights_lost_before_the_form_ended_are_lost",
    ),
    Guard(
        "a form that shows a secret works once",
        "service/pages/one_time_form.py::consume_form",
        Drop("not await consume(work, kept)"),
        f"{_PEOPLE}/test_members.py::test_the_same_form_makes_no_second_link",
    ),
    Guard(
        "a window of another site has no handle on ours",
        "service/app/application.py::_HEADERS",
        Replace("'cross-origin-opener-policy'", "'x-none'"),
        f"{_ERRORS}::test_another_site_gets_no_handle_on_an_answer[/]",
    ),
    Guard(
        "the log names who was denied",
        "service/access/authenticate.py::_named_in_logs",
        DropCall("structlog.contextvars.bind_contextvars"),
        f"{_DENIED}::test_a_key_without_the_scope_is_named",
    ),
    Guard(
        "the log says why a request was denied, and repeats no other text",
        "service/app/application.py::_refused",
        Replace("refusal.status in DENIED", "True"),
        f"{_DENIED}::test_a_rejected_value_is_not_repeated_in_the_log",
    ),
    Guard(
        "a denied request is logged with its address",
        "service/app/application.py::_denied_to",
        Replace("response.status_code not in DENIED", "True"),
        f"{_DENIED}::test_a_caller_who_is_not_known_is_logged_by_address[{{}}]",
    ),
    Guard(
        "signing out empties the browser's cache",
        "service/access/sign_in/cookies.py::SignInCookies.forget_session",
        Drop("response.headers['clear-site-data'] = '\"cache\"'"),
        "tests/service/access/test_sessions.py::test_signing_out_empties_the_browsers_cache",
    ),
    Guard(
        "browsers are told to come by https alone",
        "service/app/application.py::_headers",
        Replace("_HEADERS | {'strict-transport-security': f'max-age={_HSTS_S}'}", "_HEADERS"),
        "tests/service/pages/test_refusals.py::test_browsers_are_told_to_come_by_https_alone",
    ),
    Guard(
        "every 503 says when to try again",
        "service/core/errors/base.py::Refusal.__init_subclass__",
        Drop("cls.retry_after_s = RETRY_AFTER_S"),
        f"{_ERRORS}::test_every_429_and_503_of_the_document_says_when_to_try_again[503]",
    ),
    Guard(
        "a page that is a 503 says when to try again",
        "service/app/application.py::_frame_requests",
        Replace("response.status_code == UNAVAILABLE", "False"),
        "tests/service/pages/test_slow_page.py"
        "::test_rows_that_take_too_long_are_a_503_that_offers_shorter_windows",
    ),
    Guard(
        "a missing file is answered as damaged storage, with its wait",
        "service/app/application.py::_answer_as",
        Replace("refusal.retry_after_s is not None", "False"),
        f"{_ERRORS}::test_a_missing_file_says_when_to_try_again",
    ),
    Guard(
        "a node that is started in an outage waits for the database",
        "service/app/server.py::_prepare",
        Replace("not is_outage(fault)", "True"),
        f"{_HANGS}::test_a_node_is_stopped_and_started_during_a_hang",
    ),
    Guard(
        "a wrong password is not waited for",
        "service/store/faults.py::is_outage",
        Replace('str(getattr(cause, "sqlstate", None) or "").startswith(_WRONG)', "False"),
        f"{_POSTGRES}/test_outages.py::test_only_an_outage_is_waited_for",
    ),
    Guard(
        "a connection to a machine that is gone is closed by the kernel",
        "service/store/postgres/connection.py::Connector.open",
        DropCall("_notice_loss"),
        f"{_POSTGRES}/test_half_open.py::test_both_sides_notice_that_the_others_machine_is_gone",
    ),
    Guard(
        "a stop ends although a thread waits for the bucket",
        "service/app/server.py::_serve",
        DropCall("end_after"),
        f"{_HANGS}::test_a_stop_does_not_wait_for_a_bucket_that_hangs",
    ),
    Guard(
        "a process that is killed before it serves does not end the others",
        "service/app/supervisor.py::Supervisor._reap",
        Drop("code > 0"),
        "tests/processes/test_workers.py"
        "::test_a_process_that_is_killed_before_it_serves_is_replaced",
    ),
    Guard(
        "what is overdue is started again outside of the idle class",
        "service/app/supervisor.py::Supervisor._reap",
        Replace("code == OVERDUE", "False"),
        f"{_MAINTENANCE}::test_one_that_ends_early_ends_nothing_else[75-starts0]",
    ),
    Guard(
        "all other background work is in the idle class",
        "service/app/maintenance_process.py::_maintain",
        Drop("_enter_idle_class()"),
        f"{_MAINTENANCE}::test_only_sealing_competes_for_the_processor",
    ),
    Guard(
        "a process that serves has a full journal sealed at once",
        "service/app/maintenance_process.py::SealSignal.forward",
        Drop("self._flag.value = 1"),
        f"{_MAINTENANCE}::test_a_request_that_fills_the_journal_has_it_sealed_at_once",
    ),
    Guard(
        "the processes of a service that was killed leave no files of metrics",
        "service/app/supervisor.py::_end_with_parent",
        DropCall("shutil.rmtree"),
        f"{_MAINTENANCE}::test_all_end_when_the_service_is_killed[1]",
    ),
    Guard(
        "nor do those that were forked from another process",
        "service/app/supervisor.py::_end_with_parent",
        DropCall("_remove_unlocked"),
        f"{_MAINTENANCE}::test_all_end_when_the_service_is_killed[2]",
    ),
    Guard(
        "files of metrics stay as long as their supervisor runs",
        "service/app/supervisor.py::_remove",
        DropCall("fcntl.flock"),
        "tests/processes/test_workers.py"
        "::test_a_process_that_learns_late_of_that_removes_no_files_of_those_that_follow",
    ),
    Guard(
        "watching does not keep a session alive",
        "service/pages/routes.py::live_rows",
        Replace("keeps_alive=False", "keeps_alive=True"),
        f"{_LIVE}::test_watching_is_no_use_of_a_session",
    ),
    Guard(
        "who watches is asked for their right again",
        "service/pages/live.py::_watch",
        DropCall("watch.check"),
        f"{_LIVE}::test_a_stream_ends_with_the_session_or_the_right_that_it_was_opened_with"
        "[removed-Your session has ended]",
    ),
    Guard(
        "live rows end at the retention floor",
        "service/audit/tenant_log.py::TenantLog.accepted_after",
        Replace("within = self.within(query)", "within = query"),
        f"{_LIVE}::test_rows_past_retention_do_not_arrive",
    ),
    Guard(
        "what is typed completes to nothing past retention",
        "service/audit/tenant_log.py::TenantLog.values",
        Replace("within = self.within(query)", "within = query"),
        "tests/service/pages/test_autocomplete.py::test_nothing_past_retention_is_offered",
    ),
    Guard(
        "a value cannot begin another event",
        "service/pages/live.py::_event",
        Replace("re.split('\\\\r\\\\n|\\\\r|\\\\n', data)", "re.split('\\\\n', data)"),
        f"{_LIVE}::test_a_hostile_value_is_text_and_ends_no_event",
    ),
    Guard(
        "live rows are rendered once for all streams of a page",
        "service/pages/live_places.py::LivePlaces.shared",
        Replace("self._shared.get(view)", "None"),
        f"{_LIVE}::test_a_row_is_read_and_rendered_once_for_all_streams_of_a_page",
    ),
    Guard(
        "pages with different filters share no rows",
        "service/pages/live.py::_View.key",
        Replace("(self.org.id, self.org.tier, self.state.saved, self.query)", "(self.org.id,)"),
        f"{_LIVE}::test_pages_that_show_something_else_share_nothing",
    ),
    Guard(
        "live rows rendered for one organisation are bounded",
        "service/pages/live.py::_Feed._read_after",
        Drop("not services.live.may_render(view.org.id, rows.num_rows)"),
        f"{_LIVE}::test_rows_rendered_for_one_organisation_are_bounded",
    ),
    Guard(
        "a stream that fell behind reads what it missed",
        "service/pages/live.py::_Feed.after",
        Replace("seen < self._from", "False"),
        f"{_LIVE}::test_a_stream_that_fell_behind_what_is_kept_misses_nothing",
    ),
    Guard(
        "streams of live rows are bounded",
        "service/pages/live_places.py::LivePlaces.place",
        Drop("raise TooManyStreams"),
        f"{_LIVE}::test_so_many_streams_at_once_and_no_more[PER_ORG_MAX]",
    ),
    Guard(
        "a browser runs no script but ours",
        "service/app/application.py::_HEADERS",
        Replace(
            "\"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors "
            "'none'\"",
            "\"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self'; "
            "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'\"",
        ),
        f"{_AUDIT_PAGE}::test_the_browser_runs_no_script_but_ours",
    ),
    Guard(
        "the numbers of a page end at the retention floor",
        "service/audit/tenant_log.py::TenantLog.summary",
        Replace(
            "summarise(reader, self.snapshot, query, self.floor, bucket, tops, kept)",
            "summarise(reader, self.snapshot, query, None, bucket, tops, kept)",
        ),
        f"{_AUDIT_PAGE}::test_what_is_past_retention_is_neither_shown_nor_counted",
    ),
    Guard(
        "a kept sum ends at the retention floor",
        "service/audit/tenant_log.py::TenantLog.summary",
        Replace(
            "self.lake.kept_sum(self.snapshot, self.within(query))",
            "self.lake.kept_sum(self.snapshot, query)",
        ),
        "tests/service/audit/test_summary.py::test_retention_is_applied_to_the_instant",
    ),
    Guard(
        "rows and numbers of a page are of one snapshot",
        "service/pages/audit_page.py::_find",
        Replace(
            "services.audit.queries.page(org, wanted, now, log)",
            "services.audit.queries.page(org, wanted, now)",
        ),
        f"{_AUDIT_PAGE}::test_the_page_asks_for_its_rows_and_for_its_numbers_once",
    ),
    Guard(
        "a link to a value means that value alone",
        "analytics/model/filters.py::literal",
        Replace("f'{text[:-1]}\\\\*' if text.endswith('*') else text", "text"),
        "tests/analytics/model/test_filters.py::test_a_literal_means_the_value_it_was_made_of",
    ),
    Guard(
        "numbers that cannot be read are said to be missing",
        "service/pages/summary_panel.py::or_unavailable",
        Replace("SummaryUnavailable.DAMAGED", "SummaryUnavailable.SLOW"),
        "tests/service/pages/test_slow_page.py"
        "::test_damage_that_only_the_numbers_meet_is_said_on_the_page",
    ),
    Guard(
        "a binding's page is its organisation's",
        "service/trust/bindings/repository.py::find_binding",
        Drop("Binding.tenant_id == tenant_id"),
        "tests/service/pages/trust/test_bindings_page.py"
        "::test_another_organisations_bindings_are_not_there",
    ),
    Guard(
        "a replaced binding is revoked",
        "service/trust/bindings/changes.py::replace_binding",
        DropCall("revoke_binding"),
        f"{_REPLACE}::test_each_of_the_two_changes_has_its_audit_row",
    ),
    Guard(
        "a repository's bindings are revoked in their own organisation alone",
        "service/trust/bindings/repository_revocation.py::list_active_of",
        Drop("Binding.tenant_id == tenant_id"),
        f"{_REPOSITORY}::test_another_organisations_bindings_of_the_repository_stay",
    ),
    Guard(
        "a repository is one of its issuer",
        "service/trust/bindings/repository_revocation.py::list_active_of",
        Drop("Binding.issuer == repository.issuer"),
        "tests/service/pages/trust/test_revoke_repository_page.py"
        "::test_the_form_asks_for_issuer_and_repository",
    ),
    Guard(
        "the bindings that are revoked are those that were listed",
        "service/trust/bindings/repository_revocation.py::revoke_repository",
        Replace("digest_of(binding_ids) != wanted.listed", "False"),
        f"{_REPOSITORY}::test_a_list_that_is_out_of_date_revokes_nothing",
    ),
    Guard(
        "a command on a data dir is refused while a server is set",
        "service/cli/target.py::data_dir_target",
        Replace("isinstance(chosen, Local)", "True"),
        "tests/processes/test_cli_places.py"
        "::test_the_part_of_a_command_that_a_server_does_not_offer_wants_local",
    ),
    Guard(
        "without a terminal nothing is taken for a confirmation",
        "service/cli/asking.py::confirm",
        Replace("not has_terminal()", "False"),
        "tests/processes/test_cli_asking.py"
        "::test_without_a_terminal_nothing_is_changed_and_yes_is_named",
    ),
    Guard(
        "a policy replaces the one that the question was about",
        "service/cli/policy.py::policy_set",
        Replace("revision is None", "False"),
        "tests/processes/test_cli_asking.py::test_a_policy_that_changed_meanwhile_is_not_replaced",
    ),
    Guard(
        "a plan is applied only to the bindings it was made for",
        "service/cli/bindings_sync.py::bindings_sync",
        Replace("(await sync.plan(work.session)).actions != shown.actions", "False"),
        "tests/processes/test_cli_bindings_sync.py"
        "::test_a_change_between_plan_and_apply_is_refused",
    ),
    Guard(
        "a file revokes only with --prune",
        "service/trust/bindings/sync.py::plan_sync",
        Replace("revocations if has_prune else []", "revocations"),
        "tests/processes/test_cli_bindings_sync.py::test_prune_revokes_what_the_file_does_not_name",
    ),
    Guard(
        "a draft is made of one's own rejected subjects",
        "service/trust/rejected/rows.py::find_rejected",
        Drop("_lately(tenant_id, since)"),
        "tests/service/pages/trust/test_rejected.py::test_another_organisations_digest_is_404",
    ),
    Guard(
        "a conflict does not name another organisation's binding",
        "service/trust/bindings/slots.py::find_holder",
        Replace(
            "holder if holder is not None and holder.tenant_id == tenant_id else None", "holder"
        ),
        "tests/service/pages/trust/test_create.py"
        "::test_a_conflict_with_another_organisation_names_nothing_of_theirs",
    ),
    Guard(
        "a search knows the names of its own organisation's keys alone",
        "service/audit/actor_names.py::actors_by_name",
        Replace(
            "select(ApiKey.name, ApiKey.id).where(ApiKey.tenant_id == tenant_id)",
            "select(ApiKey.name, ApiKey.id)",
        ),
        "tests/service/audit/test_search_endpoint.py"
        "::test_another_organisations_key_is_not_found_by_its_name",
    ),
    Guard(
        "a page lists the teams and projects of its own organisation alone",
        "service/store/organisations.py::list_named_from",
        Replace("table.tenant_id == org.id", "table.id != ''"),
        f"{_PEOPLE}/test_teams_and_projects.py::test_those_of_another_organisation_are_not_listed[teams]",
    ),
    Guard(
        "a form offers the teams and projects of its own organisation alone",
        "service/store/organisations.py::list_names",
        Replace("table.tenant_id == org.id", "table.id != ''"),
        f"{_PEOPLE}/test_teams_and_projects.py::test_those_of_another_organisation_are_not_listed[projects]",
    ),
    Guard(
        "a page lists the keys of its own organisation alone",
        "service/store/organisations.py::_keys",
        Replace("ApiKey.tenant_id == org.id", "ApiKey.id != ''"),
        f"{_PEOPLE}/test_keys.py::test_keys_of_another_organisation_are_not_listed[True]",
    ),
    Guard(
        "a saved search is deleted by its own organisation alone",
        "service/audit/saved_searches.py::delete",
        Replace("SavedSearch.tenant_id == call.org.id", "SavedSearch.id != ''"),
        "tests/service/pages/investigate/test_saved_searches.py"
        "::test_another_organisations_search_cannot_be_deleted",
    ),
    Guard(
        "groups of rows end at the retention floor",
        "service/audit/tenant_log.py::TenantLog.groups",
        Replace("self.within(query)", "query"),
        "tests/service/audit/test_search_endpoint.py::test_what_is_past_retention_is_in_no_group",
    ),
    Guard(
        "a page calls members of its own organisation by their address, and no others",
        "service/audit/actor_names.py::names_of_actors",
        Replace("select(Member).where(Member.tenant_id == tenant_id)", "select(Member)"),
        "tests/service/pages/trust/test_bindings_page.py"
        "::test_an_actor_that_is_no_member_here_keeps_its_own_name",
    ),
    Guard(
        "files that share an instant are put in order",
        "analytics/query/ordered_scan.py::are_disjoint",
        Replace(
            "older.max_created_at < newer.min_created_at",
            "older.max_created_at <= newer.min_created_at",
        ),
        f"{_STRAIGHT}::test_files_that_share_an_instant_do_not_lie_apart",
    ),
    Guard(
        "rows past the watermark are no part of an export",
        "analytics/query/ordered_scan.py::_found",
        Replace("pc.and_(mask(query, looked_at), is_old)", "mask(query, looked_at)"),
        f"{_STRAIGHT}::test_every_row_is_the_engines",
    ),
    Guard(
        "files are read no further when an export is stopped",
        "analytics/query/ordered_scan.py::_row_groups",
        DropCall("stop.check"),
        f"{_STRAIGHT}::test_it_ends_when_it_is_stopped",
    ),
    Guard(
        "a day with rows in the journal is put in order",
        "analytics/query/planner.py::Planner.stream",
        Drop("not own.batches"),
        "tests/analytics/query/test_reader.py"
        "::test_a_stream_is_the_whole_list_and_the_count_is_its_length[desc]",
    ),
    Guard(
        "a dictionary's texts are not those of another",
        "analytics/export/text_encoder.py::TextEncoder._dictionary_part",
        Drop("_place(known) != _place(dictionary)"),
        f"{_TEXTS}::test_a_dictionary_that_another_follows_is_not_taken_for_it",
    ),
    Guard(
        "rows of a request are not taken to be alike",
        "analytics/export/gather.py::_by_runs",
        Replace("pc.or_(held_changes, changes)", "held_changes"),
        f"{_TEXTS}::test_what_the_rows_of_a_request_have_in_common_is_looked_at_not_assumed[True]",
    ),
    Guard(
        "a policy is that of its own organisation",
        "service/packages/policy/repository.py::find_revision",
        Replace("PolicyRevision.tenant_id == tenant_id", "PolicyRevision.tenant_id != ''"),
        "tests/service/packages/policy/test_exceptions.py::test_a_policy_is_no_other_organisations",
    ),
    Guard(
        "an exception is decided by its own organisation",
        "service/packages/policy/exceptions.py::decide_exception",
        Replace("PolicyException.tenant_id == org.id", "PolicyException.id != ''"),
        "tests/service/packages/policy/test_exceptions.py::test_a_request_is_decided_once",
    ),
    Guard(
        "a policy that changed meanwhile is not overwritten",
        "service/packages/policy/changes.py::set_policy",
        Drop("replaces != last"),
        "tests/service/packages/policy/test_routes.py"
        "::test_two_who_edit_at_once_do_not_overwrite_each_other",
    ),
    Guard(
        "a version that cannot be read is in every range",
        "service/packages/policy/evaluation.py::Rules.first_or_any",
        Replace("self._rules[0] if self._rules else None", "None"),
        "tests/service/packages/policy/test_evaluation.py"
        "::test_a_version_that_cannot_be_read_is_in_every_range_of_its_package[latest]",
    ),
    Guard(
        "what has no date of publication is too young",
        "service/packages/policy/evaluation.py::PackagePolicy._cooling",
        Replace(
            "published_at and now - published_at >= self.min_age",
            "not published_at or now - published_at >= self.min_age",
        ),
        "tests/service/packages/policy/test_evaluation.py::test_how_old_is_old_enough[None-cooldown_active]",
    ),
    Guard(
        "a local build of the last affected version is affected",
        "service/packages/policy/advisories.py::_reached",
        Replace(
            "after_builds(bound) if kind == 'last_affected' else before(bound)", "before(bound)"
        ),
        "tests/service/packages/policy/test_evaluation.py::test_nothing_gets_past_a_rule_by_spelling_on_pypi",
    ),
    Guard(
        "an entry of a zip is read no further than allowed",
        "service/packages/policy/osv_zip.py::_check_entries",
        Replace("entry.file_size > ENTRY_BYTES_MAX", "False"),
        "tests/service/packages/policy/test_osv_zip.py::test_an_entry_that_is_too_large_is_refused_unread",
    ),
    Guard(
        "an import that was given up does not put its list in force",
        "service/packages/policy/blocklist_generations.py::BlocklistGenerations.switch_on",
        Drop("entry.started_at != begun.at"),
        "tests/service/packages/policy/test_blocklist.py"
        "::test_an_import_that_was_given_up_for_dead_does_not_switch",
    ),
    Guard(
        "a document is judged in the event loop only if it is small",
        "service/packages/proxy/services.py::Located.judge",
        Replace("JUDGED_BYTES", "None"),
        f"{_PROXY}/test_npm_routes.py::test_many_versions_are_judged_in_a_thread",
    ),
    Guard(
        "a watcher that did not run counts no time of a loop",
        "service/app/watchdog.py::StallClock.is_stalled",
        Replace("min(now - self._looked_at, LOOK_MAX_S)", "now - self._looked_at"),
        "tests/service/app/test_watchdog.py::test_a_watcher_that_was_stopped_counts_one_look[60.0]",
    ),
    Guard(
        "a process whose loop does not turn is killed",
        "service/app/supervisor.py::Supervisor._supervise",
        DropCall("self._kill_stalled"),
        "tests/processes/test_workers.py::test_a_process_whose_loop_does_not_turn_is_replaced",
    ),
    Guard(
        "a process that replaces a stalled one begins without its stall",
        "service/app/supervisor.py::Supervisor._start_due",
        DropCall("worker.serving.turns.reset"),
        "tests/processes/test_workers.py::test_a_process_whose_loop_does_not_turn_is_replaced",
    ),
    Guard(
        "a process that is debugged does not end as stalled",
        "service/app/watchdog.py::end_when_stalled",
        Drop("is_traced(os.getpid())"),
        "tests/service/app/test_watchdog.py::test_a_process_that_is_debugged_does_not_end",
    ),
    Guard(
        "connections are aborted when their grace is over",
        "service/app/hypercorn_server.py::serve.abort_after_grace",
        DropCall("connection.abort"),
        f"{_CONNECTIONS}::test_a_client_that_does_not_read_does_not_hold_up_the_end",
    ),
    Guard(
        "a copy is known by its time of writing",
        "analytics/storage/verified_files.py::identity_of",
        Drop("status.st_mtime_ns"),
        f"{_WHOLE}::test_a_copy_with_other_bytes_is_found",
    ),
    Guard(
        "jobs that run are charged already",
        "service/core/fair_queue.py::_Share.used_at",
        Replace("sum(now - began_at for began_at in self.running.values())", "0"),
        f"{_TURNS}::test_jobs_that_run_are_charged_already",
    ),
    Guard(
        "what an organisation used is not forgotten in a pause",
        "service/core/fair_queue.py::FairQueue._forget_idle",
        Replace("not is_any_active or share.used_s <= level", "True"),
        f"{_TURNS}::test_what_an_organisation_used_counts_also_after_a_pause",
    ),
    Guard(
        "metrics are not computed in the event loop",
        "service/app/system.py::Scrapes.get",
        Replace("await in_thread(self._metrics.exposition)", "self._metrics.exposition()"),
        "tests/service/core/test_metrics.py::test_a_page_is_made_once_for_all_who_ask_within_its_age",
    ),
    Guard(
        "an audit query names a bounded number of packages",
        "service/packages/proxy/npm/audit_queries.py::HiddenNames.__call__",
        Replace("self._left < 0", "False"),
        f"{_PROXY}/npm/test_audit_queries.py::test_a_query_that_names_too_many_packages_is_refused",
    ),
    Guard(
        "an audit query has a bounded number of characters to compare",
        "service/packages/proxy/npm/audit_queries.py::HiddenNames.__call__",
        Replace("self._chars_left < 0", "False"),
        f"{_PROXY}/npm/test_audit_queries.py::test_a_query_that_names_too_many_packages_is_refused",
    ),
    Guard(
        "a long audit query is not read in the event loop",
        "service/packages/proxy/npm/audit_queries.py::is_short",
        Replace("len(_unpacked(body, coding, AT_ONCE_BYTES)) <= AT_ONCE_BYTES", "True"),
        f"{_PROXY}/npm/test_audit_queries.py::test_only_a_short_query_is_read_in_the_event_loop",
    ),
    Guard(
        "a gzip body has a bounded number of members",
        "service/packages/proxy/bodies.py::Gunzip._feed",
        Replace("self._members > MEMBERS_MAX", "False"),
        f"{_PROXY}/test_upstream.py::TestDocument::test_gzip_of_very_many_members_is_refused",
    ),
    Guard(
        "a preview takes a bounded number of steps",
        "service/packages/policy/preview.py::judge_releases",
        Replace("steps >= STEPS_MAX", "False"),
        "tests/service/packages/policy/test_preview_steps.py"
        "::test_hostile_rules_end_a_preview_after_a_number_of_steps",
    ),
    Guard(
        "a long policy is compiled in a thread",
        "service/packages/policy/policy_cache.py::_computed",
        Replace("size <= AT_ONCE_BYTES", "True"),
        "tests/service/packages/policy/test_policy_cache.py::test_a_long_policy_is_compiled_in_a_thread",
    ),
    Guard(
        "an exception is of one package, also if its name has a `*`",
        "service/packages/policy/exceptions.py::_package_of",
        Replace("'*' in name", "False"),
        "tests/service/packages/policy/test_exceptions.py"
        "::test_a_name_that_a_rule_takes_for_several_is_refused",
    ),
    Guard(
        "a preview takes names literally, whichever characters they have",
        "service/packages/policy/preview.py::_Previewing._installs",
        Replace("map(literal, values)", "values"),
        "tests/service/packages/proxy/test_preview_dates.py"
        "::test_a_name_with_a_filters_characters_is_taken_literally",
    ),
    Guard(
        "an import leaves the records of other feeds",
        "service/packages/policy/blocklist_loading.py::AdvisoryCarrier._is_kept",
        Drop("row.feed != self._scope.feed"),
        "tests/service/packages/policy/test_blocklist_feeds.py::test_feeds_do_not_touch_each_other",
    ),
    Guard(
        "an import leaves the records of other ids",
        "service/packages/policy/blocklist_loading.py::AdvisoryCarrier._is_kept",
        Drop("not self._scope.matches(advisory_id)"),
        "tests/service/packages/policy/test_blocklist_feeds.py::test_other_ids_stay",
    ),
    Guard(
        "an import leaves ecosystems that its archive is not about",
        "service/packages/policy/blocklist_loading.py::AdvisoryCarrier._is_kept",
        Drop("row.ecosystem not in self._ecosystems"),
        "tests/service/packages/policy/test_blocklist_feeds.py"
        "::test_what_an_archive_does_not_list_is_gone_in_its_ecosystems",
    ),
    Guard(
        "a record that cannot be read leaves its predecessor in force",
        "service/packages/policy/blocklist_loading.py::AdvisoryCarrier._is_kept",
        Replace("advisory_id in self._coverage.unreadable", "False"),
        "tests/service/packages/policy/test_blocklist_feeds.py"
        "::test_a_record_that_cannot_be_read_leaves_its_predecessor",
    ),
    Guard(
        "no rule that compares spellings is accepted",
        "service/packages/versions.py::_specifiers",
        Replace("specifier.operator == '==='", "specifier.operator == ''"),
        "tests/service/packages/test_pypi_versions.py"
        "::test_a_range_that_could_be_evaded_is_refused",
    ),
    Guard(
        "a 304 has no content type for caches to store",
        "service/web/headers.py::with_headers",
        Replace("message['status'] == HTTPStatus.NOT_MODIFIED", "False"),
        f"{_PROXY}/test_not_modified.py::test_a_304_of_a_wheel_describes_no_content[GET]",
    ),
    Guard(
        "a 304 varies by the same fields as the 200",
        "service/web/compression.py::_compress",
        Replace("response.status_code == HTTPStatus.NOT_MODIFIED", "False"),
        f"{_PROXY}/test_not_modified.py::test_a_304_of_a_wheel_describes_no_content[GET]",
    ),
    Guard(
        "where all is blocked nothing is marked",
        "service/packages/proxy/pypi/routes.py::_marks",
        Replace("marks if is_any_left else {}", "marks"),
        f"{_PROXY}/test_pypi_routes.py::test_where_all_is_blocked_nothing_is_marked",
    ),
    Guard(
        "what the registry has yanked is no release that is left",
        "service/packages/proxy/pypi/routes.py::_marks",
        Replace("listed.yanked is False", "True"),
        f"{_PROXY}/test_pypi_routes.py"
        "::test_what_the_registry_has_yanked_is_no_release_that_is_left",
    ),
    Guard(
        "nothing but a reason gets onto the page of a refusal",
        "service/packages/proxy/blocked.py::reason_in",
        Drop("event_of(reason) is not None"),
        f"{_PROXY}/test_blocked.py::test_the_page_says_nothing_but_what_we_write",
    ),
    Guard(
        "a client that keeps leaving does not fill the journal",
        "service/packages/proxy/install_marks.py::count_cut",
        Replace("first.seq >= CUTS_MAX", "False"),
        f"{_PROXY}/test_cut_installs.py"
        "::test_a_client_that_keeps_leaving_does_not_fill_the_journal",
    ),
]
