"""The verified-domain rule: domains whose users may sign in without an invitation."""

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.org_envelopes import SignInDomainChanged
from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.core.errors import Invalid
from service.orgs.members import parse_provider
from service.store.store import UnitOfWork
from service.store.tables import AllowedDomain, Organisation
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, TimestampMs

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?:{_LABEL}\.)+{_LABEL}", re.ASCII)
_DOMAIN_CHARS_MAX: Final = 190

resource = Resource("domains", "/domains", Tag.ORGANISATION, BaseServices)


class DomainEntry(Answer):
    """A domain whose users may join by signing in with this identity provider."""

    domain: str
    idp: str
    added_at: TimestampMs


class DomainList(Answer):
    """The domains whose users need no invitation, by domain and provider."""

    org: str
    domains: list[DomainEntry]


@resource.get("list_domains", needs=Capability.ORG_ADMIN, returns=DomainList)
async def list_(call: Call[BaseServices]) -> DomainList:
    """List the domains whose users need no invitation. Only the operator changes them."""
    async with call.read() as session:
        domains = await list_domains(session, call.org)
    entries = [DomainEntry.from_row(domain, idp=domain.identity_provider) for domain in domains]
    return DomainList(org=call.org.slug, domains=entries)


async def set_domain(
    work: UnitOfWork,
    org: Organisation,
    domain: str,
    idp: str,
    by: AuditContext,
    *,
    is_allowed: bool,
) -> None:
    """Allow users of `domain` to join by the provider `idp`, or no longer allow it.

    Existing members stay. Without a change no audit row is added. Raises Invalid.
    """
    # Before it is lower: of some other characters that is an ASCII letter.
    is_ascii, domain = domain.isascii(), domain.lower()
    if not is_ascii or len(domain) > _DOMAIN_CHARS_MAX or not _DOMAIN.fullmatch(domain):
        raise Invalid(
            "domain must look like example.com; write non-ASCII names as xn--…",
            field="domain",
        )
    provider = parse_provider(idp)
    entry = await work.session.get(AllowedDomain, (provider, domain, org.id))
    if (entry is not None) == is_allowed:
        return
    if entry is None:
        work.session.add(
            AllowedDomain(
                identity_provider=provider, domain=domain, tenant_id=org.id, added_at=work.now
            )
        )
        await work.session.flush()
    else:
        await work.session.delete(entry)
    work.record(
        org.id,
        SignInDomainChanged(domain=domain, identity_provider=provider, is_allowed=is_allowed),
        by,
    )


async def list_domains(session: AsyncSession, org: Organisation) -> Sequence[AllowedDomain]:
    """The domains whose users may join the organisation, by domain and provider."""
    query = (
        select(AllowedDomain)
        .where(AllowedDomain.tenant_id == org.id)
        .order_by(AllowedDomain.domain, AllowedDomain.identity_provider)
    )
    return (await session.scalars(query)).all()
