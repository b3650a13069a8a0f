"""What a browser and its system are called, for somebody to recognise their own by."""

from typing import Final

# In this order: later ones claim to be the earlier ones, too, for old websites' sake.
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
    """Such as `Firefox on Linux`, or None for a browser that says nothing that is known here.

    Anybody can write anything into that header: these are words to remember by, no proof.
    """
    said = user_agent or ""
    browser = _first(_BROWSERS, said)
    system = _first(_SYSTEMS, said)
    if browser and system:
        return f"{browser} on {system}"
    return browser or system


def _first(names: tuple[tuple[str, str], ...], said: str) -> str | None:
    return next((words for sign, words in names if sign in said), None)
