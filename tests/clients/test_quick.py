"""The clients that most machines have, pip and npm: what `make test` tries of the matrix."""

import sys

import pytest

from service.packages.ecosystems import Ecosystem
from tests.clients.managers import NPM, Manager, Npm, Pip, Project, documented
from tests.clients.stands import RULES, Stand

pytestmark = pytest.mark.slow


@pytest.fixture(params=Ecosystem)
def common(request: pytest.FixtureRequest) -> Manager:
    """The pip beside this interpreter, whichever version it is, and npm if it is there."""
    if request.param is Ecosystem.PYPI:
        return Pip((sys.executable, "-m", "pip"))
    if NPM is None:
        pytest.skip("no npm on this machine")
    return Npm()


def test_an_install_is_decided_recorded_and_attributed(
    stand: Stand, project: Project, common: Manager
) -> None:
    """A range takes the newest release that is allowed; a pinned one fails and says why."""
    key = stand.key()
    project.use(documented(common.client, stand.address, stand.install_token(key)))
    allowed = common.add(project, common.below_2("left-pad"))
    refused = common.add(project, common.pinned("left-pad", "1.2.0"))
    installed, blocked = stand.rows(key)

    assert allowed.code == 0, allowed.log
    assert (installed["decision"], installed["version"]) == ("ALLOWED", "1.1.0")
    assert installed["oidc_binding_id"] == stand.binding
    assert refused.code != 0, refused.log
    assert (blocked["decision"], blocked["version"]) == ("BLOCKED", "1.2.0")
    assert RULES[common.ecosystem] in refused.log
    assert blocked["id"] in refused.log
