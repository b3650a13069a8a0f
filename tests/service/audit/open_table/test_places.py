"""Where tables and files are, on a disk and in a bucket."""

from dataclasses import replace
from datetime import date

import pytest

from analytics.open_table.table_format import FormatName
from analytics.storage.layout import segment_path
from service.audit.open_table.places import TableKey, lake_places, s3_places
from tests.analytics.open_table.test_table_formats import made_up
from tests.conftest import settings_over

DAY = date(2026, 3, 4)
ICEBERG, DELTA = FormatName.ICEBERG, FormatName.DELTA


def test_files_are_where_segments_are_laid_out(tmp_path):
    settings = settings_over(tmp_path)
    segment = replace(made_up(1), tenant_id="org_a", day=DAY)

    path = segment_path(settings.audit_dir, "org_a", DAY, "seg_1")

    assert lake_places(settings).uri(segment) == f"file://{path}"
    assert s3_places("s3://lake/prod/", "", 10.0).uri(segment) == (
        "s3://lake/prod/tenant=org_a/day=2026-03-04/seg_1.parquet"
    )


@pytest.mark.parametrize(
    ("key", "location"),
    [
        (TableKey(ICEBERG), "s3://lake/prod/_countersign/lake/iceberg/audit"),
        (TableKey(ICEBERG, "org_a"), "s3://lake/prod/_countersign/lake/iceberg/audit_org_a"),
        (TableKey(DELTA), "s3://lake/prod"),
        (TableKey(DELTA, "org_a"), "s3://lake/prod/tenant=org_a"),
    ],
)
def test_each_table_has_a_folder_of_its_own(key, location):
    """That of a Delta table contains its files: delta-rs reads no others."""
    assert s3_places("s3://lake/prod", "", 10.0).location(key) == location
