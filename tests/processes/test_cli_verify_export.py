"""`countersign audit exports` and `verify-export`: whether a file is what was exported."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.budgets import sample
from tests.processes.homes import Home

pytestmark = pytest.mark.slow

FORMS = [
    ("csv", None),
    ("json", None),
    ("ndjson", None),
    ("parquet", None),
    ("csv", "gzip"),
    ("ndjson", "zstd"),
]
NAMES = ("a", '=b"', "c,d")
"""Of teams, so that CSV has something to quote."""


@pytest.fixture(scope="module")
def filled(quiet_home: Home) -> Home:
    for name in NAMES:
        quiet_home.ask("team", "add", "--org", "acme", name)
    return quiet_home


def export(home: Home, name: str, file_format: str, compression: str | None = None) -> dict:
    compress = ("--compress", compression) if compression else ()
    words = ("--event", "team_created", "--format", file_format, *compress, "--force")
    return home.ask("audit", "export", "--org", "acme", *words, str(home.folder / name))


def keep_receipt(home: Home, exported: dict) -> Path:
    ran = home.order("audit", "exports", "receipt", "--org", "acme", exported["export_id"])
    path = Path(f"{exported['path']}.receipt.json")
    path.write_text(ran.out)
    return path


@sample(3)
@pytest.mark.parametrize(("file_format", "compression"), FORMS)
def test_a_file_is_found_to_be_its_exports(filled, file_format, compression):
    name = f"whole.{file_format}.{compression}"
    exported = export(filled, name, file_format, compression)
    receipt = keep_receipt(filled, exported)
    same = {
        "path": exported["path"],
        "export_id": exported["export_id"],
        "is_the_exported_file": True,
        "differences": [],
    }

    verify = ("audit", "verify-export", exported["path"])
    assert filled.ask(*verify) == same
    assert filled.ask(*verify, "--receipt", str(receipt)) == same
    assert filled.ask(*verify, "--export", exported["export_id"], "--org", "acme") == same
    ran = filled.order(*verify)
    assert f"is the file of export {exported['export_id']}: 3 rows, " in ran.out


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_a_changed_byte_is_found(filled, file_format):
    exported = export(filled, f"changed.{file_format}", file_format)
    keep_receipt(filled, exported)
    path = Path(exported["path"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    ran = filled.order("audit", "verify-export", str(path), "--json")

    assert ran.code == 1
    found = {one["what"]: one for one in json.loads(ran.out)["differences"]}
    assert "sha256" in found
    assert "bytes" not in found
    assert found["sha256"]["expected"] == exported["sha256"]
    said = filled.order("audit", "verify-export", str(path))
    assert said.code == 1
    assert "is NOT the file of export" in said.out
    assert f"the receipt says {exported['sha256']}" in said.out


def test_a_missing_row_is_found_as_rows_and_bytes(filled):
    exported = export(filled, "short.ndjson", "ndjson")
    keep_receipt(filled, exported)
    path = Path(exported["path"])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))

    ran = filled.order("audit", "verify-export", str(path), "--json")

    assert ran.code == 1
    differences = {one["what"]: one for one in json.loads(ran.out)["differences"]}
    assert set(differences) == {"bytes", "sha256", "rows"}
    assert (differences["rows"]["expected"], differences["rows"]["found"]) == (3, 2)


def test_a_file_that_cannot_be_read_as_its_format_says_so(filled):
    exported = export(filled, "cut.csv.gz", "csv", "gzip")
    keep_receipt(filled, exported)
    path = Path(exported["path"])
    path.write_bytes(path.read_bytes()[:-20])

    ran = filled.order("audit", "verify-export", str(path))

    assert ran.code == 1
    assert "number of rows cannot be told: the file is damaged" in ran.out


def test_a_receipt_suffices_without_a_data_dir(filled, tmp_path):
    """The auditor has the file and its receipt, and no service."""
    exported = export(filled, "away.csv", "csv")
    receipt = keep_receipt(filled, exported)
    elsewhere = Home(tmp_path)

    verify = ("audit", "verify-export", exported["path"], "--receipt", str(receipt))
    assert elsewhere.ask(*verify)["is_the_exported_file"] is True
    assert not elsewhere.data_dir.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("no-such.csv", "--export", "exp_none", "--org", "acme"), 1, "Export not found"),
        (("no-such.csv", "--export", "exp_none"), 2, "--export needs --org"),
        (("x", "--export", "exp_none", "--receipt", "y"), 2, "exclude each other"),
        (("no-such.csv",), 1, "name the receipt (--receipt) or --export"),
        (("no-such.csv", "--receipt", "no-such.json"), 1, "no-such.json"),
    ],
)
def test_what_cannot_be_compared_says_why(filled, words, code, said):
    ran = filled.order("audit", "verify-export", *words)

    assert ran.code == code
    assert said in ran.err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"receipt": 1}', "\ufeff\x00"])
def test_what_is_no_receipt_is_refused(filled, tmp_path, text):
    exported = export(filled, "plain.csv", "csv")
    path = tmp_path / "receipt.json"
    path.write_text(text)

    ran = filled.order("audit", "verify-export", exported["path"], "--receipt", str(path))

    assert ran.code == 1
    assert "is not the receipt of an export" in ran.refusal


def test_a_receipt_of_a_later_version_asks_for_a_later_program(filled, tmp_path):
    """Its keys may mean something else by then."""
    exported = export(filled, "later.csv", "csv")
    receipt = json.loads(keep_receipt(filled, exported).read_text())
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt | {"receipt": 2}))

    ran = filled.order("audit", "verify-export", exported["path"], "--receipt", str(path))

    assert ran.code == 1
    assert "use a newer countersign" in ran.refusal


def test_a_damaged_receipt_is_named(filled, tmp_path):
    """What it says beside the file's own digest, such as the filters, is evidence as well."""
    exported = export(filled, "flipped.csv", "csv")
    text = keep_receipt(filled, exported).read_text()
    fields = json.loads(text)
    del fields["digest"]
    counted = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    path = tmp_path / "receipt.json"
    path.write_text(text.replace('"system:cli"', '"system:clj"'))

    ran = filled.order("audit", "verify-export", exported["path"], "--receipt", str(path))
    path.write_text(json.dumps(fields))
    earlier = filled.ask("audit", "verify-export", exported["path"], "--receipt", str(path))

    assert json.loads(text)["digest"] == hashlib.sha256(counted.encode()).hexdigest()
    assert ran.code == 1
    assert "is damaged: its digest is another one" in ran.refusal
    assert earlier["is_the_exported_file"] is True


def test_exports_are_listed_and_shown(filled):
    first, second = (export(filled, f"listed-{n}.csv", "csv") for n in range(2))
    listed = filled.ask("audit", "exports", "list", "--org", "acme", "--limit", "1")
    assert [entry["id"] for entry in listed["exports"]] == [second["export_id"]]
    more = filled.ask(
        "audit", "exports", "list", "--org", "acme", "--cursor", listed["next_cursor"]
    )
    assert more["exports"][0]["id"] == first["export_id"]
    assert more["exports"][0]["sha256"] == first["sha256"]
    text = filled.order("audit", "exports", "list", "--org", "acme").out
    assert f"{first['export_id']}" in text
    assert "finished" in text

    shown = filled.order("audit", "exports", "show", "--org", "acme", first["export_id"]).out
    assert "filters" in shown
    assert "event=team_created" in shown
    assert first["sha256"] in shown
