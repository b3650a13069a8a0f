"""OSV records and their bulk file, built in the test."""

import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any

_DATE = (2026, 1, 1, 0, 0, 0)
"""Of every entry: the same records make the same bytes, whenever the file is built."""

EVERYTHING = [{"type": "SEMVER", "events": [{"introduced": "0"}]}]


def osv_record(advisory_id: str, name: str = "evil", ecosystem: str = "npm", **changes: Any) -> Any:
    """A record that all versions of one package are malicious; `changes` replace its parts."""
    affected = {"package": {"ecosystem": ecosystem, "name": name}, "ranges": EVERYTHING}
    affected |= {key: changes.pop(key) for key in ("versions", "ranges") if key in changes}
    return {
        "id": advisory_id,
        "modified": "2026-01-01T00:00:00Z",
        "affected": [affected],
        **changes,
    }


def osv_zip(records: Iterable[Any], **files: bytes) -> io.BytesIO:
    """The bulk file of `records`, with further `files` by name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for number, record in enumerate(records):
            _add(opened, f"{record.get('id', number)}.json", json.dumps(record).encode())
        for name, content in files.items():
            _add(opened, name, content)
    file.seek(0)
    return file


def _add(opened: zipfile.ZipFile, name: str, content: bytes) -> None:
    opened.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
