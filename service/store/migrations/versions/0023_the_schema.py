"""The schema: organisations and members, bindings, policies, the journal and the catalog.

A database of 0023, which 23 steps made before the first release, has this schema. Its name stays.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("registry_url", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("published_at", sa.BigInteger(), nullable=True),
        sa.Column("served_at", sa.BigInteger(), nullable=False),
        sa.Column("offered_digest", sa.String(), nullable=True),
        sa.Column("offered_at", sa.BigInteger(), nullable=True),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "ecosystem", "registry_url", "package", "file_name", name=op.f("pk_artifacts")
        ),
    )
    op.create_index(op.f("ix_artifacts_accepted_at"), "artifacts", ["accepted_at"], unique=False)
    op.create_index(op.f("ix_artifacts_offered_at"), "artifacts", ["offered_at"], unique=False)
    op.create_index(op.f("ix_artifacts_served_at"), "artifacts", ["served_at"], unique=False)
    op.create_table(
        "blocklist_imports",
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("ids", sa.JSON(), nullable=False),
        sa.Column("imported_by", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("progress_at", sa.BigInteger(), nullable=False),
        sa.Column("switched_at", sa.BigInteger(), nullable=True),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("advisories", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        sa.Column("unreadable", sa.BigInteger(), nullable=False),
        sa.Column("feed", sa.String(), server_default="osv", nullable=False),
        sa.Column("contents", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("generation", name=op.f("pk_blocklist_imports")),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.create_table(
        "iceberg_namespace_properties",
        sa.Column("catalog_name", sa.String(length=255), nullable=False),
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("property_key", sa.String(length=255), nullable=False),
        sa.Column("property_value", sa.String(length=1000), nullable=True),
        sa.PrimaryKeyConstraint(
            "catalog_name",
            "namespace",
            "property_key",
            name=op.f("pk_iceberg_namespace_properties"),
        ),
    )
    op.create_table(
        "iceberg_tables",
        sa.Column("catalog_name", sa.String(length=255), nullable=False),
        sa.Column("table_namespace", sa.String(length=255), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("metadata_location", sa.String(length=1000), nullable=True),
        sa.Column("previous_metadata_location", sa.String(length=1000), nullable=True),
        sa.Column("iceberg_type", sa.String(length=5), nullable=True),
        sa.PrimaryKeyConstraint(
            "catalog_name", "table_namespace", "table_name", name=op.f("pk_iceberg_tables")
        ),
    )
    op.create_table(
        "install_marks",
        sa.Column("install", sa.String(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("install", name=op.f("pk_install_marks")),
    )
    op.create_index(
        op.f("ix_install_marks_recorded_at"), "install_marks", ["recorded_at"], unique=False
    )
    op.create_table(
        "lake_tables",
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("location", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=True),
        sa.Column("snapshots", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("complete_through_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("format", "tenant_id", name=op.f("pk_lake_tables")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "organisations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("role_overrides", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("held_since", sa.BigInteger(), nullable=True),
        sa.Column("held_reason", sa.String(), nullable=True),
        sa.Column("trust_revision", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organisations")),
        sa.UniqueConstraint("slug", name=op.f("uq_organisations_slug")),
    )
    op.create_table(
        "spent_sign_ins",
        sa.Column("id_hash", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id_hash", name=op.f("pk_spent_sign_ins")),
    )
    op.create_index(
        op.f("ix_spent_sign_ins_expires_at"), "spent_sign_ins", ["expires_at"], unique=False
    )
    op.create_table(
        "advisories",
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("advisory_id", sa.String(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("feed", sa.String(), server_default="osv", nullable=False),
        sa.ForeignKeyConstraint(
            ["generation"], ["blocklist_imports.generation"], name=op.f("fk_advisories_generation")
        ),
        sa.PrimaryKeyConstraint(
            "generation", "ecosystem", "package", "advisory_id", name=op.f("pk_advisories")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "allowed_domains",
        sa.Column("identity_provider", sa.String(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_allowed_domains_tenant_id")
        ),
        sa.PrimaryKeyConstraint(
            "identity_provider", "domain", "tenant_id", name=op.f("pk_allowed_domains")
        ),
    )
    op.create_table(
        "exports",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("actor_source", sa.String(), nullable=False),
        sa.Column("verdict_source", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("compression", sa.String(), nullable=True),
        sa.Column("is_raw", sa.Boolean(), nullable=False),
        sa.Column("filters", sa.JSON(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("retention_floor", sa.BigInteger(), nullable=True),
        sa.Column("watermark", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("progress_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_rows", sa.BigInteger(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("is_complete", sa.Boolean(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_exports_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index(
        "exports_newest_first", "exports", ["tenant_id", "started_at", "id"], unique=False
    )
    op.create_index(
        "exports_under_way",
        "exports",
        ["progress_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "former_tiers",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("left_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_former_tiers_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "tier", name=op.f("pk_former_tiers")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("credential", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_idempotency_keys_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "credential", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False
    )
    op.create_table(
        "imported_files",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("imported_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_imported_files_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", name=op.f("pk_imported_files")),
    )
    op.create_table(
        "journal",
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("min_created_at", sa.BigInteger(), nullable=True),
        sa.Column("max_created_at", sa.BigInteger(), nullable=True),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("damage", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_journal_tenant_id")
        ),
        sa.PrimaryKeyConstraint("first_seq", name=op.f("pk_journal")),
    )
    op.create_index(
        "damaged_batches",
        "journal",
        ["tenant_id"],
        unique=False,
        sqlite_where=sa.text("damage IS NOT NULL"),
        postgresql_where=sa.text("damage IS NOT NULL"),
    )
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows", "size"], unique=False)
    op.create_table(
        "lost_segments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("min_seq", sa.BigInteger(), nullable=False),
        sa.Column("max_seq", sa.BigInteger(), nullable=False),
        sa.Column("damage", sa.String(), nullable=False),
        sa.Column("lost_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_lost_segments_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lost_segments")),
    )
    op.create_table(
        "members",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("identity_provider", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.Column("identity_namespace", sa.String(), nullable=True),
        sa.Column("identity_subject", sa.String(), nullable=True),
        sa.Column("user_handle", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_members_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_members")),
    )
    op.create_index(
        "one_member_per_email",
        "members",
        ["tenant_id", "email"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(
        "one_member_per_identity",
        "members",
        ["identity_provider", "identity_namespace", "identity_subject", "tenant_id"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "misdated_days",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_misdated_days_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "day", name=op.f("pk_misdated_days")),
    )
    op.create_table(
        "policy_exceptions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_policy_exceptions_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_exceptions")),
    )
    op.create_index(
        "policy_exceptions_newest_first",
        "policy_exceptions",
        ["tenant_id", "state", "requested_at", "id"],
        unique=False,
    )
    op.create_table(
        "policy_revisions",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_policy_revisions_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "revision", name=op.f("pk_policy_revisions")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_projects_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_projects_tenant_id_name")),
    )
    op.create_table(
        "rejected_subjects",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("is_verified", sa.Boolean(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("sub", sa.String(), nullable=True),
        sa.Column("repository_id", sa.String(), nullable=True),
        sa.Column("event_name", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("last_request_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_rejected_subjects_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "digest", name=op.f("pk_rejected_subjects")),
    )
    op.create_index(
        "rejected_lately",
        "rejected_subjects",
        ["tenant_id", "is_verified", "last_at"],
        unique=False,
    )
    op.create_table(
        "saved_searches",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("query", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_saved_searches_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_searches")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_saved_searches_tenant_id_name")),
    )
    op.create_table(
        "segments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("min_created_at", sa.BigInteger(), nullable=False),
        sa.Column("max_created_at", sa.BigInteger(), nullable=False),
        sa.Column("min_seq", sa.BigInteger(), nullable=False),
        sa.Column("max_seq", sa.BigInteger(), nullable=False),
        sa.Column("event_counts", sa.JSON(), nullable=False),
        sa.Column("decision_counts", sa.JSON(), nullable=False),
        sa.Column("seq_base", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("schema_version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("index_size", sa.BigInteger(), nullable=True),
        sa.Column("index_sha256", sa.String(), nullable=True),
        sa.Column("index_version", sa.BigInteger(), nullable=True),
        sa.Column("sealed_at", sa.BigInteger(), nullable=False),
        sa.Column("retired_at", sa.BigInteger(), nullable=True),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("damage", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_segments_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segments")),
    )
    op.create_index(
        "damaged_segments",
        "segments",
        ["tenant_id"],
        unique=False,
        sqlite_where=sa.text("damage IS NOT NULL"),
        postgresql_where=sa.text("damage IS NOT NULL"),
    )
    op.create_index(
        "segments_by_day", "segments", ["tenant_id", "retired_at", "day", "id"], unique=False
    )
    op.create_table(
        "teams",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_teams_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_teams_tenant_id_name")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("replaces", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_api_keys_project_id")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_api_keys_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_api_keys_secret_hash")),
    )
    op.create_table(
        "bindings",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("sub_pattern", sa.String(length=1024), nullable=False),
        sa.Column("repository_id", sa.String(length=32), nullable=True),
        sa.Column("event_names", sa.JSON(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("added_by", sa.String(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(), nullable=True),
        sa.Column("revoked_reason", sa.String(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("use_count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_bindings_project_id")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_bindings_team_id")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_bindings_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bindings")),
    )
    op.create_index(
        "active_by_tenant",
        "bindings",
        ["tenant_id"],
        unique=False,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_index("bindings_by_repository", "bindings", ["repository_id"], unique=False)
    op.create_index(
        "bindings_newest_first", "bindings", ["tenant_id", "added_at", "id"], unique=False
    )
    op.create_index(
        "one_active_per_slot",
        "bindings",
        ["slot"],
        unique=True,
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_table(
        "passkeys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("transports", sa.JSON(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("use_count", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_passkeys_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
    )
    op.create_index(op.f("ix_passkeys_member_id"), "passkeys", ["member_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("source_ip", sa.String(), nullable=True),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("authenticated_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_sessions_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sessions_token_hash")),
    )
    op.create_index(op.f("ix_sessions_member_id"), "sessions", ["member_id"], unique=False)
    op.create_table(
        "sign_in_links",
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["member_id"], ["members.id"], name=op.f("fk_sign_in_links_member_id")
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sign_in_links")),
    )
    op.create_table(
        "team_admins",
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["member_id"], ["members.id"], name=op.f("fk_team_admins_member_id")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_admins_team_id")),
        sa.PrimaryKeyConstraint("team_id", "member_id", name=op.f("pk_team_admins")),
    )
    op.create_table(
        "device_sign_ins",
        sa.Column("device_code_hash", sa.String(), nullable=False),
        sa.Column("user_code_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("interval_s", sa.BigInteger(), nullable=False),
        sa.Column("polled_at", sa.BigInteger(), nullable=True),
        sa.Column("source_ip", sa.String(), nullable=True),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_device_sign_ins_session_id")
        ),
        sa.PrimaryKeyConstraint("device_code_hash", name=op.f("pk_device_sign_ins")),
        sa.UniqueConstraint("user_code_hash", name=op.f("uq_device_sign_ins_user_code_hash")),
    )
    op.create_index(
        op.f("ix_device_sign_ins_expires_at"), "device_sign_ins", ["expires_at"], unique=False
    )
    op.create_table(
        "install_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("binding_id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("sub", sa.String(), nullable=False),
        sa.Column("repository_id", sa.String(), nullable=True),
        sa.Column("event_name", sa.String(), nullable=True),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["api_key_id"], ["api_keys.id"], name=op.f("fk_install_tokens_api_key_id")
        ),
        sa.ForeignKeyConstraint(
            ["binding_id"], ["bindings.id"], name=op.f("fk_install_tokens_binding_id")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_install_tokens_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_install_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_install_tokens_token_hash")),
    )
    op.create_index(
        "install_tokens_of_key",
        "install_tokens",
        ["api_key_id", "expires_at", "token_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_install_tokens_expires_at"), "install_tokens", ["expires_at"], unique=False
    )
    op.bulk_insert(
        sa.table("counters", sa.column("name"), sa.column("value")),
        [{"name": "audit_seq", "value": 0}],
    )
