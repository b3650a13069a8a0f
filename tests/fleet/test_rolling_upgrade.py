"""A rolling upgrade: the schema of the next version is there while nodes of this one serve."""

import pytest

from service.store.migrate import NEWER_DATABASE
from tests.budgets import only_full
from tests.fleet.fleet import Fleet
from tests.fleet.ledger import Writer, fleet_client
from tests.postgres import PostgresServer
from tests.processes.homes import all_bindings, all_entries, eventually

pytestmark = [only_full, pytest.mark.slow]

NEXT_SCHEMA = (
    "ALTER TABLE bindings ADD COLUMN note VARCHAR",
    "ALTER TABLE journal ADD COLUMN checksum BYTEA",
    "ALTER TABLE segments ADD COLUMN sealed_by VARCHAR",
    "ALTER TABLE organisations ADD COLUMN region VARCHAR",
    "CREATE TABLE notes (id VARCHAR PRIMARY KEY, text VARCHAR NOT NULL)",
    "CREATE INDEX journal_checksum ON journal (checksum)",
    "UPDATE alembic_version SET version_num = '9999'",
)
"""What a next version may do to tables in use: it adds."""


def upgrade(postgres: PostgresServer, database: str) -> None:
    """As the first node of the next version does it, in one transaction."""
    with postgres.connect(database) as connection, connection.transaction():
        for statement in NEXT_SCHEMA:
            connection.execute(statement)


def test_nodes_of_this_version_serve_while_the_next_one_arrives(fleet: Fleet) -> None:
    writers = [Writer(f"writer-{number}", fleet.url) for number in range(2)]
    for writer in writers:
        writer.start()
    eventually(lambda: all(len(writer.rows) > 100 for writer in writers), "rows before")

    upgrade(fleet.postgres, fleet.database)

    before = [len(writer.rows) for writer in writers]
    eventually(
        lambda: all(
            len(writer.rows) > count + 200 for writer, count in zip(writers, before, strict=True)
        ),
        "rows afterwards",
    )
    for writer in writers:
        writer.stop()
        assert set(writer.answers) <= {200, 201}
    for node in fleet.nodes:
        with fleet_client(f"http://127.0.0.1:{node.port}") as client:
            rows = [row for row in all_entries(client, limit="1000") if row["packageName"]]
            assert len(rows) == sum(len(writer.rows) for writer in writers)
            assert len(all_bindings(client)) == sum(len(writer.bindings) for writer in writers)
    late = fleet.nodes[0].home.run("serve")
    assert late.code != 0
    assert NEWER_DATABASE.text in late.err
