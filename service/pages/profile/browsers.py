"""Names of a browser and its system, by which users recognise their own."""

from typing import Final

# In this order: the user agents of earlier ones contain the names of later ones, too.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_words(user_agent: str | None) -> str | None:
    """Such as `Firefox on Linux`, or None for an unknown browser.

    Only a reminder, not evidence: a client can send any user agent.
    """
    browser = _first(_BROWSERS, user_agent or "")
    system = _first(_SYSTEMS, user_agent or "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system


def _first(names: tuple[tuple[str, str], ...], user_agent: str) -> str | None:
    return next((name for token, name in names if token in user_agent), None)
