"""Policies: the example of the specification, and what it forbids."""

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.notes import COSIGNATURE, ED25519, VerifierKey
from analytics.evidence.policies import InvalidPolicy, Policy


def key(name: str, kind: int = COSIGNATURE) -> VerifierKey:
    seed = random.Random(f"{name} {kind}").randbytes(32)
    private = Ed25519PrivateKey.from_private_bytes(seed)
    return VerifierKey(name, private.public_key().public_bytes_raw(), kind)


NAMES = ["X1", "X2", "X3", "Y1", "Y2", "Y3"]
LOG = key("log.example/org_1", ED25519)
EXAMPLE = "\n".join(
    [
        "# The example of c2sp.org/tlog-policy.",
        f"log {LOG}",
        "",
        *(f"witness {name} {key(name)}" for name in NAMES[:3]),
        "group X-witnesses 2 X1 X2 X3",
        *(f" \twitness {name} {key(name)}\thttps://{name}.example/ " for name in NAMES[3:]),
        "group Y-witnesses any Y1 Y2 Y3",
        "group X-and-Y all X-witnesses Y-witnesses",
        "quorum X-and-Y",
        "",
    ]
)


@pytest.mark.parametrize(
    ("cosigners", "is_enough"),
    [
        ("X1 X2 Y1", True),
        ("X1 X3 Y2 Y3", True),
        ("X1 X2", False),
        ("X1 Y1 Y2 Y3", False),
        ("", False),
    ],
)
def test_a_quorum_is_counted_group_by_group(cosigners: str, is_enough: bool) -> None:
    policy = Policy.parse(EXAMPLE.encode())
    assert policy.logs == (LOG,)
    assert policy.is_met([key(name) for name in cosigners.split()]) is is_enough


def test_none_needs_no_cosignature_and_a_single_witness_may_be_the_quorum() -> None:
    assert Policy.parse(b"quorum none").is_met([])
    single = Policy.parse(f"witness W {key('W')}\nquorum W".encode())
    assert single.is_met([key("W")])
    assert not single.is_met([key("V")])


def test_names_are_octets() -> None:
    kelvin = "\N{KELVIN SIGN}"
    policy = Policy.parse(
        f"witness K {key('a')}\nwitness {kelvin} {key('b')} https://ü.example\nquorum K".encode()
    )
    assert policy.is_met([key("a")])
    assert not policy.is_met([key("b")])


WITNESS = f"witness W {key('W')}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "exactly one line with the quorum"),
        ("quorum none\nquorum none", "exactly one line with the quorum"),
        ("quorum W", "line 1: no witness or group W stands above"),
        (f"quorum W\n{WITNESS}", "line 1: no witness or group W stands above"),
        (f"{WITNESS}\ngroup G any none", "line 2: no witness or group none"),
        (f"{WITNESS}\ngroup W any W", "line 2: the name W has a meaning already"),
        (f"witness none {key('W')}", "the name none has a meaning already"),
        (f"{WITNESS}\ngroup G 2 W", "line 2: 2 is not all, any or a number up to 1"),
        (f"{WITNESS}\ngroup G 0 W", "0 is not all, any or a number"),
        (f"{WITNESS}\ngroup G most W", "most is not all, any or a number"),
        (
            f"{WITNESS}\nwitness V {key('V')}\ngroup G 1 W\ngroup G 1 V",
            "line 4: the name G has a meaning already",
        ),
        (f"{WITNESS}\ngroup G all", "line 2: not a log, witness, group or quorum"),
        (f"{WITNESS}\ngroup G 1 W W", "W is a member already"),
        (f"{WITNESS}\ngroup G any W\ngroup H any W", "line 3: W is a member already"),
        (f"{WITNESS}\nwitness V {key('W')}", "the key of W stands there twice"),
        (f"log {LOG}\nlog {LOG}", "stands there twice"),
        (f"log {key('W')}", "line 1: a log has a key of type 1"),
        (f"witness W {LOG}", "line 1: a log has a key of type 1, a witness one of type 4"),
        ("log nonsense", "line 1: a key must have the form"),
        ("quorum none\r\n", "no control characters"),
        ("quorum\u00a0none", "line 1: not a log"),
    ],
)
def test_what_the_specification_forbids_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidPolicy, match=fault):
        Policy.parse(text.encode())


def test_a_long_chain_of_groups_is_counted() -> None:
    """Hostile, and no reason to exhaust the stack."""
    chain = [WITNESS, "group 0 all W", *(f"group {n} all {n - 1}" for n in range(1, 3_000))]
    policy = Policy.parse("\n".join([*chain, "quorum 2999"]).encode())
    assert policy.is_met([key("W")])
    assert not policy.is_met([])
