"""`countersign` with segments in a bucket: whose prefix it is, and backups of it by version."""

import threading
from collections.abc import Callable

import pytest

from tests.budgets import only_full
from tests.interpreters import start_module
from tests.processes.command_line import invoke
from tests.processes.homes import CLI, DEADLINE_S
from tests.seaweedfs import locking, versioned
from tests.store_proxy import Answer, Request, store_proxy


@pytest.fixture
def variables(tmp_path, bucket):
    """Of an installation that has been founded over the test's prefix."""

    def of(name: str) -> dict[str, str]:
        return bucket.server.environment | {
            "COUNTERSIGN_DATA_DIR": str(tmp_path / name),
            "COUNTERSIGN_SEGMENTS_URL": bucket.url,
            "COUNTERSIGN_SEGMENTS_ENDPOINT": bucket.server.endpoint,
            "COUNTERSIGN_SEGMENTS_WAIT_S": "4",
        }

    assert invoke(["init"], of("first")).code == 0
    return of


@pytest.mark.sqlite_only(reason="a database for each data dir")
def test_a_second_installation_is_refused_until_it_takes_the_prefix_over(variables, bucket):
    first, second = variables("first"), variables("second")

    refused = invoke(["init"], second)
    assert refused.code == 1
    assert f"{bucket.url} belongs to another installation" in refused.refusal
    for command in (["audit", "check"], ["audit", "upload"], ["backup", "/nowhere/b"]):
        assert invoke(command, second).refusal == refused.refusal
    assert invoke(["org", "list"], second).code == 0

    taken = invoke(["audit", "take-over", "--yes", "--json"], second)
    assert taken.code == 0
    assert taken.json["prefix"] == bucket.url
    assert invoke(["audit", "check"], second).code == 0
    assert taken.json["installation"] in invoke(["audit", "check"], first).refusal


def test_there_is_nothing_to_take_over_in_a_folder(variables):
    given = {name: value for name, value in variables("first").items() if "SEGMENTS" not in name}

    assert "there is no bucket" in invoke(["audit", "take-over", "--yes"], given).refusal


@pytest.mark.sqlite_only(reason="restores to another data dir")
def test_a_backup_by_version_is_taken_checked_and_restored(variables, bucket, tmp_path):
    place = versioned(bucket)
    given = variables("first") | {"COUNTERSIGN_SEGMENTS_URL": place.url}
    target = str(tmp_path / "backup")
    assert invoke(["org", "add", "acme", "--tier", "org"], given).code == 0
    assert invoke(["audit", "seal"], given).code == 0

    taken = invoke(["backup", "--by-version", "--json", target], given).json
    assert (taken["objects"], taken["place"]) == (len(place.list_keys()), place.url)
    assert taken["objects"] > 0
    checked = invoke(["restore", "--check", target], given)
    assert checked.code == 0
    assert f"{taken['objects']} objects by version" in checked.out
    assert "no findings" in checked.out

    lost = given | {"COUNTERSIGN_DATA_DIR": str(tmp_path / "second")}
    assert "use --take-over" in invoke(["restore", target], lost).refusal
    assert invoke(["restore", "--take-over", target], lost).code == 0
    assert invoke(["audit", "check"], lost).code == 0


def test_a_backup_is_either_linked_or_by_version(variables):
    ran = invoke(["backup", "--link", "--by-version", "x"], variables("first"))

    assert ran.code == 2
    assert "--link or --by-version" in ran.err


class Holding:
    """Answers, and from the request `number` of `method` on does not."""

    def __init__(self, method: str, number: int) -> None:
        self._method = method
        self._left = number
        self._lock = threading.Lock()
        self.is_holding = threading.Event()

    def __call__(self, request: Request, ask: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._left -= request.method == self._method
            if self._left <= 0:
                self.is_holding.set()
        if self.is_holding.is_set():
            threading.Event().wait(DEADLINE_S)
        return ask()


def kill_midway(arguments: list[str], given: dict[str, str], method: str, number: int) -> None:
    """Run a command whose request `number` of `method` has no answer, and kill it there."""
    with store_proxy(given["COUNTERSIGN_SEGMENTS_ENDPOINT"]) as proxy:
        holding = Holding(method, number)
        proxy.fault = holding
        own = {"COUNTERSIGN_SEGMENTS_ENDPOINT": proxy.endpoint, "COUNTERSIGN_SEGMENTS_WAIT_S": "60"}
        process = start_module(CLI, *arguments, env=given | own)
        assert holding.is_holding.wait(DEADLINE_S)
        process.kill()
        process.wait(DEADLINE_S)


@pytest.mark.slow
@pytest.mark.sqlite_only(reason="restores to another data dir")
@pytest.mark.parametrize(
    "number",
    [pytest.param(1, marks=only_full), 2, *(pytest.param(n, marks=only_full) for n in (3, 4))],
)
def test_a_backup_by_version_or_its_restore_that_is_killed_is_repeated(
    variables, bucket, tmp_path, number
):
    place = versioned(bucket)
    given = variables("first") | {"COUNTERSIGN_SEGMENTS_URL": place.url}
    for slug in ("acme", "bolt", "cork"):
        assert invoke(["org", "add", slug, "--tier", "org"], given).code == 0
    assert invoke(["audit", "seal"], given).code == 0
    contents = {key: place.content(key) for key in place.list_keys()}
    target, restored = tmp_path / "backup", tmp_path / "second"

    kill_midway(["backup", "--by-version", str(target)], given, "HEAD", number)
    assert not target.exists()
    assert invoke(["backup", "--by-version", str(target)], given).code == 0

    place.objects().delete(sorted(contents))
    lost = given | {"COUNTERSIGN_DATA_DIR": str(restored)}
    kill_midway(["restore", "--take-over", str(target)], lost, "PUT", number)
    assert not restored.exists()
    assert invoke(["restore", "--take-over", str(target)], lost).code == 0
    assert {key: place.content(key) for key in place.list_keys()} == contents
    assert invoke(["audit", "check"], lost).code == 0


def test_a_probe_of_object_locks_says_what_was_possible(variables, bucket):
    """Those of mode governance can be ended with the tests' credentials, an administrator's."""
    given = variables("first") | {"COUNTERSIGN_SEGMENTS_URL": locking(bucket).url}
    assert "COUNTERSIGN_OBJECT_LOCK is off" in invoke(["audit", "lock-probe"], given).refusal

    given["COUNTERSIGN_OBJECT_LOCK"] = "compliance"
    held = invoke(["audit", "lock-probe"], given)
    assert held.code == 0
    assert held.out.count("held: ") == 3
    assert "Object lock (compliance), probed at " in invoke(["audit", "stats"], given).out

    given["COUNTERSIGN_OBJECT_LOCK"] = "governance"
    broken = invoke(["audit", "lock-probe"], given)
    assert broken.code == 1
    assert "BROKEN: delete the version with the right to bypass governance" in broken.out
    found = invoke(["audit", "lock-probe", "--json"], given)
    assert (found.code, found.json["is_held"]) == (1, False)
    assert found.json["attempts"] == {"delete": True, "shorten": True, "bypass": False}
    stats = invoke(["audit", "stats", "--json"], given).json["object_lock"]
    assert stats == found.json
    lines = invoke(["audit", "stats"], given).out
    assert "Object lock (governance)" in lines
    assert "BROKEN (bypass)" in lines


def test_a_bucket_without_object_lock_is_refused_with_the_setting(variables):
    given = variables("first") | {"COUNTERSIGN_OBJECT_LOCK": "compliance"}

    refused = invoke(["init"], given)

    assert refused.code == 1
    assert "was created without object lock: create another bucket" in refused.refusal
