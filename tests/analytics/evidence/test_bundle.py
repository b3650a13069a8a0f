"""Bundles: what was changed in one is named, and what is proved is no more than that."""

import io
import random
import zipfile
from collections.abc import Callable, Mapping

import pytest

from analytics.evidence.bundle import TEXT_BYTES_MAX, verify_bundle
from analytics.evidence.notes import Note, consistency_text
from analytics.evidence.policies import Policy
from analytics.evidence.verification import FINDINGS_MAX, Verification
from tests.budgets import budget
from tests.evidence.logs import Log, SomeWitness

LOG = Log(300)
OTHER = Log(300, tenant_id="org_other")
PLACES = [3, 4, 5, 6, 7, 250, 299]
RANGE = range(100, 140)

Files = dict[str, bytes]


def unpacked(bundle: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(bundle)) as files:
        return {name: files.read(name) for name in files.namelist()}


def packed(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return target.getvalue()


ROWS = unpacked(LOG.bundle(PLACES))
ALL = unpacked(LOG.bundle(RANGE))
TRUSTED = Policy.parse(LOG.policy.encode())


def verify(files: Mapping[str, bytes], policy: Policy | None = TRUSTED) -> Verification:
    return verify_bundle(io.BytesIO(packed(files)), policy)


def findings(files: Mapping[str, bytes]) -> list[str]:
    return verify(files).findings


def proof_name(index: int) -> str:
    return f"proofs/{LOG.id(index)}.tlog-proof"


def without_line(content: bytes, number: int) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[:number] + lines[number + 1 :])


def test_what_is_proved_is_said() -> None:
    result = verify(ROWS)
    assert result.findings == []
    assert result.proved == [
        f"7 rows (index 3 to 299) are, byte for byte, in the log {LOG.origin} of 300 rows, as its"
        f" checkpoint says, which {LOG.key.label} signed",
    ]
    assert [text.partition(":")[0] for text in result.not_proved] == [
        "that the operator signed no other history",
        "that these are all",
        "that all was written that happened, or that created_at is true",
    ]


def test_a_range_has_all_rows() -> None:
    result = verify(ALL)
    assert result.findings == []
    assert result.proved[0].startswith("40 rows (index 100 to 139) are, byte for byte, in the log")
    assert result.proved[1] == "no row is left out between these indexes"


def test_one_row_is_said_of_without_a_range() -> None:
    result = verify(unpacked(LOG.bundle([7])))
    assert result.findings == []
    assert result.proved[0].startswith("1 row (index 7) is, byte for byte, in the log")
    assert not any("left out" in text for text in result.proved)


def test_the_same_rows_make_the_same_bundle() -> None:
    assert LOG.bundle(PLACES) == LOG.bundle(PLACES)


def test_an_empty_bundle_proves_no_row() -> None:
    result = verify(unpacked(LOG.bundle([])))
    assert result.findings == []
    (proved,) = result.proved
    assert proved.startswith("no rows are")


def test_what_is_written_is_compressed() -> None:
    with zipfile.ZipFile(io.BytesIO(LOG.bundle(PLACES))) as bundle:
        assert {info.compress_type for info in bundle.infolist()} == {zipfile.ZIP_DEFLATED}


def changed_row(files: Files) -> str:
    files["rows.ndjson"] = files["rows.ndjson"].replace(b"blocklist_hit", b"blocklist_hot", 1)
    return f"row {LOG.id(3)} (index 3) or its proof is changed: the proof does not"


def changed_proof(files: Files) -> str:
    files[proof_name(5)] = LOG.proof(6).encode().replace(b"index 6", b"index 5")
    return f"row {LOG.id(5)} (index 5) or its proof is changed"


def removed_row(files: Files) -> str:
    files["rows.ndjson"] = without_line(files["rows.ndjson"], 2)
    return f"{proof_name(5)}: its row is left out of rows.ndjson"


def removed_proof(files: Files) -> str:
    del files[proof_name(5)]
    return f"rows.ndjson, line 3: row {LOG.id(5)} has no proof, or is there twice"


def doubled_row(files: Files) -> str:
    first = files["rows.ndjson"].split(b"\n")[0]
    files["rows.ndjson"] = first + b"\n" + files["rows.ndjson"]
    return f"rows.ndjson, line 2: row {LOG.id(3)} has no proof, or is there twice"


def swapped_rows(files: Files) -> str:
    lines = files["rows.ndjson"].splitlines(keepends=True)
    files["rows.ndjson"] = b"".join([lines[1], lines[0], *lines[2:]])
    return f"row {LOG.id(3)} (index 3) comes after that of index 4"


def unreadable_row(files: Files) -> str:
    files["rows.ndjson"] += b"{\n"
    return "rows.ndjson, line 8: "


def index_twice(files: Files) -> str:
    files[proof_name(5)] = LOG.proof(4).encode()
    return f"row {LOG.id(5)} (index 4) comes after that of index 4"


def changed_checkpoint(files: Files) -> str:
    files["checkpoint.txt"] = files["checkpoint.txt"].replace(b"\n300\n", b"\n301\n")
    return f"checkpoint.txt: the signature of {LOG.origin} is wrong"


def changed_origin(files: Files) -> str:
    files["checkpoint.txt"] = files["checkpoint.txt"].replace(b"audit.example", b"b.example", 1)
    return "checkpoint.txt: of the log b.example/org_acme; trusted are: audit.example/org_acme+"


def other_checkpoint(files: Files) -> str:
    files["checkpoint.txt"] = str(LOG.checkpoint(299)).encode()
    return f"{proof_name(3)}: it leads to another checkpoint, of 300 rows of audit.example/org_acme"


def other_organisations_proof(files: Files) -> str:
    files[proof_name(5)] = OTHER.proof(5).encode()
    return f"{proof_name(5)}: of the log {OTHER.origin}; trusted are: {LOG.key.label}"


def no_text(files: Files) -> str:
    files["checkpoint.txt"] = b"\xff" + files["checkpoint.txt"]
    return "checkpoint.txt: 'utf-8' codec can't decode"


CHANGES = [
    changed_row,
    changed_proof,
    removed_row,
    removed_proof,
    doubled_row,
    swapped_rows,
    unreadable_row,
    index_twice,
    changed_checkpoint,
    changed_origin,
    other_checkpoint,
    other_organisations_proof,
    no_text,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_changed_is_named(change: Callable[[Files], str]) -> None:
    files = dict(ROWS)
    expected = change(files)
    found = findings(files)
    assert any(expected in finding for finding in found), found


def test_a_row_removed_with_its_proof_is_a_finding_where_all_are_asked_for() -> None:
    files = dict(ALL)
    files["rows.ndjson"] = without_line(files["rows.ndjson"], 2)
    del files[proof_name(102)]

    result = verify_bundle(io.BytesIO(packed(files)), TRUSTED, is_complete=True)

    assert result.findings == ["rows.ndjson: the rows of index 102 to 102 are left out"]
    whole = verify_bundle(io.BytesIO(packed(ALL)), TRUSTED, is_complete=True)
    assert whole.findings == []


@pytest.mark.parametrize(
    ("left_out", "extent", "gaps"),
    [
        ([110], "39 rows (index 100 to 139)", "index 110 to 110 are left out"),
        ([110, 111, 130], "37 rows (index 100 to 139)", "110 to 111 are left out, and 1 ranges"),
        ([100], "39 rows (index 101 to 139)", ""),
        ([138, 139], "38 rows (index 100 to 137)", ""),
    ],
)
def test_rows_are_said_to_be_all_between_two_indexes_alone(
    left_out: list[int], extent: str, gaps: str
) -> None:
    files = dict(ALL)
    lines = files["rows.ndjson"].splitlines(keepends=True)
    files["rows.ndjson"] = b"".join(
        line for index, line in zip(RANGE, lines, strict=True) if index not in left_out
    )
    for index in left_out:
        del files[proof_name(index)]
    result = verify(files)
    assert result.findings == []
    assert result.proved[0].startswith(extent)
    said = [text for text in result.proved + result.not_proved if "left out" in text]
    assert [gaps in text for text in said] == [True]
    assert ("no row is left out between these indexes" in result.proved) is (not gaps)


def test_every_changed_byte_of_rows_proofs_and_checkpoint_is_found() -> None:
    """By the seed and the place, one byte in a file becomes another."""
    signed = {name: content for name, content in ALL.items() if name != "README.txt"}
    for seed in range(budget(50, 2_000)):
        rng = random.Random(seed)
        name = rng.choice(sorted(signed.keys() - {"policy.txt", "log.vkey"}))
        content = bytearray(ALL[name])
        at = rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
        assert findings(ALL | {name: bytes(content)}), (seed, name, at)


def test_no_truncated_or_damaged_bundle_ends_otherwise_than_in_findings() -> None:
    whole = packed(ALL)
    for seed in range(budget(100, 5_000)):
        rng = random.Random(seed)
        damaged = bytearray(whole)
        if seed % 3:
            for _ in range(rng.randrange(1, 30)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        else:
            del damaged[rng.randrange(len(damaged)) :]
        result = verify_bundle(io.BytesIO(bytes(damaged)), TRUSTED)
        is_whole = result.proved == verify(ALL).proved
        assert result.findings or is_whole, seed


def test_a_wrong_key_is_told_from_a_changed_checkpoint() -> None:
    """One key pair signs for all organisations, under a name for each."""
    bundle = packed(ROWS)
    for log in (OTHER, Log(1, seed="another key")):
        (finding,) = verify_bundle(io.BytesIO(bundle), keys=[log.key]).findings
        assert finding.startswith("checkpoint.txt: ")
        assert finding.endswith(f"trusted are: {log.key.label}")
    assert f"signed by {LOG.key.label}; trusted" in finding


def test_a_key_that_the_bundle_brings_itself_is_not_proved() -> None:
    result = verify_bundle(io.BytesIO(packed(ROWS)))
    assert result.findings == []
    assert f"that the key is the operator's: {LOG.key} is the bundle's own" in result.not_proved[0]
    given = verify_bundle(io.BytesIO(packed(ROWS)), keys=[LOG.key])
    assert given.proved == result.proved
    assert not any("bundle's own" in text for text in given.not_proved)


def test_a_whole_forged_bundle_is_found_by_the_key_that_is_given() -> None:
    """All its own parts agree."""
    forged = Log(300, seed="forger")
    bundle = io.BytesIO(forged.bundle(PLACES))
    assert verify_bundle(bundle).findings == []
    assert verify_bundle(bundle, keys=[LOG.key]).findings == [
        f"checkpoint.txt: signed by {forged.key.label}; trusted are: {LOG.key.label}"
    ]


def test_keys_that_differ_from_those_of_the_policy_are_named() -> None:
    files = ROWS | {"log.vkey": f"{OTHER.key}\n".encode()}
    assert verify(files, None).findings == ["log.vkey: it has other keys than policy.txt"]


def test_a_policy_that_cannot_be_read_is_named() -> None:
    files = ROWS | {"policy.txt": b"quorum W\n"}
    assert verify(files).findings == []
    assert verify(files, None).findings == [
        "policy.txt: line 1: no witness or group W stands above"
    ]


def test_rows_that_are_left_out_are_named_in_order() -> None:
    files = ROWS | {"rows.ndjson": b""}
    named = [finding.partition(":")[0] for finding in findings(files)]
    assert named == [*map(proof_name, PLACES)]


W1, W2, W3 = (SomeWitness(f"w{n}.example/a") for n in (1, 2, 3))
WITNESSED = "".join(
    [
        f"log {LOG.key}\n",
        *(f"witness {w.name} {w.key} https://{w.name}\n" for w in (W1, W2, W3)),
        f"group both 2 {W1.name} {W2.name} {W3.name}\nquorum both\n",
    ]
)


def test_witnesses_are_named_with_their_times() -> None:
    note = W2.cosign(W1.cosign(LOG.checkpoint()), 1_795_000_060)
    result = verify(unpacked(LOG.bundle(PLACES, checkpoint=note, policy=WITNESSED)), None)
    assert result.findings == []
    assert result.proved[1:] == [
        f"{W1.key.label} cosigned the checkpoint at 2026-11-18T11:06:40Z",
        f"{W2.key.label} cosigned the checkpoint at 2026-11-18T11:07:40Z",
    ]
    assert "that the keys of the witnesses are theirs" in result.not_proved[0]
    assert not any("no other history" in text for text in result.not_proved)


def test_too_few_witnesses_are_named() -> None:
    note = W1.cosign(LOG.checkpoint())
    files = unpacked(LOG.bundle(PLACES, checkpoint=note))
    assert verify(files, Policy.parse(WITNESSED.encode())).findings == [
        f"checkpoint.txt: cosigned by {W1.key.label}, which is not the quorum both"
    ]


def test_a_changed_cosignature_is_named() -> None:
    note = W1.cosign(LOG.checkpoint())
    changed = Note(note.text, (note.signatures[0], note.signatures[1][:-8] + "AAAAAA=="))
    files = unpacked(LOG.bundle(PLACES, checkpoint=changed))
    result = verify(files, Policy.parse(WITNESSED.encode()))
    assert result.findings == [f"checkpoint.txt: the signature of {W1.name} is wrong"]


def consistent(old: int, older: Note | None = None) -> Files:
    hashes = LOG.tree.consistency(old, LOG.size)
    text = consistency_text(old, hashes, str(older or LOG.checkpoint(old)))
    return ROWS | {"consistency.txt": text.encode()}


def test_an_older_checkpoint_is_proved_to_begin_the_log() -> None:
    result = verify(consistent(200))
    assert result.findings == []
    assert "the log of 200 rows of an older checkpoint begins it" in result.proved


def test_a_history_that_was_written_again_is_found() -> None:
    rewritten = Log(LOG.size)
    rewritten.leaves = [LOG.leaves[0], *rewritten.leaves[:-1]]
    assert findings(consistent(200, rewritten.checkpoint(200))) == [
        "consistency.txt: the proof does not lead to the roots",
    ]


def test_consistency_of_another_size_or_log_is_refused() -> None:
    assert "it is of the first 200 rows" in findings(consistent(200, LOG.checkpoint(100)))[0]
    assert (
        "of the log audit.example/org_other" in findings(consistent(200, OTHER.checkpoint(200)))[0]
    )


def test_consistency_with_another_trusted_log_is_refused() -> None:
    """A policy may name several."""
    both = Policy((LOG.key, OTHER.key))
    assert verify(consistent(200, OTHER.checkpoint(200)), both).findings == [
        f"consistency.txt: it is of the first 200 rows of {OTHER.origin}"
    ]


def test_a_row_of_another_organisation_in_the_log_is_named() -> None:
    mixed = Log(300)
    mixed.entries[5], mixed.leaves[5] = OTHER.entries[5], OTHER.leaves[5]
    assert findings(unpacked(mixed.bundle([4, 5]))) == [
        f"row {LOG.id(5)}: it is of another organisation, org_other"
    ]


def test_an_encrypted_file_is_refused() -> None:
    """Nothing asks for a password."""
    bundle = packed({"rows.ndjson": ROWS["rows.ndjson"]} | ROWS)
    flags = {b"PK\x03\x04": 6, b"PK\x01\x02": 8}
    encrypted = bytearray(bundle)
    for header, offset in flags.items():
        encrypted[bundle.index(header) + offset] |= 1
    assert verify_bundle(io.BytesIO(bytes(encrypted)), TRUSTED).findings == [
        "the bundle: rows.ndjson is encrypted, or compressed by another method than deflate"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "../rows.ndjson",
        "/etc/passwd",
        "export/../x",
        "export/..",
        "export/a/b",
        "proofs/aud_1.tlog-proof",
        "rows.ndjson/",
        "proofs/../rows.ndjson",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert findings(ROWS | {name: b"x"}) == [f"the bundle: {name} does not belong in it"]


def test_two_files_of_one_name_are_refused() -> None:
    """Which of them is read differs between programs."""
    target = io.BytesIO(packed(ROWS))
    with zipfile.ZipFile(target, "a") as bundle, pytest.warns(UserWarning, match="Duplicate"):
        bundle.writestr("rows.ndjson", ROWS["rows.ndjson"])
    assert verify_bundle(target, TRUSTED).findings == ["the bundle: it has 2 files rows.ndjson"]


def test_a_bomb_is_not_unpacked() -> None:
    target = io.BytesIO(packed(ROWS))
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(proof_name(9), bytes(8 * 1024 * 1024))
    assert verify_bundle(target, TRUSTED).findings == [
        f"the bundle: {proof_name(9)} is longer than 1,048,576 bytes"
    ]


def test_more_than_the_limits_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"ROWS_MAX": len(ROWS), "BYTES_MAX": sum(map(len, ROWS.values()))}
    for name, value in limits.items():
        monkeypatch.setattr(f"analytics.evidence.bundle.{name}", value)
    assert findings(ROWS) == []
    for name, value in limits.items():
        with monkeypatch.context() as limited:
            limited.setattr(f"analytics.evidence.bundle.{name}", value - 1)
            (finding,) = findings(ROWS)
            assert finding.startswith("the bundle: it has more than ")


def test_a_file_may_have_the_size_of_the_limit() -> None:
    longest = ROWS["README.txt"].ljust(TEXT_BYTES_MAX)
    assert findings(ROWS | {"README.txt": longest}) == []
    assert "README.txt is longer" in findings(ROWS | {"README.txt": longest + b" "})[0]


def test_other_compression_is_refused() -> None:
    """Some methods take much memory to unpack little."""
    files = {name: content for name, content in ROWS.items() if name != "README.txt"}
    target = io.BytesIO(packed(files))
    with zipfile.ZipFile(target, "a", zipfile.ZIP_LZMA) as bundle:
        bundle.writestr("README.txt", b"x")
    (finding,) = verify_bundle(target, TRUSTED).findings
    assert "README.txt is encrypted, or compressed by another method" in finding


def test_a_row_without_end_is_refused() -> None:
    files = ROWS | {"rows.ndjson": b"[" * 3 * 1024 * 1024}
    assert any("rows.ndjson, line 1: " in finding for finding in findings(files))


def test_findings_end_where_more_tell_nothing() -> None:
    files = dict(ALL) | {"rows.ndjson": b"x\n" * 100_000}
    assert len(findings(files)) == FINDINGS_MAX


def test_what_is_no_zip_is_said_to_be_none() -> None:
    assert verify_bundle(io.BytesIO(b"x")).findings == ["the bundle: File is not a zip file"]
