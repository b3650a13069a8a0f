"""Each page for each caller, and the answers to each form: what a browser is sent."""

import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from werkzeug.exceptions import HTTPException

from tests.goldens.api import filled, is_api
from tests.goldens.forms import Form, forms_of
from tests.goldens.shown import shown_answer
from tests.goldens.world import API, MEMBERS, OWN_PAGE, Answer, App, Copies

CALLERS: Final = ("visitor", "owner", "auditor", "member")
STREAMS: Final = {"/admin/ui/orgs/<slug>/audit/live": "it has no end"}
"""Pages that are sent to visitor here, with the reason."""
TYPED: Final = {
    "name": "new",
    "member": MEMBERS["member"][1],
    "email": "new@acme.example",
    "issuer": "https://token.actions.githubusercontent.com",
    "sub_pattern": "repo:acme/new:ref:refs/heads/main",
    "repository_id": "42",
    "event_names": "push",
    "ecosystem": "npm",
    "package": "left-pad",
    "versions": "<1.3.0",
    "version": "1.2.0",
    "registry": "npm.acme.example",
    "reason": "needed today",
    "min_age_days": "7",
    "expires": "30",
    "overlap": "24",
    "since": "2025-01-01T00:00",
    "until": "2025-01-02T00:00",
    "query": "decision=BLOCKED",
    "url": "https://siem.example/rows",
    "pasted": '{"iss": "https://token.actions.githubusercontent.com", "sub": "repo:acme/infra"}',
}
"""What a person types into fields of these names."""
_LEFT_OUT: Final = ("/static/", "/openapi.json")
_MORE: Final = ("/sign-in?token=nothing",)
"""Addresses that no link leads to."""
_WRONG: Final = "~<b>"
_KINDS_MAX: Final = 8
"""Of queries of one page: links of filters have any combination of them."""
_REDIRECTS: Final = (302, 303)
_OK: Final = 200
_FORM: Final = "application/x-www-form-urlencoded"
_LINK: Final = re.compile(r'<a\b[^>]*\bhref="([^"]*)"')


Kind = tuple[str, frozenset[str]]
"""The rule of a page, and the names in its query."""


@dataclass
class Visited:
    """The pages that an owner finds: addresses in their order, and forms with where they go."""

    addresses: dict[str, str] = field(default_factory=dict)
    """Address to the name of its file."""
    forms: dict[tuple[str, tuple[str, ...]], Form] = field(default_factory=dict)
    """The rule and the names of the fields, to the first such form."""

    def note_forms(self, app: App, address: str, page: str) -> None:
        """Keep the forms of a page of this address that are the first of their kind."""
        for form in forms_of(page):
            to = replace(form, action=form.action or urlsplit(address).path)
            self.forms.setdefault((rule_of(app, "POST", to.action), form.names), to)


def is_page(rule: str, document: Mapping[str, Any]) -> bool:
    """True if it is for browsers."""
    return not rule.startswith(_LEFT_OUT) and not is_api(rule, document)


def page_rules(app: App, document: Mapping[str, Any], method: str) -> list[str]:
    """The rules of pages, or of what their forms are sent to."""
    return [
        rule
        for found, rule in app.rules()
        if found == method and is_page(rule, document) and rule not in STREAMS
    ]


def visit(copies: Copies, document: Mapping[str, Any]) -> Visited:
    """Every page that has a rule, those that an owner's links lead to, and their forms."""
    app, visited = copies.app, Visited()
    rules, owner = page_rules(app, document, "GET"), app.installation.session("owner")
    waiting = [filled(rule, app.installation.ids) for rule in rules]
    waiting += [*_MORE, *_rows_and_bindings(app)]
    named, kinds, counts = set(waiting), set[Kind](), Counter[str]()
    while waiting:
        address = waiting.pop(0)
        kind = rule, _ = kind_of(app, address)
        is_full = kind in kinds or counts[rule] >= _KINDS_MAX
        if rule not in rules or address in visited.addresses or (is_full and address not in named):
            continue
        kinds.add(kind)
        counts[rule] += address not in named
        visited.addresses[address] = file_name(*kind)
        text = _text(app.request("GET", address, owner))
        waiting += [html.unescape(link).partition("#")[0] for link in _LINK.findall(text)]
        visited.note_forms(app, address, text)
    _send_forms(copies, visited)
    return visited


def kind_of(app: App, address: str) -> Kind:
    """Pages that differ only in ids and in the values of their filters are of one kind."""
    names = frozenset(name for name, _ in parse_qsl(urlsplit(address).query))
    return rule_of(app, "GET", address), names


def _send_forms(copies: Copies, visited: Visited) -> None:
    """Find the forms of pages that answer a form."""
    for (rule, _), form in list(visited.forms.items()):
        if rule:
            app = copies.app
            answer = _posted(app, "owner", form.action, form.filled(_typed(app)))
            visited.note_forms(app, form.action, _text(answer))
            copies.renew()


def _typed(app: App) -> dict[str, str]:
    return TYPED | {"code": app.installation.ids["user_code"]}


def _posted(app: App, caller: str, action: str, fields: list[tuple[str, str]]) -> Answer:
    """The answer to a form that is sent by a browser."""
    headers = app.installation.credentials()[caller] | OWN_PAGE | {"content-type": _FORM}
    return app.request("POST", action, headers, urlencode(fields).encode())


def _rows_and_bindings(app: App) -> Iterator[str]:
    """A row of each event, and each binding: they differ more than by their ids."""
    owner = app.installation.session("owner")
    page = "/admin/ui/orgs/acme"
    for group in _json(app, f"{API}/audit/groups?by=event&limit=100", owner)["groups"]:
        query = urlencode({"event": group["values"]["event"], "limit": 1})
        for entry in _json(app, f"{API}/audit?{query}", owner)["entries"]:
            yield f"{page}/audit/{entry['id']}"
            yield f"{page}/audit/{entry['id']}/details"
    for binding in _json(app, f"{API}/oidc-bindings", owner)["bindings"]:
        yield f"{page}/bindings/{binding['id']}"


def _json(app: App, path: str, headers: Mapping[str, str]) -> Any:
    return json.loads(app.request("GET", path, headers).body)


def rule_of(app: App, method: str, address: str) -> str:
    """The rule that `address` belongs to; empty if it is not ours."""
    parts = urlsplit(address)
    if parts.netloc or not parts.path.startswith("/"):
        return ""
    try:
        rule, _ = app.quart.url_map.bind("").match(parts.path, method, return_rule=True)
    except HTTPException:
        return ""
    return str(rule.rule)


def _text(answer: Answer) -> str:
    kind = dict(answer.headers).get("content-type", "")
    is_page = answer.status == _OK and kind.startswith("text/html")
    return answer.body.decode() if is_page else ""


def file_name(rule: str, names: frozenset[str] = frozenset()) -> str:
    """The name of the file about `rule`, with a query of these names."""
    path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule).strip("/").replace("/", "_") or "root"
    query = "+".join(sorted(names))
    if len(query) > 100:
        query = f"{query[:90]}+{zlib.crc32(query.encode()):08x}"
    return f"{path}.{query}" if query else path


def shown_pages(
    app: App, visited: Visited, usual: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Caller, name of the file and text of each page."""
    callers = app.installation.credentials() | {"visitor": OWN_PAGE}
    for caller in CALLERS:
        numbers = Counter[str]()
        for address, name in visited.addresses.items():
            numbers[name] += 1
            number = f".{numbers[name]}" if numbers[name] > 1 else ""
            answer = app.request("GET", address, callers[caller])
            yield caller, name + number, f"GET {address}\n{shown_answer(answer, usual)}"
    for address in wrong_addresses(app, visited):
        answer = app.request("GET", address, callers["owner"])
        name = file_name(rule_of(app, "GET", address))
        yield "wrong", name, f"GET {address}\n{shown_answer(answer, usual)}"


def wrong_addresses(app: App, visited: Visited) -> Iterator[str]:
    """Each page once more, with a wrong value for each name of its queries, and an unknown one."""
    names: dict[str, dict[str, str]] = {}
    for address in visited.addresses:
        rule, known = kind_of(app, address)
        wrong = names.setdefault(rule, {"no_such_name": "1"})
        wrong.update(dict.fromkeys(sorted(known), _WRONG))
    for address in visited.addresses:
        rule = rule_of(app, "GET", address)
        if rule in names:
            yield f"{urlsplit(address).path}?{urlencode(names.pop(rule))}"


def shown_forms(
    copies: Copies, visited: Visited, rules: Sequence[str], usual: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each rule, and the answers to all forms that are sent there."""
    for rule in rules:
        copies.renew()
        parts = list(_shown_unsent(copies, rule, usual))
        for (to, names), form in visited.forms.items():
            if to == rule:
                parts.append(f"##### form with {', '.join(names)}\n")
                parts += _shown_form(copies, form, usual)
        yield rule, "\n".join(parts)


def _shown_unsent(copies: Copies, rule: str, usual: Mapping[str, str]) -> Iterator[str]:
    """What is answered to a request that no form sends."""
    action = filled(rule, copies.app.installation.ids)
    for caller in CALLERS:
        yield _sent(copies, caller, action, [], "nothing", usual)


def _shown_form(copies: Copies, form: Form, usual: Mapping[str, str]) -> Iterator[str]:
    untouched, typed = form.untouched(), _typed(copies.app)
    forged = [pair for pair in untouched if pair[0] != "csrf"]
    for caller, title, fields in (
        ("owner", "as it is", untouched),
        ("owner", "filled in", form.filled(typed)),
        ("owner", "empty", form.emptied()),
        ("owner", "hostile text", form.hostile()),
        ("owner", "without the token", forged),
        ("auditor", "the owner's form", untouched),
    ):
        yield _sent(copies, caller, form.action, fields, title, usual)


def _sent(
    copies: Copies,
    caller: str,
    action: str,
    fields: list[tuple[str, str]],
    title: str,
    usual: Mapping[str, str],
) -> str:
    app = copies.app
    state, headers = app.installation.state, app.installation.credentials()[caller] | OWN_PAGE
    answer = _posted(app, caller, action, fields)
    sent = urlencode(fields)
    text = f"=== {title}, by {caller}\nPOST {action}\n{sent}\n\n{shown_answer(answer, usual)}"
    if answer.status in _REDIRECTS and caller != "visitor":
        to = dict(answer.headers).get("location", "")
        if rule_of(app, "GET", to.partition("#")[0]):
            page = app.request("GET", to.partition("#")[0], headers)
            text += f"--- GET {to}\n{shown_answer(page, usual)}"
    if app.installation.state != state:
        copies.renew()
    return text
