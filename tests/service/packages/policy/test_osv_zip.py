"""A bulk file is read as a stream, and nothing in it makes the reader take more than it may."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from service.packages.policy import osv_zip as limits
from service.packages.policy.osv_zip import UNUSABLE_ZIP, RecordFile
from tests.budgets import budget
from tests.service.packages.policy.osv_files import osv_record, osv_zip


def read(file: io.BytesIO) -> list[Any]:
    """The ids of all records, None for what cannot be read."""
    return [one.record and one.record.advisory_id for one in RecordFile(file).records()]


def test_records_come_in_the_order_of_the_file() -> None:
    file = osv_zip([osv_record("MAL-1"), osv_record("MAL-2")], readme=b"hello")

    assert read(file) == ["MAL-1", "MAL-2"]


def test_an_unreadable_record_is_named_and_the_others_are_read() -> None:
    """One bad file must not keep 220,000 from being applied."""
    file = osv_zip([osv_record("MAL-1")], **{"bad\x1b.json": b"{"})

    (_, bad) = RecordFile(file).records()

    assert bad.record is None
    assert bad.name == "bad\N{REPLACEMENT CHARACTER}.json"
    assert "not an OSV record" in str(bad.error)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06", b"PK\x05\x06" + bytes(17)])
def test_what_is_no_zip_is_refused(content: bytes) -> None:
    with pytest.raises(UNUSABLE_ZIP):
        read(io.BytesIO(content))


def test_every_cut_of_a_file_is_refused() -> None:
    """A download that broke off is no shorter list."""
    whole = osv_zip([osv_record(f"MAL-{number}") for number in range(3)]).getvalue()

    for length in range(len(whole)):
        with pytest.raises(UNUSABLE_ZIP):
            read(io.BytesIO(whole[:length]))


def test_a_damaged_entry_is_refused() -> None:
    content = bytearray(osv_zip([osv_record("MAL-1", "x" * 50)]).getvalue())
    content[60] ^= 1

    with pytest.raises(UNUSABLE_ZIP, match=r"MAL-1\.json"):
        read(io.BytesIO(content))


def bomb(bytes_: int) -> io.BytesIO:
    """A zip of one entry, tiny as sent."""
    return osv_zip([], **{"bomb.json": bytes(bytes_)})


def test_an_entry_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(UNUSABLE_ZIP, match=r"bomb\.json has more than 16777216 bytes"):
        RecordFile(bomb(limits.ENTRY_BYTES_MAX + 1))


def test_an_entry_that_lies_about_its_size_gives_no_more_than_that() -> None:
    """The list of entries says 10 bytes, the content has 100,000."""
    content = bytearray(bomb(100_000).getvalue())
    directory = content.rfind(b"PK\x01\x02")
    struct.pack_into("<I", content, directory + 24, 10)

    with pytest.raises(UNUSABLE_ZIP, match=r"bomb\.json"):
        read(io.BytesIO(content))


def test_entries_that_are_too_large_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOTAL_BYTES_MAX", 1_000)

    with pytest.raises(UNUSABLE_ZIP, match="1000 bytes"):
        read(osv_zip([osv_record(f"MAL-{number}") for number in range(20)]))


def test_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes memory before one is read."""
    monkeypatch.setattr(limits, "ENTRIES_MAX", 2)

    with pytest.raises(UNUSABLE_ZIP, match="2 entries"):
        read(osv_zip([osv_record(f"MAL-{number}") for number in range(3)]))


def test_a_list_of_entries_that_is_too_long_is_refused_unread() -> None:
    """It is read whole: its size must be known first, also in the form for large files."""
    content = bytearray(osv_zip([osv_record("MAL-1")]).getvalue())
    end = content.rfind(b"PK\x05\x06")
    struct.pack_into("<I", content, end + 12, limits.DIRECTORY_BYTES_MAX + 1)
    large = content[:end]
    offset = len(large)
    large += struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 2**40, 0)
    large += struct.pack("<4sIQI", b"PK\x06\x07", 0, offset, 1) + content[end:]

    for file in (content, large):
        with pytest.raises(UNUSABLE_ZIP, match="list of entries has more than"):
            RecordFile(io.BytesIO(file))


def test_a_second_form_for_large_files_hides_no_list_of_entries() -> None:
    """Its locator points to a small one; readers of zip files take the one before the locator."""
    content = osv_zip([osv_record("MAL-1")]).getvalue()
    end = content.rfind(b"PK\x05\x06")
    file = content[:end]
    for directory_bytes in (1, 2**40):
        file += struct.pack(
            "<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, directory_bytes, 0
        )
    file += struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1) + content[end:]

    with pytest.raises(UNUSABLE_ZIP, match="not where it says"):
        RecordFile(io.BytesIO(file))


def test_an_encrypted_entry_is_refused() -> None:
    content = bytearray(osv_zip([osv_record("MAL-1")]).getvalue())
    content[content.rfind(b"PK\x01\x02") + 8] |= 1

    with pytest.raises(UNUSABLE_ZIP, match="encrypted"):
        RecordFile(io.BytesIO(content))


def test_the_form_for_large_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSV's file of everything has more than 65,535 entries."""
    limit = budget(100, 65_535)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", limit)  # beyond it the form is another
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        for number in range(limit + 1):
            opened.writestr(f"{number}.txt", b"")
        opened.writestr("MAL-1.json", b'{"id": "MAL-1"}')

    assert b"PK\6\6" in file.getvalue()
    assert read(file) == ["MAL-1"]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_entries_of_other_methods_are_refused_unread(method: int) -> None:
    """An entry in LZMA may ask for gigabytes of memory before its first byte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as opened:
        opened.writestr("MAL-1.json", b'{"id": "MAL-1"}')

    with pytest.raises(UNUSABLE_ZIP, match=r"MAL-1\.json is not stored or deflated"):
        RecordFile(file)


def test_entries_that_overlap_are_refused_unread() -> None:
    """Many entries that share one stream make gigabytes of a small file."""
    file = osv_zip([osv_record("MAL-1", "x" * 500)])
    content = file.getvalue()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    many = content[:start] + 50 * content[start:end]
    ending = bytearray(content[end:])
    struct.pack_into("<HHII", ending, 8, 50, 50, 50 * (end - start), start)

    with pytest.raises(UNUSABLE_ZIP, match="its entries overlap"):
        RecordFile(io.BytesIO(many + ending))


def test_an_entry_outside_the_file_is_refused(tmp_path: Path) -> None:
    """Also before it: the list's place is counted from its end."""
    content = bytearray(osv_zip([osv_record("MAL-1"), osv_record("MAL-2")]).getvalue())
    place = content.rfind(b"PK\x05\x06") + 16
    (offset,) = struct.unpack_from("<I", content, place)
    struct.pack_into("<I", content, place, offset + 60)
    path = tmp_path / "osv.zip"
    path.write_bytes(content)

    with path.open("rb") as file, pytest.raises(UNUSABLE_ZIP, match="is not in the file"):
        RecordFile(file)


def test_an_entry_without_a_name_is_no_record() -> None:
    """It cannot be told apart from a folder, which `ZipFile` then fails to do."""
    content = osv_zip([osv_record("MAL-1")]).getvalue()
    start = content.index(b"PK\x01\x02")
    entry = bytearray(content[start : content.index(b"PK\x05\x06")])
    name_bytes = struct.unpack_from("<H", entry, 28)[0]
    struct.pack_into("<H", entry, 28, 0)
    del entry[46 : 46 + name_bytes]
    ending = bytearray(content[content.index(b"PK\x05\x06") :])
    struct.pack_into("<I", ending, 12, len(entry))

    assert read(io.BytesIO(content[:start] + entry + ending)) == []
