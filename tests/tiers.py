"""Which tier of the tests runs; apart from `tests.budgets`, so that processes need no pytest."""

import os
from typing import Final

IS_FULL: Final = os.environ.get("TESTS") == "all"
"""True with `make test-all`."""
