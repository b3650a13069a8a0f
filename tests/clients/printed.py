"""What each client prints of a refusal: the table of docs/install-proxy.md, and what tests want."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from service.packages.npm.document import words_of
from service.packages.proxy.blocked import segment_of


class Text(StrEnum):
    """When the log has the reason as the operator has written it."""

    ALWAYS = "yes"
    IF_MARKED = "if another release is allowed"
    NEVER = "no"


@dataclass(frozen=True)
class Printed:
    """`has_refusal` is True for the address of the refusal, which names the audit row.

    `has_tarball` is True for the tarball's own address, which has the reason for npm's clients.
    """

    text: Text
    shown_as: str = ""
    has_refusal: bool = True
    has_tarball: bool = False

    def wants(self, reason: str, *, is_marked: bool) -> list[str]:
        """The parts that the log has of a refusal for `reason`, without white space."""
        has_text = self.text is Text.ALWAYS or (self.text is Text.IF_MARKED and is_marked)
        parts = [
            *([segment_of(reason)] if self.has_refusal else []),
            *([words_of(reason)] if self.has_tarball else []),
            *([reason] if has_text else []),
        ]
        return ["".join(part.split()) for part in parts]


PRINTED: Final[dict[str, Printed]] = {
    "pip 23.2": Printed(Text.IF_MARKED, "`Reason for being yanked: …`"),
    "pip 24.0": Printed(Text.IF_MARKED, "`Reason for being yanked: …`"),
    "pip 26": Printed(Text.IF_MARKED, "`Reason for being yanked: …`"),
    "uv pip": Printed(Text.NEVER),
    "uv tool": Printed(Text.NEVER),
    "uv sync": Printed(Text.IF_MARKED, '`is yanked (reason: "…")`'),
    "poetry": Printed(Text.IF_MARKED, "`Reason for being yanked: …`"),
    "pdm": Printed(Text.NEVER),
    "pipx": Printed(Text.NEVER),
    "npm 11": Printed(Text.ALWAYS, "`is blocked by the install policy of acme: …`"),
    "npm 12": Printed(Text.ALWAYS, "`is blocked by the install policy of acme: …`"),
    "pnpm 10": Printed(
        Text.ALWAYS, "`deprecated left-pad@1.2.0: …`", has_refusal=False, has_tarball=True
    ),
    "pnpm 12": Printed(Text.NEVER, has_refusal=False, has_tarball=True),
    "yarn 1": Printed(
        Text.ALWAYS, "`warning left-pad@1.2.0: …`", has_refusal=False, has_tarball=True
    ),
    "yarn 4": Printed(Text.NEVER, has_tarball=True),
    "bun": Printed(Text.ALWAYS, "`deprecated left-pad@1.2.0: …`"),
}
"""By the names of `tests.clients.managers.CLIENTS`."""


def table() -> str:
    """The table of the page."""
    lines = ["| client | addresses that it prints | reason as text |", "| --- | --- | --- |"]
    for name, printed in PRINTED.items():
        addresses = [
            *(["the refusal's: reason and audit row"] if printed.has_refusal else []),
            *(["the tarball's: reason"] if printed.has_tarball else []),
        ]
        text = str(printed.text) + (f", as {printed.shown_as}" if printed.shown_as else "")
        lines.append(f"| {name} | {', '.join(addresses)} | {text} |")
    return "".join(f"{line}\n" for line in lines)
