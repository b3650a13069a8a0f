"""Makes documents of upstream registries of any size. No project in them exists."""

import hashlib
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from service.packages.proxy.origins import Origins

Json = dict[str, Any]

INDEX = "https://index.example"
FILES = "https://files.example"
ORIGINS = Origins({"pypi": FILES, "npm": INDEX})
PAGE_URL = f"{INDEX}/simple/some-project/"
FIRST_AT = datetime(2020, 1, 1, tzinfo=UTC)


def published_at(number: int) -> datetime:
    """When version `number` was published."""
    return FIRST_AT + timedelta(days=number, microseconds=number)


def simple_file(filename: str, number: int = 0, /, **changes: object) -> Json:
    """An object of PEP 691's `files`."""
    digest = hashlib.sha256(filename.encode()).hexdigest()
    file: Json = {
        "filename": filename,
        "url": f"{FILES}/packages/{digest[:2]}/{digest[2:4]}/{digest[4:]}/{filename}",
        "hashes": {"sha256": digest},
        "requires-python": ">=3.9,<4",
        "size": 1000 + number,
        "upload-time": published_at(number).isoformat().replace("+00:00", "Z"),
        "yanked": False,
        "core-metadata": {"sha256": digest[::-1]} if filename.endswith(".whl") else False,
        "data-dist-info-metadata": False,
        "provenance": None,
    }
    return {**file, **changes}


def simple_page(*files: Json, **changes: object) -> Json:
    """A page of the project `some-project` (PEP 691)."""
    page: Json = {
        "meta": {"api-version": "1.4", "_last-serial": 1},
        "name": "some-project",
        "versions": [],
        "files": list(files),
        "project-status": {"status": "active"},
        "alternate-locations": [],
    }
    return {**page, **changes}


def html_page(*files: Json, head: str = "", relative: bool = False) -> bytes:
    """The page of `files` in HTML, as old registries write it (PEP 503, 592, 658)."""
    links = []
    for file in files:
        url = file["url"].replace(f"{FILES}/", "../../") if relative else file["url"]
        attributes = ""
        if file["requires-python"] is not None:
            attributes += f' data-requires-python="{escape(file["requires-python"])}"'
        if file["yanked"] is not False:
            attributes += f' data-yanked="{escape(file["yanked"])}"'
        if file["core-metadata"]:
            digest = file["core-metadata"]["sha256"]
            attributes += f' data-dist-info-metadata="sha256={digest}"'
        url += f"#sha256={file['hashes']['sha256']}"
        links.append(f'    <a href="{url}"{attributes}>{file["filename"]}</a><br/>\n')
    return (
        f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{''.join(links)}</body></html>".encode()
    )


def package_version(version: str, name: str = "some-package", /, **changes: object) -> Json:
    """A version of a packument."""
    content = f"{name}@{version}".encode()
    bare = name.rpartition("/")[2]
    integrity = b64encode(hashlib.sha512(content).digest()).decode()
    described: Json = {
        "name": name,
        "version": version,
        "description": "A package that does not exist. " * 5,
        "main": "index.js",
        "scripts": {"test": "node test.js"},
        "license": "MIT",
        "dependencies": {"other-package": "^1.0.0", "third-package": "~2.3.4"},
        "devDependencies": {"test-package": "*"},
        "engines": {"node": ">=18"},
        "gitHead": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
        "_id": f"{name}@{version}",
        "_npmUser": {"name": "maker", "email": "maker@example.org"},
        "maintainers": [{"name": "maker", "email": "maker@example.org"}],
        "dist": {
            "integrity": f"sha512-{integrity}",
            "shasum": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
            "tarball": f"{INDEX}/{name}/-/{bare}-{version}.tgz",
            "fileCount": 12,
            "unpackedSize": 34567,
            "signatures": [{"keyid": "SHA256:key", "sig": "MEUCIQ" * 15}],
        },
    }
    return {**described, **changes}


def packument(*versions: Json, **changes: object) -> Json:
    """A full document; the versions are published a day apart, and `latest` is the last."""
    name = changes.get("name", "some-package")
    times = {"created": FIRST_AT.isoformat(), "modified": published_at(len(versions)).isoformat()}
    for number, version in enumerate(versions):
        times[version["version"]] = published_at(number).isoformat()
    document: Json = {
        "_id": name,
        "_rev": "1-abc",
        "name": name,
        "dist-tags": {"latest": versions[-1]["version"]} if versions else {},
        "versions": {version["version"]: version for version in versions},
        "time": times,
        "maintainers": [{"name": "maker", "email": "maker@example.org"}],
        "readme": "# Some package\n",
        "license": "MIT",
    }
    return {**document, **changes}


def encoded(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
