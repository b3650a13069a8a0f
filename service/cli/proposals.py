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
    """What to review, then the commands to paste: bindings to revoke, and the one to create."""
    yield printable(proposal["review"])
    for binding_id in proposal["revokeFirst"]:
        yield f"  countersign bindings revoke --org {slug} {binding_id}"
    path = f"/api/v1/admin/orgs/{slug}/oidc-bindings"
    yield f'  curl -X POST "$URL{path}" \\'
    yield """    -H "x-service-admin-token: $TOKEN" -H 'content-type: application/json' \\"""
    # ASCII only: what a terminal does with other characters is unknown.
    yield f"    -d {shlex.quote(json.dumps(proposal['body']))}"
