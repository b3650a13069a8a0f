"""The service keeps what its OpenAPI document promises, whatever it is sent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from tests.budgets import IS_FULL, budget
from tests.conftest import ADMIN_TOKEN
from tests.processes.homes import Home

pytestmark = pytest.mark.slow

PHASES = "examples,coverage,fuzzing,stateful" if IS_FULL else "examples,fuzzing"
"""What schemathesis tries; edges of every parameter and chains of requests take the longest."""


LEFT_OUT = "positive_data_acceptance,negative_data_rejection,use_after_free"


def test_every_answer_is_in_the_document(home: Home) -> None:
    """No 5xx, no undocumented status, header or type, no schema violation; bad input is refused.

    Every check of schemathesis is on but three. That valid requests are accepted is checked by
    `only_state_refuses_valid_requests`, and that others are refused by
    `invalid_requests_are_refused`, see hooks.py. That what was deleted is gone does not hold:
    DELETE revokes a binding, which stays readable with its history.
    """
    server = home.serve()
    run = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "run", f"{server.url}/openapi.json"),
            *("--header", f"x-service-admin-token: {ADMIN_TOKEN}"),
            *("--phases", PHASES),
            *("--checks", "all", "--exclude-checks", LEFT_OUT),
            *("--max-examples", str(budget(1, 30)), "--seed", "20261120", "--no-color"),
        ],
        env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.openapi.hooks"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    operations = sum(map(len, paths.values()))
    assert re.search(rf"Tested: {operations}\b", run.stdout), run.stdout
    assert "internal_error" not in server.logged()
