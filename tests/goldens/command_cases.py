"""What each command is called with: its arguments, with names in braces for ids and files.

A command without an entry is called with its required parameters, filled in by their names.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.dsse import seal
from analytics.evidence.notes import VerifierKey
from service.packages.attestations.attestation_api import PAYLOAD_TYPE
from tests.evidence.logs import SomeWitness
from tests.goldens.world import MEMBERS
from tests.service.packages.policy.osv_files import osv_record, osv_zip

ISSUER: Final = "https://token.actions.githubusercontent.com"
_BINDING: Final = f"--org acme --issuer {ISSUER} --repository-id 42"

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "access report": ("--org acme", "--org acme --as-of 2026-02-01T00:00:00Z", "--org acme --csv"),
    "alert handle": (
        "--org acme {alert_id} --state closed --note Known",
        "--org acme alert_0 --state acknowledged",
    ),
    "alert list": ("--org acme", "--org acme --state open --limit 1", "--org acme --cursor x"),
    "alert rule create": (
        "--org acme new --query decision=BLOCKED --at-least 5 --per actor",
        "--org acme new --query colour=red",
        "--org acme new --sigma {unreadable}",
    ),
    "alert rule delete": ("--org acme {alert_rule_id}", "--org acme rule_0"),
    "alert rule try": (
        "--org acme --query decision=BLOCKED --window 1d --days 90",
        "--org acme --kind silence --query event=install_allowed --window 5m",
    ),
    "apikey issue": (
        "--org acme --name new --scope audit:ingest --expires 30d",
        "--org acme --name new --scope packages:install --project payments",
        "--org acme --name new --scope audit:ingest --project nothing",
        "--org acme --name new --scope nothing",
        "--org acme --name new --scope audit:ingest --expires 1y",
    ),
    "apikey rotate": (
        "--org acme {key_id}",
        "--org acme {key_id} --overlap 1h",
        "--org acme {key_id} --overlap x",
    ),
    "apply": ("{orgs}", "{unreadable}"),
    "artifact accept": (f"requests-2.32.3.tar.gz --digest {'0' * 64}",),
    "attest bundle": (
        "--org acme --run {run_id} -o {out}",
        "--org acme --run {run_id} --repository-id 0 -o -",
        "--org acme --run 0 -o {out}",
    ),
    "attest list": ("--org acme --run {run_id} --limit 2", "--org acme --cursor x"),
    "attest show": ("--org acme {install_id}", "--org acme {audit_id}"),
    "stream change": (
        "--org acme {stream_id} --state paused",
        "--org acme {stream_id} --after start --new-secret",
        "--org acme {stream_id} --state x",
        "--org acme {stream_id} --after x",
    ),
    "stream create": (
        "--org acme --name more --kind webhook --url https://127.0.0.1:1/rows",
        "--org acme --name more --kind splunk_hec --url https://127.0.0.1:1/rows",
        "--org acme --name more --kind webhook --url https://127.0.0.1:1/rows --format ocsf",
        "--org acme --name more --kind chat --url https://127.0.0.1:1/rows --format ocsf",
        "--org acme --name more --kind syslog --url https://127.0.0.1:1/rows",
        "--org acme --name more --kind x --url https://127.0.0.1:1/rows",
        "--org acme --name more --kind otlp --url https://127.0.0.1:1/rows --query x=1",
    ),
    "stream delete": ("--org acme {stream_id}",),
    "stream test": ("--org acme {stream_id}",),
    "attest verify": (
        "{statements} --key {key}",
        "{statements} {policy} --key {key}",
        "{unreadable} --key {key}",
        "{statements} --key {policy}",
    ),
    "audit check": ("", "--org acme", "--quick"),
    "audit export": (
        "--org acme --format csv --event oidc_binding_created {out}",
        "--org acme --format ndjson --event oidc_binding_created --compress gzip {out}",
        "--org acme --format json --event oidc_binding_created -",
        "--org acme --format csv --event oidc_binding_created --raw -",
        "--org acme --format csv --since x -",
    ),
    "audit exports list": ("--org acme --limit 2", "--org acme --limit 0", "--org acme --cursor x"),
    "audit give-up": ("--yes seg_00000000000000000", "seg_00000000000000000"),
    "audit import": (
        "--org acme {rows}",
        "--org acme {unreadable} --format ndjson",
        "--org acme {unreadable}",
        "--org acme {mixed}",
        "--org acme --partial --report {out} {mixed}",
    ),
    "audit sql": (
        "--org acme 'SELECT 1 AS one'",
        "--org acme 'SELECT 1 AS one' --format csv",
        "--org acme 'SELECT 1 AS one' --format parquet -o {out}",
        "--org acme 'DROP VIEW audit'",
    ),
    "audit list": (
        "--org acme --limit 2",
        "--org acme --limit 2 --order asc --event oidc_binding_created",
        "--org acme --limit 2 left-pad",
        "--org acme --decision nothing",
        "--org acme --since x",
        "--org acme --limit 0",
    ),
    "audit query": (
        "--org acme --limit 2",
        "--org acme --limit 2 --order asc --since 2026-03-01 --until 2026-03-02",
        "--org acme --limit 2 --event install_blocked --package left-pad",
        "--org acme --actor nothing",
        "--org acme --event nothing",
        "--org acme --cursor x",
        "--org acme --limit 1001",
    ),
    "audit prune": ("", "--dry-run", "--org acme --dry-run"),
    "audit restore-segment": ("seg_00000000000000000", "--all", "--org acme --day 2026-03-01"),
    "audit take-over": ("--yes", ""),
    "audit verify-export": (
        "{rows}",
        "{rows} --export {export_id} --org acme",
        "{rows} --receipt {rows}",
    ),
    "auth login": ("{server} --with-token",),
    "auth logout": ("", "{server}"),
    "auth switch": ("{server}", "https://nothing.example"),
    "backup": ("{out}", "{out} --link --with-secrets", "{folder}"),
    "bindings add": (
        f"{_BINDING} --sub repo:acme/new:ref:refs/heads/main --event push",
        f"{_BINDING} --sub repo:acme/new:ref:refs/heads/main --project payments",
        f"{_BINDING} --sub repo:acme/new:ref:refs/heads/main --team platform",
        f"{_BINDING} --sub repo:acme/*",
        f"{_BINDING} --sub repo:acme/new --event nothing",
        f"{_BINDING} --sub repo:acme/new --project nothing",
        "--org acme --issuer https://nothing.example --sub x --repository-id 42",
        "--org acme --issuer x --sub x",
    ),
    "bindings create": (f"{_BINDING} --sub repo:acme/new:ref:refs/heads/main",),
    "bindings explain": (
        "--org acme --claims {claims}",
        "--org acme --claims {claims} --project payments",
        "--org acme --claims {unreadable}",
        "--org acme --token-file {unreadable}",
    ),
    "bindings list": (
        "--org acme",
        "--org acme --state active",
        "--org acme --state revoked",
        "--org acme --as-of 2026-02-01T00:00:00Z",
        "--org acme --repository-id 355081734",
        "--all-orgs --repository-id 355081734",
        "--org acme --state nothing",
        "--org acme --as-of x",
    ),
    "bindings rejected": (
        "--org acme",
        "--org acme --limit 1 --verified",
        "--org acme --code nothing",
    ),
    "bindings replace": (
        "{binding_id} --org acme --event schedule --reason nightly",
        "{binding_id} --org acme",
        "{binding_id} --org acme --any-event --any-project",
        "{binding_id} --org acme --sub x*",
    ),
    "bindings revoke": (
        "{binding_id} --org acme --reason leaked",
        "{binding_id} --org acme --yes",
        "--org acme --repository-id 355081734 --yes",
        "--org acme --repository-id 355081734",
        "--all-orgs --repository-id 355081734 --yes",
        "--org acme",
    ),
    "bindings sync": (
        "{bindings} --org acme --plan",
        "{bindings} --org acme --prune --plan",
        "{bindings} --org acme --yes",
        "{bindings} --org acme --prune --yes --reason cleanup",
        "{bindings} --org acme --prune",
        "{unreadable} --org acme",
    ),
    "blocklist affected": ("", "--org acme", "MAL-1", "MAL-1 --org acme", "none"),
    "blocklist check": ("{sbom}", "{unreadable}"),
    "blocklist import": (
        "{feed}",
        "{feed} --feed corp --plan",
        "{feed} --feed corp --ids C --yes",
        "{unreadable}",
    ),
    "blocklist remove": ("--feed osv --yes", "--feed osv", "--feed nothing --yes"),
    "machine issue": (
        "--org acme --name lab --member {member_id}",
        "--org acme --name lab",
    ),
    "machine revoke": ("--org acme {machine_token_id}", "--org acme mtok_none"),
    "run": ("--dry-run -- true", "-- true"),
    "ci exec": (
        "--url {server} --org acme --dry-run -- true",
        "--url {server} --org acme -- true",
        "--org acme -- true",
    ),
    "demo": ("--no-serve",),
    "evidence export": (
        "--org acme --event oidc_binding_created -o {out}",
        "--org acme --package nothing",
        "--org acme --event nothing",
    ),
    "evidence key rotate": ("--yes", ""),
    "evidence monitor": ("", "--org acme", "--checkpoint {unreadable}"),
    "evidence resume": ("--yes", "--org acme --accept-rollback --yes"),
    "evidence witness add": (
        "{vkey} https://w2.example/",
        "x https://w2.example/",
        "{vkey} http://w2.example/",
    ),
    "evidence witness remove": ("witness.example/w1", "nothing"),
    "evidence verify": ("{feed}", "{unreadable} --key {unreadable}", "{unreadable}"),
    "explain": ("--org acme --claims {claims}", "--org acme --claims {unreadable}"),
    "lake drop": ("", "--format delta", "--format nothing"),
    "lake publish": ("--format delta",),
    "login": ("{server} --with-token", "http://nothing.example --with-token"),
    "logout": ("", "{server}"),
    "member add": (
        "--org acme new@acme.example --idp github",
        "--org acme new@acme.example --idp google --role auditor",
        "--org acme x --idp github",
        f"--org acme {MEMBERS['member'][1]} --idp github",
        "--org acme new@acme.example --idp github --role nothing",
    ),
    "member remove": (f"--org acme {MEMBERS['member'][1]}", "--org acme {member_id}"),
    "migrate": ("", "--to sqlite:///x", "--to postgresql://nothing.invalid/x"),
    "org add": ("new", "new --tier team", "acme", "No", "new --tier nothing"),
    "org allow-domain": (
        "acme acme.example --idp google",
        "acme gmail.com --idp google",
        "acme x --idp google",
        "acme acme.example --idp google --remove",
    ),
    "org grant": ("acme auditor oidc:r", "acme auditor", "acme auditor nothing", "acme nothing"),
    "org release": ("acme", "acme --reason over"),
    "org set-tier": ("acme team", "acme org", "acme nothing"),
    "policy check": (
        "--org acme npm left-pad@1.3.0",
        "--org acme pypi requests==2.32.3",
        "--org acme pypi requests --version 2.32.3 --published 2026-03-03T00:00:00Z",
        "--org acme npm evil@1.0.0",
        "--org acme npm acme-telemetry@9.9.1",
        "--org acme npm x --version ~",
        "--org acme nothing x",
    ),
    "policy exceptions allow": ("--org acme {exception_id}",),
    "policy exceptions decline": ("--org acme {exception_id} --reason no",),
    "policy exceptions list": ("--org acme", "--org acme --state declined", "--org acme --limit 0"),
    "policy set": (
        "--org acme {policy} --dry-run",
        "--org acme {policy} --yes",
        "--org acme {policy} --yes --revision 7",
        "--org acme {policy}",
        "--org acme {unreadable} --yes",
    ),
    "policy show": (
        "--org acme",
        "--org acme --revision 1",
        "--org acme --revision 99",
        "--org other",
    ),
    "project add": ("--org acme new", "--org acme payments", "--org acme ''"),
    "restore": ("{saved} --force", "{saved} --check", "{saved}", "{folder}"),
    "session issue": (
        f"--org acme --member {MEMBERS['member'][1]}",
        f"--org acme --member {MEMBERS['member'][1]} --cookie",
    ),
    "team add": ("--org acme new", "--org acme platform", "--org acme ''"),
    "team set-admin": (
        f"--org acme platform {MEMBERS['member'][1]}",
        f"--org acme platform {MEMBERS['member'][1]} --remove",
        "--org acme platform priya.raman@acme.example --remove",
        f"--org acme nothing {MEMBERS['member'][1]}",
    ),
    "whoami": ("",),
}

BY_NAME: Final[Mapping[str, str]] = {
    "slug": "acme",
    "name": "new",
    "member": MEMBERS["member"][1],
    "member_name": MEMBERS["member"][1],
    "email": "new@acme.example",
    "role": "auditor",
    "provider": "github",
    "idp": "github",
    "issuer": ISSUER,
    "sub": "repo:acme/new:ref:refs/heads/main",
    "sub_pattern": "repo:acme/new:ref:refs/heads/main",
    "reason": "goldens",
    "file": "{policy}",
    "path": "{out}",
    "target": "{out}",
    "source": "{folder}",
    "url": "{server}",
    "tier": "team",
    "domain": "acme.example",
    "ids": "seg_00000000000000000",
    "feed": "osv",
    "digest": "0" * 64,
    "file_name": "left-pad-1.3.0.tgz",
    "ecosystem": "npm",
    "package": "left-pad@1.3.0",
    "command": "true",
    "scopes": "audit:ingest",
    "file_format": "csv",
}
"""What a required parameter of this name is filled with; ids besides."""

LEFT_OUT: Final[Mapping[str, str]] = {"serve": "it runs until it is stopped"}
"""Commands that are not run, with the reason."""

NEVER_DONE: Final[Mapping[str, str]] = {
    "artifact accept": "no registry has changed a file",
    "audit give-up": "no segment is damaged",
    "audit lock-probe": "it needs S3",
    "audit upload": "it needs S3",
    "ci exec": "it needs a token of a CI provider",
    "migrate": "it needs PostgreSQL",
    "run": "it needs a member's session",
    "audit take-over": "it needs S3",
}
"""Commands that are refused in every case, with the reason."""

FIRST: Final[Mapping[str, str]] = {
    "blocklist affected": "blocklist import {feed}",
    "blocklist check": "blocklist import {feed}",
    "blocklist remove": "blocklist import {feed}",
    "blocklist status": "blocklist import {feed}",
    "org domains": "org allow-domain acme acme.example --idp google",
    "org release": "org hold acme --reason audit",
    "restore": "backup {saved}",
}
"""What has to be done before a command finds something to do."""

LOGGED_IN: Final = frozenset({"auth logout", "logout", "auth switch"})
"""Commands of a person who has signed in to the server."""

_POLICY: Final[Any] = {
    "mode": "enforce",
    "deny": [{"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"]}],
    "cooldown": {"min_age_days": 7},
}
_CLAIMS: Final[Any] = {
    "iss": ISSUER,
    "aud": "countersign",
    "sub": "repo:acme/infra:ref:refs/heads/main",
    "repository_owner": "acme",
    "repository_id": "355081734",
    "event_name": "workflow_dispatch",
    "exp": 1893456000,
}
WITNESS: Final = str(SomeWitness("witness.example/w2").key)
_ROW: Final[Any] = {
    "created_at": "2026-03-03T08:00:00Z",
    "event": "install_allowed",
    "packageName": "x",
}
_SBOM: Final[Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "components": [
        {"type": "library", "name": "evil", "version": "1.0.0", "purl": "pkg:npm/evil@1.0.0"},
        {"type": "library", "name": "good", "version": "1.0.0", "purl": "pkg:npm/good@1.0.0"},
    ],
}
_SIGNER: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_KEY: Final = str(VerifierKey("audit.example/acme", _SIGNER.public_key().public_bytes_raw()))
_SUBJECT: Final = {"uri": "pkg:npm/left-pad@1.3.0", "digest": {"sha256": "0" * 64}}
_STATEMENT: Final = msgspec.to_builtins(
    seal(_SIGNER, "evk_1", PAYLOAD_TYPE, json.dumps({"subject": [_SUBJECT]}).encode())
)
_ORGS: Final = """
[orgs.acme]
projects = ["new"]
alerts.Blocked = { query = "decision=BLOCKED", at_least = 20 }

[orgs.new]
tier = "team"
members."ada@new.example" = { role = "owner", idp = "github" }
"""
_BINDINGS: Final = f"""
issuer = "{ISSUER}"
[[bindings]]
sub_pattern = "repo:acme/new:ref:refs/heads/main"
repository_id = "42"
event_names = ["push"]
"""


_TEXTS: Final = {
    "orgs.toml": _ORGS,
    "bindings.toml": _BINDINGS,
    "policy.json": json.dumps(_POLICY),
    "claims.json": json.dumps(_CLAIMS),
    "sbom.json": json.dumps(_SBOM),
    "rows.ndjson": json.dumps(_ROW) + "\n",
    "key.txt": _KEY,
    "statements.jsonl": json.dumps(_STATEMENT) + "\n",
    "mixed.ndjson": json.dumps(_ROW) + "\n" + json.dumps(_ROW | {"event": 7}) + "\n",
    "unreadable": "{ this is nothing",
}
_FEED: Final = "feed.zip"


def paths_in(folder: Path) -> dict[str, str]:
    """The files and places that arguments name, as paths in `folder`."""
    files = {name.partition(".")[0]: str(folder / name) for name in (*_TEXTS, _FEED)}
    return files | {
        "folder": str(folder),
        "out": str(folder / "out"),
        "saved": str(folder / "saved"),
        "vkey": WITNESS,
    }


def write_files(folder: Path) -> None:
    """Create `folder` with those files."""
    folder.mkdir()
    for name, text in _TEXTS.items():
        (folder / name).write_text(text)
    records = [osv_record("MAL-1"), osv_record("C-1", "worse", "PyPI", versions=["1.0"])]
    (folder / _FEED).write_bytes(osv_zip(records).getvalue())


def words_of(arguments: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """`arguments` as words, with these values for the names in braces."""
    return tuple(word.format_map(values) for word in shlex.split(arguments))
