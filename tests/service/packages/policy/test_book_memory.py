"""What the book keeps in memory is not counted for less than it is."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.policy.advisories import Advisory, AdvisorySpec
from service.packages.policy.document import encode_document, parse_policy
from service.packages.policy.policy_cache import _STORED_FACTOR


@pytest.mark.parametrize("ecosystem", list(Ecosystem))
@pytest.mark.parametrize(
    "spec",
    [
        AdvisorySpec(versions=[f"1.{number}.0" for number in range(2_000)]),
        AdvisorySpec(
            ranges=[[("introduced", f"{n}.0.0"), ("fixed", f"{n}.1.0")] for n in range(500)]
        ),
        AdvisorySpec(digests=[f"sha256:{number:064x}" for number in range(1_000)]),
    ],
)
def test_advisories_take_no_more_than_is_counted(ecosystem: Ecosystem, spec: AdvisorySpec) -> None:
    """Otherwise a package with many versions would take all the memory there is."""
    stored = msgspec.json.encode(spec)
    loaded, taken = measured(
        lambda: Advisory.of(ecosystem, "MAL-1", msgspec.json.decode(stored, type=AdvisorySpec))
    )

    assert loaded.advisory_id == "MAL-1"
    assert taken <= _STORED_FACTOR * len(stored)


def test_a_policy_takes_no_more_than_is_counted() -> None:
    rules = [
        {
            "ecosystem": "pypi" if number % 2 else "npm",
            "package": f"p{number}",
            "versions": versions,
        }
        for number in range(150)
        for versions in [["<1", ">2,<3", "==4"] if number % 2 else ["<1", ">2 <3", "^4 || 5.x"]]
    ]
    text = json.dumps({"deny": rules})

    policy, taken = measured(lambda: parse_policy(json.loads(text)))

    assert taken <= _STORED_FACTOR * len(encode_document(policy))


def measured(make: Any) -> tuple[Any, int]:
    """What `make` returns, and the memory it takes."""
    make()  # what is made once, such as compiled expressions, is not counted
    tracemalloc.start()
    try:
        made = make()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return made, taken
