"""Revokes all of an organisation's active bindings of one repository."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.ci.providers import job_parts
from service.core.errors import ReasonInvalid
from service.core.text_rules import is_plain, parse_reason
from service.store.store import UnitOfWork
from service.store.tables import Binding, Organisation
from service.trust.bindings.changes import revoke_bindings
from service.trust.bindings.repository import list_active, list_active_bindings
from service.trust.bindings.rules import parse_repository_id
from service.trust.refusals import (
    BINDING_IDS_NOT_STRINGS,
    ISSUER_MISSING,
    ISSUER_NOT_ALLOWED,
    REPOSITORY_CHANGED,
    REPOSITORY_ID_MISSING,
    REPOSITORY_NOT_BOUND,
)
from service.web.refusals import UNKNOWN_FIELD

_FIELDS: Final = frozenset({"issuer", "repository_id", "reason", "binding_ids"})


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its numeric id, which is unique only within its issuer."""

    issuer: str
    repository_id: str

    @classmethod
    def parse(cls, issuer: object, repository_id: object) -> Self:
        """The repository that a request names. Raises Invalid.

        The issuer need not be on the allowlist: its bindings may be older than the list.
        """
        if not isinstance(issuer, str) or not issuer:
            raise ISSUER_MISSING
        if not is_plain(issuer):  # a lone surrogate cannot even be looked up
            raise ISSUER_NOT_ALLOWED(value=issuer)
        if repository_id is None or repository_id == "":
            raise REPOSITORY_ID_MISSING(value=issuer)
        return cls(issuer, parse_repository_id(repository_id))


@dataclass(frozen=True, slots=True)
class RevocationRequest:
    """What to revoke and why. `listed` is the digest of the ids that the caller was shown."""

    repository: Repository
    reason: str | None = None
    listed: str | None = None


def digest_of(binding_ids: Iterable[str]) -> str:
    """A digest of the set of ids, in any order: a form may have to confirm thousands."""
    joined = "\n".join(sorted(set(binding_ids)))
    # Ids in a request may have lone surrogates: their digest is that of no stored ids.
    return hashlib.sha256(joined.encode(errors="surrogatepass")).hexdigest()


def parse_revocation(body: Mapping[str, Any]) -> RevocationRequest:
    """The revocation that `body` requests. Raises Invalid."""
    repository = Repository.parse(body.get("issuer"), body.get("repository_id"))
    reason, binding_ids = body.get("reason"), body.get("binding_ids")
    if reason is not None and not isinstance(reason, str):
        raise ReasonInvalid
    if binding_ids is not None and (
        not isinstance(binding_ids, list) or not all(isinstance(each, str) for each in binding_ids)
    ):
        raise BINDING_IDS_NOT_STRINGS
    unknown = [name for name in body if name not in _FIELDS]
    if unknown:
        raise UNKNOWN_FIELD(value=", ".join(unknown))
    listed = None if binding_ids is None else digest_of(binding_ids)
    return RevocationRequest(repository, parse_reason(reason), listed)


async def find_ids_of(
    session: AsyncSession, tenant_id: str, issuer: str, name: str
) -> Sequence[str]:
    """The ids of repositories in active bindings whose path, or its last part, is `name`."""
    ids = {
        each.repository_id: None
        for each in await list_active(session, tenant_id)
        if each.issuer == issuer and (parts := job_parts(each.sub_pattern)) is not None
        if name.casefold() in {parts[0].casefold(), parts[0].casefold().rpartition("/")[2]}
    }
    return [id_ for id_ in ids if id_ is not None]


async def list_active_of(
    session: AsyncSession, tenant_id: str, repository: Repository
) -> Sequence[Binding]:
    """The organisation's active bindings of `repository`, newest first."""
    of_issuer = Binding.issuer == repository.issuer
    same_id = Binding.repository_id == repository.repository_id
    return await list_active_bindings(session, tenant_id, of_issuer, same_id)


async def revoke_repository(
    work: UnitOfWork, org: Organisation, revocation: RevocationRequest, by: Caller
) -> Sequence[str]:
    """Revoke all active bindings of the repository; their ids, newest first.

    Each has an audit row. Raises REPOSITORY_NOT_BOUND if there are none (most likely a typo, which
    must not look like success during an incident), REPOSITORY_CHANGED if they are not the `listed`
    ones, Forbidden if the caller may not revoke one of them.
    """
    repository = revocation.repository
    active = await list_active_of(work.session, org.id, repository)
    binding_ids = [binding.id for binding in active]
    if revocation.listed is not None and digest_of(binding_ids) != revocation.listed:
        raise REPOSITORY_CHANGED
    if not active:
        raise REPOSITORY_NOT_BOUND(issuer=repository.issuer, repository_id=repository.repository_id)
    await revoke_bindings(work, org, active, revocation.reason, by)
    return binding_ids
