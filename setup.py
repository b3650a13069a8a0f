"""The version, from git: of the last tag, and always with the commit, tagged or not."""

from setuptools import setup
from setuptools_scm import ScmVersion

COMMIT_DIGITS = 9


def commit(version: ScmVersion) -> str:
    """The local part of the version: the commit, and whether the files differ from it."""
    if version.node is None:
        return "+unknown"
    short = f"g{version.node.removeprefix('g')[:COMMIT_DIGITS]}"
    return f"+{short}.dirty" if version.dirty else f"+{short}"


setup(
    use_scm_version={
        "local_scheme": commit,
        # Before the first tag, and of a tree that has neither git's data nor a version given to it.
        "fallback_version": "0.0",
    }
)
