"""Each admitted package has a statement, which verifiers that were not written here accept."""

import asyncio
import base64
import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packageurl import PackageURL
from securesystemslib.exceptions import VerificationError

from analytics.model.envelopes import InstallCut
from analytics.model.instants import format_us
from service.audit.evidence.keys import begin_key
from service.audit.importer import ImportJob, ImportWatch
from service.packages.attestations import attestation_api
from service.packages.attestations.attestation_api import Ingestor
from service.packages.refusals import NoStatement
from service.store.journal import append
from service.store.organisations import get_org
from service.store.transaction import within
from tests.conftest import BY_OPERATOR, START
from tests.service.audit.evidence.proving import checked, take_in
from tests.service.audit.test_import import source
from tests.service.gates import open_gate
from tests.service.packages.attestations.conftest import LEFT_PAD, Attested
from tests.service.packages.attestations.rows import RUN, admit, admitted_row
from tests.service.packages.attestations.verifiers import payload_of, verified
from tests.service.packages.install_tokens.jobs import INSTALL, bearer, exchanged, new_key
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.proxy.files import LARGE, held
from tests.service.packages.proxy.proxied import (
    deny,
    proxied_gate,
    second_process,
    wheel_of,
)
from tests.service.packages.proxy.registry import FakeRegistry
from tests.service.packages.proxy.served import serving

TARBALL = hashlib.sha256(b"left-pad@1.3.0").hexdigest()
TARBALL_512 = hashlib.sha512(b"left-pad@1.3.0").hexdigest()
URL = "http://localhost:8080"
NOT_OURS = "the row has no statement: it is not of an install that this service's proxy let through"


async def import_blocklist(attested: Attested, *records: Any) -> None:
    response = await attested.proxied.world.client.post(
        "/api/v1/operator/blocklist/imports?file=all.zip",
        headers=[*attested.proxied.world.admin.items(), ("content-type", "application/zip")],
        data=osv_zip(records).read(),
    )
    assert response.status_code == 200, await response.get_data(as_text=True)


async def test_a_statement_says_all_that_the_row_does(attested: Attested):
    await import_blocklist(attested, osv_record("MAL-1", "evil"))
    await attested.proxied.policy(deny=[deny("npm", "another")])
    row = await attested.install()

    statement = await attested.verified(await attested.envelope(row["id"]))

    expected = {"sha512": TARBALL_512}
    isolation = "The service stores and forwards package files, and executes nothing of them."
    at = row["created_at"]
    assert statement == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {
                "name": "left-pad-1.3.0.tgz",
                "uri": "pkg:npm/left-pad@1.3.0",
                "digest": {"sha256": TARBALL, **expected},
                "annotations": {"auditId": row["id"], "organisation": row["tenant_id"]},
            }
        ],
        "predicateType": "https://slsa.dev/dependency/v1",
        "predicate": {
            "ingestor": {"id": f"{URL}/admin/ui/orgs/acme"},
            "ingestionPlatform": {"id": URL},
            "upstream": {
                "registry": f"{attested.proxied.registry.url}/npm/",
                "name": "left-pad",
                "version": "1.3.0",
                "digest": expected,
            },
            "ingestion": {"timestamp": at, "path": f"{URL}/proxy/acme/npm/"},
            "scans": [
                {
                    "type": "blocklist",
                    "dataSource": "blocklist, generation 1",
                    "scanner": {"id": URL},
                    "timestamp": at,
                    "verdict": "clean",
                }
            ],
            "integrity": {"method": "hash", "expected": expected, "result": "verified"},
            "publisherSignature": {"result": "unverified"},
            "policyEvaluations": [
                {
                    "policy": {"id": f"{URL}/api/v1/admin/orgs/acme/policy", "version": "1"},
                    "timestamp": at,
                    "result": "allow",
                    "description": "no rule is against it",
                }
            ],
            "ingestionIsolation": {"method": "no-dep-code-executed", "description": isolation},
        },
    }


async def test_without_blocklist_and_policy_it_says_so(attested: Attested):
    row = await attested.install()

    predicate = (await attested.verified(await attested.envelope(row["id"])))["predicate"]

    (scan,) = predicate["scans"]
    assert (scan["availability"], "verdict" in scan) == ("unavailable", False)
    assert predicate["policyEvaluations"][0]["policy"]["version"] == "0"


async def test_it_says_which_rule_lifted_the_cooldown(attested: Attested):
    at = {"1.3.0": attested.proxied.clock.now}
    attested.proxied.publishes_npm("left-pad", "1.3.0", at=at)
    allow = [{"id": "urgent", **deny("npm", "left-pad", "1.3.0")}]
    await attested.proxied.policy(cooldown={"min_age_days": 7}, allow=allow)
    assert (await attested.proxied.get(LEFT_PAD)).status_code == 200
    (row,) = await attested.proxied.rows()

    predicate = (await attested.verified(await attested.envelope(row["id"])))["predicate"]

    assert predicate["policyEvaluations"][0]["description"] == "rule urgent lifts the cooldown"


async def test_it_says_that_the_release_was_the_cure(attested: Attested):
    proxied = attested.proxied
    proxied.publishes_npm("left-pad", "1.2.0", "1.3.0", at={"1.3.0": proxied.clock.now})
    await import_blocklist(attested, osv_record("MAL-1", "left-pad", versions=["1.2.0"], ranges=[]))
    await proxied.policy(cooldown={"min_age_days": 7, "cure": True})
    assert (await proxied.get(LEFT_PAD)).status_code == 200
    (row,) = await proxied.rows()

    predicate = (await attested.verified(await attested.envelope(row["id"])))["predicate"]

    described = predicate["policyEvaluations"][0]["description"]
    assert described == "the cure: no older release is without advisory, 1.2.0 has MAL-1"


async def test_the_blocklist_was_not_asked_about_a_first_party_package(attested: Attested):
    row = await attested.install()
    own = {"event": "oss_first_party", "payload": {"registry": "internal", **row["payload"]}}

    predicate = json.loads(Ingestor(URL, "acme").statement(row | own))["predicate"]

    (evaluation,) = predicate["policyEvaluations"]
    assert evaluation["description"] == "first-party: from internal alone"
    assert predicate["scans"] == []


async def test_a_file_of_pypi_is_verified_by_the_digest_of_its_subject(attested: Attested):
    attested.proxied.publishes("foo", wheel_of("foo", "1.0+local.1"))
    row = await attested.install(await attested.proxied.path_of("foo"))

    statement = await attested.verified(await attested.envelope(row["id"]))

    (subject,) = statement["subject"]
    assert subject["digest"] == {"sha256": row["file_sha256"]}
    assert statement["predicate"]["integrity"]["expected"] == subject["digest"]
    assert subject["uri"] == "pkg:pypi/foo@1.0%2Blocal.1"


async def test_the_same_row_is_stated_in_the_same_bytes(attested: Attested):
    """In canonical JSON: who has the row and the address can make them."""
    row = await attested.install()
    first = await attested.envelope(row["id"])
    attested.proxied.clock.advance(hours=1)
    await attested.proxied.world.services.sealer.seal_due(everything=True)
    async with second_process(attested.proxied) as other:
        again = await Attested(other).envelope(row["id"])

    assert first == again
    assert base64.b64decode(first["payload"]) == rfc8785.dumps(payload_of(first))
    assert base64.b64decode(first["payload"]) == Ingestor(URL, "acme").statement(row)


async def test_the_log_proves_what_a_statement_says(attested: Attested):
    """Its payload follows from the leaf of the row: it was not made up later."""
    row = await attested.install()
    said = base64.b64decode((await attested.envelope(row["id"]))["payload"])
    world = attested.proxied.world
    await take_in(world.services)
    proof = await world.client.get(
        f"/api/v1/admin/orgs/acme/audit/{row['id']}/proof", headers=world.admin
    )
    leaf = await proof.get_json()

    checked(leaf)
    assert leaf["keys"][0].endswith(str((await attested.keys()).popitem()[1]).rpartition("+")[2])
    entry = json.loads(leaf["entry"])
    assert (
        Ingestor(URL, "acme").statement(entry | {"payload": json.loads(entry["payload"])}) == said
    )


@pytest.mark.parametrize("what", ["payload", "type", "signature", "key"])
async def test_verifiers_refuse_what_is_not_as_it_was_signed(attested: Attested, what: str):
    envelope = await attested.envelope((await attested.install())["id"])
    ((key_id, key),) = (await attested.keys()).items()
    said, (signature,) = payload_of(envelope), envelope["signatures"]
    if what == "payload":
        said["predicate"]["policyEvaluations"][0]["policy"]["version"] = "7"
        envelope["payload"] = base64.b64encode(rfc8785.dumps(said)).decode()
    elif what == "type":
        envelope["payloadType"] = "application/json"
    elif what == "signature":
        signature["sig"] = base64.b64encode(bytes(64)).decode()
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()

    with pytest.raises(VerificationError):
        verified(envelope, key_id, other if what == "key" else key.public)


@pytest.mark.parametrize(
    ("ecosystem", "name", "version"),
    [
        ("npm", "@acme/left-pad", "1.0.0-rc.1+build.5"),
        ("npm", "lodash.merge", "4.6.2"),
        ("pypi", "zope-interface", "1!2.0.post1"),
    ],
)
async def test_a_package_url_is_spelt_as_others_do(ecosystem: str, name: str, version: str):
    row = {
        "id": "aud_1",
        "tenant_id": "org_1",
        "event": "install_allowed",
        "created_at": format_us(START),
        "received_at": format_us(START),
        "ecosystem": ecosystem,
        "packageName": name,
        "version": version,
        "file_name": None,
        "file_sha256": "0" * 64,
        "run_id": None,
        "repository_id": None,
        "payload": {
            "admission": {"registry": "r", "policy_revision": 0, "blocklist_generation": 0}
        },
    }
    (subject,) = json.loads(Ingestor(URL, "acme").statement(row))["subject"]

    namespace, _, last = name.rpartition("/")
    purl = PackageURL(ecosystem, namespace or None, last, version)
    assert subject["uri"] == purl.to_string()
    assert subject["name"] == f"{name}@{version}"


class TestRefusals:
    """What is not of an admitted package has no statement."""

    async def test_a_blocked_install(self, attested: Attested):
        await attested.proxied.policy(deny=[deny("npm", "left-pad")])
        attested.proxied.publishes_npm("left-pad", "1.3.0")
        await attested.proxied.get(LEFT_PAD)
        (row,) = await attested.proxied.rows()

        assert await attested.refusal(row["id"]) == (404, NOT_OURS)

    async def test_an_install_that_only_audit_mode_let_through(self, attested: Attested):
        """SLSA: no provenance with a `deny`, and there was one."""
        await attested.proxied.policy(mode="audit", deny=[deny("npm", "left-pad")])
        row = await attested.install()

        status, text = await attested.refusal(row["id"])
        assert (status, "audit mode" in text) == (404, True)

    async def test_an_install_that_a_sender_reports(self, attested: Attested):
        """Its sender decided: this service can state nothing of it."""
        world = attested.proxied.world
        item = {"event": "install_allowed", "packageName": "x", "version": "1", "ecosystem": "npm"}
        sent = await world.client.post(
            "/api/v1/admin/orgs/acme/audit/events", headers=world.admin, json=[item]
        )
        assert sent.status_code in {200, 201}, await sent.get_data(as_text=True)

        assert await attested.refusal((await world.audit())[0]["id"]) == (404, NOT_OURS)

    async def test_a_row_of_a_file(self, attested: Attested):
        """It may say anything, such as what another service admitted."""
        row = await attested.install()
        kept = {key: row[key] for key in ("created_at", "event", "packageName", "payload")}
        attested.proxied.clock.advance(hours=1)
        world = attested.proxied.world
        job = ImportJob(world.acme, source(json.dumps(kept).encode()), BY_OPERATOR, False)
        watch = ImportWatch(on_progress=lambda _: None, on_refused=lambda _: None)
        await world.services.importer.take(job, watch, 0.0)
        (imported,) = [
            each for each in await world.audit(event="install_allowed") if each["id"] != row["id"]
        ]

        assert imported["payload"] == row["payload"]
        assert await attested.refusal(imported["id"]) == (404, NOT_OURS)

    async def test_another_event(self, attested: Attested):
        rows = await attested.proxied.world.audit()
        assert await attested.refusal(rows[0]["id"]) == (404, NOT_OURS)

    @pytest.mark.parametrize("audit_id", ["aud_0000000000000009999", "aud_x"])
    async def test_no_row(self, attested: Attested, audit_id: str):
        status, text = await attested.refusal(audit_id)
        assert (status, text) == (404, "Audit row not found for this org")

    async def test_another_organisations_row(self, attested: Attested):
        row = await attested.install()

        status, text = await attested.refusal(row["id"], "other")
        assert (status, text) == (404, "Audit row not found for this org")

    async def test_a_row_past_retention(self, attested: Attested):
        row = await attested.install()
        attested.proxied.clock.advance(days=4000)

        status, text = await attested.refusal(row["id"])
        assert (status, text) == (404, "Audit row not found for this org")

    async def test_a_file_that_did_not_arrive_whole(self, attested: Attested):
        """`verified` would be wrong: the registry sent another file than its document says."""
        proxied = attested.proxied
        proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
        path, gate = await proxied.path_of("foo"), asyncio.Event()
        sent = LARGE[:-1] + b"!"
        proxied.registry.does("/files/foo-1.0-py3-none-any.whl", held(sent, gate, len(LARGE)))
        async with serving(proxied) as served:
            assert not (await served.get(path, on_body=gate)).is_whole
            await served.services.proxy.installs.close()
        proxied.registry.says("/files/foo-1.0-py3-none-any.whl", LARGE)
        assert await (await proxied.get(path)).get_data() == LARGE
        allowed, cut, again = await proxied.rows()

        status, text = await attested.refusal(allowed["id"])
        assert (status, cut["id"] in text) == (404, True)
        assert await attested.verified(await attested.envelope(again["id"]))
        listed = (await attested.answer("attestations"))["installs"]
        assert [entry["missing"] for entry in listed] == [text, None]

    async def test_every_cut_is_looked_for(
        self, attested: Attested, monkeypatch: pytest.MonkeyPatch
    ):
        """Also if more transfers were cut off than are read at once."""
        monkeypatch.setattr(attestation_api, "_ROWS", 1)
        services, clock = attested.proxied.world.services, attested.proxied.clock
        for is_cut in (True, False, True):
            await admit(services)
            if is_cut:
                (install, *_) = await attested.proxied.world.audit(run_id=RUN)
                cut = InstallCut(install_id=install["id"], bytes_sent=1, cause="connection_closed")
                async with services.store.write() as work:
                    org = await get_org(work.session, "acme")
                    row = admitted_row(work.now, envelope=cut)
                    await append(work.session, org.id, [row], now=work.now)
            clock.advance(hours=1)

        listed = (await attested.answer("attestations", run_id=RUN))["installs"]
        assert [entry["missing"] is None for entry in listed] == [False, True, False]

    @pytest.mark.parametrize("ahead_s", [-30, 30])
    async def test_a_row_that_was_not_stored_when_it_happened(
        self, attested: Attested, ahead_s: int
    ):
        row = await attested.install()
        at = datetime.fromisoformat(row["created_at"]) + timedelta(seconds=ahead_s)

        with pytest.raises(NoStatement):
            Ingestor(URL, "acme").statement(row | {"created_at": format_us(at)})


class TestOfARun:
    """A CI run's packages, in pages."""

    async def test_all_that_a_run_installed(self, settings: Any, registry: FakeRegistry):
        async with open_gate(settings) as gate, proxied_gate(gate, registry) as proxied:
            attested = Attested(proxied)
            proxied.publishes_npm("left-pad", "1.3.0")
            proxied.publishes_npm("lodash", "4.17.21")
            for run in ("1", "2"):
                token = (await exchanged(gate, await new_key(gate.world, INSTALL), run_id=run))[
                    "token"
                ]
                for path in (LEFT_PAD, "npm/lodash/-/lodash-4.17.21.tgz"):
                    assert (await proxied.bare(path, bearer(token))).status_code == 200

            listed = (await attested.answer("attestations", run_id="2"))["installs"]
            statements = [await attested.verified(entry["statement"]) for entry in listed]

            assert [entry["package"] for entry in listed] == ["left-pad", "lodash"]
            notes = [statement["subject"][0]["annotations"] for statement in statements]
            assert [note["runId"] for note in notes] == ["2", "2"]
            assert [note["auditId"] for note in notes] == [entry["id"] for entry in listed]
            repository = notes[0]["repositoryId"]
            of_it = await attested.answer("attestations", run_id="2", repository_id=repository)
            assert of_it["installs"] == listed
            elsewhere = await attested.answer("attestations", run_id="2", repository_id="9")
            assert elsewhere["installs"] == []

    async def test_pages_have_each_install_once(self, attested: Attested):
        versions = [f"1.{minor}.0" for minor in range(5)]
        attested.proxied.publishes_npm("left-pad", *versions)
        for version in versions:
            await attested.proxied.get(f"npm/left-pad/-/left-pad-{version}.tgz")
            attested.proxied.clock.advance(seconds=1)

        seen, more = [], {}
        while True:
            page = await attested.answer("attestations", limit=2, **more)
            seen += [entry["version"] for entry in page["installs"]]
            if page["next_cursor"] is None:
                break
            more = {"cursor": page["next_cursor"]}
        assert seen == versions

    async def test_what_has_no_statement_is_listed_with_the_reason(self, attested: Attested):
        """Or a bundle would look complete that is not."""
        await attested.proxied.policy(mode="audit", deny=[deny("npm", "left-pad")])
        await attested.install()

        (entry,) = (await attested.answer("attestations"))["installs"]
        assert (entry["statement"], "audit mode" in entry["missing"]) == (None, True)


class TestKeys:
    """The key that signs is the one that signs checkpoints."""

    async def test_the_first_statement_begins_the_first_key(self, attested: Attested):
        assert (await attested.answer("attestations"))["installs"] == []
        row = await attested.install()
        assert await attested.keys() == {}

        envelope = await attested.envelope(row["id"])
        assert list(await attested.keys()) == [envelope["signatures"][0]["keyid"]]

    async def test_after_a_rotation_both_keys_verify_their_own(self, attested: Attested):
        row = await attested.install()
        before = await attested.envelope(row["id"])
        services = attested.proxied.world.services
        attested.proxied.clock.advance(seconds=1)
        async with services.store.write() as work:
            await within(work.session, begin_key, services.settings.secret_key, work.now)
        after = await attested.envelope(row["id"])

        assert before["payload"] == after["payload"]
        assert before["signatures"] != after["signatures"]
        assert await attested.verified(before) == await attested.verified(after)

    async def test_with_another_secret_key_nothing_is_signed(
        self, attested: Attested, registry: FakeRegistry
    ):
        row = await attested.install()
        await attested.envelope(row["id"])
        async with second_process(attested.proxied, secret_key="another" * 8) as other:
            status, text = await Attested(other).refusal(row["id"])

        assert (status, "evidence key rotate" in text) == (409, True)
