"""A time-stamping authority (RFC 3161) signs the time of a checkpoint, and openssl verifies it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.evidence.logs import Log
from tests.polling import HANG_S

pytestmark = pytest.mark.slow

LOG = Log(300)
AUTHORITY = """\
[tsa]
default_tsa = this
[this]
serial = {folder}/serial
crypto_device = builtin
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ordering = yes
tsa_name = no
ess_cert_id_chain = no
[extensions]
extendedKeyUsage = critical,timeStamping
[req]
distinguished_name = name
[name]
"""


class Authority:
    """A time-stamping authority with a certificate of its own, made by openssl."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "serial").write_text("01\n")
        (folder / "tsa.cnf").write_text(AUTHORITY.format(folder=folder))
        new = "req -x509 -newkey rsa:2048 -nodes -subj /CN=TSA -days 30 -extensions extensions"
        self.run(f"{new} -keyout tsa.key -out tsa.pem -config tsa.cnf")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["openssl", *command.split()],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=not command.startswith("ts -verify"),
        )

    def stamp(self, content: str) -> None:
        (self._folder / "checkpoint.txt").write_text(content)
        self.run("ts -query -data checkpoint.txt -sha256 -cert -out asked")
        self.run("ts -reply -config tsa.cnf -queryfile asked -out stamp.tsr")

    def accepts(self, content: str) -> bool:
        (self._folder / "given.txt").write_text(content)
        ran = self.run("ts -verify -in stamp.tsr -data given.txt -CAfile tsa.pem")
        assert ("Verification: OK" in ran.stdout) == (ran.returncode == 0), ran
        return ran.returncode == 0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    return Authority(tmp_path)


def test_a_stamp_is_of_one_checkpoint(authority: Authority) -> None:
    authority.stamp(str(LOG.checkpoint()))
    assert authority.accepts(str(LOG.checkpoint()))
    assert not authority.accepts(str(LOG.checkpoint(299)))
