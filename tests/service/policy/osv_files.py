"""OSV records and their bulk file, built in the test."""

import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any

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
            opened.writestr(f"{record.get('id', number)}.json", json.dumps(record))
        for name, content in files.items():
            opened.writestr(name, content)
    file.seek(0)
    return file
