"""What all declared pages do with their forms, on a page of an example."""

import json
from typing import Any, Final

import pytest
from quart import Blueprint, Quart, g
from quart.typing import TestClientProtocol as Client

from service.access.roles import Capability
from service.app import application
from service.app.application import BindingName, RowName
from service.audit.services import AuditServices
from service.core.errors import Conflict, NotFound
from service.core.settings import REPOSITORY
from service.orgs.teams import create_team
from service.pages.page import IssuedSecret, Page, View, bind_form
from service.pages.services import DashboardServices
from service.store.organisations import list_names
from service.store.tables import Team
from service.web.dependencies import provide
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Parsed, Request
from service.web.templates import TemplateEnvironment
from tests.conftest import World, refused
from tests.service.pages.page import OWN_PAGE

EXAMPLE: Final = "/admin/ui/orgs/acme/example"
SECRETS: Final = f"{EXAMPLE}/secrets"
OPEN: Final = f"{EXAMPLE}/open"
LIMIT: Final = Conflict.of("limit of {limit} reached: delete one first")


class Named(Request):
    """The name of a team."""

    name: str
    kind: str | None = None


class Created(Answer):
    """A new team."""

    id: str


def example_blueprint() -> Blueprint:
    """A blueprint for pages of the example."""
    return Blueprint(
        "example",
        __name__,
        url_prefix="/admin/ui/orgs/<slug>/example",
        template_folder="templates",
    )


def declared() -> Blueprint:
    """Two pages, and forms of each kind; each form creates a team."""
    resource = Resource("example_api", "/example", Tag.SYSTEM, AuditServices)
    blueprint = example_blueprint()

    async def make(call: WriteCall[AuditServices], body: Named) -> Created:
        if body.name == "limit":
            raise LIMIT(limit=1)
        if body.name == "missing":
            raise NotFound("no such kind", field="kind")
        return Created(id=(await create_team(call.work, call.org, body.name, call.by)).id)

    @resource.post(
        "issue_example",
        needs=Capability.ORG_ADMIN,
        body=Named,
        example={"name": "x"},
        returns=Created,
        is_sensitive=True,
    )
    async def issue(call: WriteCall[AuditServices], body: Named) -> Created:
        """Create a team with a secret."""
        return await make(call, body)

    @resource.post(
        "open_example", "/open", needs=None, body=Named, example={"name": "x"}, returns=Created
    )
    async def create(call: WriteCall[AuditServices], body: Named) -> Created:
        """Create a team."""
        return await make(call, body)

    @Page(
        blueprint,
        "",
        "example_page.html",
        needs=Capability.ORG_ADMIN,
        done={"made": "It was made."},
        takes=("name",),
    )
    async def page(call: Call[DashboardServices]) -> View:
        async with call.read() as session:
            names = await list_names(session, call.org, Team)
        return {"names": [name for _, name in names]}

    @Page(blueprint, "/other", "example_page.html", needs=Capability.POLICY_READ)
    async def other(call: Call[DashboardServices]) -> View:
        return {"names": []}

    page.secret_form(
        "/secrets",
        "issue_form",
        issue,
        lambda call, created: IssuedSecret(call.org.slug, created.id),
        field="name",
    )
    page.form("/open", "open_form", create, "made", then=other)
    bind_form(blueprint, "/bound", "bound_form", create, lambda slug, made: f"/{slug}/{made.id}")
    return blueprint


@pytest.fixture
def client(world: World) -> Client:
    """A client of an app with these pages beside the service's own, over the world's database."""
    app = Quart("service", template_folder=str(REPOSITORY / "templates"))
    app.jinja_environment = TemplateEnvironment  # type: ignore[assignment]
    app.url_map.converters |= {"binding": BindingName, "row": RowName}
    provide(app, world.services.groups())
    for blueprint in (*application._BLUEPRINTS, declared()):
        app.register_blueprint(blueprint)
    application.answer_errors(app)

    @app.before_request
    async def begin() -> None:
        g.request_id = f"req_{0:024x}"

    @app.after_request
    async def end(response: Any) -> Any:
        response.headers["x-request-id"] = g.request_id
        return response

    return app.test_client()


async def shown(answer: Any, status: int = 200) -> dict[str, Any]:
    """What the page was rendered from."""
    text = await answer.get_data(as_text=True)
    assert answer.status_code == status, text
    values: dict[str, Any] = json.loads(text)
    return values


async def see(world: World, client: Client, query: str = "", who: str = "owner") -> dict[str, Any]:
    return await shown(await client.get(f"{EXAMPLE}{query}", headers=world.session(who)))


async def send(world: World, client: Client, path: str, who: str = "owner", **fields: str) -> Any:
    """The answer to a form, sent by a browser."""
    return await client.post(path, form=fields, headers=world.session(who) | OWN_PAGE)


async def test_a_page_confirms_and_knows_its_parameters(world: World, client: Client):
    page = await see(world, client, "?done=made&name=x")

    assert page["done"] == "It was made."
    wrong = await client.get(f"{EXAMPLE}?other=1", headers=world.session("owner"))
    assert await refused(wrong) == (400, "unknown query parameter: other")


async def test_a_secret_is_shown_once(world: World, client: Client):
    """Reloading the answer sends the form again."""
    page = await see(world, client)
    fields = {"csrf": page["csrf"], "once": page["once"], "name": "web"}

    first = await shown(await send(world, client, SECRETS, **fields))
    again = await shown(await send(world, client, SECRETS, **fields), 409)

    assert first["secret"].startswith("team_")
    assert again["secret"] is None
    assert again["fault"] == "this form was already submitted or has expired: reload its page"
    assert again["name"] == "web"
    assert again["names"].count("web") == 1


async def test_a_sensitive_form_asks_to_sign_in_again(world: World, client: Client):
    page = await see(world, client)
    fields = {"csrf": page["csrf"], "once": page["once"], "name": "web"}
    world.clock.advance(seconds=world.services.settings.recent_sign_in_s)

    late = await shown(await send(world, client, SECRETS, **fields), 403)

    assert (late["needs_sign_in"], late["name"]) == (True, "web")
    assert late["has_passkeys"] is (world.services.sign_in.relying_party is not None)
    assert "web" not in late["names"]


@pytest.mark.parametrize(
    ("name", "status", "fault", "texts"),
    [
        ("limit", 409, "limit of 1 reached: delete one first", 1),
        ("missing", 404, "no such kind", 1),
        ("", 400, "name must be 1 to 100 printable characters", 1),
    ],
)
async def test_an_error_is_shown_at_its_field(
    world: World, client: Client, name: str, status: int, fault: str, texts: int
):
    page = await see(world, client)
    fields = {"csrf": page["csrf"], "once": page["once"], "name": name}

    again = await shown(await send(world, client, SECRETS, **fields), status)

    assert again["fault"] == fault
    assert len(again["texts"]) == texts
    assert again["once"] != page["once"]


async def test_who_may_not_open_the_next_page_stays_on_the_forms_own(world: World, client: Client):
    targets = {}
    for who in ("owner", "member"):
        token = (await see(world, client))["csrf"] if who == "owner" else await token_of(world, who)
        answer = await send(world, client, OPEN, who, csrf=token, name=f"of {who}")
        targets[who] = answer.headers["location"]

    assert targets == {"owner": f"{EXAMPLE}/other?done=made", "member": "/admin/ui/orgs/acme"}


async def token_of(world: World, who: str) -> str:
    """The form token of a session, from a page that each member may open."""
    answer = await world.client.get(
        "/admin/ui/orgs/acme/policy/exceptions/new", headers=world.session(who) | OWN_PAGE
    )
    return (await answer.get_data(as_text=True)).partition('name="csrf" value="')[2][:64]


async def test_an_error_is_no_way_to_a_page_without_the_right(world: World, client: Client):
    answer = await send(
        world, client, OPEN, "member", csrf=await token_of(world, "member"), name="limit"
    )

    assert answer.status_code == 403


async def test_a_form_without_a_page_redirects(world: World, client: Client):
    token = (await see(world, client))["csrf"]

    done = await send(world, client, f"{EXAMPLE}/bound", csrf=token, name="web")
    wrong = await send(world, client, f"{EXAMPLE}/bound", csrf=token, name="limit")
    foreign = await send(world, client, f"{EXAMPLE}/bound", csrf="x", name="web")

    assert done.headers["location"].startswith("/acme/team_")
    assert (wrong.status_code, foreign.status_code) == (409, 403)


class Wide(Request):
    """A parameter."""

    is_wide: bool = False


def test_a_form_has_no_parameters():
    """What an action takes from its query string would be missing: it is refused at start-up."""
    resource = Resource("example_api", "/example", Tag.SYSTEM, AuditServices)

    @resource.post("widen", needs=Capability.ORG_ADMIN, query=Wide, returns=Created)
    async def widen(call: WriteCall[AuditServices], query: Wide) -> Created:
        """Take a parameter."""
        return Created(id=str(query.is_wide))

    with pytest.raises(TypeError, match="widen takes parameters, which no form has"):
        bind_form(example_blueprint(), "/wide", "wide_form", widen, lambda slug, _: slug)


def test_a_form_is_bound_to_fields():
    """A body that only a function parses has no fields that a form could be read by."""
    resource = Resource("example_api", "/example", Tag.SYSTEM, AuditServices)
    body: Parsed[str] = Parsed(Created, str)

    @resource.post("parse", needs=Capability.ORG_ADMIN, body=body, example={}, returns=Created)
    async def parse(call: WriteCall[AuditServices], body: str) -> Created:
        """Take a text."""
        return Created(id=body)

    with pytest.raises(TypeError, match="the body of parse is no Request"):
        bind_form(example_blueprint(), "/parsed", "parsed_form", parse, lambda slug, _: slug)


def test_a_page_takes_the_variables_of_its_path():
    with pytest.raises(TypeError, match="does not take the variables of its path"):

        @Page(example_blueprint(), "/<name>", "example_page.html", needs=None)
        async def named(call: Call[DashboardServices]) -> View:
            return {}
