"""OSV's bulk file, a zip with one JSON file per record: read as a stream, with limits."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from service.core.errors import Invalid
from service.core.text_rules import printable
from service.packages.policy.osv import OsvRecord, UnreadableRecord, parse_record

FILE_BYTES_MAX: Final = 4 * 2**30
ENTRIES_MAX: Final = 2_000_000
DIRECTORY_BYTES_MAX: Final = 512 * 2**20
"""Size of the list of entries, which is read all at once."""
ENTRY_BYTES_MAX: Final = 16 * 2**20
TOTAL_BYTES_MAX: Final = 16 * 2**30
"""Size of all entries together, decompressed."""

_END: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_COMMENT_MAX: Final = 65_535
_END_64_LOCATOR: Final = b"PK\x06\x07"
_LOCATOR_BYTES: Final = 20
_END_64: Final = b"PK\x06\x06"
_END_64_BYTES: Final = 56
_ENCRYPTED: Final = 0x1
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""OSV's. Others may take memory without limit: LZMA as much as an entry claims to need."""
_IN_END_64: Final = 0xFFFFFFFF


UNUSABLE_ZIP: Final = Invalid.of(
    "not a usable zip file: {value}", value="it has no list of entries"
)


class ReadRecord(NamedTuple):
    """One entry: its record, or None and the reason why it cannot be read.

    `advisory_id` is None if not even that can be read.
    """

    name: str
    record: OsvRecord | None
    error: str | None
    advisory_id: str | None


class RecordFile:
    """The records in the seekable `file`. Raises UNUSABLE_ZIP."""

    def __init__(self, file: BinaryIO) -> None:
        # First, because `ZipFile` reads the whole list of entries into memory.
        _check_directory(file)
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise UNUSABLE_ZIP(value=str(error)) from error
        self._entries = [
            entry for entry in self._zip.infolist() if entry.filename.lower().endswith(".json")
        ]
        _check_entries(self._entries, file.seek(0, 2))

    def records(self) -> Iterator[ReadRecord]:
        """Each record. Raises UNUSABLE_ZIP."""
        total = 0
        for entry in self._entries:
            data = self._read(entry)
            total += len(data)
            if total > TOTAL_BYTES_MAX:
                raise UNUSABLE_ZIP(value=f"its entries have more than {TOTAL_BYTES_MAX} bytes")
            yield _record(entry.filename, data)

    def _read(self, entry: zipfile.ZipInfo) -> bytes:
        try:
            with self._zip.open(entry) as opened:
                # One byte more than allowed: the size in the list of entries may be a lie.
                data = opened.read(ENTRY_BYTES_MAX + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
        ) as error:
            raise UNUSABLE_ZIP(value=f"{_display_name(entry.filename)}: {error}") from error
        if len(data) > ENTRY_BYTES_MAX:
            raise UNUSABLE_ZIP(value=_too_large(entry.filename))
        return data


def _record(name: str, data: bytes) -> ReadRecord:
    try:
        record = parse_record(data)
        return ReadRecord(_display_name(name), record, None, record.advisory_id)
    except UnreadableRecord as error:
        return ReadRecord(_display_name(name), None, str(error), error.advisory_id)


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    if len(entries) > ENTRIES_MAX:
        raise UNUSABLE_ZIP(value=f"it has more than {ENTRIES_MAX} entries")
    for entry in entries:
        if entry.file_size > ENTRY_BYTES_MAX:
            raise UNUSABLE_ZIP(value=_too_large(entry.filename))
        if not 0 <= entry.header_offset < size:
            raise UNUSABLE_ZIP(value=f"{_display_name(entry.filename)} is not in the file")
        if entry.compress_type not in _METHODS:
            raise UNUSABLE_ZIP(value=f"{_display_name(entry.filename)} is not stored or deflated")
        if entry.flag_bits & _ENCRYPTED:
            raise UNUSABLE_ZIP(value=f"{_display_name(entry.filename)} is encrypted")
    if sum(entry.compress_size for entry in entries) > size:
        raise UNUSABLE_ZIP(value="its entries overlap")
    if sum(entry.file_size for entry in entries) > TOTAL_BYTES_MAX:
        raise UNUSABLE_ZIP(value=f"its entries have more than {TOTAL_BYTES_MAX} bytes")


def _check_directory(file: BinaryIO) -> None:
    """Raise UNUSABLE_ZIP if the stated size of the list of entries is too large."""
    size = file.seek(0, 2)
    if size > FILE_BYTES_MAX:
        raise UNUSABLE_ZIP(value=f"it has more than {FILE_BYTES_MAX} bytes")
    start = max(0, size - _END_BYTES - _COMMENT_MAX)
    file.seek(start)
    tail = file.read()
    end = tail.rfind(_END)
    if end < 0 or len(tail) - end < _END_BYTES:
        raise UNUSABLE_ZIP(value="it has no list of entries")
    (directory_bytes,) = struct.unpack_from("<I", tail, end + 12)
    locator = end - _LOCATOR_BYTES
    if locator >= 0 and tail.startswith(_END_64_LOCATOR, locator):
        # 0xFFFFFFFF is no size: it refers to the zip64 record. Of two stated sizes, the larger
        # counts.
        stated_bytes = _in_end_64(file, start + locator, tail[locator:end])
        directory_bytes = max(stated_bytes, directory_bytes % _IN_END_64)
    if directory_bytes > DIRECTORY_BYTES_MAX:
        raise UNUSABLE_ZIP(value=f"its list of entries has more than {DIRECTORY_BYTES_MAX} bytes")
    file.seek(0)


def _in_end_64(file: BinaryIO, offset: int, locator: bytes) -> int:
    """The size of the list of entries that the zip64 record states; its locator is at `offset`.

    `ZipFile` reads the record right before the locator, wherever that says it is.
    """
    place = offset - _END_64_BYTES
    if place < 0 or struct.unpack_from("<Q", locator, 8) != (place,):
        raise UNUSABLE_ZIP(value="its list of entries is not where it says")
    file.seek(place)
    record = file.read(_END_64_BYTES)
    if not record.startswith(_END_64):
        raise UNUSABLE_ZIP(value="its list of entries is not where it says")
    directory_bytes: int = struct.unpack_from("<Q", record, 40)[0]
    return directory_bytes


def _too_large(name: str) -> str:
    return f"{_display_name(name)} has more than {ENTRY_BYTES_MAX} bytes decompressed"


def _display_name(name: str) -> str:
    """The name of an entry for messages: bounded, and without control characters."""
    return printable(name[:100])
