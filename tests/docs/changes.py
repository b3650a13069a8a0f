"""Examples of changes that CONTRIBUTING.md lists: text to add, each behind the text it follows."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Change:
    """An example of the change `task`: for each file, the text to add behind another one."""

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
                name="example_column",
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
                "    match form.format:\n": """\
        case ExportFormat.EXAMPLE:
            return _texts(filled, TextEncoder(tenant_id, JsonSpelling("", "\\n")), form)
"""
            },
        },
    ),
)
