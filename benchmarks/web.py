"""The page over HTTP: how long a script waits for 50 rows, with a minimal client."""

import json
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.answers import Answers, WrongAnswer
from benchmarks.client import Client
from benchmarks.engines import Served
from benchmarks.measuring import nearest, timed_ms
from benchmarks.workload import QUESTIONS, WEB_QUESTIONS, Page

ROWS: Final = 50
WARM: Final = 30
REQUESTS: Final = 300


def measure_web(engine: str, served: Served, answers: Answers) -> dict[str, Any]:
    """Each page's median and 99th percentile, after its entries were checked against ours."""
    figures = {}
    with Client(served.port, served.headers) as client:
        for page in QUESTIONS:
            if not isinstance(page, Page) or page.name not in WEB_QUESTIONS:
                continue
            target = f"{served.path}?{urlencode([*page.filters, ('limit', ROWS)])}"
            _check(engine, page, client, target, answers)
            times = _times(client, target)
            figures[page.name] = {
                "p50": nearest(times, 50),
                "p99": nearest(times, 99),
                "rounds": REQUESTS,
            }
    return figures


def _times(client: Client, target: str) -> list[float]:
    for _ in range(WARM):
        client.get(target)
    return sorted(timed_ms(lambda: client.get(target)) for _ in range(REQUESTS))


def _check(engine: str, page: Page, client: Client, target: str, answers: Answers) -> None:
    answer = client.get(target)
    if answer.status != 200:
        raise WrongAnswer(f"{engine}, {page.name} over HTTP: {answer.status}")
    given = json.loads(answer.body)["entries"]
    if answers.web.setdefault(page.name, given) != given:
        raise WrongAnswer(f"{engine}, {page.name} over HTTP: other entries than ours")
    if [entry["id"] for entry in given] != [
        f"aud_{row[0]:019}" for row in answers.rows[page.name][:ROWS]
    ]:
        raise WrongAnswer(f"{engine}, {page.name} over HTTP: other entries than in the process")
