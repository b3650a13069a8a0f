"""Subjects of GitHub's jobs with ids and without: one repository, under both."""

import pytest

from service.ci.issuers.run_links import run_link
from service.ci.providers import id_form, ids_of, job_label, named_form
from tests.issuers.known import GITHUB

NAMED = "repo:acme/app:ref:refs/heads/main"
WITH_IDS = "repo:acme@77/app@123:ref:refs/heads/main"


def test_both_forms_have_one_label_and_one_link():
    links = {run_link([GITHUB], "github", subject, "5") for subject in (NAMED, WITH_IDS)}

    assert job_label(WITH_IDS) == job_label(NAMED) == "acme/app \N{MIDDLE DOT} main"
    assert links == {"https://github.com/acme/app/actions/runs/5"}


def test_each_form_is_made_of_the_other():
    assert named_form(WITH_IDS) == named_form(NAMED) == NAMED
    assert id_form(NAMED, "77", "123") == WITH_IDS
    assert ids_of(WITH_IDS) == ("77", "123")
    assert ids_of(NAMED) is None


@pytest.mark.parametrize("subject", [WITH_IDS, "org/1/project/2/user/3", "project_path:a/b:x", ""])
def test_ids_are_put_only_into_subjects_that_name_a_repository(subject: str):
    assert id_form(subject, "1", "2") is None
