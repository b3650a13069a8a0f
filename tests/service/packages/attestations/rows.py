"""Rows as the proxy writes them, where there is no proxy."""

import hashlib
from datetime import datetime

from analytics.model.envelopes import Admission, InstallAllowed, VerifiedCi
from analytics.model.events import Envelope
from analytics.model.rows import AuditContext, AuditRow, FileColumns, VerdictSource, audit_row
from service.app.composition import Services
from service.store.journal import append
from service.store.organisations import get_org

RUN = "14077220290"


def admitted_row(
    at: datetime,
    package: str = "left-pad",
    *,
    content: bytes = b"",
    envelope: Envelope | None = None,
) -> AuditRow:
    """A CI run's install at this instant, of a file with this content: it was admitted."""
    context = AuditContext("key_1", "api_key", VerdictSource.PROXY, request_id="req_1")
    ci = VerifiedCi(sub="repo:acme/app", repository_id="42", run_id=RUN)
    admission = Admission(
        registry="https://registry.npmjs.org/", policy_revision=1, blocklist_generation=0
    )
    digest = hashlib.sha256(content).hexdigest()
    return audit_row(
        envelope or InstallAllowed(),
        context.of_ci_job("github", "obind_1", ci),
        at,
        package_name=package,
        version="1.3.0",
        ecosystem="npm",
        file=FileColumns(f"{package}-1.3.0.tgz", digest, "npm/11.19.1"),
        admission=admission,
    )


async def admit(services: Services, slug: str = "acme", content: bytes = b"") -> None:
    """Add such a row, as of now, to an organisation."""
    async with services.store.write() as work:
        org = await get_org(work.session, slug)
        await append(work.session, org.id, [admitted_row(work.now, content=content)], now=work.now)
