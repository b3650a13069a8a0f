"""Labels of the pages: providers in plain words, and shortened values."""

from typing import Final

PROVIDER_WORDS: Final = {"github": "GitHub", "google": "Google", "microsoft": "Microsoft"}
"""Names of the identity providers for sign-in."""

CI_PROVIDERS: Final = {"github": "GitHub", "gitlab": "GitLab", "circleci": "CircleCI"}
CI_SOURCE_PREFIX: Final = "oidc_"
ACTOR_SOURCES: Final = (
    f"{CI_SOURCE_PREFIX}*",
    *(f"{CI_SOURCE_PREFIX}{provider}" for provider in CI_PROVIDERS),
    "api_key",
    "session",
    "admin_token",
    "system",
)
"""Completions of `actor_source`."""


def ci_words(actor_source: str) -> str | None:
    """The CI provider of a row's actor, or None if the actor is not a CI job."""
    if not actor_source.startswith(CI_SOURCE_PREFIX):
        return None
    provider = actor_source.removeprefix(CI_SOURCE_PREFIX)
    return CI_PROVIDERS.get(provider, provider)


def cut(text: str, length: int = 64) -> str:
    """`text` in at most `length` characters; longer text is shortened in the middle.

    Both ends of a CI subject are informative: the repository in front, the branch at the end.
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def grouped(number: int) -> str:
    """`number` with separators between thousands."""
    return f"{number:,}"
