"""The feeds of the blocklist as commands show them: how old each is, and what to do about it."""

from collections.abc import Sequence
from datetime import datetime

from analytics.model.instants import format_ms
from service.packages.ecosystems import Ecosystem
from service.packages.policy.blocklist_contents import FeedState


def feed_lines(feeds: Sequence[FeedState], now: datetime, stale_after_s: float) -> list[str]:
    """One line for each feed, and for each ecosystem without any."""
    missing = [str(e) for e in Ecosystem if e not in {state.ecosystem for state in feeds}]
    lines = [_line(state, is_stale=state.is_stale(now, stale_after_s)) for state in feeds]
    if missing:
        names = " and ".join(missing)
        lines.append(f"No blocklist for {names}: `countersign blocklist import FILE.zip`.")
    return lines


def _line(state: FeedState, *, is_stale: bool) -> str:
    text = (
        f"Blocklist {state.feed}, {state.ecosystem} ({' '.join(state.ids)}):"
        f" {state.advisories} advisories, imported {format_ms(state.imported_at)}"
    )
    if state.modified_at is not None:
        text += f", newest change {format_ms(state.modified_at)}"
    return f"{text}. STALE: import a new archive." if is_stale else f"{text}."
