"""What tokens say and what would make them trusted, in lines for a terminal."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any


def printable(value: object) -> str:
    """`value` in characters that a terminal shows and does not obey."""
    if value is None:
        return "–"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(printable, value))
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def proposal_lines(slug: str, proposal: dict[str, Any]) -> Iterator[str]:
    """What to look at, and below it what to paste: the bindings to revoke, then the create."""
    yield printable(proposal["review"])
    for binding_id in proposal["revokeFirst"]:
        yield f"  countersign bindings revoke --org {slug} {binding_id}"
    path = f"/api/v1/admin/orgs/{slug}/oidc-bindings"
    yield f'  curl -X POST "$URL{path}" \\'
    yield """    -H "x-service-admin-token: $TOKEN" -H 'content-type: application/json' \\"""
    # ASCII alone: what a terminal would do with anything else is not known.
    yield f"    -d {shlex.quote(json.dumps(proposal['body']))}"
