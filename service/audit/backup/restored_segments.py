"""Puts the segments of a backup into the bucket that the settings name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analytics.model.errors import StoreFault
from analytics.storage.objects import Objects
from analytics.storage.prefix_owner import PrefixOwner, PrefixTaken
from analytics.storage.verified_files import COPY_MODE
from service.audit.backup.attempt import RestoreAttempt
from service.audit.backup.manifest import AUDIT, Manifest
from service.audit.backup.object_versions import BroughtBack
from service.audit.backup.refusals import ObjectDiffers, PrefixInUse
from service.audit.segment_stores import open_objects
from service.core.settings import Settings


class RestoredSegments:
    """The bucket's prefix, for the installation that is being restored.

    Its files become copies of the objects. Without a bucket they are the segments.
    """

    def __init__(self, settings: Settings, attempt: RestoreAttempt, *, is_taken_over: bool) -> None:
        self._settings = settings
        self._objects = open_objects(settings) if settings.segments_url else None
        self._attempt = attempt
        self._is_taken_over = is_taken_over
        self._has_uploaded = False

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """In the block the prefix is no other installation's; it stays ours if it gets objects.

        With `is_taken_over` it may be another's, and becomes ours by `take_over`. Raises
        PrefixInUse, StoreFault.
        """
        if self._objects is None or self._is_taken_over:
            yield
            return
        owner, installation = PrefixOwner(self._objects), self._attempt.installation
        self._attempt.begin()
        try:
            is_adopted = not owner.is_owner(installation)
            if is_adopted:
                owner.adopt(installation, ())
        except PrefixTaken as error:
            self._attempt.end()
            raise PrefixInUse(value=str(error)) from error
        try:
            yield
        except BaseException:
            # With objects in it, it is kept for another attempt, which has the same id. An earlier
            # attempt may have put them there.
            if is_adopted and not self._has_uploaded:
                with suppress(StoreFault):  # what went wrong before is what the caller must know
                    owner.give_up()
                    self._attempt.end()
            raise

    def put(self, manifest: Manifest, part: Path, show: Callable[[int, int], None]) -> None:
        """Upload the segments and indexes that are in `part`, and bring back those of versions.

        `show` is called with their bytes. Raises ObjectDiffers, BackupDamaged, StoreFault.
        """
        if self._objects is not None:
            # Before the first object: an upload that fails may have stored some.
            self._has_uploaded = True
            _upload(self._objects, manifest, part)
        if not manifest.object_versions:
            return
        versions = BroughtBack(self._settings, manifest, self._objects, part)
        done = manifest.size
        for entry in manifest.object_versions:
            versions.put(entry)
            done += entry.size
            show(done, manifest.size_with_objects)

    def take_over(self) -> None:
        """End the right of a former owner to the prefix. Raises StoreFault."""
        if self._objects is not None and self._is_taken_over:
            PrefixOwner(self._objects).take_over(self._attempt.installation)


def _upload(objects: Objects, manifest: Manifest, part: Path) -> None:
    folder = part / AUDIT
    for file in manifest.files:
        path = part / file.path
        if not path.is_relative_to(folder):
            continue
        key = path.relative_to(folder).as_posix()
        if path.suffix == ".index":
            objects.replace(key, path)
        elif not objects.create(key, path) and objects.digest(key, file.size) != file.sha256:
            raise ObjectDiffers(value=key)
        # Only now that it is stored may the file be dropped as a copy.
        path.chmod(COPY_MODE)
