"""Checks a backup without restoring it."""

from collections.abc import Callable
from pathlib import Path

from analytics.storage.file_copy import sha256_of
from service.audit.backup.manifest import KeptFile, Manifest, read_manifest
from service.audit.backup.object_versions import version_fault
from service.audit.segment_stores import open_objects_at
from service.core.settings import Settings


def check_backup(
    settings: Settings, source: Path, show: Callable[[int, int], None]
) -> tuple[Manifest, list[str]]:
    """The manifest of the backup in `source`, and a line for each file or version that is wrong.

    Each is read as a whole, except indexes in the bucket, which can be rebuilt. `show` is called
    with the bytes done and in total. Raises as `read_manifest`, StoreUnreachable.
    """
    manifest = read_manifest(source)
    total, done = manifest.size_with_objects, 0
    findings: list[str] = []
    for file in manifest.files:
        if fault := _file_fault(source / file.path, file):
            findings.append(f"{file.path}: {fault}")
        done += file.size
        show(done, total)
    if not manifest.object_versions:
        return manifest, findings
    objects = open_objects_at(settings, manifest.objects_place)
    for entry in manifest.object_versions:
        if not entry.is_index and (fault := version_fault(objects, entry)):
            findings.append(f"{entry.path}: {fault}")
        done += entry.size
        show(done, total)
    return manifest, findings


def _file_fault(path: Path, file: KeptFile) -> str:
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{size} bytes instead of {file.size}"
        return "" if sha256_of(path) == file.sha256 else "it has other contents"
    except FileNotFoundError:
        return "it is missing"
