"""What pages call things."""

import pytest

from analytics.model.envelopes import EVENTS, InstallWouldBlock
from analytics.model.filters import FILTER_COLUMNS
from analytics.model.labels import EVENT_LABELS, FILTER_LABELS, event_label
from analytics.model.org_envelopes import InstallTokenIssued
from analytics.model.policy_envelopes import BlocklistImported, PolicyChanged
from service.pages.display_names import cut
from service.pages.rows import ci_words, icon_of


def test_every_event_and_every_filter_has_words_of_its_own():
    """Two events with one name could not be told apart in a list."""
    assert set(EVENT_LABELS) == set(EVENTS)
    assert len(set(EVENT_LABELS.values())) == len(EVENTS)
    assert set(FILTER_LABELS) >= set(FILTER_COLUMNS)


def test_an_unknown_event_is_shown_by_its_name():
    """A newer version may have written it."""
    assert event_label("moon_landing") == "moon_landing"


@pytest.mark.parametrize(
    ("source", "words"),
    [("oidc_github", "GitHub"), ("oidc_new", "new"), ("api_key", None), ("session", None)],
)
def test_only_ci_jobs_have_a_provider(source, words):
    """The badge says that a token was verified."""
    assert ci_words(source) == words


@pytest.mark.parametrize("length", [5, 6, 64])
def test_what_is_long_loses_its_middle(length):
    text = "a" * 500 + "z" * 500

    assert cut("short", 5) == "short"
    assert len(cut(text, length)) == length
    assert cut(text, length)[0] == "a"
    assert cut(text, length)[-1] == "z"


@pytest.mark.parametrize(
    ("event", "icon"),
    [
        (PolicyChanged.event, "shield"),
        (BlocklistImported.event, "shield"),
        (InstallTokenIssued.event, "key"),
        (InstallWouldBlock.event, "alert"),
    ],
)
def test_installs_and_their_policy_have_icons(event, icon):
    """A row that audit mode let through must not look like any allowed install."""
    assert icon_of(event) == icon
