"""Secrets that are none are refused: a signature under an empty key proves nothing."""

import pytest

from service.app.bootstrap import prepare
from service.core.secrets import current_admin_token, with_secrets
from service.core.settings import InvalidSetting, Settings


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"\xff" * 40])
@pytest.mark.parametrize("name", ["secret_key", "admin_token", "metrics_token"])
def test_a_file_that_holds_no_secret_is_refused_by_name(tmp_path, name, content):
    """A full disk or a slip of the hand can empty a file."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidSetting, match=name):
        with_secrets(Settings(data_dir=tmp_path))


def test_missing_secrets_are_made_once_and_kept_to_the_owner(tmp_path):
    first = with_secrets(Settings(data_dir=tmp_path))
    second = with_secrets(Settings(data_dir=tmp_path))

    assert first == second
    assert len(first.secret_key) >= 32
    assert first.secret_key != current_admin_token(first)
    for name in ("secret_key", "admin_token", "metrics_token"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_secret_survives_a_power_loss(tmp_path, file_steps):
    """What was signed with it must stay so: its name is synced before it is used."""
    with_secrets(Settings(data_dir=tmp_path, admin_token="t", metrics_open=True))

    named = file_steps.index("link", tmp_path / "secret_key")
    assert ("fsync", tmp_path) in file_steps.steps[named:]


def test_secrets_of_the_environment_are_used_as_they_are(tmp_path):
    given = Settings(data_dir=tmp_path, secret_key="k" * 32, admin_token="t", metrics_token="m")

    assert with_secrets(given) == given
    assert list(tmp_path.iterdir()) == []


def test_open_metrics_need_no_token(tmp_path):
    with_secrets(Settings(data_dir=tmp_path, metrics_open=True))

    assert not (tmp_path / "metrics_token").exists()


async def test_what_the_service_makes_in_an_open_folder_is_for_its_owner_alone(tmp_path):
    """The data dir may have been made readable for everyone."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(0o755)

    await prepare(Settings(data_dir=data_dir))

    rights = {path.name: path.stat().st_mode & 0o077 for path in data_dir.iterdir()}
    assert {"audit", "tmp", "countersign.db"} <= rights.keys()
    assert {name: mode for name, mode in rights.items() if mode} == {}
