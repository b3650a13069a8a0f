"""A form that could not be done: its page is shown again, with the fault and nothing typed lost."""

from dataclasses import dataclass
from typing import Final

from service.dashboard.form_auth import Form
from service.errors import Refusal


@dataclass(frozen=True, slots=True)
class FormState:
    """What was typed into the form that goes to `path`, and why it was not done.

    `field` is the one to mend, if it is one.
    """

    path: str
    typed: Form
    status: int
    text: str
    field: str | None = None

    def text_in(self, path: str, name: str, otherwise: str = "") -> str:
        """What the field `name` of the form that goes to `path` holds."""
        return self.typed.get(name, otherwise) if path == self.path else otherwise

    def fault_in(self, path: str, name: str) -> str | None:
        """What is wrong with that field, or None."""
        return self.text if (path, name) == (self.path, self.field) else None


EMPTY_FORM: Final = FormState("", Form(), 200, "")


def refused(path: str, typed: Form, refusal: Refusal, field: str | None) -> FormState:
    """What to show after `refusal`; if it is about no field of the form, it is about `field`."""
    at_fault = refusal.field if refusal.field in typed else field
    return FormState(path, typed, refusal.status, refusal.text, at_fault)
