"""`countersign` with segments in a bucket: whose prefix it is, and backups of it by version."""

import pytest

from tests.processes.command_line import invoke
from tests.seaweedfs import versioned


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
    """Commands on its own segments say so, too; all others run."""
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
    """The commands say how many objects it names, and of which bucket."""
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
