"""Explaining a pasted token or claims: each rule in words, and the binding that is missing.

What is pasted is looked at and forgotten: it is in no page, log, row or address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from service.bindings.services import BindingServices
from service.dashboard.form_auth import Form
from service.dashboard.trust.failures import Failure, failure_of
from service.errors import Invalid, NeitherTokenNorClaims
from service.explain.explanation import Explanation
from service.explain.service import Asked, explain_asked
from service.orgs.repository import list_projects
from service.store.tables import Organisation

PASTED: Final = "pasted"
_PROJECT: Final = "project_id"
RULE_WORDS: Final = {
    "issuer": "The issuer is accepted",
    "audience": "The token was made for this service alone",
    "subject": "A binding has the subject",
    "repository": "It has the repository id",
    "event": "It allows what started the job",
    "signature": "The issuer signed the token",
    "time": "The token holds now",
}


@dataclass(frozen=True, slots=True)
class ExplainView:
    """The form, and what came of it. Of what was pasted it knows nothing any more."""

    projects: list[tuple[str, str]]
    project_id: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None

    @property
    def failure(self) -> Failure | None:
        """Why the token is not trusted, if it is not."""
        found = self.explanation
        if found is None or found.code is None:
            return None
        return failure_of(found.code, found.detail)


async def explain_form(services: BindingServices, org: Organisation) -> ExplainView:
    """The form, with nothing in it."""
    return ExplainView(await _projects(services, org))


async def explain_pasted(services: BindingServices, org: Organisation, form: Form) -> ExplainView:
    """What the rules say of what was pasted into the form, or which of its fields is wrong."""
    projects, project_id = await _projects(services, org), form.get(_PROJECT, "")
    try:
        asked = _asked(form.get(PASTED, ""), project_id or None)
        explanation = await explain_asked(services, asked, org)
    except Invalid as fault:
        name = _PROJECT if fault.text.startswith(_PROJECT) else PASTED
        return ExplainView(projects, project_id, {name: fault.text})
    return ExplainView(projects, project_id, explanation=explanation)


def _asked(pasted: str, project_id: str | None) -> Asked:
    """A token, or claims if it begins as JSON does. Raises NeitherTokenNorClaims."""
    text = pasted.strip()
    if not text:
        raise NeitherTokenNorClaims
    if text.startswith("{"):
        return Asked.from_claims(text.encode(errors="surrogatepass"), project_id)
    return Asked.from_token(text, project_id)


async def _projects(services: BindingServices, org: Organisation) -> list[tuple[str, str]]:
    async with services.store.read() as session:
        found = await list_projects(session, org)
    return [(project.id, project.name) for project in found]
