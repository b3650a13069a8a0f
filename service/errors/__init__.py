"""Every refusal: its status, the field it is about, and its exact text, in a module for each topic.

Importers name the package alone: `from service.errors import Forbidden`. Refusals of commands
are in `service.backup.refusals` and `service.cli`.
"""

from service.errors.access import *
from service.errors.audit import *
from service.errors.base import *
from service.errors.bindings import *
from service.errors.orgs import *
from service.errors.policy import *
from service.errors.proxy import *
from service.errors.requests import *
from service.errors.sign_in import *
from service.errors.storage import *
