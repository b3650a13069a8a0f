"""Requests and documents at the limits of size, made to take as long as they can."""

import base64
import gzip
import json
from typing import Final

from benchmarks.large_org import ISSUER

_TOKEN_BYTES: Final = 11_500
"""Of claims, in a token of 16 KiB."""

_INGEST_BYTES: Final = 5_000_000
_BODY_BYTES: Final = 65_000


def _nested(length: int) -> str:
    return "[" * (length // 2) + "]" * (length // 2)


def _objects(length: int) -> str:
    return "[" + ",".join(["{}"] * (length // 3)) + "]"


def _members(length: int) -> str:
    return "{" + ",".join(f'"k{number}":1' for number in range(length // 16)) + "}"


def _repeated(length: int) -> str:
    return "{" + ",".join(['"k":1'] * (length // 6)) + "}"


def _digits(length: int) -> str:
    return "9" * length


def _escapes(length: int) -> str:
    return '"' + "\\u00e9" * (length // 6) + '"'


VALUES: Final = {
    "nested": _nested,
    "objects": _objects,
    "members": _members,
    "repeated": _repeated,
    "digits": _digits,
    "escapes": _escapes,
}
"""JSON values of about so many bytes."""


def tokens() -> list[str]:
    """CI tokens whose claims are such values, without a signature that anyone made."""
    claims = [f'{{"iss":"{ISSUER}","sub":{value(_TOKEN_BYTES)}}}' for value in VALUES.values()]
    header = _part('{"alg":"RS256","kid":"1"}')
    return [".".join((header, _part(each), "A" * 342)) for each in claims]


def ingest_bodies() -> list[bytes]:
    """Rows with such values, and 1,000 rows of the greatest length; compressed."""
    start = '[{"event":"install_allowed","packageName":"p","extra":'
    bodies = [f"{start}{value(_INGEST_BYTES - 100)}}}]" for value in VALUES.values()]
    row = {"event": "install_allowed", "packageName": f"@scope/{'é' * 2_400}"}
    bodies += [json.dumps([row] * 1_000, ensure_ascii=False), "[" + "{}," * 1_600_000 + "{}]"]
    return [gzip.compress(body.encode(), 1) for body in bodies]


def json_bodies() -> list[str]:
    """Objects with such values."""
    return [f'{{"claims":{{"sub":{value(_BODY_BYTES - 100)}}}}}' for value in VALUES.values()]


def forms() -> list[str]:
    """Fields of HTML forms: many, long, and escaped."""
    return ["a=&" * (_BODY_BYTES // 3), f"a={'+' * _BODY_BYTES}", f"a={'%C3%A9' * 10_000}"]


def multipart_forms() -> list[str]:
    """Forms with the boundary `b` of many parts, of many headers, and of what may be a boundary."""
    part = '--b\r\ncontent-disposition: form-data; name="a"\r\n'
    end = "\r\n\r\n--b--\r\n"
    return [
        f"{part}\r\n\r\n" * 900 + end,
        part + "x: y\r\n" * 10_000 + end,
        part + "\r\n" + "\r\n--" * 15_000 + end,
    ]


def npm_document(name: str) -> bytes:
    """The npm document called `hostile-KIND-BYTES`, with such a value in it."""
    _, kind, size = name.split("-")
    start = f'{{"name":"{name}","dist-tags":{{}},"versions":{{}},"extra":'
    return f"{start}{VALUES[kind](int(size) - len(start))}}}".encode()


def pypi_page(name: str) -> bytes:
    """The page of the Python project called `hostile-TEXT-BYTES`, of such tags."""
    _, tag, size = name.split("-")
    return f"<{tag}>".encode() * (int(size) // (len(tag) + 2))


def _part(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
