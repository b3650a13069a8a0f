"""Registries are configured by URL; what their pages name is judged by origin."""

from base64 import b64decode

import pytest

from service.core.origins import InvalidOrigin, WebOrigin, parse_origin, parse_registry
from service.core.settings import PREFIX, InvalidSetting, load_settings


def test_credentials_leave_the_url_and_are_shown_nowhere() -> None:
    """The URL goes into logs and errors."""
    registry = parse_registry("https://ci%40acme:p%3Aw@packages.example:443/simple")

    assert registry.url == "https://packages.example/simple/"
    assert registry.authorization is not None
    assert b64decode(registry.authorization.removeprefix("Basic ")) == b"ci@acme:p:w"
    assert "ci" not in str(registry)
    assert registry.authorization not in repr(registry)


def test_without_credentials_there_is_no_header() -> None:
    assert parse_registry("https://packages.example").authorization is None
    assert parse_registry("https://:token@packages.example").authorization == "Basic OnRva2Vu"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Files.Example", WebOrigin("https", "files.example", 443)),
        ("http://files.example:80/", WebOrigin("http", "files.example", 80)),
        ("http://[::1]:8081", WebOrigin("http", "::1", 8081)),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: WebOrigin) -> None:
    assert parse_origin(url) == origin
    assert parse_origin(str(origin)) == origin


def test_files_come_from_the_own_and_the_configured_origins_only() -> None:
    registry = parse_registry("https://packages.example/simple/", ("https://files.example",))

    assert registry.allows(WebOrigin("https", "packages.example", 443))
    assert registry.allows(WebOrigin("https", "files.example", 443))
    assert not registry.allows(WebOrigin("http", "files.example", 80))
    assert not registry.allows(WebOrigin("https", "files.example", 8443))


@pytest.mark.parametrize(
    "url",
    [
        "packages.example/simple",
        "ftp://packages.example",
        "https://",
        "https://packages.example/simple?x=secret",
        "https://packages.example/simple#secret",
        "https://packages.example/../secret",
        "https://packages.example:99999/secret",
        "https://[secret",
        "https://pack ages.example/secret",
        "https://user:secret\t@packages.example",
        "https:\\\\packages.example\\secret",
    ],
)
def test_a_url_that_cannot_be_a_registry_is_refused_without_repeating_it(url: str) -> None:
    """A misspelt URL may hold a password."""
    with pytest.raises(InvalidSetting, match=PREFIX + "PROXY_NPM_UPSTREAM") as refused:
        load_settings({PREFIX + "PROXY_NPM_UPSTREAM": url})

    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidOrigin):
        parse_registry(url)


@pytest.mark.parametrize("url", ["https://files.example/path", "https://user:secret@files.example"])
def test_a_file_origin_has_no_path_and_no_credentials(url: str) -> None:
    """A rule about paths would not be kept: origins are compared."""
    with pytest.raises(InvalidSetting, match=PREFIX + "PROXY_PYPI_FILE_ORIGINS") as refused:
        load_settings({PREFIX + "PROXY_PYPI_FILE_ORIGINS": f"https://a.example, {url}"})

    assert "secret" not in str(refused.value)


def test_an_ecosystem_without_an_upstream_is_off() -> None:
    """No public registry is a default: the operator says what is fetched from where."""
    settings = load_settings({PREFIX + "PROXY_PYPI_UPSTREAM": "https://packages.example/simple"})

    assert settings.package_registry("pypi") == parse_registry("https://packages.example/simple/")
    assert settings.package_registry("npm") is None
