"""Which bucket, and what part of it, holds segments. Imports no library, for quick commands."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit


class InvalidPlace(ValueError):
    """A URL that does not name a bucket."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A bucket, and the prefix of our objects in it (no slash around it; "" for none)."""

    bucket: str
    prefix: str


def parse_place(url: str) -> BucketPlace:
    """The place that `s3://bucket/prefix` names. Raises InvalidPlace."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidPlace("must be s3://bucket/prefix") from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise InvalidPlace("must not have credentials in it: set AWS_ACCESS_KEY_ID and others")
    is_name = re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc)
    prefix = parts.path.strip("/")
    is_prefix = re.fullmatch(r"[A-Za-z0-9_.=/-]*", prefix) and not re.search(r"//|\.\.", prefix)
    if parts.scheme != "s3" or not is_name or not is_prefix or parts.query or parts.fragment:
        raise InvalidPlace("must be s3://bucket/prefix, in letters, digits and ._=-/")
    return BucketPlace(parts.netloc, prefix)
