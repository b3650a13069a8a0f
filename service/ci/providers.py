"""The CI providers: everything about each that this service knows apart from its issuers file.

Text to paste has places for `{command}` and `{audience}`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

_SEPARATOR: Final = " \N{MIDDLE DOT} "


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of a provider's jobs, which begin with `prefix`.

    `label` is a subject's repository and ref, or None for another subject; `candidates` are
    the subjects that may have that repository and ref. If the subject names its repository, it
    does so directly after `prefix`. An `address`, without its scheme, is a page with the group
    `repository`, and `run_id` on that of a run.
    """

    prefix: str
    names_repository: bool = False
    address: re.Pattern[str] | None = None
    label: Callable[[str], tuple[str, str] | None] = lambda _: None
    candidates: Callable[[str, str], list[str]] = lambda _path, _ref: []


@dataclass(frozen=True, slots=True, kw_only=True)
class CiFacts:
    """What there is to know about a provider.

    `name` is the suffix of `actor_source`, `label` the short name and `product` the one that
    its CI has. A job's environment has the variable and value `marker`; `advice` says what to
    add to a job that has no token. `job` is a job that installs, `request_lines` lines that put the
    job's token into COUNTERSIGN_ID_TOKEN, unless the job's own settings do. If it
    `has_masks`, a line of output hides a value from the log. `conditions` are the claims that a
    binding can narrow its subject by, `events` all values of the claim with the event; none if
    they are not known.
    """

    name: str
    label: str
    product: str
    job: str
    request_lines: str = ""
    marker: tuple[str, str] | None = None
    advice: str = ""
    subjects: Subjects | None = None
    has_masks: bool = False
    conditions: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


_WITH_IDS: Final = re.compile(
    r"^repo:(?P<owner>[^:/@]+)@(?P<owner_id>[0-9]+)/(?P<name>[^:/@]+)@(?P<id>[0-9]+)(?=:|$)"
)
"""How the subjects of GitHub's jobs begin since it puts ids behind the names."""
_NAMED: Final = re.compile(r"repo:(?P<owner>[^:/@]+)/(?P<name>[^:/@]+)(?=:|$)")
_GITHUB_JOB: Final = re.compile(r"repo:(?P<path>[^:]+):(?P<rest>.+)", re.DOTALL)
_GITHUB_REFS: Final = {
    "ref:refs/heads/": "",
    "ref:refs/tags/": "tag ",
    "environment:": "environment ",
}
"""The ways in which a subject of GitHub Actions names its ref or environment, and their labels."""

_GITLAB_JOB: Final = re.compile(
    r"project_path:(?P<path>[^:]+):ref_type:(?P<type>branch|tag):ref:(?P<ref>.+)", re.DOTALL
)

_GITHUB_PAGE: Final = re.compile(
    r"(?:[^/@]*@)?(?:[\w.-]*github[\w.-]*[/:]|[\w.-]+/(?=[\w.-]+/[\w.-]+/actions/))"
    r"(?!advisories/)(?P<repository>[\w.-]+/[\w.-]+?)(?:\.git)?(?!/security/advisories/)"
    r"(?:/actions/runs/(?P<run_id>[0-9]+)(?:/.*)?|/.*)?"
)
_GITLAB_PAGE: Final = re.compile(
    r"(?:[^/@]*@)?(?:[\w.-]*gitlab[\w.-]*[/:]|[\w.-]+/(?=.*/-/))"
    r"(?P<repository>[\w.-]+(?:/[\w.-]+)+?)(?:\.git)?"
    r"(?:/-/pipelines/(?P<run_id>[0-9]+)(?:/.*)?|/-/.*)?/?"
)
_CIRCLECI_PAGE: Final = re.compile(
    r"[\w.-]*circleci[\w.-]*/(?:api/v2/)?"
    r"(?:pipelines?|workflow|workflow-run|pipelines/(?:[^/]+/[^/]+/[^/]+/[0-9]+/)?workflows)"
    r"/(?P<run_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/.*)?"
)
"""The pages of a workflow and of its jobs, which have numbers that no claim has; and pipelines."""


def named_form(subject: str) -> str:
    """`subject` without the ids that GitHub puts behind the names of owner and repository.

    Repositories that were created, renamed or transferred since 15 July 2026 have ids in the
    subjects of their jobs, `repo:acme@77/app@123:…`, as have others that opted in.
    """
    return (
        _WITH_IDS.sub(r"repo:\g<owner>/\g<name>", subject, count=1) if "@" in subject else subject
    )


def id_form(subject: str, owner_id: str, repository_id: str) -> str | None:
    """The subject of the same job with ids; None if `subject` has some, or is not GitHub's."""
    match = _NAMED.match(subject)
    if match is None:
        return None
    rest = subject[match.end() :]
    return f"repo:{match['owner']}@{owner_id}/{match['name']}@{repository_id}{rest}"


def ids_of(subject: str) -> tuple[str, str] | None:
    """The ids of owner and repository in a subject of GitHub's that has them."""
    match = _WITH_IDS.match(subject)
    return None if match is None else (match["owner_id"], match["id"])


def with_ids_begins(beginning: str) -> str | None:
    """How subjects with ids begin that may be of the same owner as the named `beginning`."""
    match = _NAMED.match(beginning)
    return None if match is None else f"repo:{match['owner']}@"


def _github_label(subject: str) -> tuple[str, str] | None:
    match = _GITHUB_JOB.fullmatch(named_form(subject))
    if match is None:
        return None
    rest = match["rest"]
    for prefix, label in _GITHUB_REFS.items():
        if rest.startswith(prefix):
            return match["path"], f"{label}{rest.removeprefix(prefix)}"
    return match["path"], rest


def _github_candidates(path: str, ref: str) -> list[str]:
    return [
        f"repo:{path}:{ref}",
        f"repo:{path}:ref:refs/heads/{ref}",
        f"repo:{path}:ref:refs/tags/{ref.removeprefix('tag ')}",
        f"repo:{path}:environment:{ref.removeprefix('environment ')}",
    ]


def _gitlab_label(subject: str) -> tuple[str, str] | None:
    match = _GITLAB_JOB.fullmatch(subject)
    if match is None:
        return None
    return match["path"], f"{'tag ' if match['type'] == 'tag' else ''}{match['ref']}"


def _gitlab_candidates(path: str, ref: str) -> list[str]:
    return [
        f"project_path:{path}:ref_type:branch:ref:{ref}",
        f"project_path:{path}:ref_type:tag:ref:{ref.removeprefix('tag ')}",
    ]


# https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows
# Without `workflow_call`: jobs of a called workflow have the event of the calling one. With
# `dynamic`, the event of GitHub's own workflows: https://github.com/github/codeql-action/pull/1238
_GITHUB_EVENTS: Final = """
branch_protection_rule check_run check_suite create delete deployment deployment_status discussion
discussion_comment dynamic fork gollum image_version issue_comment issues label merge_group
milestone page_build public pull_request pull_request_review pull_request_review_comment
pull_request_target push registry_package release repository_dispatch schedule status watch
workflow_dispatch workflow_run
"""

# https://docs.gitlab.com/ci/jobs/job_rules/#ci_pipeline_source-predefined-variable
# Three of them are documented as sources of jobs only, which are their pipeline's except for jobs
# that a policy adds: https://docs.gitlab.com/ci/jobs/#available-job-sources
_GITLAB_EVENTS: Final = """
api chat container_registry_push duo_workflow external external_pull_request_event
merge_request_event ondemand_dast_scan ondemand_dast_validation parent_pipeline pipeline
pipeline_execution_policy_schedule push schedule security_orchestration_policy trigger web webide
"""


class CiProvider(Enum):
    """The CI provider that runs a job."""

    GITHUB = CiFacts(
        name="github",
        label="GitHub",
        product="GitHub Actions",
        marker=("GITHUB_ACTIONS", "true"),
        advice=(
            "the job may not request tokens: add `permissions: {id-token: write, contents: read}`"
            " to it (GitHub never lets pull requests from forks)"
        ),
        subjects=Subjects(
            "repo:",
            names_repository=True,
            address=_GITHUB_PAGE,
            label=_github_label,
            candidates=_github_candidates,
        ),
        job="""\
permissions:
  contents: read
  id-token: write
jobs:
  build:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: {command}
        env:
          COUNTERSIGN_API_KEY: ${{{{ secrets.COUNTERSIGN_API_KEY }}}}
""",
        request_lines="""\
COUNTERSIGN_ID_TOKEN=$(curl -sS --fail -H "Authorization: bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" \\
  "$ACTIONS_ID_TOKEN_REQUEST_URL&audience={audience}" | jq -r .value)
echo "::add-mask::$COUNTERSIGN_ID_TOKEN"
""",
        has_masks=True,
        # https://docs.github.com/en/actions/reference/security/oidc
        conditions=(
            "job_workflow_ref",
            "environment",
            "ref",
            "repository_owner_id",
            "runner_environment",
        ),
        events=tuple(_GITHUB_EVENTS.split()),
    )
    GITLAB = CiFacts(
        name="gitlab",
        label="GitLab",
        product="GitLab CI",
        marker=("GITLAB_CI", "true"),
        advice=(
            "the job has no token: add"
            " `id_tokens: {COUNTERSIGN_ID_TOKEN: {aud: countersign}}` to it"
        ),
        subjects=Subjects(
            "project_path:",
            names_repository=True,
            address=_GITLAB_PAGE,
            label=_gitlab_label,
            candidates=_gitlab_candidates,
        ),
        job="""\
build:
  id_tokens:
    COUNTERSIGN_ID_TOKEN:
      aud: {audience}
  script:
    - {command}
""",
        # https://docs.gitlab.com/ci/secrets/id_token_authentication/
        conditions=(
            "ci_config_ref_uri",
            "environment",
            "ref",
            "namespace_id",
            "runner_environment",
        ),
        events=tuple(_GITLAB_EVENTS.split()),
    )
    CIRCLECI = CiFacts(
        name="circleci",
        label="CircleCI",
        product="CircleCI",
        marker=("CIRCLECI", "true"),
        advice=(
            "the job has no token: before this command, `export COUNTERSIGN_ID_TOKEN=$(circleci run"
            """ oidc get --claims '{"aud": "countersign"}')`"""
        ),
        subjects=Subjects("org/", address=_CIRCLECI_PAGE),
        job="""\
jobs:
  build:
    docker:
      - image: cimg/base:current
    steps:
      - checkout
      - run: |
          export COUNTERSIGN_ID_TOKEN=$(circleci run oidc get --claims '{{"aud": "{audience}"}}')
          {command}
workflows:
  build:
    jobs:
      - build:
          context: countersign
""",
        request_lines="""\
COUNTERSIGN_ID_TOKEN=$(circleci run oidc get --claims '{{"aud": "{audience}"}}')
""",
        # https://circleci.com/docs/guides/permissions-authentication/openid-connect-tokens/
        conditions=("oidc.circleci.com/vcs-ref", "oidc.circleci.com/vcs-origin"),
    )
    OTHER = CiFacts(
        name="other",
        label="another provider",
        product="another provider",
        job="""\
# COUNTERSIGN_ID_TOKEN: an OIDC token of the job with the audience {audience}
{command}
""",
    )

    @property
    def facts(self) -> CiFacts:
        """What there is to know about it."""
        facts: CiFacts = self.value
        return facts


KNOWN: Final = tuple(provider.facts for provider in CiProvider if provider is not CiProvider.OTHER)
"""The providers that an issuer can have."""

CONDITION_VALUE_MAX: Final = 1024
"""Characters of a condition's value, at most."""

CONDITION_CLAIMS: Final = {provider.name: provider.conditions for provider in KNOWN}
"""The claims that bindings can have conditions on, by provider."""

EVENTS: Final = {provider.name: provider.events for provider in KNOWN}
"""The events that jobs of each provider can have; none if they are not known."""

GITHUB_COM: Final = "https://token.actions.githubusercontent.com"
"""The issuer whose subjects have ids since July 2026, unlike those of an Enterprise Server."""

CI_LABELS: Final = {provider.name: provider.label for provider in KNOWN}

SUBJECTS: Final = tuple(provider.subjects for provider in KNOWN if provider.subjects is not None)


def page_of(address: str) -> tuple[str | None, str | None]:
    """What the page of a CI provider is about: the beginning of subjects, and the id of a run.

    `address` has no scheme. Both are None for another page.
    """
    for subjects in SUBJECTS:
        match = subjects.address and subjects.address.fullmatch(address)
        if match:
            groups = match.groupdict()
            path = groups.get("repository")
            return path and f"{subjects.prefix}{path}:", groups.get("run_id")
    return None, None


def repository_subjects(path: str) -> list[str]:
    """How the subjects begin that jobs of the repository `path` may have."""
    return [f"{subjects.prefix}{path}:" for subjects in SUBJECTS if subjects.names_repository]


def subjects_at(path: str, ref: str) -> list[str]:
    """The subjects that jobs of the repository `path` may have at `ref`."""
    return [subject for subjects in SUBJECTS for subject in subjects.candidates(path, ref)]


def job_parts(subject: str) -> tuple[str, str] | None:
    """The repository and ref of a CI subject; None for other subjects."""
    return next(filter(None, (subjects.label(subject) for subjects in SUBJECTS)), None)


def job_provider(subject: str) -> CiFacts | None:
    """The provider whose jobs have subjects of this form; None for other subjects."""
    labels = ((facts, facts.subjects.label(subject)) for facts in KNOWN if facts.subjects)
    return next((facts for facts, label in labels if label), None)


def job_label(subject: str) -> str | None:
    """The repository and ref of a CI subject, `acme/app · main`; None for other subjects."""
    parts = job_parts(subject)
    return None if parts is None else _SEPARATOR.join(parts)


def job_subjects(label: str) -> list[str]:
    """The CI subjects that `job_label` may have shown as `label`; empty if there are none."""
    path, separator, ref = label.partition(_SEPARATOR)
    if not path or not separator or not ref:
        return []
    return [subject for subject in subjects_at(path, ref) if job_label(subject) == label]
