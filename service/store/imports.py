"""Which files' rows an organisation has already."""

from sqlalchemy.ext.asyncio import AsyncSession

from service.store.tables import ImportedFile


async def find_import(session: AsyncSession, tenant_id: str, sha256: str) -> ImportedFile | None:
    """The import of a file with these bytes into this organisation, or None."""
    return await session.get(ImportedFile, (tenant_id, sha256))


async def add_import(session: AsyncSession, imported: ImportedFile) -> None:
    """Remember `imported`: from the commit on, its bytes are not taken again."""
    session.add(imported)
    await session.flush()
