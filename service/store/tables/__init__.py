"""All tables, with the invariants that the database itself enforces, in a module for each topic.

Importers name the package alone, which holds every table: migrations and `init` need them all.
"""

from service.store.tables.alerts import *
from service.store.tables.audit import *
from service.store.tables.base import *
from service.store.tables.bindings import *
from service.store.tables.evidence import *
from service.store.tables.keys import *
from service.store.tables.members import *
from service.store.tables.orgs import *
from service.store.tables.policy import *
from service.store.tables.streams import *
