"""Explain a pasted token or claims: each rule in words, and the missing binding.

What is pasted is not kept: it appears in no page, log, row or URL.
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
    "audience": "The audience is this service alone",
    "subject": "A binding has the subject",
    "repository": "The binding has the repository id",
    "event": "The binding allows the event",
    "signature": "The issuer signed the token",
    "time": "The token is valid now",
}


@dataclass(frozen=True, slots=True)
class ExplainView:
    """The form and its result, without what was pasted."""

    projects: list[tuple[str, str]]
    project_id: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None

    @property
    def failure(self) -> Failure | None:
        """Why the token is not trusted, if it is not."""
        explanation = self.explanation
        if explanation is None or explanation.code is None:
            return None
        return failure_of(explanation.code, explanation.detail)


async def explain_form(services: BindingServices, org: Organisation) -> ExplainView:
    """The empty form."""
    return ExplainView(await _projects(services, org))


async def explain_pasted(services: BindingServices, org: Organisation, form: Form) -> ExplainView:
    """The explanation of what was pasted into the form, or the error of one of its fields."""
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
        projects = await list_projects(session, org)
    return [(project.id, project.name) for project in projects]
