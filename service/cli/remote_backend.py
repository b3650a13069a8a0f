"""Commands on a server, through its API."""

import hashlib
import json
from typing import NoReturn

from service.cli.api_paths import org_path
from service.cli.backend import (
    BindingDraft,
    Exported,
    ExportForm,
    ExportSink,
    Form,
    Parameters,
    TokenOrClaims,
)
from service.cli.commands import current_run
from service.cli.nearest import did_you_mean
from service.cli.server_client import ServerClient
from service.cli.server_failures import ServerRefusal
from service.cli.target import WrongPlace
from service.core.errors import OrgNotFound


class RemoteBackend:
    """The API of one server. Raises ServerRefusal."""

    def __init__(self, client: ServerClient, org: str | None) -> None:
        self._client = client
        self._org = org

    @property
    def place(self) -> str | None:
        """The server."""
        return self._client.server

    async def default_org(self) -> str | None:
        """That of the stored login, or of the credential; None for the admin token."""
        if self._org is None:
            self._org = (await self._client.get("/api/v1/session"))["org"]
        return self._org

    def data_dir(self, what: str) -> NoReturn:
        """Refuse: servers do not offer it."""
        target = current_run().target
        raise WrongPlace.for_command(
            what, self._client.server, "" if target is None else target.why
        )

    async def audit_page(self, slug: str, parameters: Parameters) -> Form:
        """One page of rows."""
        return await self._get(slug, "audit", parameters=parameters)

    async def unknown_values(self, slug: str, parameters: Parameters) -> list[Form]:
        """The values of a query that no row has."""
        answered = await self._get(slug, "audit", "unknown-values", parameters=parameters)
        unknown: list[Form] = answered["unknown"]
        return unknown

    async def audit_entry(self, slug: str, audit_id: str) -> Form:
        """One row."""
        return await self._get(slug, "audit", audit_id)

    async def audit_accepted(self, slug: str, parameters: Parameters) -> Form:
        """The rows accepted after one of them."""
        return await self._get(slug, "audit", "accepted", parameters=parameters)

    async def audit_export(
        self, slug: str, parameters: Parameters, form: ExportForm, sink: ExportSink
    ) -> Exported:
        """Write all rows of a query to `sink`; a connection that breaks off is an error."""
        given = dict(parameters) | {"format": [form.format]}
        if form.compress is not None:
            given["compress"] = [form.compress]
        if form.is_raw:
            given["raw"] = ["1"]
        digest, size = hashlib.sha256(), 0
        path = org_path(slug, "audit", "export")
        async with self._client.download(path, given) as download:
            sink.begin(download.scope)
            sink.show(0, download.scope.rows)
            async for chunk in download.chunks:
                sink.file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            sink.show(download.scope.rows, download.scope.rows)
        return Exported(download.scope, bytes=size, sha256=digest.hexdigest())

    async def exports_page(self, slug: str, parameters: Parameters) -> Form:
        """A page of the exports."""
        return await self._get(slug, "exports", parameters=parameters)

    async def export_entry(self, slug: str, export_id: str) -> Form:
        """One export."""
        return await self._get(slug, "exports", export_id)

    async def export_receipt(self, slug: str, export_id: str) -> Form:
        """The receipt of a finished export."""
        return await self._get(slug, "exports", export_id, "receipt")

    async def list_bindings(self, slug: str, state: str | None, as_of: str | None) -> list[Form]:
        """The organisation's bindings, newest first."""
        given = {"state": state, "asOf": as_of}
        parameters = {name: [value] for name, value in given.items() if value is not None}
        bindings = (await self._get(slug, "oidc-bindings", parameters=parameters))["bindings"]
        return [{"org": slug, **binding} for binding in bindings]

    async def get_binding(self, slug: str, binding_id: str) -> Form:
        """One binding."""
        return {"org": slug, **await self._get(slug, "oidc-bindings", binding_id)}

    async def create_binding(self, slug: str, draft: BindingDraft) -> Form:
        """Create a binding of the organisation, or of a team, on behalf of the caller."""
        body = {
            "issuer": draft.issuer,
            "sub_pattern": draft.sub_pattern,
            "repository_id": draft.repository_id,
            "event_names": list(draft.event_names),
            "origin": "org_admin" if draft.team is None else "team_admin",
            "project_id": draft.project,
            "team_id": draft.team,
        }
        sent = json.dumps({name: value for name, value in body.items() if value is not None})
        path = org_path(slug, "oidc-bindings")
        return {"org": slug, **await self._client.post(path, sent.encode())}

    async def revoke_binding(self, slug: str, binding_id: str, reason: str | None) -> None:
        """Revoke a binding."""
        parameters = {} if reason is None else {"reason": reason}
        await self._client.delete(org_path(slug, "oidc-bindings", binding_id), parameters)

    async def list_exceptions(self, slug: str, state: str | None, limit: int | None) -> Form:
        """Requests for exceptions from the policy, newest first."""
        given = {"state": state, "limit": None if limit is None else str(limit)}
        parameters = {name: [value] for name, value in given.items() if value is not None}
        return await self._get(slug, "policy", "exceptions", parameters=parameters)

    async def decide_exception(
        self, slug: str, exception_id: str, decision: str, reason: str | None
    ) -> Form:
        """Allow or decline a request; returns it."""
        path = org_path(slug, "policy", "exceptions", exception_id, "decide")
        body = {"decision": decision} | ({} if reason is None else {"reason": reason})
        form: Form = await self._client.post(path, json.dumps(body).encode())
        return form

    async def list_api_keys(self, slug: str) -> Form:
        """The API keys, newest first, ended ones included."""
        return await self._get(slug, "api-keys")

    async def issue_api_key(self, slug: str, asked: Form) -> Form:
        """Issue a key as the API's request asks; returns it with its secret."""
        return await self._client.post(org_path(slug, "api-keys"), json.dumps(asked).encode())

    async def rotate_api_key(self, slug: str, key_id: str, overlap: str) -> Form:
        """Issue a key in place of a live one; returns it with its secret."""
        path = org_path(slug, "api-keys", key_id, "rotate")
        return await self._client.post(path, json.dumps({"overlap": overlap}).encode())

    async def revoke_api_key(self, slug: str, key_id: str) -> None:
        """Revoke a key."""
        await self._client.delete(org_path(slug, "api-keys", key_id))

    async def explain(self, slug: str, asked: TokenOrClaims) -> Form:
        """Why a token is trusted or not."""
        project = b"" if asked.project is None else b',"project_id":' + _json(asked.project)
        # Claims as they were read: the server judges them, duplicate members included.
        token = asked.raw if asked.is_claims else _json(asked.raw.decode(errors="replace"))
        name = b"claims" if asked.is_claims else b"token"
        body = b'{"' + name + b'":' + token + project + b"}"
        form: Form = await self._client.post(org_path(slug, "oidc-bindings", "explain"), body)
        return form

    async def rejected(self, slug: str, parameters: Parameters) -> Form:
        """The CI identities that were rejected."""
        return await self._get(slug, "oidc-bindings", "rejected", parameters=parameters)

    async def _get(self, slug: str, *parts: str, parameters: Parameters | None = None) -> Form:
        try:
            form: Form = await self._client.get(org_path(slug, *parts), parameters)
        except ServerRefusal as refusal:
            if refusal.code == OrgNotFound.text and self._org is not None:
                text = did_you_mean(str(refusal), slug, [self._org])
                raise ServerRefusal(text, status=refusal.answered_status) from refusal
            raise
        return form


def _json(text: str) -> bytes:
    return json.dumps(text).encode()
