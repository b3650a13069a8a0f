"""Values of tokens, and proposed bindings, as lines for a terminal."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any


def printable(value: object) -> str:
    """`value` with characters escaped that a terminal would not print but interpret."""
    if value is None:
        return "–"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(printable, value))
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


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
