"""Advice on bindings, each with the form that follows it."""

from typing import Final

from quart import Blueprint

from service.access.roles import Capability
from service.pages.page import Page, PageCall, View
from service.pages.trust.binding_form import typed_of
from service.trust.advice import Kind, load_advice

blueprint = Blueprint("dashboard_advice", __name__, url_prefix="/admin/ui/orgs/<slug>/trust")

SECTIONS: Final = {
    Kind.NEVER_SENT: (
        "Match no token",
        "No CI provider sends what these bindings name.",
    ),
    Kind.ID_FORM_SEEN: (
        "Fail with the next token",
        "Their repositories have begun to send subjects with ids. Add the binding for it beside"
        " each, and revoke the old one once it is not used any more.",
    ),
    Kind.ID_FORM_EXPECTED: (
        "Fail after a rename",
        "GitHub puts ids behind the names of owner and repository once a repository is renamed,"
        " transferred or opts in. A binding for that can be added before.",
    ),
    Kind.LOOSER_THAN_USE: (
        "Looser than their use",
        "All tokens of the last 90 days would have been admitted by a narrower binding.",
    ),
}


@Page(blueprint, "/advice", "trust_advice.html", needs=Capability.OIDC_READ)
async def advice_page(call: PageCall) -> View:
    """What to change about the bindings, the most urgent first.

    Each advice has the texts of the form that follows it; None if it takes more than that.
    """
    async with call.read() as session:
        found = await load_advice(session, call.org.id, call.org.slug, call.services.bindings)
    steps = [(each, each.body and typed_of(each.body)) for each in found.advice]
    sections = [
        (title, text, found.counts[kind], [step for step in steps if step[0].kind is kind])
        for kind, (title, text) in SECTIONS.items()
    ]
    return {"sections": [section for section in sections if section[2]]}
