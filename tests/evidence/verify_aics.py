"""Verifies proofs with aics-tlog, in the virtual environment of its own: see cases.py."""

import base64
import json
import sys

from aics_tlog import (
    leaf_hash,
    parse_note,
    parse_vkey,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)


def opened(text: str, vkey: str) -> tuple[int, bytes]:
    """Size and root of the checkpoint in a note that the key signed."""
    key = parse_vkey(vkey)
    result = verify_checkpoint(parse_note(text), key, expected_origin=key.name)
    if not result.ok:
        raise ValueError(result.error)
    return result.size, result.root


def verdict(case: dict) -> str:
    if "proof" in case:
        head, _, text = case["proof"].partition("\n\n")
        header, index, *lines = head.split("\n")
        if header != "c2sp.org/tlog-proof@v1" or not index.startswith("index "):
            return "not a tlog-proof"
        size, root = opened(text, case["vkey"])
        hashes = [base64.b64decode(line, validate=True) for line in lines]
        leaf = leaf_hash(base64.b64decode(case["entry"]))
        number = int(index.removeprefix("index "))
        is_right = verify_inclusion(leaf, number, size, hashes, root)
    else:
        old_size, old_root = opened(case["old"], case["vkey"])
        new_size, new_root = opened(case["new"], case["vkey"])
        hashes = [base64.b64decode(each, validate=True) for each in case["hashes"]]
        is_right = verify_consistency(old_size, new_size, old_root, new_root, hashes)
    return "ok" if is_right else "the proof is wrong"


for line in sys.stdin:
    try:
        answer = verdict(json.loads(line))
    except ValueError as error:
        answer = " ".join(str(error).split())
    sys.stdout.write(f"{answer}\n")
