"""What rules for audit logs ask for, and which members of the auditor's report concern it."""

from typing import Final

from msgspec import Struct


class Clause(Struct, frozen=True):
    """A clause of a rule, what it asks for in our words, and what is shown for it."""

    rule: str
    clause: str
    asks: str
    shown: tuple[str, ...]


_UNCHANGED: Final = ("checkpoint", "witnesses", "compared_at")
_KEPT: Final = ("retention_floor", "held_since", "object_lock")
_SEEN: Final = ("readers", "reviews")
_PCI: Final = "PCI DSS 4.0.1"
_ISO: Final = "ISO 27001:2022"

CLAUSES: Final = (
    Clause(_PCI, "10.2", "Record what people do, and each access to the log itself.", ("readers",)),
    Clause(
        _PCI,
        "10.3",
        "Let only those read logs who need to; notice when one is changed or destroyed.",
        (*_UNCHANGED, "object_lock", "readers"),
    ),
    Clause(_PCI, "10.4", "Review logs regularly, and follow up what is unusual.", ("reviews",)),
    Clause(_PCI, "10.5", "Keep a year of logs, the last three months of it ready to read.", _KEPT),
    Clause(_PCI, "10.6", "Keep the clocks of all systems in step.", ("clock_refusal",)),
    Clause(
        "DORA, RTS (EU) 2024/1774",
        "Art. 12",
        "Decide how long logs are kept; guard them against tampering, deletion and strangers;"
        " notice when logging fails; take the time from a reliable source.",
        (*_UNCHANGED, *_KEPT, "clock_refusal", "readers"),
    ),
    Clause(
        "NIS2, CIR (EU) 2024/2690",
        "Annex, 3.2",
        "Log, review the logs, keep and guard them for a set time, with clocks in step.",
        (*_UNCHANGED, *_KEPT, "clock_refusal", *_SEEN),
    ),
    Clause(
        "SEC 17a-4",
        "(f)(2)",
        "Keep records where they cannot be rewritten or erased, or with a trail from which each"
        " change and deletion can be seen; verify that they are complete.",
        (*_UNCHANGED, *_KEPT),
    ),
    Clause("HIPAA 164.312", "(b)", "Record and examine what happens around health data.", _SEEN),
    Clause(
        "HIPAA 164.312", "(c)", "Be able to confirm that health data was not changed.", _UNCHANGED
    ),
    Clause(_ISO, "A.8.15", "Make, keep, guard and analyse logs.", (*_UNCHANGED, *_KEPT, *_SEEN)),
    Clause(_ISO, "A.8.17", "Set all clocks by approved sources.", ("clock_refusal",)),
)
