"""Links to the pages of CI runs: only to the provider, whatever a token said."""

from dataclasses import dataclass

import pytest

from service.ci.issuers.run_links import run_link, run_url_fault

RUNS = "https://github.com/{repository}/actions/runs/{run_id}"


@dataclass
class AnIssuer:
    """What a link needs to know of an issuer."""

    provider: str = "github"
    run_url: str | None = RUNS


def test_a_run_has_a_page_at_its_provider():
    link = run_link([AnIssuer()], "github", "repo:acme/app:ref:refs/heads/main", "14077220290")
    assert link == "https://github.com/acme/app/actions/runs/14077220290"


@pytest.mark.parametrize(
    ("issuers", "subject", "run_id"),
    [
        ([], "repo:acme/app:pull_request", "1"),
        ([AnIssuer(run_url=None)], "repo:acme/app:pull_request", "1"),
        ([AnIssuer(provider="gitlab")], "repo:acme/app:pull_request", "1"),
        (
            [AnIssuer(), AnIssuer(run_url="https://ghe.example/{repository}/{run_id}")],
            "repo:a/b:c",
            "1",
        ),
        ([AnIssuer()], "repo:../admin:x", "1"),
        ([AnIssuer()], "repo:acme:x", "1"),
        ([AnIssuer()], "key_1", "1"),
        ([AnIssuer()], None, "1"),
        ([AnIssuer()], "repo:acme/app:pull_request", None),
        ([AnIssuer()], "repo:acme/app:pull_request", "1/../../x"),
        ([AnIssuer()], "repo:acme/app:pull_request", "javascript:alert(1)"),
    ],
)
def test_without_a_known_page_there_is_no_link(issuers, subject, run_id):
    assert run_link(issuers, "github", subject, run_id) is None


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (RUNS, None),
        ("http://ci.example/{repository}/{run_id}", "must be an https address"),
        ("https://{repository}.example/{run_id}", "must be an https address"),
        ("https://ci.example/{run_id}", "must have {repository} and {run_id}"),
        ("https://ci.example/{repository}/{run_id}/{run_id.__class__}", "no other field"),
        ("https://ci.example/{repository}/{run_id", "not closed"),
    ],
)
def test_the_address_of_runs_is_checked_when_the_file_is_read(template, fault):
    """A page must link to the provider alone."""
    found = run_url_fault(template)
    assert found is None if fault is None else fault in str(found)
