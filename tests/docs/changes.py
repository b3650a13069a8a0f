"""Examples of changes that CONTRIBUTING.md lists: text to add, each behind the text it follows."""

from dataclasses import dataclass
from typing import Final

from service.core.settings import REPOSITORY

NEW_FILE: Final = ""
NEWEST_REVISION: Final = max(
    path.name[:4] for path in (REPOSITORY / "service/store/migrations/versions").glob("[0-9]*.py")
)


@dataclass(frozen=True)
class Change:
    """An example of the change `task`: for each file, the text to add behind another one.

    What is added behind NEW_FILE is a whole file.
    """

    task: str
    lines: dict[str, dict[str, str]]

    @property
    def files(self) -> set[str]:
        """The files that it touches."""
        return set(self.lines)


CHANGES: Final = (
    Change(
        "Add an audit column",
        {
            "analytics/model/rows.py": {
                """                field=FieldOfFilter(place=13, hint="pip/26.3 or npm/*"),
            ),
        ),
    ] = None
""": """    example_column: Annotated[
        Text,
        Column(
            field_id=25,
            since=4,
            label="Example",
            max_chars=64,
            is_indexed=True,
            section=REQUEST,
            filter=FilterParameter(
                description="An example",
                example="one",
                takes_prefix=True,
            ),
        ),
    ] = None
""",
                "        client=file.client,\n": "        example_column=envelope.event,\n",
            }
        },
    ),
    Change(
        "Add an audit filter",
        {
            "analytics/model/rows.py": {
                "Column(field_id=10, ": """
            filter=FilterParameter(name="example_filter", description="Who", example="o"),
            """
            }
        },
    ),
    Change(
        "Add an event",
        {
            "analytics/model/log_envelopes.py": {
                "from analytics.model.events import Count, Envelope, Event\n": '''

class ExampleHappened(Envelope, frozen=True, kw_only=True):
    """An example."""

    event = Event("example_happened")
    label = "Example happened"
    icon = "alert"
    ingestible = True
'''
            }
        },
    ),
    Change(
        "Add a CI provider",
        {
            "service/ci/providers.py": {
                '    """The CI provider that runs a job."""\n': """
    EXAMPLE = CiFacts(
        name="example",
        label="Example",
        product="Example CI",
        marker=("EXAMPLE_CI", "1"),
        advice="ask for a token",
        subjects=Subjects("example:", names_repository=True),
        job="run: {command}\\n",
    )
"""
            },
            "data/issuers.toml": {
                "# The CI identity providers this service knows, one table each.": """
[example]
url = "https://ci.example"
provider = "example"
accepted = true
algorithms = ["RS256"]
requires_repository_id = true
repository_id_claim = "repository"
run_url = "https://ci.example/{repository}/{run_id}"

#"""
            },
        },
    ),
    Change(
        "Add an identity provider for sign-in",
        {
            "service/core/settings.py": {
                'IdentityProviderName = Literal["github", "google", "microsoft"': ', "example"',
                '    oauth_microsoft_url: str = "https://login.microsoftonline.com"\n': """\
    oauth_example_client_id: str = ""
    oauth_example_client_secret: str = ""
""",
            },
            "service/access/sign_in/providers.py": {
                '    "microsoft": (_MICROSOFT, _microsoft),\n': (
                    '    "example": ("Example", lambda settings: Provider(name="example",'
                    ' label="Example", client_id=settings.oauth_example_client_id,'
                    " client_secret=settings.oauth_example_client_secret,"
                    ' namespace="https://id.example")'
                    " if settings.oauth_example_client_id else None),\n"
                )
            },
        },
    ),
    Change(
        "Add an ecosystem",
        {
            "analytics/model/ecosystems.py": {'    NPM = "npm"\n': '    EXAMPLE = "example"\n'},
            "service/core/settings.py": {
                "    proxy_npm_file_origins: tuple[str, ...] = ()\n": """\
    proxy_example_upstream: str = ""
    proxy_example_file_origins: tuple[str, ...] = ()
"""
            },
            "service/packages/ecosystems.py": {
                "from service.packages.npm.ecosystem import NPM\n": (
                    "from service.packages.example.ecosystem import EXAMPLE\n"
                ),
                "facts.ecosystem: facts for facts in (PYPI, NPM": ", EXAMPLE",
            },
            "service/app/application.py": {
                "from service.packages.npm import routes as npm_routes\n": (
                    "from service.packages.example import routes as example_routes\n"
                ),
                "    npm_routes.blueprint,\n": "    example_routes.blueprint,\n",
            },
            "service/packages/example/__init__.py": {NEW_FILE: ""},
            "service/packages/example/ecosystem.py": {
                NEW_FILE: """
from dataclasses import replace

from analytics.model.ecosystems import Ecosystem
from service.packages.clients import PackageManager
from service.packages.npm.ecosystem import NPM

EXAMPLE = replace(
    NPM,
    ecosystem=Ecosystem.EXAMPLE,
    label="Example",
    osv_name="example.io",
    address=lambda address: address.registry(Ecosystem.EXAMPLE),
    clients=(
        PackageManager(
            name="get",
            label="Get",
            command="get all",
            variables=lambda address, token: {"GET_TOKEN": token},
        ),
    ),
)
"""
            },
            "service/packages/example/routes.py": {
                NEW_FILE: """
from quart import Blueprint, request

from service.packages.example.ecosystem import EXAMPLE
from service.packages.proxy.services import ProxyServices
from service.web.dependencies import group_of
from service.web.responses import json_answer

blueprint = Blueprint("proxy_example", __name__)


@blueprint.get("/proxy/<slug>/example/<name>")
async def versions(slug, name):
    services = group_of(ProxyServices)
    _, org = await services.authorize(request, slug)
    located = await services.locate(EXAMPLE, org, name)
    return json_answer(await located.read(lambda package: sorted(package.versions)))
"""
            },
        },
    ),
    Change(
        "Add a policy rule",
        {
            "service/packages/policy/model.py": {
                """    deny: tuple[ReleaseRule, ...] = field(default=(), metadata={_LABEL: "Deny"})
""": """\
    example: tuple[ReleaseRule, ...] = field(default=(), metadata={_LABEL: "Example"})
"""
            },
            "service/packages/policy/document.py": {
                "    deny: list[RuleEntry] = []\n": "    example: list[RuleEntry] = []\n",
                """\
        deny=tuple(rule(f"deny[{number}]", entry) for number, entry in enumerate(parsed.deny)),
""": """\
        example=tuple(rule(f"example[{n}]", entry) for n, entry in enumerate(parsed.example)),
""",
                "        deny=[_rule_entry(rule) for rule in policy.deny],\n": (
                    "        example=[_rule_entry(rule) for rule in policy.example],\n"
                ),
                '        ("deny", parsed.deny),\n': '        ("example", parsed.example),\n',
            },
            "service/packages/policy/evaluation.py": {
                "        self._deny = _numbered(policy.deny)\n": (
                    "        self._example = _numbered(policy.example)\n"
                ),
                "        mode, min_age = self._policy.mode, self._min_age(ecosystem, name)\n": """\
        example = Rules(
            [self._policy.example[number] for number in self._example[ecosystem].matches(name)]
        )
""",
                "            deny.fingerprint,\n": "            example.fingerprint,\n",
                "            min_age,\n            version,\n": "            example,\n",
                "    min_age: timedelta | None\n    version: str\n": "    example: Rules\n",
                "            self._denied(version)\n": "            or self._exampled(version)\n",
                "        if not (self.deny": " or self.example",
                'source="operator"), rule.rule_id, text\n        )\n': """
    def _exampled(self, version: ComparableVersion | None) -> PolicyDecision | None:
        rule = self.example.first_or_any(version)
        if rule is None:
            return None
        hit = BlocklistHit(rule_id=rule.rule_id, source="operator")
        return self._blocked(hit, rule.rule_id, f"{DENIED}{rule.rule_id}")
""",
            },
            "templates/policy/policy.html": {
                """ "for the person whose install is blocked") }}{% endif %}
""": """\
  {% if policy.example %}{{ rule_table("example", policy.example, "Example") }}{% endif %}
  {{ rule_form("add_example", "Add an example", "for the example") }}
"""
            },
        },
    ),
    Change(
        "Add a metric",
        {
            "service/ci/verifier/usage.py": {
                "        self._store = store\n": """\
        metrics.counter("countersign_examples", "Examples, by kind.", "kind").labels("one").inc()
"""
            },
            "docs/operations.md": {
                "| `countersign_binding_uses_dropped_total`": ", `countersign_examples_total`"
            },
        },
    ),
    Change(
        "Add or change an export format",
        {
            "analytics/export/formats.py": {
                "        return member\n": """
    EXAMPLE = (
        "txt",
        FormatFacts(label="Example", media_type="text/x-example", note="An example."),
    )
"""
            },
            "analytics/export/writers.py": {
                "    match encoding.format:\n": """\
        case ExportFormat.EXAMPLE:
            return _texts(filled, TextEncoder(tenant_id, JsonSpelling("", "\\n")), encoding)
"""
            },
        },
    ),
    Change(
        "Change a retention tier",
        {
            "analytics/model/retention.py": {
                '    ENTERPRISE = "enterprise"\n': '    EXAMPLE = "example"\n',
                "    Tier.ENTERPRISE: None,\n": "    Tier.EXAMPLE: 90,\n",
            }
        },
    ),
    Change(
        "Add a migration",
        {
            "service/store/tables/orgs.py": {
                "    tier: Mapped[str] = mapped_column(primary_key=True)\n": (
                    "    example: Mapped[str | None]\n"
                )
            },
            "service/store/migrations/versions/9999_example.py": {
                NEW_FILE: f"""\
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{NEWEST_REVISION}"


def upgrade() -> None:
    op.add_column("former_tiers", sa.Column("example", sa.String(), nullable=True))
"""
            },
        },
    ),
    Change(
        "Add an API endpoint",
        {
            "service/orgs/teams.py": {
                'resource = Resource("teams", "/teams", Tag.ORGANISATION, BaseServices)\n': """

class ExampleEntry(Answer):
    \"\"\"An example.\"\"\"

    org: str


@resource.get("find_example", "/example", needs=_ADMIN, returns=ExampleEntry)
async def find_example(call: Call[BaseServices]) -> ExampleEntry:
    \"\"\"An example.\"\"\"
    return ExampleEntry(org=call.org.slug)
"""
            }
        },
    ),
    Change(
        "Add an API endpoint with a command",
        {
            "service/orgs/domains.py": {
                'resource = Resource("domains", "/domains", Tag.ORGANISATION, BaseServices)\n': """

class ExampleEntry(Answer):
    \"\"\"An example.\"\"\"

    org: str


@resource.get("find_example", "/example", needs=Capability.ORG_ADMIN, returns=ExampleEntry)
async def find_example(call: Call[BaseServices]) -> ExampleEntry:
    \"\"\"An example.\"\"\"
    return ExampleEntry(org=call.org.slug)
"""
            },
            "service/cli/orgs.py": {
                '    """Organisations: the tenants of this service."""\n': """

@api_command(org, "example")
async def org_example(client: Client, slug: str) -> CommandResult:
    \"\"\"An example.\"\"\"
    example = await client.get(org_path(slug, "domains", "example"))
    return CommandResult(example, [f"The example is {example['org']}."])
"""
            },
        },
    ),
    Change(
        "Add an API endpoint with a page's form",
        {
            "service/orgs/projects.py": {
                '"/projects", Tag.ORGANISATION, BaseServices)\n': """

class ExampleName(Request):
    \"\"\"An example.\"\"\"

    name: str


class Renamed(Answer):
    \"\"\"An example.\"\"\"

    name: str


@resource.post(
    "rename_example",
    "/example",
    needs=_ADMIN,
    body=ExampleName,
    example={"name": "new"},
    returns=Renamed,
    refuses=[Conflict],
)
async def rename_example(call: WriteCall[BaseServices], body: ExampleName) -> Renamed:
    \"\"\"An example.\"\"\"
    if body.name == "old":
        raise Conflict("the example is old already", field="name")
    return Renamed(name=body.name)
"""
            },
            "service/pages/people/projects.py": {
                "from service.orgs.projects import create": ", rename_example",
                'projects_page.form("", "create_project", create, "created", field="name")\n': (
                    'projects_page.form("/example", "rename_example", rename_example, "created")\n'
                ),
            },
            "templates/people/projects.html": {
                "{{ outcome() }}\n": """
{% set action = url_for("dashboard_projects.rename_example", slug=org.slug) %}
<form class="fields" method="post" action="{{ action }}">
  {{ form_token(csrf) }}
  {{ typed_field(action, "name", "Example", of="example") }}
</form>
"""
            },
        },
    ),
)
