"""`countersign explain`, `bindings explain` and `rejected`: why CI tokens are not trusted."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, Final

import click

from service.ci.verifier.codes import FailureCode
from service.cli.bindings import bindings
from service.cli.client import Client, drop_none, org_path
from service.cli.commands import CURSOR, api_command
from service.cli.files import STANDARD_INPUT
from service.cli.output import CommandResult, Table, more_lines, printable
from service.cli.root import root
from service.cli.times import INSTANT
from service.core.errors import Invalid
from service.core.exit_codes import ExitCode, WrongUsage

_BYTES_MAX: Final = 64 * 1024
_BEFORE_CHARS: Final = 40
_WIDTH: Final = 80
_SUBJECT: Final = 2
_MARGIN: Final = " " * 12


@api_command(root, "explain")
@api_command(bindings, "explain")
@click.option("--project", metavar="PROJECT", help="As for this project's API keys.")
@click.option("--token-file", metavar="FILE", help="File with the token; - (default) is stdin.")
@click.option("--claims", "claims_file", metavar="FILE", help="Claims in JSON instead; - is stdin.")
async def explain(
    client: Client,
    slug: str,
    project: str | None,
    token_file: str | None,
    claims_file: str | None,
) -> CommandResult:
    """Explain why a CI token is trusted or not.

    Shows the seven rules, the bindings that nearly match, and the binding that is missing. The
    token is read from a file or standard input, not from an argument, which other users of this
    machine could see. It is neither stored nor logged.

    \b
    Example:
      countersign explain --org acme < token.txt

    Exit code 1 means that it is not trusted.
    """  # noqa: D301 - click reads the backspace
    if token_file is not None and claims_file is not None:
        raise WrongUsage("give either --token-file or --claims")
    raw = _read(claims_file or token_file or STANDARD_INPUT).strip()
    # Claims as they were read: the service judges them, duplicate members included.
    body = _member("claims", raw) if claims_file is not None else _member("token", _json(raw))
    if project is not None:
        project_id = await client.project_id(slug, project)
        body += b"," + _member("project_id", _json(project_id.encode()))
    answer = await client.post(org_path(slug, "oidc-bindings", "explain"), b"{" + body + b"}")
    return CommandResult(
        answer,
        list(_lines(slug, answer)),
        Table(
            "Rules", ["rule", "name", "status", "found"], [_row(rule) for rule in answer["rules"]]
        ),
        code=ExitCode.DONE if answer["passes"] else ExitCode.FAILED,
    )


def _read(name: str) -> bytes:
    """The content of the file `name`, or of standard input. Raises Invalid."""
    with click.open_file(name, "rb") as file:
        raw: bytes = file.read(_BYTES_MAX + 1)
    if len(raw) > _BYTES_MAX:
        raise Invalid(f"over {_BYTES_MAX} bytes: not a token")
    return raw


def _member(name: str, value: bytes) -> bytes:
    return f'"{name}":'.encode() + value


def _json(text: bytes) -> bytes:
    return json.dumps(text.decode(errors="replace")).encode()


def _row(rule: dict[str, Any]) -> list[object]:
    status = rule["status"].replace("_", " ")
    return [rule["rule"], rule["name"], status, printable(rule["found"])]


def _lines(slug: str, answer: dict[str, Any]) -> Iterator[str]:
    yield _verdict(answer)
    if answer["reason"]:
        yield f"  {printable(answer['reason'])}"
    for rule in answer["rules"]:
        if rule["status"] == "failed":
            yield ""
            yield f"Rule {rule['rule']} ({rule['name']}): {printable(rule['note'])}"
            yield from _comparison(rule["expected"], rule["found"], rule["difference"])
    yield from _nearest(answer)
    if answer["proposal"]:
        yield ""
        yield "What would make it trusted:"
        yield from proposal_lines(slug, answer["proposal"])


def _nearest(answer: dict[str, Any]) -> Iterator[str]:
    sub = answer["rules"][_SUBJECT]["found"]
    for near in answer["nearest"]:
        yield ""
        yield f"Nearest: {near['id']} ({near['state']}). {printable(near['why'])}"
        difference = near["difference"]
        # For another repository the ids differ, and the sentence above names both.
        if difference and difference["comparedWith"] == near["subPattern"]:
            yield from _comparison(None, sub, difference)
        elif not difference and near["subPattern"] != sub:
            yield f"  subject   {printable(near['subPattern'])}"


def _verdict(answer: dict[str, Any]) -> str:
    if not answer["passes"]:
        return f"Not trusted: {'/'.join(filter(None, (answer['code'], answer['detail'])))}"
    unsigned = "" if answer["signatureChecked"] else ", if the issuer has signed it"
    return f"Trusted by {answer['binding']}{unsigned}."


def _comparison(
    expected: object, found: object, difference: dict[str, Any] | None
) -> Iterator[str]:
    """Lines with the expected and the found value, and a caret at their first difference."""
    has_choice = isinstance(expected, list) and len(expected) > 1
    if expected is not None and (difference is None or has_choice):
        yield f"  expected  {printable(expected)}"
    if difference is None:
        if found is not None:
            yield f"  found     {printable(found)}"
        return
    wanted, at = difference["comparedWith"], difference["at"]
    start = max(0, at - _BEFORE_CHARS)
    lead = "…" if start else ""
    yield f"  expected  {lead}{printable(wanted[start : start + _WIDTH])}"
    if isinstance(found, str):
        yield f"  found     {lead}{printable(found[start : start + _WIDTH])}"
    yield f"{_MARGIN}{' ' * len(lead + printable(wanted[start:at]))}^ {_part(difference)}"


def _part(difference: dict[str, Any]) -> str:
    wanted, got = (difference[name] or "the end" for name in _CODE_POINTS)
    hint = f" ({difference['hint']})" if difference["hint"] else ""
    return f"expected {wanted}, found {got}{hint}"


_CODE_POINTS: Final = ("expectedCodePoint", "foundCodePoint")


LIMIT_MAX: Final = 1_000
_COLUMNS = ["verified", "code", "subject", "repositoryId", "eventName", "count", "lastAt"]


@api_command(bindings, "rejected")
@click.option(
    "--verified/--unverified",
    "is_verified",
    default=None,
    help="Only entries confirmed by their issuer, or only the others.",
)
@click.option(
    "--code",
    metavar="CODE",
    type=click.Choice([code.value for code in FailureCode]),
    help="Only entries with this failure code, such as unbound_oidc_subject.",
)
@click.option(
    "--since",
    metavar="INSTANT",
    type=INSTANT,
    help="Rejected at this instant or later; 24h is that long ago.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=100,
    show_default=True,
    help="How many entries, newest first.",
)
@CURSOR
async def bindings_rejected(
    client: Client,
    slug: str,
    is_verified: bool | None,
    code: str | None,
    since: str | None,
    limit: int,
    cursor: str | None,
) -> CommandResult:
    """List the CI identities that were rejected recently.

    Below the list, for each that a binding would help: what to review, and the request to send.
    Only verified entries are confirmed by their issuer. Anyone who can send requests may have
    made up the others.
    """
    verified = None if is_verified is None else str(is_verified).lower()
    parameters = drop_none(
        verified=verified, code=code, since=since, limit=limit, cursor=cursor or None
    )
    answer = await client.get(org_path(slug, "oidc-bindings", "rejected"), parameters)
    rows = [_rejected_row(entry) for entry in answer["rejected"]]
    return CommandResult(
        answer,
        [*more_lines(answer), *_proposals(slug, answer)],
        Table("Rejected subjects", _COLUMNS, rows, ["lastAt"]),
    )


def _rejected_row(entry: dict[str, Any]) -> list[object]:
    code = "/".join(filter(None, (entry["code"], entry["detail"])))
    cells = [entry[column] for column in _COLUMNS[2:]]
    return ["yes" if entry["verified"] else "no", code, *cells]


def _proposals(slug: str, answer: dict[str, Any]) -> Iterator[str]:
    for entry in answer["rejected"]:
        if entry["proposal"] is not None:
            yield ""
            yield f"What would make {printable(entry['subject'])} trusted:"
            yield from proposal_lines(slug, entry["proposal"])


def proposal_lines(slug: str, proposal: dict[str, Any]) -> Iterator[str]:
    """What to review, then the request to paste, and the one that leaves the old binding."""
    yield printable(proposal["review"])
    path = f"/api/v1/admin/orgs/{slug}/oidc-bindings"
    replaced = proposal["replaces"]
    yield from _request(
        path if replaced is None else f"{path}/{replaced}/replace", proposal["body"]
    )
    if proposal["beside"] is not None:
        yield f"Or, beside {replaced}:"
        yield from _request(path, proposal["beside"])


def _request(path: str, body: dict[str, Any]) -> Iterator[str]:
    # An id from a server goes into a command to paste only if it is a plain word.
    address = f'"$URL{path}"' if shlex.quote(path) == path else f'"$URL"{shlex.quote(path)}'
    yield f"  curl -X POST {address} \\"
    yield """    -H "x-service-admin-token: $TOKEN" -H 'content-type: application/json' \\"""
    # ASCII only: what a terminal does with other characters is unknown.
    yield f"    -d {shlex.quote(json.dumps(body))}"
