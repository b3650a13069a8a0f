"""Which files were already imported into an organisation."""

from sqlalchemy.ext.asyncio import AsyncSession

from service.store.tables import ImportedFile


async def find_import(session: AsyncSession, tenant_id: str, sha256: str) -> ImportedFile | None:
    """The import of a file with these bytes into this organisation, or None."""
    return await session.get(ImportedFile, (tenant_id, sha256))


async def add_import(session: AsyncSession, imported: ImportedFile) -> None:
    """Store `imported`: from the commit on, the same bytes are not imported again."""
    session.add(imported)
    await session.flush()
