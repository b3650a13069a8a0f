"""The form that was submitted, and the token that ties it to its session."""

from quart import request
from werkzeug.datastructures import MultiDict

from service.access.callers import Caller, MemberPrincipal
from service.access.cross_site import FORM_TOKEN_FIELD, check_form_token
from service.core.settings import Settings

Form = MultiDict[str, str]


async def own_form(settings: Settings, caller: Caller) -> Form:
    """The form of the current request. Raises FOREIGN_FORM unless it was shown to this session.

    The admin token needs no form token: browsers do not send its header by themselves.
    """
    form: Form = await request.form
    if isinstance(caller, MemberPrincipal):
        check_form_token(form.get(FORM_TOKEN_FIELD), settings.secret_key, caller.session_id)
    return form
