"""What the demo needs to be installed from: a policy, a key, and the lines to paste."""

import shlex
from datetime import timedelta
from typing import Any, Final

from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.cli.demo.profile import Profile, Rule, load_profile
from service.cli.demo.registry import HELLO, LOOK_ALIKE, LOOK_ALIKE_VERSION
from service.orgs.api_keys import issue_api_key, revoke_api_key
from service.packages.clients import ProxyAddress
from service.packages.policy.document import parse_policy
from service.packages.policy.model import InstallPolicy
from service.packages.policy.repository import find_revision, set_policy
from service.packages.pypi.clients import index_with
from service.store.organisations import is_live, list_api_keys
from service.store.store import UnitOfWork
from service.store.tables import Organisation

KEY_NAME: Final = "demo-installs"
KEY_LIFETIME: Final = timedelta(days=1)
_TARGET: Final = "demo-packages"
_OF_PUBLIC_INDEX: Final = {"allowed": "six", "blocked": "pycrypto==2.6.1"}
_OF_OUR_INDEX: Final = {"allowed": HELLO, "blocked": f"{LOOK_ALIKE}=={LOOK_ALIKE_VERSION}"}


async def issue_demo_key(work: UnitOfWork, org: Organisation, by: AuditContext) -> str:
    """The secret of a new key that may only install, in place of the one of the last start.

    Also puts the demo's policy in force in an organisation that has none: it was made by an older
    version.
    """
    if await find_revision(work.session, org.id) is None:
        await set_policy(work, org, install_policy(load_profile(), is_after_incident=True), by)
    for key in await list_api_keys(work.session, org, lambda key: key):
        if key.name == KEY_NAME and is_live(key, work.now):
            await revoke_api_key(work, org, key, by)
    scopes = (Capability.PACKAGES_INSTALL,)
    expires_at = work.now + KEY_LIFETIME
    _, secret = await issue_api_key(
        work, org, KEY_NAME, None, by, scopes=scopes, expires_at=expires_at
    )
    return secret


def install_lines(address: ProxyAddress, secret: str, *, has_upstream: bool) -> dict[str, str]:
    """Two commands for pip: one that is `allowed`, and one that the policy has `blocked`.

    `has_upstream`: the proxy asks a configured index, not the demo's own.
    """
    packages = _OF_PUBLIC_INDEX if has_upstream else _OF_OUR_INDEX
    # A folder of their own: what is installed here must not touch what the machine has.
    start = ("pip", "install", "--target", _TARGET, "--index-url", index_with(address, secret))
    return {name: shlex.join((*start, package)) for name, package in packages.items()}


def install_policy(profile: Profile, *, is_after_incident: bool) -> InstallPolicy:
    """The policy before the incident, or with its rule. Raises Invalid.

    The advisories of the history's rows (`source` is `osv`) are rules of the organisation here: to
    import them would put them on the blocklist of every other organisation of the data dir.
    """
    rules = [*profile.blocklist, *([profile.incident.rule] if is_after_incident else [])]
    return parse_policy(
        {
            "first_party": [
                {"ecosystem": name, "package": package, "registry": ecosystem.registry}
                for name, ecosystem in profile.ecosystems.items()
                for package in ecosystem.first_party
            ],
            "deny": [_entry(rule) for rule in rules],
            "cooldown": {"min_age_days": profile.policy.min_age_days},
        }
    )


def _entry(rule: Rule) -> dict[str, Any]:
    return {
        "ecosystem": rule.ecosystem,
        "package": rule.package,
        "versions": f"=={rule.version}" if rule.ecosystem == "pypi" else rule.version,
        "id": rule.rule_id,
        "reason": rule.reason,
    }
