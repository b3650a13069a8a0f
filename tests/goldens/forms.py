"""The forms of a page, as a browser without scripts would send them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Final

HOSTILE: Final = "<b>'\"& \u202e\x1b[31m" + "x" * 300
"""Markup, quotes, a text direction, a control character, and too many characters."""
_OPEN: Final = frozenset(
    {"text", "datetime-local", "email", "search", "url", "number", "date", "textarea"}
)
_TICKED: Final = frozenset({"checkbox", "radio"})


@dataclass(frozen=True, slots=True)
class Field:
    """A field, the value that it sends, and whether it is sent if it is left as it is."""

    name: str
    value: str
    kind: str
    is_sent: bool = True
    choice: str = ""
    """What a person may choose who has to choose something."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form that changes something: where it goes, and its fields in their order."""

    action: str
    fields: list[Field] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.fields))

    def untouched(self) -> list[tuple[str, str]]:
        """What it sends as the page shows it."""
        return [(each.name, each.value) for each in self.fields if each.is_sent]

    def filled(self, typed: Mapping[str, str]) -> list[tuple[str, str]]:
        """What it sends with `typed` in the fields of these names, all else chosen or ticked."""
        return [
            (each.name, typed.get(each.name, each.value) if each.kind in _OPEN else each.value)
            if each.kind != "select"
            else (each.name, each.value or each.choice)
            for each in self.fields
        ]

    def emptied(self) -> list[tuple[str, str]]:
        """What it sends with nothing typed, chosen or ticked."""
        return [
            (each.name, each.value if each.kind == "hidden" else "")
            for each in self.fields
            if each.kind not in _TICKED
        ]

    def hostile(self) -> list[tuple[str, str]]:
        """What it sends with HOSTILE in each field that is not hidden."""
        return [
            (each.name, each.value if each.kind == "hidden" else HOSTILE) for each in self.fields
        ]


@dataclass(slots=True)
class Button:
    """A button that sends a form, what stands on it, and where it sends the form instead."""

    form: Form | None
    form_id: str
    action: str
    label: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.buttons: list[Button] = []
        self._by_id: dict[str, Form] = {}
        self._is_in_button = False
        self._waiting: list[tuple[str, Field]] = []
        self._form: Form | None = None
        self._choice: tuple[str, str | None, str] | None = None
        self._textarea: str | None = None
        self._text = ""

    def close(self) -> None:
        super().close()
        for name, each in self._waiting:
            if name in self._by_id:
                self._by_id[name].fields.append(each)
        for button in self.buttons:
            button.form = self._by_id.get(button.form_id, button.form)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("method", "").lower() == "post":
            self._form = Form(given.get("action", ""))
            self.forms.append(self._form)
            if "id" in given:
                self._by_id[given["id"]] = self._form
        elif tag == "form":
            self._form = Form("")  # one that only asks
        elif tag == "input" and "name" in given:
            kind = given.get("type", "text")
            value = given.get("value", "on" if kind in _TICKED else "")
            is_sent = kind not in _TICKED or "checked" in given
            self._add(given, Field(given["name"], value, kind, is_sent))
        elif tag == "select" and "name" in given:
            self._choice, self._owner = (given["name"], None, ""), given
        elif tag == "option" and self._choice is not None:
            name, value, choice = self._choice
            offered = given.get("value", "")
            is_chosen = value is None or "selected" in given
            self._choice = (name, offered if is_chosen else value, choice or offered)
        elif tag == "textarea" and "name" in given:
            self._textarea, self._text, self._owner = given["name"], "", given
        elif tag == "button" and given.get("type", "submit") == "submit":
            self._press(given)

    def _press(self, given: dict[str, str]) -> None:
        if "name" in given:
            self._add(given, Field(given["name"], given.get("value", ""), "hidden"))
        button = Button(self._form, given.get("form", ""), given.get("formaction", ""))
        self.buttons.append(button)
        self._is_in_button = True

    def _add(self, given: dict[str, str], each: Field) -> None:
        if "form" in given:
            self._waiting.append((given["form"], each))
        elif self._form is not None:
            self._form.fields.append(each)

    def handle_data(self, data: str) -> None:
        self._text += data
        if self._is_in_button:
            self.buttons[-1].label += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "button":
            self._is_in_button = False
        elif tag == "select" and self._choice is not None:
            name, value, choice = self._choice
            self._add(self._owner, Field(name, value or "", "select", choice=choice))
            self._choice = None
        elif tag == "textarea" and self._textarea is not None:
            self._add(self._owner, Field(self._textarea, self._text.removeprefix("\n"), "textarea"))
            self._textarea = None


def forms_of(html: str) -> list[Form]:
    """The forms of a page that are posted, and those that a button sends to another address."""
    reader = _read(html)
    elsewhere = [
        replace(button.form, action=button.action)
        for button in reader.buttons
        if button.action and button.form in reader.forms
    ]
    return [*reader.forms, *elsewhere]


def form_of_button(html: str, label: str) -> Form:
    """The form that is posted by the one button which is called `label`, and where it goes."""
    reader = _read(html)
    (button,) = [each for each in reader.buttons if " ".join(each.label.split()) == label]
    assert button.form in reader.forms
    return replace(button.form, action=button.action or button.form.action)


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader
