"""The database as the first release made it, at migration 0023: what later versions migrate."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from service.store.migrate import VERSION_TABLE

METADATA: Final = sa.MetaData()
TEXT: Final = sa.String()
INTEGER: Final = sa.BigInteger()


def make_first_schema(connection: sa.Connection) -> None:
    """Make the tables of an empty database."""
    METADATA.create_all(connection)
    VERSION_TABLE.create(connection)
    connection.execute(sa.insert(VERSION_TABLE).values(version_num="0023"))
    connection.execute(sa.insert(METADATA.tables["counters"]).values(name="audit_seq", value=0))


def _columns(
    kind: sa.types.TypeEngine[Any],
    *names: str,
    nullable: bool = False,
    default: str | sa.TextClause | None = None,
) -> list[sa.Column[Any]]:
    """Columns of one kind; `default` is the database's own."""
    return [
        sa.Column(name, kind, nullable=nullable, server_default=default, autoincrement=False)
        for name in names
    ]


def _table(
    name: str,
    *columns: sa.Column[Any],
    key: Sequence[str],
    references: Mapping[str, str] = {},
    unique: Sequence[Sequence[str]] = (),
    has_rowid: bool = True,
) -> None:
    """A table with its primary key, the columns that its own ones refer to, and unique ones."""
    sa.Table(
        name,
        METADATA,
        *columns,
        *(
            sa.ForeignKeyConstraint([column], [other], name=f"fk_{name}_{column}")
            for column, other in references.items()
        ),
        sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"),
        *(
            sa.UniqueConstraint(*several, name=f"uq_{name}_{'_'.join(several)}")
            for several in unique
        ),
        sqlite_with_rowid=has_rowid,
    )


def _index(
    table: str,
    *columns: str,
    name: str | None = None,
    unique: bool = False,
    where: str | None = None,
) -> None:
    """An index, of the rows `where` a condition holds if there is one."""
    condition = None if where is None else sa.text(where)
    sa.Index(
        name or f"ix_{table}_{'_'.join(columns)}",
        *(METADATA.tables[table].c[column] for column in columns),
        unique=unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


_table(
    "artifacts",
    *_columns(TEXT, "ecosystem", "registry_url", "package", "file_name", "version", "digest"),
    *_columns(TEXT, "sha256", nullable=True),
    *_columns(INTEGER, "published_at", nullable=True),
    *_columns(INTEGER, "served_at"),
    *_columns(TEXT, "offered_digest", nullable=True),
    *_columns(INTEGER, "offered_at", "accepted_at", nullable=True),
    key=["ecosystem", "registry_url", "package", "file_name"],
)
_index("artifacts", "accepted_at")
_index("artifacts", "offered_at")
_index("artifacts", "served_at")
_table(
    "blocklist_imports",
    *_columns(INTEGER, "generation"),
    *_columns(TEXT, "source", "sha256"),
    *_columns(sa.JSON(), "ids"),
    *_columns(TEXT, "imported_by"),
    *_columns(INTEGER, "started_at", "progress_at"),
    *_columns(INTEGER, "switched_at", nullable=True),
    *_columns(INTEGER, "records", "advisories", "withdrawn", "unreadable"),
    *_columns(TEXT, "feed", default="osv"),
    *_columns(sa.LargeBinary(), "contents", nullable=True),
    key=["generation"],
)
_table(
    "counters",
    *_columns(TEXT, "name"),
    *_columns(INTEGER, "value"),
    *_columns(INTEGER, "received_at", nullable=True),
    key=["name"],
)
_table(
    "facts",
    *_columns(TEXT, "name", "value"),
    key=["name"],
)
_table(
    "iceberg_namespace_properties",
    *_columns(sa.String(255), "catalog_name", "namespace", "property_key"),
    *_columns(sa.String(1000), "property_value", nullable=True),
    key=["catalog_name", "namespace", "property_key"],
)
_table(
    "iceberg_tables",
    *_columns(sa.String(255), "catalog_name", "table_namespace", "table_name"),
    *_columns(sa.String(1000), "metadata_location", "previous_metadata_location", nullable=True),
    *_columns(sa.String(5), "iceberg_type", nullable=True),
    key=["catalog_name", "table_namespace", "table_name"],
)
_table(
    "install_marks",
    *_columns(TEXT, "install"),
    *_columns(INTEGER, "recorded_at", "seq"),
    key=["install"],
)
_index("install_marks", "recorded_at")
_table(
    "lake_tables",
    *_columns(TEXT, "format", "tenant_id", "location", "version"),
    *_columns(TEXT, "snapshot", nullable=True),
    *_columns(
        INTEGER,
        "snapshots",
        "files",
        "rows",
        "complete_through_seq",
        "created_at",
        "published_at",
    ),
    key=["format", "tenant_id"],
)
_table(
    "leases",
    *_columns(TEXT, "name", "holder"),
    *_columns(INTEGER, "epoch", "expires_at"),
    key=["name"],
)
_table(
    "organisations",
    *_columns(TEXT, "id", "slug", "tier"),
    *_columns(sa.JSON(), "role_overrides"),
    *_columns(INTEGER, "created_at"),
    *_columns(INTEGER, "held_since", nullable=True),
    *_columns(TEXT, "held_reason", nullable=True),
    *_columns(INTEGER, "trust_revision", default="0"),
    key=["id"],
    unique=[["slug"]],
)
_table(
    "spent_sign_ins",
    *_columns(TEXT, "id_hash"),
    *_columns(INTEGER, "expires_at"),
    key=["id_hash"],
)
_index("spent_sign_ins", "expires_at")
_table(
    "advisories",
    *_columns(INTEGER, "generation"),
    *_columns(TEXT, "ecosystem", "package", "advisory_id"),
    *_columns(sa.LargeBinary(), "spec"),
    *_columns(TEXT, "feed", default="osv"),
    key=["generation", "ecosystem", "package", "advisory_id"],
    references={"generation": "blocklist_imports.generation"},
    has_rowid=False,
)
_table(
    "allowed_domains",
    *_columns(TEXT, "identity_provider", "domain", "tenant_id"),
    *_columns(INTEGER, "added_at"),
    key=["identity_provider", "domain", "tenant_id"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "exports",
    *_columns(TEXT, "id", "tenant_id", "actor", "actor_source", "verdict_source"),
    *_columns(TEXT, "request_id", nullable=True),
    *_columns(TEXT, "format"),
    *_columns(TEXT, "compression", nullable=True),
    *_columns(sa.Boolean(), "is_raw"),
    *_columns(sa.JSON(), "filters"),
    *_columns(INTEGER, "since", "until", "retention_floor", nullable=True),
    *_columns(INTEGER, "watermark", "rows"),
    *_columns(TEXT, "version"),
    *_columns(INTEGER, "started_at", "progress_at", "sent_rows", "sent_bytes"),
    *_columns(INTEGER, "ended_at", nullable=True),
    *_columns(sa.Boolean(), "is_complete", nullable=True),
    *_columns(TEXT, "sha256", nullable=True),
    key=["id"],
    references={"tenant_id": "organisations.id"},
)
_index("exports", "tenant_id", "started_at", "id", name="exports_newest_first")
_index("exports", "progress_at", name="exports_under_way", where="ended_at IS NULL")
_table(
    "former_tiers",
    *_columns(TEXT, "tenant_id", "tier"),
    *_columns(INTEGER, "left_at"),
    key=["tenant_id", "tier"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "idempotency_keys",
    *_columns(TEXT, "tenant_id", "credential", "key", "body_sha256"),
    *_columns(sa.LargeBinary(), "answer"),
    *_columns(INTEGER, "created_at"),
    key=["tenant_id", "credential", "key"],
    references={"tenant_id": "organisations.id"},
)
_index("idempotency_keys", "created_at")
_table(
    "imported_files",
    *_columns(TEXT, "tenant_id", "sha256", "name"),
    *_columns(INTEGER, "rows", "refused", "imported_at"),
    key=["tenant_id", "sha256"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "journal",
    *_columns(INTEGER, "first_seq"),
    *_columns(TEXT, "tenant_id"),
    *_columns(sa.Date(), "day"),
    *_columns(INTEGER, "rows"),
    *_columns(INTEGER, "size", default="0"),
    *_columns(INTEGER, "min_created_at", "max_created_at", nullable=True),
    *_columns(INTEGER, "received_at"),
    *_columns(sa.LargeBinary(), "data"),
    *_columns(TEXT, "damage", nullable=True),
    key=["first_seq"],
    references={"tenant_id": "organisations.id"},
)
_index("journal", "tenant_id", name="damaged_batches", where="damage IS NOT NULL")
_index("journal", "tenant_id", "day", "rows", "size", name="journal_by_day")
_table(
    "lost_segments",
    *_columns(TEXT, "id", "tenant_id"),
    *_columns(sa.Date(), "day"),
    *_columns(INTEGER, "rows", "min_seq", "max_seq"),
    *_columns(TEXT, "damage"),
    *_columns(INTEGER, "lost_at"),
    key=["id"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "members",
    *_columns(TEXT, "id", "tenant_id", "email", "role", "identity_provider"),
    *_columns(INTEGER, "created_at"),
    *_columns(INTEGER, "removed_at", nullable=True),
    *_columns(TEXT, "identity_namespace", "identity_subject", "user_handle", nullable=True),
    key=["id"],
    references={"tenant_id": "organisations.id"},
)
_index(
    "members",
    "tenant_id",
    "email",
    name="one_member_per_email",
    unique=True,
    where="removed_at IS NULL",
)
_index(
    "members",
    "identity_provider",
    "identity_namespace",
    "identity_subject",
    "tenant_id",
    name="one_member_per_identity",
    unique=True,
    where="removed_at IS NULL",
)
_table(
    "misdated_days",
    *_columns(TEXT, "tenant_id"),
    *_columns(sa.Date(), "day"),
    *_columns(INTEGER, "received_at"),
    key=["tenant_id", "day"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "policy_exceptions",
    *_columns(TEXT, "id", "tenant_id", "ecosystem", "package", "version", "reason", "requested_by"),
    *_columns(INTEGER, "requested_at"),
    *_columns(TEXT, "state"),
    *_columns(TEXT, "decided_by", nullable=True),
    *_columns(INTEGER, "decided_at", nullable=True),
    *_columns(TEXT, "decided_reason", nullable=True),
    key=["id"],
    references={"tenant_id": "organisations.id"},
)
_index(
    "policy_exceptions",
    "tenant_id",
    "state",
    "requested_at",
    "id",
    name="policy_exceptions_newest_first",
)
_table(
    "policy_revisions",
    *_columns(TEXT, "tenant_id"),
    *_columns(INTEGER, "revision"),
    *_columns(sa.LargeBinary(), "document"),
    *_columns(TEXT, "sha256", "changed_by"),
    *_columns(INTEGER, "changed_at"),
    key=["tenant_id", "revision"],
    references={"tenant_id": "organisations.id"},
)
_table(
    "projects",
    *_columns(TEXT, "id", "tenant_id", "name"),
    *_columns(INTEGER, "created_at"),
    key=["id"],
    references={"tenant_id": "organisations.id"},
    unique=[["tenant_id", "name"]],
)
_table(
    "rejected_subjects",
    *_columns(TEXT, "tenant_id", "digest"),
    *_columns(sa.Boolean(), "is_verified"),
    *_columns(TEXT, "code"),
    *_columns(
        TEXT,
        "detail",
        "issuer",
        "sub",
        "repository_id",
        "event_name",
        "owner",
        "project_id",
        nullable=True,
    ),
    *_columns(INTEGER, "count", "first_at", "last_at"),
    *_columns(TEXT, "last_request_id"),
    key=["tenant_id", "digest"],
    references={"tenant_id": "organisations.id"},
)
_index("rejected_subjects", "tenant_id", "is_verified", "last_at", name="rejected_lately")
_table(
    "saved_searches",
    *_columns(TEXT, "id", "tenant_id", "name", "query", "created_by"),
    *_columns(INTEGER, "created_at"),
    key=["id"],
    references={"tenant_id": "organisations.id"},
    unique=[["tenant_id", "name"]],
)
_table(
    "segments",
    *_columns(TEXT, "id", "tenant_id"),
    *_columns(sa.Date(), "day"),
    *_columns(INTEGER, "rows", "size", "min_created_at", "max_created_at", "min_seq", "max_seq"),
    *_columns(sa.JSON(), "event_counts", "decision_counts"),
    *_columns(INTEGER, "seq_base", default="0"),
    *_columns(INTEGER, "schema_version", default="1"),
    *_columns(TEXT, "sha256", nullable=True),
    *_columns(INTEGER, "index_size", nullable=True),
    *_columns(TEXT, "index_sha256", nullable=True),
    *_columns(INTEGER, "index_version", nullable=True),
    *_columns(INTEGER, "sealed_at"),
    *_columns(INTEGER, "retired_at", "verified_at", nullable=True),
    *_columns(TEXT, "damage", nullable=True),
    key=["id"],
    references={"tenant_id": "organisations.id"},
)
_index("segments", "tenant_id", name="damaged_segments", where="damage IS NOT NULL")
_index("segments", "tenant_id", "retired_at", "day", "id", name="segments_by_day")
_table(
    "teams",
    *_columns(TEXT, "id", "tenant_id", "name"),
    *_columns(INTEGER, "created_at"),
    key=["id"],
    references={"tenant_id": "organisations.id"},
    unique=[["tenant_id", "name"]],
)
_table(
    "api_keys",
    *_columns(TEXT, "id", "tenant_id"),
    *_columns(TEXT, "project_id", nullable=True),
    *_columns(TEXT, "name", "secret_hash"),
    *_columns(sa.JSON(), "scopes", default=sa.text("'[]'")),
    *_columns(INTEGER, "created_at"),
    *_columns(INTEGER, "revoked_at", nullable=True),
    *_columns(TEXT, "created_by", nullable=True),
    *_columns(INTEGER, "last_used_at", "expires_at", nullable=True),
    *_columns(TEXT, "replaces", nullable=True),
    key=["id"],
    references={"project_id": "projects.id", "tenant_id": "organisations.id"},
    unique=[["secret_hash"]],
)
_table(
    "bindings",
    *_columns(TEXT, "id", "tenant_id"),
    *_columns(TEXT, "project_id", "team_id", nullable=True),
    *_columns(TEXT, "slot", "issuer"),
    *_columns(sa.String(1024), "sub_pattern"),
    *_columns(sa.String(32), "repository_id", nullable=True),
    *_columns(sa.JSON(), "event_names"),
    *_columns(TEXT, "origin", "added_by"),
    *_columns(INTEGER, "added_at"),
    *_columns(INTEGER, "revoked_at", nullable=True),
    *_columns(TEXT, "revoked_by", "revoked_reason", nullable=True),
    *_columns(INTEGER, "last_used_at", nullable=True),
    *_columns(INTEGER, "use_count"),
    key=["id"],
    references={
        "project_id": "projects.id",
        "team_id": "teams.id",
        "tenant_id": "organisations.id",
    },
)
_index("bindings", "tenant_id", name="active_by_tenant", where="revoked_at IS NULL")
_index("bindings", "repository_id", name="bindings_by_repository")
_index("bindings", "tenant_id", "added_at", "id", name="bindings_newest_first")
_index("bindings", "slot", name="one_active_per_slot", unique=True, where="revoked_at IS NULL")
_table(
    "passkeys",
    *_columns(TEXT, "id", "member_id", "name"),
    *_columns(sa.LargeBinary(), "public_key"),
    *_columns(sa.JSON(), "transports"),
    *_columns(INTEGER, "sign_count", "use_count", "added_at"),
    *_columns(INTEGER, "last_used_at", "removed_at", nullable=True),
    key=["id"],
    references={"member_id": "members.id"},
)
_index("passkeys", "member_id")
_table(
    "sessions",
    *_columns(TEXT, "id", "member_id", "token_hash"),
    *_columns(INTEGER, "created_at", "last_seen_at"),
    *_columns(INTEGER, "revoked_at", nullable=True),
    *_columns(TEXT, "source_ip", "user_agent", nullable=True),
    *_columns(INTEGER, "authenticated_at", nullable=True),
    key=["id"],
    references={"member_id": "members.id"},
    unique=[["token_hash"]],
)
_index("sessions", "member_id")
_table(
    "sign_in_links",
    *_columns(TEXT, "token_hash", "member_id"),
    *_columns(INTEGER, "expires_at"),
    *_columns(INTEGER, "used_at", nullable=True),
    key=["token_hash"],
    references={"member_id": "members.id"},
)
_table(
    "team_admins",
    *_columns(TEXT, "team_id", "member_id"),
    key=["team_id", "member_id"],
    references={"member_id": "members.id", "team_id": "teams.id"},
)
_table(
    "device_sign_ins",
    *_columns(TEXT, "device_code_hash", "user_code_hash"),
    *_columns(INTEGER, "created_at", "expires_at", "interval_s"),
    *_columns(INTEGER, "polled_at", nullable=True),
    *_columns(TEXT, "source_ip", "user_agent", "session_id", nullable=True),
    *_columns(INTEGER, "decided_at", "used_at", nullable=True),
    key=["device_code_hash"],
    references={"session_id": "sessions.id"},
    unique=[["user_code_hash"]],
)
_index("device_sign_ins", "expires_at")
_table(
    "install_tokens",
    *_columns(TEXT, "id", "tenant_id", "api_key_id", "token_hash", "binding_id", "issuer", "sub"),
    *_columns(TEXT, "repository_id", "event_name", "run_id", "token_id", nullable=True),
    *_columns(INTEGER, "created_at", "expires_at"),
    key=["id"],
    references={
        "api_key_id": "api_keys.id",
        "binding_id": "bindings.id",
        "tenant_id": "organisations.id",
    },
    unique=[["token_hash"]],
)
_index("install_tokens", "api_key_id", "expires_at", "token_id", name="install_tokens_of_key")
_index("install_tokens", "expires_at")
