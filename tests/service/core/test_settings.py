"""Settings come from the environment, once; what cannot be meant is refused by name."""

from pathlib import Path

import pytest

from service.core.settings import PREFIX, InvalidSetting, Settings, load_settings


def load(**environment: str) -> Settings:
    return load_settings({PREFIX + name.upper(): value for name, value in environment.items()})


def test_without_variables_every_setting_has_its_default() -> None:
    assert load_settings({"PATH": "/bin"}) == Settings()


def test_values_are_read_as_what_they_are(tmp_path: Path) -> None:
    settings = load(
        port="9000",
        data_dir=str(tmp_path),
        seal_age_s="2.5",
        trusted_proxies="10.0.0.0/8, 192.0.2.1",
        binding_slot="tenant",
    )

    assert settings.port == 9000
    assert settings.data_dir == tmp_path
    assert settings.seal_age_s == 2.5
    assert settings.trusted_proxies == ("10.0.0.0/8", "192.0.2.1")
    assert settings.binding_slot == "tenant"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "eighty"),
        ("port", "70000"),
        ("seal_rows", "0"),
        ("seal_age_s", "-1"),
        ("prune_interval_s", "86401"),
        ("session_idle_s", "inf"),
        ("session_idle_s", "nan"),
        ("data_dir", "~unknown-user/data"),
        ("binding_slot", "team"),
        ("log_level", "loud"),
        ("port", "0"),
        ("base_url", "countersign.example"),
        ("trusted_proxies", "10.0.0.0/8,proxy.example"),
        ("admin_tokn", "secret-value"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=PREFIX + name.upper()) as refused:
        load(**{name: value})

    assert "secret-value" not in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_listening_everywhere_needs_a_base_url(host: str) -> None:
    """No browser calls the service by that name, so every form would come from a foreign origin."""
    with pytest.raises(InvalidSetting, match=PREFIX + "BASE_URL"):
        load(host=host)

    assert load(host=host, base_url="https://audit.example").host == host


def test_a_command_lines_option_is_held_to_the_same_rules() -> None:
    assert load_settings({PREFIX + "PORT": "1"}, port=9000).port == 9000
    with pytest.raises(InvalidSetting, match=PREFIX + "BASE_URL"):
        load_settings({}, host="0.0.0.0")  # noqa: S104


def test_an_empty_variable_counts_as_not_set() -> None:
    """Compose files and unit files often leave a variable empty."""
    assert load(port="", admin_token="") == Settings()


@pytest.mark.parametrize(
    ("given", "origin", "is_secure"),
    [
        ({}, "http://127.0.0.1:8080", False),
        ({"port": "9000"}, "http://127.0.0.1:9000", False),
        ({"host": "::1"}, "http://[::1]:8080", False),
        ({"base_url": "http://localhost:8080/"}, "http://localhost:8080", False),
        ({"base_url": "https://audit.example"}, "https://audit.example", True),
        ({"base_url": "http://audit.example"}, "http://audit.example", True),
    ],
)
def test_the_base_url_decides_the_own_origin_and_secure_cookies(
    given: dict[str, str], origin: str, is_secure: bool
) -> None:
    """Cookies lack `Secure` only on this machine itself."""
    settings = load(**given)

    assert settings.origin == origin
    assert settings.has_secure_cookies is is_secure


@pytest.mark.parametrize(
    ("base_url", "origin"),
    [
        ("https://Audit.Example", "https://audit.example"),
        ("https://audit.example:443/", "https://audit.example"),
        ("http://audit.example:80", "http://audit.example"),
        ("https://audit.example:8443", "https://audit.example:8443"),
    ],
)
def test_the_own_origin_is_written_as_browsers_write_it(base_url: str, origin: str) -> None:
    """Otherwise no form of the service would be accepted."""
    assert load(base_url=base_url).origin == origin


@pytest.mark.parametrize(
    "base_url",
    [
        "https://user:secret@x",
        "https://x/path",
        "https://x?q",
        "https://x#f",
        "http://[x",
        "https://",
    ],
)
def test_a_base_url_is_scheme_and_host_alone(base_url: str) -> None:
    with pytest.raises(InvalidSetting, match=PREFIX + "BASE_URL"):
        load(base_url=base_url)


@pytest.mark.parametrize("name", ["admin_token", "metrics_token"])
@pytest.mark.parametrize("token", ["tök\u0435n-of-at-least-32-characters-x", "line\nbreak" * 4])
def test_a_token_that_no_header_can_carry_is_refused(name: str, token: str) -> None:
    """Every request would be answered 401, and the reason would be in no log."""
    with pytest.raises(InvalidSetting, match=f"{PREFIX}{name.upper()} must be printable ASCII"):
        load(**{name: token})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"admin_token": "first, second, third"}, "ADMIN_TOKEN must be one token, or two"),
        ({"admin_token": f"{'a' * 40},b"}, "each of two tokens must have 16 characters or more"),
        ({"admin_token": "first", "admin_token_file": "/run/token"}, "ADMIN_TOKEN_FILE"),
    ],
)
def test_admin_tokens_are_at_most_two_from_one_place(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        load(**given)


def test_metrics_that_are_open_have_no_token() -> None:
    with pytest.raises(InvalidSetting, match="METRICS_OPEN"):
        load(metrics_token="m" * 32, metrics_open="1")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("SEGMENTS_URL", {"segments_url": "https://lake/prod"}),
        ("SEGMENTS_URL", {"segments_url": "s3://key:hidden@lake/prod"}),
        ("SEGMENTS_ENDPOINT", {"segments_endpoint": "http://127.0.0.1:8333"}),
        ("OBJECT_LOCK", {"object_lock": "compliance"}),
        (
            "SEGMENTS_ENDPOINT",
            {"segments_url": "s3://lake/prod", "segments_endpoint": "http://key:hidden@host"},
        ),
        (
            "SEGMENTS_ENDPOINT",
            {"segments_url": "s3://lake/prod", "segments_endpoint": "http://host/path"},
        ),
    ],
)
def test_segments_are_in_a_bucket_without_credentials_in_its_name(
    name: str, given: dict[str, str]
) -> None:
    """They come from AWS_* variables; a setting may be shown and logged."""
    environment = {PREFIX + key.upper(): value for key, value in given.items()}

    with pytest.raises(InvalidSetting, match=PREFIX + name) as refused:
        load_settings(environment)

    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "COUNTERSIGN_SEGMENTS_ENDPOINT",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT",
    ],
)
def test_a_bucket_on_another_machine_is_reached_by_https(name: str) -> None:
    bucket = {"COUNTERSIGN_SEGMENTS_URL": "s3://lake/prod"}
    for url in ("http://store.example:8333", "HTTP://10.0.0.7"):
        with pytest.raises(InvalidSetting, match=f"{name} must be https://") as refused:
            load_settings(bucket | {name: url})
        assert "SSL_CERT_FILE" in str(refused.value)
    for url in (
        "https://store.example",
        "http://127.0.0.1:8333",
        "http://localhost",
        "http://[::1]",
    ):
        load_settings(bucket | {name: url})
