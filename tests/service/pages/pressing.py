"""Pressing a button of a page as a browser without scripts does: the form's fields, then a POST."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from tests.conftest import World
from tests.service.pages.page import send


@dataclass
class Form:
    method: str
    action: str
    fields: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Button:
    """A submit button and the form that it sends."""

    form: Form | None
    form_id: str | None
    action: str | None
    label: str = ""


class Forms(HTMLParser):
    """The forms and submit buttons of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.by_id: dict[str, Form] = {}
        self.buttons: list[Button] = []
        self._form: Form | None = None
        self._select: tuple[str, list[tuple[str, bool]]] | None = None
        self._textarea: tuple[str, str] | None = None
        self._is_in_button = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = Form(given.get("method", "get"), given.get("action", ""))
            self.by_id[given.get("id", f"form {len(self.by_id)}")] = self._form
        elif tag == "button" and given.get("type", "submit") == "submit":
            self._is_in_button = True
            button = Button(self._form, given.get("form"), given.get("formaction"))
            self.buttons.append(button)
        elif tag == "input" and "name" in given and self._form is not None:
            self._form.fields.append((given["name"], given.get("value", "")))
        elif tag == "select":
            self._select = (given["name"], [])
        elif tag == "option" and self._select is not None:
            self._select[1].append((given["value"], "selected" in given))
        elif tag == "textarea":
            self._textarea = (given["name"], "")

    def handle_data(self, data: str) -> None:
        if self._textarea is not None:
            self._textarea = (self._textarea[0], self._textarea[1] + data)
        if self._is_in_button:
            self.buttons[-1].label += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "button":
            self._is_in_button = False
        elif tag == "select" and self._select is not None and self._form is not None:
            name, options = self._select
            chosen = [value for value, is_selected in options if is_selected]
            self._form.fields.append((name, (chosen or [options[0][0]])[0]))
            self._select = None
        elif tag == "textarea" and self._textarea is not None and self._form is not None:
            name, text = self._textarea
            self._form.fields.append((name, text.removeprefix("\n")))
            self._textarea = None


async def press(world: World, html: str, label: str, who: str = "owner", **typed: str) -> Any:
    """The answer after pressing the one button that is called `label`, with `typed` filled in."""
    forms = Forms(html)
    (button,) = [each for each in forms.buttons if " ".join(each.label.split()) == label]
    form = forms.by_id[button.form_id] if button.form_id else button.form
    assert form is not None
    assert form.method == "post"
    assert set(typed) <= {name for name, _ in form.fields}
    fields: dict[str, list[str]] = {}
    for name, value in form.fields:
        fields.setdefault(name, []).append(typed.get(name, value))
    return await send(world, button.action or form.action, fields, who)
