"""Failures of the storage that tables are in, reported without a server's answer."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from analytics.open_table.table_format import TableFormat

_REASONS: Final = (
    re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>"),
    re.compile(r"AWS Error ([A-Z_]{1,60})"),
    re.compile(r"[Ss]tatus(?: code)?:? (\d{3})"),
)
"""What may be repeated of an answer: a code, by which it can be looked up."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class StorageFailed(OSError):
    """A failure in our own words, which contain nothing of an answer."""


_Table = TypeVar("_Table", bound=TableFormat)


def reports_codes_only(
    method: Callable[Concatenate[_Table, _Parameters], _Result],
) -> Callable[Concatenate[_Table, _Parameters], _Result]:
    """`method` of a table, within `storage_faults`."""

    @wraps(method)
    def guarded(
        table: _Table, /, *arguments: _Parameters.args, **named: _Parameters.kwargs
    ) -> _Result:
        with storage_faults(table.location, *table.library_errors):
            return method(table, *arguments, **named)

    return guarded


@contextmanager
def storage_faults(location: str, *libraries: type[Exception]) -> Iterator[None]:
    """Raise OSError for an error of the store or of `libraries`.

    Answers of S3 servers can repeat the access key, and libraries repeat answers: only a code is
    taken from them. Errors of this machine's files stay as they are.
    """
    try:
        yield
    except Exception as error:
        is_own = isinstance(error, StorageFailed) or getattr(error, "errno", None)
        if is_own or not isinstance(error, (OSError, *libraries)):
            raise
        raise StorageFailed(f"the storage of {location} failed: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    said = str(error)
    found = (reason.search(said) for reason in _REASONS)
    return next((match[1] for match in found if match), type(error).__name__)
