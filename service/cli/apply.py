"""`countersign apply`: organisations declared in a file, which can be applied repeatedly."""

from pathlib import Path

import click

from service.cli.client import Client, rephrased
from service.cli.commands import api_command
from service.cli.files import read_toml
from service.cli.output import CommandResult
from service.cli.root import root


@api_command(root, "apply", changes=True, needs_org=False)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
async def apply_file(client: Client, file: Path) -> CommandResult:
    """Create and change organisations as declared in FILE (TOML).

    Applying the same file again changes nothing. Members and projects that the file does not
    name stay; the admins of a team, the overrides of a role, the sign-in domains of a
    provider and the install policy become exactly what it lists. A legal hold that it names is
    set; only `countersign org release` lifts one.

    \b
    [orgs.acme]
    tier = "org"
    legal_hold = "case 4711"
    projects = ["payments"]
    role_overrides.admin = ["oidc:r", "oidc:w"]
    sign_in_domains.google = ["acme.example"]
    members."ada@acme.example" = { role = "owner", idp = "github" }
    teams.platform.admins = ["ada@acme.example"]
    policy.cooldown.min_age_days = 7
    """  # noqa: D301 - click reads the backspace
    with rephrased(lambda text: f"{file.name}: {text}"):
        done = await client.post("/api/v1/operator/declaration", read_toml(file))
    changes = done["changes"]
    said = [*changes, f"{len(changes)} changes."] if changes else ["Nothing to change."]
    return CommandResult(done, said)
