"""The folder of a backup and its manifest, which lists the files.

A folder is filled under a temporary name, and renamed when it is complete. One whose files differ
from the manifest is not restored.
"""

import hashlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from analytics.model.instants import format_us, parse_instant
from analytics.model.schema import SCHEMA_VERSION
from analytics.storage.bucket_place import InvalidPlace, parse_place
from analytics.storage.fsync import write_synced
from service.audit.backup.refusals import (
    BACKUP_INSIDE,
    NEWER_BACKUP,
    NOT_A_BACKUP,
    TOO_LITTLE_SPACE,
    BackupDamaged,
)
from service.store.migrate import check_version

FORMAT: Final = 5
"""The newest format that this version reads: with versions of objects that go when they are pruned.

4 is with versions of objects in place of segments, 3 with a dump of PostgreSQL, 2 with a SQLite
file.
"""

NAME: Final = "manifest.json"
AUDIT: Final = "audit"
DATABASE: Final = "countersign.db"
"""The file name of the database in a backup, regardless of its name in the data dir."""
DUMP: Final = "countersign.dump"
"""The file name of a PostgreSQL database in a backup, as pg_dump writes it (`--format=custom`)."""


class KeptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file; `path` is relative to the backup, with `/`. `size` is in bytes."""

    path: str
    size: int
    sha256: str


class KeptObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is not in the backup: a version of an object of the bucket.

    `path` is where it would be. `sha256` is what the catalog says, "" for an index of which it says
    nothing. From `pruned_at` on it may be gone, with its day; only in format 5.
    """

    path: str
    size: int
    sha256: str
    version: str
    pruned_at: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> str:
        """The object's key, below the prefix."""
        return self.path.removeprefix(f"{AUDIT}/")

    def is_needed(self, now: datetime) -> bool:
        """False for an index, which can be built again, and for rows that are pruned by `now`."""
        is_pruned = self.pruned_at is not msgspec.UNSET and parse_instant(self.pruned_at) <= now
        return not is_pruned and not self.is_index

    @property
    def is_index(self) -> bool:
        """True for an index, which is built again if it is missing or damaged."""
        return self.path.endswith(".index")


class MissingSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment that is in the database but not in the backup.

    `path` is where it would be, `rows` its number of rows, `kind` its fault as in `audit check`.
    """

    path: str
    rows: int
    kind: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a backup; `rows` counts its audit rows, sealed or not.

    `schema` is the database's last migration, `audit_schema` the newest version of the audit rows
    (not in format 1). `digest` is the SHA-256 of the manifest without it. `missing` is present only
    if a segment is missing. `objects`, of the bucket and prefix `place`, are in formats 4 and 5.
    """

    format: int
    schema: str
    taken_at: str
    rows: int
    files: tuple[KeptFile, ...]
    digest: str = ""
    audit_schema: int | msgspec.UnsetType = msgspec.UNSET
    missing: tuple[MissingSegment, ...] | msgspec.UnsetType = msgspec.UNSET
    place: str | msgspec.UnsetType = msgspec.UNSET
    objects: tuple[KeptObject, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def object_versions(self) -> tuple[KeptObject, ...]:
        """The versions of objects that belong to the backup."""
        return () if self.objects is msgspec.UNSET else self.objects

    @property
    def objects_place(self) -> str:
        """The URL of bucket and prefix of these; "" without any."""
        return "" if self.place is msgspec.UNSET else self.place

    @property
    def missing_segments(self) -> tuple[MissingSegment, ...]:
        """The segments that were missing or damaged when the backup was taken."""
        return () if self.missing is msgspec.UNSET else self.missing

    @property
    def is_postgresql(self) -> bool:
        """True if the database is in it as a dump, False if as a SQLite file."""
        return any(file.path == DUMP for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def size_with_objects(self) -> int:
        """Bytes of all files and objects."""
        return self.size + sum(entry.size for entry in self.object_versions)

    def with_digest(self) -> "Manifest":
        """The manifest with its digest."""
        plain = msgspec.structs.replace(self, digest="")
        digest = hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
        return msgspec.structs.replace(self, digest=digest)


class _ManifestFormat(msgspec.Struct, frozen=True):
    """The part of a manifest that all versions have in common."""

    format: int


def make_manifest(
    schema: str,
    taken_at: datetime,
    rows: int,
    files: Iterable[KeptFile],
    missing: Sequence[MissingSegment] = (),
    place: str = "",
    objects: Sequence[KeptObject] = (),
) -> Manifest:
    """The manifest for `files`, for `objects` below `place`, and for the `missing` segments."""
    kept = tuple(files)
    goes = any(entry.pruned_at is not msgspec.UNSET for entry in objects)
    return Manifest(
        format=5 if goes else 4 if place else 3 if any(file.path == DUMP for file in kept) else 2,
        schema=schema,
        taken_at=format_us(taken_at),
        rows=rows,
        files=kept,
        audit_schema=SCHEMA_VERSION,
        missing=tuple(missing) or msgspec.UNSET,
        place=place or msgspec.UNSET,
        objects=tuple(objects) if place else msgspec.UNSET,
    ).with_digest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest durably to the backup's `folder`."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    write_synced(folder / NAME, content + b"\n", 0o600)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`, verified, and of a version that this one can read.

    Raises NOT_A_BACKUP, BackupDamaged, NEWER_BACKUP, NEWER_DATABASE.
    """
    try:
        content = (folder / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NOT_A_BACKUP(value=str(folder)) from error
    try:
        # First: a newer manifest may have fields that this version takes for damage.
        if msgspec.json.decode(content, type=_ManifestFormat).format > FORMAT:
            raise NEWER_BACKUP
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupDamaged(value=NAME) from error
    paths = [file.path for file in manifest.files]
    paths += [entry.path for entry in manifest.object_versions]
    if manifest != manifest.with_digest() or not all(map(_is_within, paths)):
        raise BackupDamaged(value=NAME)
    if not _are_of_a_bucket(manifest):
        raise BackupDamaged(value=NAME)
    if not {DATABASE, DUMP} & {file.path for file in manifest.files}:
        raise BackupDamaged(value=f"{DATABASE} is not in {NAME}")
    check_version(manifest.schema)
    if (manifest.audit_schema or 1) > SCHEMA_VERSION:
        raise NEWER_BACKUP
    return manifest


def _are_of_a_bucket(manifest: Manifest) -> bool:
    """True if the objects are segments and indexes below a prefix that is named."""
    objects = manifest.object_versions
    try:
        if manifest.objects_place or objects:
            parse_place(manifest.objects_place)
    except InvalidPlace:
        return False
    return all(entry.path.startswith(f"{AUDIT}/tenant=") and entry.version for entry in objects)


def _is_within(name: str) -> bool:
    """True if the path is valid and stays within the backup's folder."""
    path = PurePosixPath(name)
    return (
        "\0" not in name and name == str(path) and not path.is_absolute() and ".." not in path.parts
    )


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, accessible to its owner only: `.<name>.<random>.part`.

    It is removed at the end of the block unless it was renamed; a killed process leaves it behind.
    It is on the same file system as `target`, so that the rename is atomic.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(mode=0o700)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_apart(backup: Path, data_dir: Path) -> None:
    """Raise BACKUP_INSIDE if one of the folders contains the other."""
    backup, data_dir = backup.resolve(), data_dir.resolve()
    if backup.is_relative_to(data_dir) or data_dir.is_relative_to(backup):
        raise BACKUP_INSIDE(value=str(backup))


def check_room(part: Path, size: int) -> None:
    """Raise TOO_LITTLE_SPACE if `part` has less than `size` bytes free: before a long copy."""
    free = shutil.disk_usage(part).free
    if free < size:
        raise TOO_LITTLE_SPACE(value=str(part.parent), needed=str(size), free=str(free))
