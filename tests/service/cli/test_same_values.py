"""What the command line repeats, because the service's own modules take long to import."""

from typing import get_args

import click
from msgspec import structs

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from service.access.sessions import SESSION_PREFIX
from service.audit import query_service
from service.cli import audit, bindings, explain, logins, sign_in
from service.core.settings import CLIENT_VARIABLES, PREFIX, REPOSITORY
from service.orgs.api_keys import API_KEY_PREFIX
from service.pages.sign_in import device as forms
from service.pages.sign_in.session_routes import OwnSession
from service.trust.bindings.repository import BindingState
from service.trust.rejected import rejected_api


def test_limits_and_choices_are_those_of_the_api():
    """Otherwise a value that the API takes could not be given, or the other way round."""
    options = {option.name: option for option in audit.audit.commands["export"].params}
    assert tuple(options["file_format"].type.choices) == tuple(ExportFormat)
    assert tuple(options["compress"].type.choices) == tuple(Compression)
    state = next(one for one in bindings.bindings.commands["list"].params if one.name == "state")
    assert tuple(state.type.choices) == tuple(BindingState)
    assert audit.LIMIT_MAX == query_service.LIMIT_MAX
    assert explain.LIMIT_MAX == rejected_api.LIMIT_MAX


def test_credentials_are_told_apart_by_the_prefixes_they_are_issued_with():
    assert logins.credential_of(f"{API_KEY_PREFIX}x").kind == "api_key"
    assert logins.credential_of(f"{SESSION_PREFIX}x").kind == "session"
    assert logins.credential_of("x").kind == "admin_token"
    kinds = next(one.type for one in structs.fields(OwnSession))
    assert set(get_args(logins.CredentialKind)) == set(get_args(kinds))


def test_the_device_speaks_of_itself_as_the_server_knows_it():
    assert sign_in.CLIENT == {"client_id": forms.CLIENT_ID}
    assert sign_in.GRANT_TYPE == forms.GRANT_TYPE


def test_the_page_names_every_variable_and_command():
    page = (REPOSITORY / "docs" / "command-line.md").read_text()

    for name in CLIENT_VARIABLES:
        assert f"| `{PREFIX}{name.upper()}` |" in page
    for group in (audit.audit, bindings.bindings):
        for name in group.list_commands(click.Context(group)):
            assert f"`{name}`" in page or f" {name}`" in page, name
