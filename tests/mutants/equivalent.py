"""Mutants that change nothing that could be noticed, by their names, each with the reason."""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "heads_of:da90ae:bound:1": "a column of several blocks has a head",
    "merged_rows:e3fbdc:constant:1": "the same rows are read a column at a time: that takes memory",
    "NewestTexts._rows:52efc5:bound:1": "no row that came since stands where another one does",
    "NewestTexts._rows:f265d1:bound:1": "no row that came since stands where another one does",
    "_ends:37b83b:constant:1": "every seq is above both",
    "_different:bee383:bound:1": "both ways lead to the same texts",
    "_different:453b58:constant:1": "one more text, which no row refers to",
    "record_misdated:21454b:deleted:1": "what is not remembered is written once more",
    "encode_blocks:ecd1a5:constant:1": "chunks that were combined begin at offset 0",
    "encode_blocks:ecd1a5:constant:2": "chunks that were combined begin at offset 0",
    "encode_blocks:ecd1a5:constant:3": "chunks that were combined begin at offset 0",
    "_public_key:c1ac72:constant:2": "it is after (0,), and before no other number",
    "_add:35e60e:constant:1": "only a file over 2 GiB needs it",
    "decode_cursor:093eef:constant:1": "what is no base64 is not what would be printed, either",
    "list_:f3b303:constant:1": "there is one statement, or reason, for each row",
    "_cuts:54f72f:dropped:3": "an install's id is one package's: less is read",
    "RetroMatcher.match_due:7bdfce:deleted:1": "what is kept stays true: it takes memory",
    "RetroMatcher._new_advisories:57e6ac:never:1": "a list differs in nothing from itself",
}
