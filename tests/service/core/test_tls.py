"""Which servers' certificates the service trusts."""

import ssl

from service.core.http_client import client_tls


def test_names_and_certificates_are_checked():
    assert client_tls().verify_mode is ssl.CERT_REQUIRED
    assert client_tls().check_hostname
    assert client_tls().get_ca_certs()


def test_the_environment_names_the_authorities(monkeypatch, tmp_path):
    """An empty folder vouches for no server."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))

    assert client_tls.__wrapped__().get_ca_certs() == []
