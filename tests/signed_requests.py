"""Requests to an S3 server that obstore does not offer, signed (AWS Signature Version 4)."""

import hashlib
import hmac
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit


def send_signed(
    method: str, url: str, key: tuple[str, str], region: str, body: bytes = b""
) -> bytes:
    """The body of the answer. `key` is an access key and its secret. Raises HTTPError."""
    parts, now = urlsplit(url), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    canonical = "\n".join([method, parts.path, parts.query, *lines, "", names, digest])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    signed = hashlib.sha256(canonical.encode()).hexdigest()
    secret = f"AWS4{key[1]}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{signed}"
    signature = hmac.new(secret, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={names},"
        f" Signature={signature}"
    )
    request = urllib.request.Request(url, body or None, headers, method=method)  # noqa: S310 - http, of a test
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return bytes(answer.read())
