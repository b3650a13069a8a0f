"""Paths: what may become part of one."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.storage.layout import UnsafePath, segment_path

ROOT = Path("/data/audit")
DAY = date(2026, 3, 4)


def _hostile(prefix: str) -> list[str]:
    names = ["", "..", "a/../../b", "a/b", "a\\b", "a\x00", "a\n", "a ", "a b", "A", "é", "١", "ａ"]
    names += ["a.parquet", "a*", "a?", "[a]", "a'", "a%2e", "a=b", "a" * 41]
    others = ["", ".", "..", "../../etc/passwd", "/etc/passwd", "\x00", "other_a"]
    others += [f"\n{prefix}a", f"a{prefix}a", f"{prefix.upper()}A"]
    return [*(prefix + name for name in names), *others]


def test_a_path_names_tenant_day_and_segment():
    """Other engines may rely on this layout."""
    path = segment_path(ROOT, "org_7f3k9m2p", DAY, "seg_0123456789abcdef")

    assert path == ROOT / "tenant=org_7f3k9m2p" / "day=2026-03-04" / "seg_0123456789abcdef.parquet"


@pytest.mark.parametrize("tenant_id", _hostile("org_"))
def test_a_hostile_tenant_id_never_reaches_the_file_system(tenant_id):
    """One tenant's rows below another's path would be shown to the other."""
    with pytest.raises(UnsafePath):
        segment_path(ROOT, tenant_id, DAY, "seg_1")


@pytest.mark.parametrize("segment_id", _hostile("seg_"))
def test_a_hostile_segment_id_never_reaches_the_file_system(segment_id):
    """The catalog could be edited; the path is guarded all the same."""
    with pytest.raises(UnsafePath):
        segment_path(ROOT, "org_1", DAY, segment_id)


@given(st.text(), st.text())
def test_whatever_the_ids_a_path_stays_three_steps_below_the_root(tenant, segment):
    try:
        path = segment_path(ROOT, f"org_{tenant}", DAY, f"seg_{segment}")
    except UnsafePath:
        return
    assert path.resolve().parents[2] == ROOT
