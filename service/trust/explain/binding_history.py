"""An organisation's bindings, active and revoked, for explanations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.ci.verifier.candidates import BindingTerms
from service.store.batching import rows_of
from service.store.tables import Binding


@dataclass(slots=True)
class KnownBinding:
    """The columns of a binding that explanations compare with a token or show."""

    id: str
    project_id: str | None
    team_id: str | None
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: str
    added_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revoked_reason: str | None = None

    @property
    def is_active(self) -> bool:
        """True until the binding is revoked."""
        return self.revoked_at is None

    @property
    def terms(self) -> BindingTerms:
        """The part of the binding that tokens are matched against."""
        return BindingTerms(*(getattr(self, name) for name in BindingTerms._fields))


def active_terms(bindings: Iterable[KnownBinding], sub: str | None) -> Sequence[BindingTerms]:
    """The active ones of `bindings` with the subject `sub`; only they can match the token."""
    return [item.terms for item in bindings if item.is_active and item.sub_pattern == sub]


async def list_known_bindings(session: AsyncSession, tenant_id: str) -> Sequence[KnownBinding]:
    """All of the organisation's bindings.

    Reads columns instead of mapped objects: an explanation may compare ten thousand bindings.
    """
    columns = [getattr(Binding, field.name) for field in fields(KnownBinding)]
    return await rows_of(
        session, select(*columns).where(Binding.tenant_id == tenant_id), KnownBinding
    )
