"""Every refusal: its status, the field it is about, and its exact text, in a module for each topic.

Importers name the package alone: `from service.core.errors import Forbidden`. Refusals of commands
are in `service.audit.backup.refusals` and `service.cli`.
"""

from service.core.errors.access import *
from service.core.errors.audit import *
from service.core.errors.base import *
from service.core.errors.bindings import *
from service.core.errors.orgs import *
from service.core.errors.policy import *
from service.core.errors.proxy import *
from service.core.errors.requests import *
from service.core.errors.sign_in import *
from service.core.errors.storage import *
