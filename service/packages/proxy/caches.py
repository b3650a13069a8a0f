"""The caches of a process: files and documents of one data dir, within one limit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from analytics.cache.lru import ByteCache
from service.audit.lake import Lake
from service.core.settings import Settings
from service.packages.proxy.disk_cache import FREE_BYTES_MIN
from service.packages.proxy.document_files import DocumentFiles
from service.packages.proxy.file_cache import FileCache

DOCUMENTS_PART: Final = 16
"""Documents have this part of the limit on disk: 640 MiB of 10 GiB, a thousand very large ones."""

DOCUMENT_MEMORY_BYTES: Final = 32 * 2**20
"""Compressed documents in memory, of all registries of a process."""

DECODED_MEMORY_BYTES: Final = 12 * 2**20
"""Decoded documents, for installs under way: each requests page, metadata and file in turn."""


@dataclass(frozen=True, slots=True)
class PackageCaches:
    """Everything that the proxy caches from its registries."""

    files: FileCache
    documents: DocumentFiles
    memory: ByteCache
    decoded: ByteCache

    async def sweep(self) -> None:
        """Remove what processes that died left behind, and what is over the limits.

        Call it at the start and periodically: other processes fill the same folders.
        """
        await self.files.sweep()
        await self.documents.sweep()

    async def close(self) -> None:
        """End all downloads."""
        await self.files.close()


def open_caches(
    settings: Settings, lake: Lake, observe: Callable[[str], None] = lambda _: None
) -> PackageCaches:
    """The caches in the data dir of `settings`; nothing is read or created until they are used.

    `observe` is called for each use of the files, see FileCache.
    """
    root, bytes_max = settings.package_cache_dir, settings.proxy_cache_bytes_max
    for_documents = bytes_max // DOCUMENTS_PART
    return PackageCaches(
        files=FileCache(root / "files", bytes_max - for_documents, observe=observe),
        documents=DocumentFiles(
            root / "documents", for_documents, lake, free_bytes_min=FREE_BYTES_MIN
        ),
        memory=ByteCache(DOCUMENT_MEMORY_BYTES),
        decoded=ByteCache(DECODED_MEMORY_BYTES),
    )
