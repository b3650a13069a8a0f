"""What the clients of npm ask a registry beside packages: audits, their user, reasons."""

from collections.abc import Sequence

import pytest

from tests.budgets import only_full
from tests.clients.managers import NPM, Npm, Pnpm, Project, Yarn, documented, is_installed
from tests.clients.stands import RULES, Key, Stand

pytestmark = [
    pytest.mark.slow,
    only_full,
    pytest.mark.skipif(NPM is None, reason="no npm on this machine"),
]

COMMANDS = [
    (Npm, ["ping"], "PONG"),
    (Npm, ["whoami"], "{key}"),
    (Npm, ["audit"], "found 0 vulnerabilities"),
    (Npm, ["outdated"], ""),
    (Npm, ["view", "left-pad", "dist-tags"], "{ latest: '1.1.0' }"),
    (Npm, ["dist-tag", "ls", "left-pad"], "latest: 1.1.0"),
    (Npm, ["view", "left-pad@1.2.0", "deprecated"], "{rule}"),
    (Pnpm, ["ping"], "PONG"),
    (Pnpm, ["whoami"], "{key}"),
    (Pnpm, ["audit"], "No known vulnerabilities found"),
    (Pnpm, ["view", "left-pad@1.2.0", "deprecated"], "{rule}"),
    (Yarn, ["npm", "whoami"], "{key}"),
    (Yarn, ["npm", "audit"], "No audit suggestions"),
    (Yarn, ["npm", "info", "left-pad", "--fields", "dist-tags", "--json"], '"latest":"1.1.0"'),
]


@pytest.mark.parametrize(("client", "command", "answer"), COMMANDS, ids=str)
def test_a_command_beside_installs_is_answered(
    stand: Stand, project: Project, client: type[Npm], command: Sequence[str], answer: str
) -> None:
    if not is_installed():
        pytest.fail("run sh tests/clients/install.sh first")
    manager, key = client(), stand.key()
    project.use(documented(manager.client, stand.address, key.secret))
    added = manager.add(project, "left-pad")
    assert added.code == 0, added.log
    done = project.run(*manager.program, *command)

    assert done.code == 0, done.log
    assert answer_for(answer, key) in done.log, done.log
    assert stand.installs(key) == [("ALLOWED", "npm", "left-pad", "1.1.0")]


def answer_for(template: str, key: Key) -> str:
    """The text with this key's id and the rule that denies left-pad 1.2.0."""
    return template.replace("{key}", key.id).replace("{rule}", RULES["npm"])


@pytest.mark.parametrize("command", [["publish"], ["search", "left-pad"], ["login"]], ids=str)
def test_what_is_not_served_fails(stand: Stand, project: Project, command: list[str]) -> None:
    npm = Npm()
    npm.prepare(project)
    manifest = project.folder / "package.json"
    manifest.write_text(manifest.read_text().replace("true", "false"))  # `private`
    project.use(documented(npm.client, stand.address, stand.key().secret))
    done = project.run(*npm.program, *command)

    assert done.code != 0, done.log
