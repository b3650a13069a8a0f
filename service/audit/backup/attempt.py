"""The id of the installation that a restore makes; a killed attempt leaves it to the next one."""

import json
from pathlib import Path

from analytics.storage.fsync import fsync, write_synced
from service.audit.backup.manifest import Manifest
from service.core.ids import new_id


class RestoreAttempt:
    """An attempt to restore a backup as the data dir at `data_dir`.

    Its installation is not that of the backup, which may still be running, nor that of an earlier
    restore that ended: each of these may remove objects of the other. It is that of an attempt
    that was killed, so that the next one may go on with the objects that are there. A file beside
    the data dir has it until then.
    """

    def __init__(self, manifest: Manifest, data_dir: Path) -> None:
        self._file = data_dir.with_name(f".{data_dir.name}.restore")
        self._backup = manifest.digest
        self.installation = self._left_behind() or new_id("inst")

    def begin(self) -> None:
        """Leave the id to the next attempt, from now on."""
        content = {"backup": self._backup, "installation": self.installation}
        write_synced(self._file, json.dumps(content).encode(), 0o600)

    def end(self) -> None:
        """Leave it no longer: the installation will be in place next, or it has no objects."""
        self._file.unlink(missing_ok=True)
        fsync(self._file.parent)

    def _left_behind(self) -> str:
        """The id of an earlier attempt with the same backup, or ""."""
        try:
            content = json.loads(self._file.read_bytes())
            return str(content["installation"]) if content["backup"] == self._backup else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""
