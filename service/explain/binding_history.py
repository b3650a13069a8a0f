"""An organisation's bindings, active and revoked, as explanations compare them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.store.tables import Binding
from service.verifier.candidates import BindingTerms


@dataclass(slots=True)
class KnownBinding:
    """What of a binding is compared with a token, and told."""

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
        """True until it is revoked."""
        return self.revoked_at is None

    @property
    def terms(self) -> BindingTerms:
        """What of it decides about tokens."""
        return BindingTerms(*(getattr(self, name) for name in BindingTerms._fields))


def active_terms(bindings: Iterable[KnownBinding], sub: str | None) -> Sequence[BindingTerms]:
    """The active ones of `bindings` with the subject `sub`: no other is a candidate for it."""
    return [one.terms for one in bindings if one.is_active and one.sub_pattern == sub]


async def list_known_bindings(session: AsyncSession, tenant_id: str) -> Sequence[KnownBinding]:
    """All of the organisation's bindings.

    Columns and not rows of the ORM: an explanation looks at ten thousand for each one it names.
    """
    columns = [getattr(Binding, field.name) for field in fields(KnownBinding)]
    found = await session.execute(select(*columns).where(Binding.tenant_id == tenant_id))
    return [KnownBinding(*row) for row in found]
