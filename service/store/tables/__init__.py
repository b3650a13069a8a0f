"""All tables, with the invariants that the database itself enforces, in a module for each topic.

Importers name the package alone, which holds every table: migrations and `init` need them all.
The condition of a partial index is declared for SQLite alone: SQLAlchemy loads what supports a
database once that is named. Migrations give PostgreSQL the same one.
"""

from service.store.tables.audit import *
from service.store.tables.base import *
from service.store.tables.bindings import *
from service.store.tables.keys import *
from service.store.tables.lake_tables import *
from service.store.tables.members import *
from service.store.tables.orgs import *
from service.store.tables.policy import *
from service.store.tables.state import *
