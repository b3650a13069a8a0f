"""The events and claims that each provider is documented to send."""

import re

import pytest

from service.ci.providers import EVENTS, KNOWN
from service.cli.demo.profile import load_profile


@pytest.mark.parametrize("provider", KNOWN, ids=[provider.name for provider in KNOWN])
def test_lists_of_a_provider_are_well_formed(provider):
    assert list(provider.events) == sorted(set(provider.events))
    assert all(re.fullmatch("[a-z_]+", name) for name in provider.events)
    assert len(set(provider.conditions)) == len(provider.conditions)
    assert all(re.fullmatch("[a-z_./-]+", claim) for claim in provider.conditions)


def test_the_demo_has_only_events_that_github_sends():
    profile = load_profile()
    tokens = [job.token for job in profile.jobs.values() if job.token is not None]
    events = {event for token in tokens for event in token.events}
    bound = {event for binding in profile.bindings for event in binding.event_names}

    assert {"push", "pull_request", "schedule"} <= events | bound <= set(EVENTS["github"])


@pytest.mark.parametrize("name", ["pull_request_comment", "workflow_call"])
def test_what_the_page_of_events_names_and_no_token_has_is_no_event(name):
    """`pull_request_comment` is a heading that refers to `issue_comment`."""
    assert name not in EVENTS["github"]
