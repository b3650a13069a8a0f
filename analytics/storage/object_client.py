"""Clients of one bucket for `obstore`: their timeouts, and the errors of failed requests.

Credentials are those that AWS clients find: AWS_* variables, a web identity, or the machine's role.
No error of this module carries one, or a line of what the server answered.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.bucket_place import BucketPlace
from analytics.storage.segment_store import ObjectMissing

if TYPE_CHECKING:
    from obstore.store import S3Store

CHUNK_BYTES: Final = 8 * 2**20
"""What a download holds in memory."""

SLOW_BYTES_S: Final = 2**20
"""What an upload must get through each second on average, or it is given up."""

SLOW_DOWNLOAD_BYTES_S: Final = 64 * 2**10
"""The same for a download; less, because many may share a line. It ends one that only trickles."""

FAIL_FAST_S: Final = 1.0
"""How long requests fail at once after one did not reach the store: each would wait as long."""

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_NOT_SENT: Final = "error sending request"
"""Part of obstore's error text if no answer began."""

_STATUS: Final = re.compile(r"status code: (\d{3})")


class ObjectClients:
    """Clients for the objects at `place`, one for each length of wait."""

    def __init__(self, place: BucketPlace, endpoint: str, wait_s: float) -> None:
        """`endpoint` is the address of the S3 API, "" for that of AWS or AWS_ENDPOINT_URL."""
        self._place = place
        self._endpoint = endpoint
        self._wait_s = wait_s
        self._clients: dict[tuple[float, float], S3Store] = {}
        self._lock = Lock()
        self._unreachable_until = 0.0

    @contextmanager
    def open(self, key: str, upload_bytes: int = 0, download_bytes: int = 0) -> Iterator["S3Store"]:
        """A client for a request about `key`, which may transfer so much.

        A failed request is raised as a StoreFault that names the key; AlreadyExistsError and
        PreconditionError pass through.
        """
        from obstore import exceptions

        if time.monotonic() < self._unreachable_until:
            raise StoreUnreachable(f"{key}: the object store was not reachable a moment ago")
        try:
            yield self._client(upload_bytes, download_bytes)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            # Not ObjectMissing: callers would conclude that this one object does not exist.
            if "NoSuchBucket" in str(error):
                raise StoreUnreachable(f"{key}: the bucket does not exist") from None
            raise ObjectMissing(f"{key}: the object is missing") from None
        except exceptions.BaseError as error:
            # Not the text itself, nor as a cause: answers of servers repeat parts of the request.
            raise self._fault(key, str(error)) from None

    def _fault(self, key: str, text: str) -> StoreFault:
        status, code = _STATUS.search(text), _CODE.search(text)
        if status is None and _NOT_SENT in text:
            self._unreachable_until = time.monotonic() + FAIL_FAST_S
            return StoreUnreachable(f"{key}: the object store is not reachable")
        if status is None:
            return StoreUnreachable(
                f"{key}: the object store's answer broke off or is no S3 answer"
            )
        reason = f" ({code[1]})" if code else ""
        return StoreUnreachable(f"{key}: the object store answered {status[1]}{reason}")

    def _client(self, upload_bytes: int, download_bytes: int) -> "S3Store":
        """A client that waits long enough for so large a transfer, and no longer.

        It sees no progress of an upload, so that counts as one wait for an answer.
        """
        read_s, total_s = self._wait_s / 2, self._wait_s
        # In powers of two, so that few clients are made: each has connections of its own.
        while upload_bytes > CHUNK_BYTES and read_s * SLOW_BYTES_S < upload_bytes:
            read_s *= 2
        while total_s * SLOW_DOWNLOAD_BYTES_S < download_bytes:
            total_s *= 2
        waits = (read_s, max(total_s, 2 * read_s))
        with self._lock:
            if waits not in self._clients:
                self._clients[waits] = self._new_client(*waits)
            return self._clients[waits]

    def _new_client(self, read_s: float, total_s: float) -> "S3Store":
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        options: dict[str, Any] = {"endpoint": self._endpoint} if self._endpoint else {}
        if self._place.prefix:
            options["prefix"] = self._place.prefix
        half = timedelta(seconds=self._wait_s / 2)
        try:
            return S3Store(
                self._place.bucket,
                # The server compares what arrives with it, and refuses what was cut or changed.
                checksum_algorithm="SHA256",
                client_options={
                    "allow_http": True,
                    "connect_timeout": min(half, timedelta(seconds=5)),
                    "read_timeout": timedelta(seconds=read_s),
                    "timeout": timedelta(seconds=total_s),
                },
                retry_config={
                    "max_retries": 10,
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=50),
                        "max_backoff": timedelta(seconds=1),
                        "base": 2,
                    },
                    "retry_timeout": half,
                },
                **options,
            )
        except BaseError:
            raise StoreUnreachable("the AWS_* variables cannot be used") from None
