"""Summaries of the audit log, within the organisation's retention."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from analytics.model.filters import InvalidQuery, Query, only, parse_query
from analytics.model.instants import format_us, optional_us
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts
from service.audit.lake import Lake
from service.audit.tenant_log import open_log
from service.core.errors import Invalid
from service.store.store import Store
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Which rows to summarise, and the length of a bucket."""

    query: Query
    bucket: Bucket


def parse_summary_request(parameters: Mapping[str, list[str]]) -> SummaryRequest:
    """The summary in the query parameters. Raises Invalid naming the parameter."""
    filters = {name: values for name, values in parameters.items() if name != "bucket"}
    query = parse_query(filters, has_order=False)
    try:
        text = only(parameters, "bucket")
    except InvalidQuery as error:
        raise Invalid(str(error), field=error.field) from error
    if text not in {None, *Bucket}:
        raise Invalid(f"bucket must be one of {', '.join(Bucket)}", field="bucket")
    return SummaryRequest(query, Bucket(text or Bucket.DAY))


async def summarise_audit(
    store: Store, lake: Lake, org: Organisation, wanted: SummaryRequest, now: datetime
) -> dict[str, Any]:
    """The summary in the API's representation. Raises TooManyBuckets, StoreFault."""
    log = await open_log(store, lake, org, now)
    summary = await log.summary(wanted.query, wanted.bucket)
    return {
        "org": org.slug,
        "bucket": wanted.bucket,
        "retention_floor": optional_us(log.floor),
        "total": summary.total,
        "buckets": [_bucket_form(bucket) for bucket in summary.buckets],
        "top": summary.top,
    }


# The same days and hours are asked for again and again: to format one takes as long as all else.
_start_form: Final = lru_cache(maxsize=4_096)(format_us)


def _bucket_form(bucket: BucketCounts) -> dict[str, Any]:
    return {
        "start": _start_form(bucket.start),
        "ALLOWED": bucket.allowed,
        "BLOCKED": bucket.blocked,
        "other": bucket.other,
    }
