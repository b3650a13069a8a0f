"""`countersign apply`: organisations as a file."""

import pytest

from tests.budgets import sample
from tests.processes.homes import Home

pytestmark = pytest.mark.slow

VALID = """
[orgs.acme]
tier = "team"
projects = ["payments"]
role_overrides.admin = ["oidc:w", "oidc:r"]
members."ada@acme.example" = { role = "owner", idp = "github" }
members."bob@acme.example" = { idp = "google" }
teams.platform.admins = ["bob@acme.example"]

[orgs.other]
"""


def applied(home: Home, text: str):
    """`apply` of a file with `text`."""
    file = home.folder / "orgs.toml"
    file.write_text(text)
    return home.order("apply", str(file), "--json")


def everything(home: Home) -> dict[str, object]:
    """All that the file can change, and every audit row about it."""
    return {
        org["slug"]: (
            org,
            *(
                home.listed(*words, "--org", org["slug"])
                for words in (("project", "list"), ("team", "list"), ("member", "list"))
            ),
            home.ask("audit", "query", "--org", org["slug"], "--limit", "1000")["entries"],
        )
        for org in home.listed("org", "list")
    }


def test_applying_twice_changes_nothing_the_second_time(home):
    """The file can be applied by every deployment: the log shows what changed, not that it ran."""
    first = applied(home, VALID)
    assert first.code == 0, first
    assert first.json["changes"] == [
        "org_tier_changed",
        "role_override_changed",
        "project_created",
        "member_added",
        "member_added",
        "team_created",
        "team_admin_changed",
        "org_created",
    ]
    there = everything(home)
    acme, projects, teams, members, log = there["acme"]
    assert (acme["tier"], acme["role_overrides"]) == ("team", {"admin": ["oidc:r", "oidc:w"]})
    assert [project["name"] for project in projects] == ["payments"]
    assert [(team["name"], team["admins"]) for team in teams] == [
        ("platform", ["bob@acme.example"])
    ]
    assert {member["email"]: member["role"] for member in members} == {
        "ada@acme.example": "owner",
        "bob@acme.example": "member",
    }
    assert {row["actor"] for row in log} == {"system:cli"}

    second = applied(home, VALID)
    assert (second.code, second.json) == (0, {"changes": []})
    assert everything(home) == there


@sample(6)
@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[orgs.acme", "orgs.toml: Expected ']'"),
        ("[organisations.acme]", "orgs.toml: Object contains unknown field `organisations`"),
        ('[orgs.acme]\ntierr = "team"', "orgs.toml: orgs.acme: Object contains unknown field"),
        ('[orgs.acme]\ntier = "gold"', "orgs.toml: orgs.acme: tier must be one of"),
        ("[orgs.acme]\nprojects = [1]", "orgs.toml: orgs.acme: Expected `str`, got `int`"),
        (
            '[orgs.acme.members."eve@acme.example"]\nrole = 3\nidp = "github"',
            "orgs.toml: orgs.acme.members.eve@acme.example: Expected `str | null`, got `int`",
        ),
        (
            '[orgs.acme.members."eve@acme.example"]\nidp = "myspace"',
            "orgs.toml: orgs.acme: members.eve@acme.example: idp must be one of",
        ),
        (
            '[orgs.acme.teams.platform]\nadmins = ["eve@acme.example"]',
            "orgs.toml: orgs.acme: teams.platform: Member not found for this org: eve@acme.example",
        ),
        (
            '[orgs.acme.members."ada@acme.example"]\nidp = "github"\nrole = "admin"',
            "orgs.toml: orgs.acme: members.ada@acme.example: the last owner cannot be removed",
        ),
        (
            '[orgs.acme.members."ada@acme.example"]\nidp = "google"\nrole = "owner"',
            "orgs.toml: orgs.acme: members.ada@acme.example: a member's idp cannot be changed",
        ),
        (
            '[orgs.acme]\nsign_in_domains.google = ["acme"]',
            "orgs.toml: orgs.acme: sign_in_domains.google: domain must be one such as",
        ),
        (
            "[orgs.acme]\nsign_in_domains.gogle = []",
            "orgs.toml: orgs.acme: Invalid enum value 'gogle'",
        ),
        ('[orgs."not a slug"]', "orgs.toml: orgs.not a slug: slug must be"),
    ],
)
def test_a_refused_file_names_the_place_and_changes_nothing(applied_home, text, refusal):
    home, there = applied_home

    ran = applied(home, f'[orgs.first]\nprojects = ["payments"]\n{text}\n')

    assert ran.code == 1
    assert ran.refusal.startswith(refusal)
    assert home.listed("org", "list") == there["orgs"]
    assert home.ask("audit", "stats") == there["stats"]


@pytest.fixture(scope="module")
def applied_home(tmp_path_factory):
    """A data dir on which VALID was applied, and what is there; no refused file changes it."""
    home = Home(tmp_path_factory.mktemp("applied"))
    home.ask("init")
    assert applied(home, VALID).code == 0
    yield home, {"orgs": home.listed("org", "list"), "stats": home.ask("audit", "stats")}
    home.end()


def test_an_organisation_can_change_hands_in_one_file(home):
    assert applied(home, VALID).code == 0
    ran = applied(
        home,
        """
        [orgs.acme]
        tier = "team"
        members."ada@acme.example" = { role = "member", idp = "github" }
        members."bob@acme.example" = { role = "owner", idp = "google" }
        """,
    )
    assert (ran.code, ran.json) == (0, {"changes": ["member_role_changed", "member_role_changed"]})


def test_the_domains_of_a_provider_become_those_of_the_file(home):
    for domain, idp in (("old.example", "google"), ("acme.example", "github")):
        home.ask("org", "allow-domain", "acme", domain, "--idp", idp)
    text = '[orgs.acme]\nsign_in_domains.google = ["New.example", "kept.example"]\n'
    first, second = applied(home, text), applied(home, text)
    allowed = {(one["domain"], one["idp"]) for one in home.listed("org", "domains", "acme")}

    assert first.json["changes"] == ["sign_in_domain_changed"] * 3
    assert second.json["changes"] == []
    assert allowed == {
        ("new.example", "google"),
        ("kept.example", "google"),
        ("acme.example", "github"),
    }


def test_what_the_file_leaves_out_stays_as_it_is(home):
    """A tier that is not mentioned must not fall back, nor an owner become a member."""
    assert applied(home, VALID).code == 0
    home.ask("org", "set-tier", "acme", "enterprise")
    before = everything(home)

    ran = applied(home, '[orgs.acme]\nmembers."ada@acme.example" = { idp = "github" }\n')

    assert ran.json["changes"] == []
    assert everything(home) == before
