"""Forms that work once, because their response shows a newly created secret."""

from datetime import datetime, timedelta
from typing import Final

from service.access.callers import Caller, MemberPrincipal
from service.access.sign_in.completion import consume
from service.access.sign_in.signed_cookie import SignedValue, Signer, expiry
from service.core.errors import Conflict
from service.core.secrets import new_token
from service.core.settings import Settings
from service.pages.form_auth import Form
from service.store.store import UnitOfWork

FORM_SPENT: Final = Conflict.of("this form was already submitted or has expired: reload its page")

ONCE_FIELD: Final = "once"


class OneTimeForm(SignedValue, frozen=True, kw_only=True):
    """A form of one session's page; `session_id` is None for the admin token."""

    session_id: str | None


def one_time_form(settings: Settings, caller: Caller, now: datetime) -> str:
    """The value of ONCE_FIELD in a form shown to `caller`, valid as long as a session can be."""
    lifetime = timedelta(seconds=settings.session_absolute_s)
    return _signer(settings).sign(
        OneTimeForm(
            id=new_token(), expires_at=expiry(now, lifetime), session_id=_session_id(caller)
        )
    )


async def consume_form(settings: Settings, work: UnitOfWork, caller: Caller, form: Form) -> None:
    """Mark `form` as used, as part of this transaction. Raises FORM_SPENT."""
    signer = _signer(settings)
    kept = signer.read(form.get(ONCE_FIELD), OneTimeForm, work.now)
    # Bound to the session: an unused form of another one must not create a secret here.
    if kept is None or kept.session_id != _session_id(caller) or not await consume(work, kept):
        raise FORM_SPENT


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret_key, "one-time form")


def _session_id(caller: Caller) -> str | None:
    return caller.session_id if isinstance(caller, MemberPrincipal) else None
