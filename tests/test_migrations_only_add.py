"""Migrations add to the schema: while nodes are upgraded in turn, the old ones use the new one."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from service.core.settings import REPOSITORY

VERSIONS: Final = REPOSITORY / "service" / "store" / "migrations" / "versions"

FILLED: Final = (
    "INSERT INTO advisory_names (name, ecosystem, package, advisory_id) SELECT DISTINCT"
    " CASE feed WHEN 'osv' THEN advisory_id ELSE substr(advisory_id, length(feed) + 2) END,"
    " ecosystem, package, advisory_id FROM advisories"
)
EXCEPTIONS: Final = {
    ("0024", "execute", FILLED): "fills the new table",
}
"""What a migration does besides adding, and why older programs go on working.

By revision, operation, and the name of its index or table.
"""


def operations(migration: Path) -> Iterator[ast.Call]:
    for node in ast.parse(migration.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "downgrade":
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("op."):
                yield call


def operation(call: ast.Call) -> str:
    """The name of the operation."""
    return ast.unparse(call.func).removeprefix("op.")


def subject(call: ast.Call) -> str:
    """The first argument if it is a text: the name of an index or a table."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) else ""


def keyword(call: ast.Call, name: str) -> object:
    """The constant that `call` passes as `name`; "?" for an expression, None without it."""
    for given in call.keywords:
        if given.arg == name:
            return given.value.value if isinstance(given.value, ast.Constant) else "?"
    return None


def only_adds(call: ast.Call, new_tables: set[str]) -> bool:
    """Whether programs that do not know of the change can go on reading and writing."""
    match operation(call):
        case "f" | "create_table":
            return True
        case "create_index":
            # Older programs do not check uniqueness before they write.
            is_of_new = isinstance(call.args[1], ast.Constant) and call.args[1].value in new_tables
            return is_of_new or not keyword(call, "unique")
        case "add_column":
            # Older programs insert rows without the column.
            column = call.args[1]
            assert isinstance(column, ast.Call)
            return (
                keyword(column, "nullable") is True or keyword(column, "server_default") is not None
            )
        case _:
            return False


def faults(migration: Path) -> set[tuple[str, str, str]]:
    """The operations of `migration` that do more than add."""
    calls = list(operations(migration))
    new_tables = {subject(call) for call in calls if operation(call) == "create_table"}
    return {
        (migration.name[:4], operation(call), subject(call))
        for call in calls
        if not only_adds(call, new_tables)
    }


def test_migrations_only_add() -> None:
    """Otherwise nodes that are not upgraded yet would fail, or lose what they write."""
    migrations = sorted(VERSIONS.glob("[0-9]*.py"))

    assert migrations
    assert set().union(*map(faults, migrations)) == set(EXCEPTIONS)


def test_each_change_that_breaks_older_programs_is_named(tmp_path: Path) -> None:
    migration = tmp_path / "0099_example.py"
    migration.write_text(
        "def upgrade():\n"
        "    op.create_table('fresh', sa.Column('id', sa.String()))\n"
        "    op.create_index('unique_of_fresh', 'fresh', ['id'], unique=True)\n"
        "    op.create_index('plain', 'members', ['email'])\n"
        "    op.create_index('unique', 'members', ['email'], unique=True)\n"
        "    op.add_column('may_miss', sa.Column('x', sa.String(), nullable=True))\n"
        "    op.add_column('has_default', sa.Column('x', sa.String(), server_default='0'))\n"
        "    op.add_column('must_give', sa.Column('x', sa.String(), nullable=False))\n"
        "    op.alter_column('members', 'email', new_column_name='address')\n"
        "    op.execute('UPDATE members SET role = 1')\n"
        "def downgrade():\n"
        "    op.drop_table('fresh')\n"
    )

    assert faults(migration) == {
        ("0099", "create_index", "unique"),
        ("0099", "add_column", "must_give"),
        ("0099", "alter_column", "members"),
        ("0099", "execute", "UPDATE members SET role = 1"),
    }
