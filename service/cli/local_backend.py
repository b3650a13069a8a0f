"""Commands on the data dir of this machine, with the operator's rights."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileForm
from analytics.model.filters import only, parse_query
from analytics.model.instants import optional_us
from service.audit.export_api import export_form, list_form, receipt_of
from service.audit.export_entries import LIMIT_DEFAULT, LIMIT_MAX, get_export, list_exports
from service.audit.query_service import (
    accepted_form,
    page_form,
    parse_accepted_request,
    parse_page_request,
)
from service.audit.search_request import with_search
from service.audit.tenant_log import open_log
from service.audit.unknown_values import unknown_values
from service.cli.backend import (
    BindingDraft,
    Exported,
    ExportForm,
    ExportScope,
    ExportSink,
    Form,
    Parameters,
    TokenOrClaims,
)
from service.cli.context import CommandContext
from service.core.errors import Invalid
from service.core.exit_codes import WrongUsage
from service.core.text_rules import parse_reason
from service.orgs.api_keys import (
    KeyTerms,
    parse_overlap,
    request_api_key,
    revoke_api_key,
    rotate_api_key,
)
from service.orgs.key_api import ApiKeyList, issued_key, key_entry, parse_key_request
from service.packages.policy.exceptions import (
    LISTED_MAX,
    ExceptionForm,
    decide_exception,
    exception_list,
    list_exceptions,
    parse_decision,
)
from service.store.lost_segments import count_rows, losses_within
from service.store.organisations import get_api_key, get_org, get_project, list_api_keys
from service.store.tables import Binding, Organisation, Origin
from service.trust.bindings.changes import add_binding, revoke_binding
from service.trust.bindings.forms import listed_form
from service.trust.bindings.listing import parse_as_of, parse_state
from service.trust.bindings.repository import get_binding, list_bindings
from service.trust.explain.explain_api import explanation_form
from service.trust.explain.service import Asked, explain_asked
from service.trust.rejected.listing import list_entries
from service.trust.rejected.rejected_api import RejectedQuery, rejected_form, wanted_by
from service.web.request_parsing import parse_limit


class LocalBackend:
    """The services over the data dir."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    @property
    def place(self) -> str | None:
        """None: the data dir."""
        return None

    async def default_org(self) -> str | None:
        """None: the operator acts in all."""
        return None

    def data_dir(self, what: str) -> CommandContext:
        """The services themselves."""
        return self._context

    async def audit_page(self, slug: str, parameters: Parameters) -> Form:
        """One page of rows."""
        services = self._context.services
        org = await self._org(slug)
        wanted = parse_page_request(await with_search(services.store, org, parameters))
        page = await services.audit_queries.page(org, wanted, services.clock())
        return _form(page_form(slug, page))

    async def unknown_values(self, slug: str, parameters: Parameters) -> list[Form]:
        """The values of a query that no row has."""
        services = self._context.services
        org = await self._org(slug)
        query = parse_query(await with_search(services.store, org, parameters))
        log = await open_log(services.store, services.lake, org, services.clock())
        return [asdict(value) for value in await unknown_values(log, query)]

    async def audit_entry(self, slug: str, audit_id: str) -> Form:
        """One row."""
        services = self._context.services
        org = await self._org(slug)
        row = await services.audit_queries.entry(org, audit_id, services.clock())
        return msgspec.json.decode(row, type=Form)

    async def audit_accepted(self, slug: str, parameters: Parameters) -> Form:
        """The rows accepted after one of them."""
        services = self._context.services
        org = await self._org(slug)
        wanted = parse_accepted_request(await with_search(services.store, org, parameters))
        accepted = await services.audit_queries.accepted(org, wanted, services.clock())
        return _form(accepted_form(slug, accepted))

    async def audit_export(
        self, slug: str, parameters: Parameters, form: ExportForm, sink: ExportSink
    ) -> Exported:
        """Write all rows of a query to `sink`."""
        services = self._context.services
        org = await self._org(slug)
        query = parse_query(await with_search(services.store, org, parameters))
        file_form = FileForm(
            format=ExportFormat(form.format),
            compression=Compression(form.compress) if form.compress else None,
            is_raw=form.is_raw,
        )
        export = await services.exporter.prepare(
            org, query, file_form, self._context.audit_context, services.clock()
        )
        since, until = export.window
        scope = ExportScope(
            rows=export.rows,
            export_id=export.export_id,
            since=optional_us(since),
            until=optional_us(until),
            retention_floor=optional_us(export.log.floor),
            lost_rows=count_rows(await losses_within(services.store, org.id, since, until)),
        )
        sink.begin(scope)
        async for content in await services.exporter.stream(export):
            sink.file.write(content)
            sink.show(export.progress.left.rows, export.rows)
        sink.show(export.rows, export.rows)
        left = export.progress.left
        return Exported(scope, bytes=left.size, sha256=left.sha256)

    async def exports_page(self, slug: str, parameters: Parameters) -> Form:
        """A page of the exports."""
        limit = parse_limit(only(parameters, "limit"), LIMIT_DEFAULT, LIMIT_MAX)
        async with self._context.services.store.read() as session:
            org = await get_org(session, slug)
            page = await list_exports(session, org.id, limit, only(parameters, "cursor"))
        now = self._context.services.clock()
        return _form(list_form(slug, page.entries, page.next_cursor, now))

    async def export_entry(self, slug: str, export_id: str) -> Form:
        """One export."""
        async with self._context.services.store.read() as session:
            entry = await get_export(session, (await get_org(session, slug)).id, export_id)
        return _form(export_form(entry, self._context.services.clock()))

    async def export_receipt(self, slug: str, export_id: str) -> Form:
        """The receipt of a finished export."""
        async with self._context.services.store.read() as session:
            org = await get_org(session, slug)
            entry = await get_export(session, org.id, export_id)
        return _form(receipt_of(entry, org, self._context.services.clock()))

    async def list_bindings(self, slug: str, state: str | None, as_of: str | None) -> list[Form]:
        """The organisation's bindings, newest first."""
        wanted, instant = parse_state(state), parse_instant_option(as_of)
        async with self._context.services.store.read() as session:
            org = await get_org(session, slug)
            bindings = await list_bindings(session, org.id, wanted, instant)
        return [binding_form(slug, binding) for binding in bindings]

    async def get_binding(self, slug: str, binding_id: str) -> Form:
        """One binding."""
        async with self._context.services.store.read() as session:
            org = await get_org(session, slug)
            return binding_form(slug, await get_binding(session, org.id, binding_id))

    async def create_binding(self, slug: str, draft: BindingDraft) -> Form:
        """Create a binding on behalf of the platform."""
        if draft.team is not None:
            raise WrongUsage("a team's bindings are created by its admins, on a server")
        services = self._context.services
        async with self._context.change(slug) as (work, org):
            limit = draft.project and await get_project(work.session, org, draft.project)
            body = {
                "issuer": draft.issuer,
                "sub_pattern": draft.sub_pattern,
                "repository_id": draft.repository_id,
                "event_names": list(draft.event_names),
                "origin": Origin.PLATFORM_ADMIN.value,
                "project_id": limit.id if limit else None,
            }
            binding = await add_binding(
                work,
                org,
                body,
                self._context.operator,
                services.issuers,
                origins=frozenset({Origin.PLATFORM_ADMIN}),
            )
        return binding_form(slug, binding)

    async def revoke_binding(self, slug: str, binding_id: str, reason: str | None) -> None:
        """Revoke a binding."""
        why = parse_reason(reason)
        async with self._context.change(slug) as (work, org):
            await revoke_binding(work, org, binding_id, why, self._context.operator)

    async def list_exceptions(self, slug: str, state: str | None, limit: int | None) -> Form:
        """Requests for exceptions from the policy, newest first."""
        async with self._context.services.store.read() as session:
            org = await get_org(session, slug)
            listed = await list_exceptions(session, org.id, state, limit or LISTED_MAX)
        return _form(exception_list(slug, listed))

    async def decide_exception(
        self, slug: str, exception_id: str, decision: str, reason: str | None
    ) -> Form:
        """Allow or decline a request; returns it."""
        state, why = parse_decision({"decision": decision, "reason": reason})
        by = self._context.audit_context
        async with self._context.change(slug) as (work, org):
            decided = await decide_exception(work, org, exception_id, state, why, by)
            return _form(ExceptionForm.of(decided))

    async def list_api_keys(self, slug: str) -> Form:
        """The API keys, newest first, ended ones included."""
        services = self._context.services
        now = services.clock()
        async with services.store.read() as session:
            org = await get_org(session, slug)
            keys = await list_api_keys(session, org, lambda key: key_entry(key, now))
        return _form(ApiKeyList(org=slug, api_keys=keys))

    async def issue_api_key(self, slug: str, asked: Form) -> Form:
        """Issue a key as the API's request asks; returns it with its secret."""
        operator, wanted = self._context.operator, parse_key_request(asked)
        async with self._context.change(slug) as (work, org):
            key, secret = await request_api_key(
                work, org, wanted, self._terms, operator.audit_context, operator.require
            )
            return _form(issued_key(key, secret, work.now))

    async def rotate_api_key(self, slug: str, key_id: str, overlap: str) -> Form:
        """Issue a key in place of a live one; returns it with its secret."""
        operator, length = self._context.operator, parse_overlap(overlap)
        async with self._context.change(slug) as (work, org):
            key = await get_api_key(work.session, org, key_id)
            new, secret = await rotate_api_key(
                work, org, key, length, self._terms, operator.audit_context, operator.require
            )
            return _form(issued_key(new, secret, work.now, replaced=key))

    async def revoke_api_key(self, slug: str, key_id: str) -> None:
        """Revoke a key."""
        async with self._context.change(slug) as (work, org):
            key = await get_api_key(work.session, org, key_id)
            await revoke_api_key(work, org, key, self._context.audit_context)

    @property
    def _terms(self) -> KeyTerms:
        return KeyTerms.of(self._context.services.settings)

    async def explain(self, slug: str, asked: TokenOrClaims) -> Form:
        """Why a token is trusted or not."""
        services = self._context.services
        async with services.store.read() as session:
            org = await get_org(session, slug)
            limit = asked.project and await get_project(session, org, asked.project)
        project_id = limit.id if limit else None
        if asked.is_claims:
            parsed = Asked.from_claims(asked.raw, project_id)
        else:
            parsed = Asked.from_token(asked.raw.decode(errors="replace"), project_id)
        explanation = await explain_asked(services.binding_services(), parsed, org)
        return _form(explanation_form(explanation))

    async def rejected(self, slug: str, parameters: Parameters) -> Form:
        """The CI identities that were rejected."""
        services = self._context.services
        wanted = wanted_by(RejectedQuery.parse_texts(_lists(parameters)))
        org = await self._org(slug)
        entries = await list_entries(
            services.store, services.issuers, org.id, wanted, services.clock()
        )
        return _form(rejected_form(slug, entries))

    async def _org(self, slug: str) -> Organisation:
        async with self._context.services.store.read() as session:
            return await get_org(session, slug)


def parse_instant_option(as_of: str | None) -> datetime | None:
    """The instant that --as-of names. Raises Invalid."""
    try:
        return parse_as_of(as_of)
    except Invalid as error:
        raise Invalid("--as-of must be a date or an RFC 3339 instant") from error


def binding_form(slug: str, binding: Binding) -> Form:
    """A binding as the API's list has it, with its organisation."""
    return {"org": slug, **_form(listed_form(binding))}


def _form(answer: msgspec.Struct | dict[str, Any]) -> Form:
    """The API's JSON of `answer`, read again."""
    return msgspec.json.decode(msgspec.json.encode(answer), type=Form)


def _lists(parameters: Parameters) -> dict[str, list[str]]:
    return {name: list(values) for name, values in parameters.items()}
