"""Notes, checkpoints and proofs as text."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.merkle import leaf_hash
from analytics.evidence.notes import (
    Checkpoint,
    InvalidNote,
    Note,
    Proof,
    VerifierKey,
    inclusion_text,
    parse_inclusion,
    sign,
)

NAME = "audit.example/org_acme"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = VerifierKey(NAME, PRIVATE.public_key().public_bytes_raw())
CHECKPOINT = Checkpoint(NAME, 7, leaf_hash(b"x"))
NOTE = Note(CHECKPOINT.text, (sign(PRIVATE, NAME, CHECKPOINT.text),))


def test_a_note_is_read_as_it_was_written() -> None:
    read = Note.parse(str(NOTE))
    assert read == NOTE
    assert read.signers([KEY]) == [KEY]
    assert Checkpoint.parse(read.text) == CHECKPOINT
    assert VerifierKey.parse(str(KEY)) == KEY


def test_a_published_key_has_its_id() -> None:
    """The example in the documentation of Go's package `note`."""
    key = VerifierKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    assert key.key_id.hex() == "c74f20a3"
    assert not key.verify("text\n", bytes(64))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n7\n", "\n8\n"),
        lambda text: text.replace(NAME + "\n", "other.example\n", 1),
    ],
)
def test_a_changed_text_is_not_signed(change) -> None:
    with pytest.raises(InvalidNote, match=f"signature of {NAME} is wrong"):
        Note.parse(change(str(NOTE))).check([KEY])


def test_signatures_of_unknown_keys_do_not_count() -> None:
    other = Ed25519PrivateKey.generate()
    signed_by_other = Note(NOTE.text, (sign(other, NAME, NOTE.text),))
    with pytest.raises(InvalidNote, match="none of the known keys"):
        signed_by_other.check([KEY])
    both = Note(NOTE.text, (*signed_by_other.signatures, *NOTE.signatures))
    assert both.signers([KEY]) == [KEY]


@pytest.mark.parametrize(
    "text",
    ["", "x", "a\n\n", "a\n\n- name AAAA\n", f"{NOTE.text}\n{NOTE.signatures[0]}", "a\n\n— n !\n"],
)
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(InvalidNote):
        Note.parse(text)


@pytest.mark.parametrize(
    "text", ["", "o\n7\n", "o\n07\nAAAA\n", "o\n7\nAAAA\n", "\n7\n" + "A" * 43 + "=\n"]
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidNote):
        Checkpoint.parse(text)


@pytest.mark.parametrize("text", ["", "a+00000000+AA==", str(KEY).replace("org_acme", "org_b")])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNote):
        VerifierKey.parse(text)


def test_a_proof_is_read_as_it_was_written() -> None:
    hashes = (leaf_hash(b"1"), leaf_hash(b"2"))
    text = inclusion_text(5, hashes, str(NOTE))
    assert parse_inclusion(text) == Proof(5, hashes, NOTE)
    with_extra = text.replace("\nindex", "\nextra AAAA\nindex")
    assert parse_inclusion(with_extra).number == 5
    for wrong in (text[1:], text.replace("index 5", "index 05"), text.partition("\n\n")[0]):
        with pytest.raises(InvalidNote):
            parse_inclusion(wrong)
