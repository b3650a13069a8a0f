"""A rejected form: its page is shown again with the error and all that was typed."""

from dataclasses import dataclass
from typing import Final

from service.core.errors import Refusal, SignInAgain
from service.pages.form_auth import Form


@dataclass(frozen=True, slots=True)
class FormState:
    """What was typed into the form that is sent to `path`, and why it was rejected.

    `field` is the one to correct, if it is about one.
    """

    path: str
    typed: Form
    status: int
    text: str
    field: str | None = None
    needs_sign_in: bool = False
    """Whether the member has to sign in again before they send the form."""

    def text_in(self, path: str, name: str, otherwise: str = "") -> str:
        """The text of the field `name` in the form that is sent to `path`."""
        return self.typed.get(name, otherwise) if path == self.path else otherwise

    def fault_in(self, path: str, name: str) -> str | None:
        """The error of that field, or None."""
        return self.text if (path, name) == (self.path, self.field) else None


EMPTY_FORM: Final = FormState("", Form(), 200, "")


def refused(path: str, typed: Form, refusal: Refusal, field: str | None) -> FormState:
    """The form state after `refusal`, shown at its field if the form has it, or at `field`."""
    if isinstance(refusal, SignInAgain):
        return FormState(path, typed, refusal.status, refusal.text, needs_sign_in=True)
    at_fault = refusal.field if refusal.field in typed else field
    return FormState(path, typed, refusal.status, refusal.text, at_fault)
