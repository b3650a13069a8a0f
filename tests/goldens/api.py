"""Samples of each API endpoint: who may, what is refused in which words, and a success."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.goldens.shown import shown_answer
from tests.goldens.world import METRICS_TOKEN, Answer, App, Copies

_PREFIXES: Final = ("/api/", "/proxy/")
_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_WRONG: Final[tuple[Any, ...]] = (7, "text", "", [], {}, None, True)
"""One of them is of a wrong type wherever it is put."""
_RECENT: Final = "2026-03-04T00:00:00Z"
"""So that no sample reads or returns the whole log."""
_ERRORS_FROM: Final = 400
PATHS: Final = {
    "feed": "osv",
    "name": "requests",
    "origin": "pypi",
    "path": "requests-2.32.3-py3-none-any.whl",
    "query": "audits/quick",
    "wanted": "left-pad",
    "rest": "left-pad/1.2.0/too-new",
}
"""Values of path parameters that are no ids: the proxy's, and a feed of the blocklist."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A request, and the words for what is special about it."""

    title: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


def is_api(rule: str, document: Mapping[str, Any]) -> bool:
    """True if the endpoint is for programs: in the document, or one of the proxy's."""
    return rule.startswith(_PREFIXES) or path_of(rule) in document["paths"]


def path_of(rule: str) -> str:
    return _PARAMETER.sub(r"{\1}", rule)


def parameters_of(rule: str) -> list[str]:
    return _PARAMETER.findall(rule)


def filled(rule: str, values: Mapping[str, str]) -> str:
    """The path of `rule` with these values; a parameter without one has its own name."""
    known = PATHS | dict(values)
    return _PARAMETER.sub(lambda found: quote(known.get(found[1], found[1]), safe="/@"), rule)


class Endpoint:
    """One endpoint: what a good request to it has, by the OpenAPI document."""

    def __init__(self, method: str, rule: str, document: Mapping[str, Any], ids: Mapping[str, str]):
        operation = document["paths"].get(path_of(rule), {}).get(method.lower(), {})
        self.method, self.rule, self._ids = method, rule, ids
        self.is_documented = bool(operation)
        self._parameters = operation.get("parameters", [])
        content = operation.get("requestBody", {}).get("content", {})
        self.content_type = next(iter(content), _JSON)
        self.example = content.get(self.content_type, {}).get("example")

    @property
    def query(self) -> dict[str, str]:
        """The parameters that are required, and those that keep an answer short."""
        given = {
            each["name"]: str(each["schema"].get("enum", ["x"])[0])
            for each in self._parameters
            if each["in"] == "query" and each.get("required")
        }
        if "limit" in self.queries:
            given["limit"] = "2"
        return given | ({"since": _RECENT} if "since" in self.queries else {})

    @property
    def queries(self) -> list[str]:
        return [each["name"] for each in self._parameters if each["in"] == "query"]

    def path(
        self, query: Mapping[str, Any] | None = None, ids: Mapping[str, str] | None = None
    ) -> str:
        """Path and query of a good request, with another query or other `ids`."""
        parts = urlencode(self.query if query is None else query, doseq=True)
        return filled(self.rule, {**self._ids, **(ids or {})}) + (f"?{parts}" if parts else "")

    def body(self, value: Any) -> bytes | None:
        """`value` as the endpoint reads it."""
        if value is None:
            return None
        if self.content_type == _FORM:
            return urlencode(value).encode() if isinstance(value, dict) else b""
        return json.dumps(value).encode()

    @property
    def has_body(self) -> bool:
        """True if it changes something, so that a body may be sent."""
        return self.method != "GET"


class Recorder:
    """Sends samples to copies of an installation, and renews them after changes."""

    def __init__(self, copies: Copies, usual: Mapping[str, str]) -> None:
        self._copies, self._usual = copies, usual
        self._etag = ""

    def record(self, sample: Sample) -> tuple[Answer, str]:
        """The answer, and both as text."""
        app = self._copies.app
        headers, state = dict(sample.headers), app.installation.state
        if sample.method == "PUT":
            headers["if-match"] = _etag(app, sample)
        answer = app.request(sample.method, sample.path, headers, sample.body)
        if answer.status < _ERRORS_FROM and app.installation.state != state:
            self._copies.renew()
        sent = f"\n{sample.body.decode(errors='replace')}" if sample.body is not None else ""
        return answer, (
            f"=== {sample.title}\n{sample.method} {sample.path}{sent}\n\n"
            + shown_answer(answer, self._usual)
        )

    @property
    def callers(self) -> dict[str, dict[str, str]]:
        """The headers of those who send the good request."""
        scraper = {"authorization": f"Bearer {METRICS_TOKEN}"}
        return self._copies.app.installation.credentials() | {"scraper": scraper}

    def renew(self) -> None:
        """Leave the copy in use."""
        self._copies.renew()


def _etag(app: App, sample: Sample) -> str:
    answer = app.request("GET", sample.path.partition("?")[0], sample.headers)
    return dict(answer.headers).get("etag", '"1"')


def usual_headers(app: App) -> dict[str, str]:
    """What every answer has, and is not shown."""
    return {name.lower(): value for name, value in app.request("GET", "/healthz", {}).headers}


def samples_of(endpoint: Endpoint, recorder: Recorder) -> Iterator[str]:
    """All samples of an endpoint, as text."""
    recorder.renew()
    callers = recorder.callers
    good = Sample("", endpoint.method, endpoint.path(), {}, endpoint.body(endpoint.example))
    best: Mapping[str, str] | None = None
    for name, headers in callers.items():
        sample = replace(good, title=f"by {name}", headers=_typed(headers, endpoint))
        answer, text = recorder.record(sample)
        yield text
        if best is None and answer.status < _ERRORS_FROM:
            best = sample.headers
    recorder.renew()
    caller = best if best is not None else _typed(callers["admin token"], endpoint)
    for sample in _wrong(endpoint, replace(good, headers=caller)):
        yield recorder.record(sample)[1]


def _typed(headers: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    return {**headers, **({"content-type": endpoint.content_type} if endpoint.has_body else {})}


def _wrong(endpoint: Endpoint, good: Sample) -> Iterator[Sample]:
    """Requests with one thing wrong."""
    for name in parameters_of(endpoint.rule):
        wrong = "no-such-org" if name == "slug" else "nothing"
        yield replace(good, title=f"another {name}", path=endpoint.path(ids={name: wrong}))
    unknown = endpoint.path(endpoint.query | {"no_such_name": "1"})
    yield replace(good, title="an unknown parameter", path=unknown)
    for name in endpoint.queries:
        for title, value in (("wrong", "~"), ("empty", ""), ("repeated", ["1", "1"])):
            path = endpoint.path(endpoint.query | {name: value})
            yield replace(good, title=f"{title} parameter {name}", path=path)
    if endpoint.has_body:
        yield from _wrong_bodies(endpoint, good)


def _wrong_bodies(endpoint: Endpoint, good: Sample) -> Iterator[Sample]:
    for title, body in (
        ("no body", None),
        ("a body that is not JSON", b"{"),
        ("a body that is not text", b"\xff"),
        ("an empty object", b"{}"),
        ("an empty list", b"[]"),
        ("null", b"null"),
    ):
        yield replace(good, title=title, body=body)
    other = {**good.headers, "content-type": "text/plain"}
    yield replace(good, title="another content type", headers=other)
    if endpoint.example is None:
        return
    for title, value in changed(endpoint.example):
        yield replace(good, title=title, body=endpoint.body(value))


def changed(value: Any, where: str = "body") -> Iterator[tuple[str, Any]]:
    """`value` with one change each: a field more, a field less, another type in each place."""
    if isinstance(value, dict):
        yield f"an unknown field in {where}", value | {"no_such_field": 1}
        for name, inner in value.items():
            yield f"{where} without {name}", {k: v for k, v in value.items() if k != name}
            for title, other in _other(inner, f"{where}.{name}"):
                yield title, value | {name: other}
    elif isinstance(value, list) and value:
        for title, other in _other(value[0], f"{where}[0]"):
            yield title, [other, *value[1:]]
        yield f"the first of {where} twice", [value[0], *value]


def _other(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    for wrong in _WRONG:
        if wrong != value:
            yield f"{where} is {json.dumps(wrong)}", wrong
    yield from changed(value, where)
