"""A package index on loopback with three releases, for a demo on a machine without an upstream."""

import base64
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

HELLO: Final = "countersign-hello"
LOOK_ALIKE: Final = "acme-ledgr"
"""What the demo's install policy denies; see data/demo.toml."""

LOOK_ALIKE_VERSION: Final = "0.1.0"
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_MODE: Final = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release with its one file."""

    name: str
    version: str
    published_at: datetime
    body: bytes

    @property
    def filename(self) -> str:
        """Its name in the index (PEP 427)."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


def releases(now: datetime) -> list[Wheel]:
    """An old release and one in its cooldown, and an old one of a look-alike."""
    old, recent = now - timedelta(days=400), now - timedelta(hours=5)
    return [
        build_wheel(HELLO, "1.0.0", old),
        build_wheel(HELLO, "1.1.0", recent),
        build_wheel(LOOK_ALIKE, LOOK_ALIKE_VERSION, old),
    ]


def build_wheel(name: str, version: str, published_at: datetime) -> Wheel:
    """A pure Python wheel (PEP 427) whose module has its version."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": f'"""Installed through Countersign."""\n\n__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: countersign\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = _MODE
            archive.writestr(entry, text)
    return Wheel(name, version, published_at, packed.getvalue())


@contextmanager
def serve_registry(wheels: list[Wheel]) -> Iterator[str]:
    """The URL of an index (PEP 691) of `wheels`, in a thread while the context lasts."""
    answers = _answers(wheels)

    class IndexHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60.0

        def do_GET(self) -> None:
            content_type, body = answers.get(self.path, ("text/plain", b""))
            self.send_response(200 if body else 404)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            """Print nothing among the demo's own lines."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), IndexHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


def _answers(wheels: list[Wheel]) -> Mapping[str, tuple[str, bytes]]:
    """Content type and body by path."""
    files = {f"/files/{wheel.filename}": ("application/zip", wheel.body) for wheel in wheels}
    pages = {
        f"/simple/{name}/": (_JSON, _page(name, [wheel for wheel in wheels if wheel.name == name]))
        for name in {wheel.name for wheel in wheels}
    }
    return files | pages


def _page(name: str, wheels: list[Wheel]) -> bytes:
    files = [
        {
            "filename": wheel.filename,
            "url": f"/files/{wheel.filename}",
            "hashes": {"sha256": hashlib.sha256(wheel.body).hexdigest()},
            "size": len(wheel.body),
            "upload-time": wheel.published_at.isoformat(),
        }
        for wheel in wheels
    ]
    versions = [wheel.version for wheel in wheels]
    page = {"meta": {"api-version": "1.1"}, "name": name, "versions": versions, "files": files}
    return json.dumps(page).encode()


def _digest(text: str) -> str:
    """As RECORD has it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
