"""Authorization of submitted forms: the caller, their rights, and the form's own token."""

from quart import request
from werkzeug.datastructures import MultiDict

from service.access.callers import Caller, MemberPrincipal
from service.access.csrf import FORM_TOKEN_FIELD, check_form_token
from service.access.roles import Capability
from service.core.settings import Settings
from service.pages.services import DashboardServices
from service.store.tables import Organisation

Form = MultiDict[str, str]


async def authorize_form(
    services: DashboardServices, slug: str, capability: Capability
) -> tuple[Caller, Organisation, Form]:
    """The verified caller, organisation and form of the current request.

    Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order; a request from
    another site or a form of another session is Forbidden.
    """
    caller, org = await services.authorize(slug, capability)
    return caller, org, await own_form(services.settings, caller)


async def own_form(settings: Settings, caller: Caller) -> Form:
    """The form of the current request. Raises FOREIGN_FORM unless it was shown to this session.

    The admin token needs no form token: browsers do not send its header by themselves.
    """
    form: Form = await request.form
    if isinstance(caller, MemberPrincipal):
        check_form_token(form.get(FORM_TOKEN_FIELD), settings.secret_key, caller.session_id)
    return form
