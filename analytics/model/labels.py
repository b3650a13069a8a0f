"""Events, filters and CI jobs in plain words.

The search understands these words, too, so that what a page shows can be typed there.
"""

import re
from typing import Final

from analytics.model.envelopes import ENVELOPES
from analytics.model.schema import FILTER_PARAMETERS

EVENT_LABELS: Final[dict[str, str]] = {
    event: envelope.label for event, envelope in ENVELOPES.items()
}
"""Each event in plain words, no two alike."""

FILTER_LABELS: Final = {"since": "Since", "until": "Until"} | {
    parameter.name: parameter.label for parameter in FILTER_PARAMETERS
}
"""Each filter's name, as people read it."""


def event_label(event: str) -> str:
    """`event` in plain words, or unchanged if it is unknown."""
    return EVENT_LABELS.get(event, event)


_GITHUB_JOB: Final = re.compile(r"repo:(?P<path>[^:]+):(?P<rest>.+)", re.DOTALL)
_GITLAB_JOB: Final = re.compile(
    r"project_path:(?P<path>[^:]+):ref_type:(?P<type>branch|tag):ref:(?P<ref>.+)", re.DOTALL
)
_GITHUB_REFS: Final = {
    "ref:refs/heads/": "",
    "ref:refs/tags/": "tag ",
    "environment:": "environment ",
}
"""The ways in which a subject of GitHub Actions names its ref or environment, and their labels."""

_SEPARATOR: Final = " \N{MIDDLE DOT} "


def job_label(subject: str) -> str | None:
    """The repository and ref of a CI subject, `acme/app · main`; None for other subjects."""
    if match := _GITHUB_JOB.fullmatch(subject):
        rest = match["rest"]
        for prefix, label in _GITHUB_REFS.items():
            if rest.startswith(prefix):
                rest = f"{label}{rest.removeprefix(prefix)}"
                break
        return f"{match['path']}{_SEPARATOR}{rest}"
    if match := _GITLAB_JOB.fullmatch(subject):
        label = "tag " if match["type"] == "tag" else ""
        return f"{match['path']}{_SEPARATOR}{label}{match['ref']}"
    return None


def job_subjects(label: str) -> list[str]:
    """The CI subjects that `job_label` may have shown as `label`; empty if there are none."""
    path, separator, rest = label.partition(_SEPARATOR)
    if not path or not separator or not rest:
        return []
    tag, branch = rest.removeprefix("tag "), "ref:refs/heads/" + rest
    candidates = [
        f"repo:{path}:{rest}",
        f"repo:{path}:{branch}",
        f"repo:{path}:ref:refs/tags/{tag}",
        f"repo:{path}:environment:{rest.removeprefix('environment ')}",
        f"project_path:{path}:ref_type:branch:ref:{rest}",
        f"project_path:{path}:ref_type:tag:ref:{tag}",
    ]
    return [subject for subject in candidates if job_label(subject) == label]
