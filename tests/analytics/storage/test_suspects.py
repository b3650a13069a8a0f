"""What a fault names is looked at again, and no more of it than is bounded."""

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.suspects import SUSPECTS_MAX, Suspects


def test_each_file_and_batch_is_taken_once() -> None:
    suspects = Suspects()
    for _ in range(2):
        suspects.record(
            StoreFault("/data/audit/tenant=org_1/day=2026-03-01/seg_1a.parquet: damaged")
        )
        suspects.record(
            StoreFault("tenant=org_1/day=2026-03-02/seg_2b.index: 3 bytes instead of 4")
        )
        suspects.record(StoreFault("org_1 on 2026-03-04, seq 17 to 20: its checksum differs"))
    suspects.record(StoreFault("a fault of something else"))

    assert suspects.take() == (["seg_1a", "seg_2b"], [17])
    assert suspects.take() == ([], [])


def test_what_is_out_of_reach_is_not_suspected() -> None:
    """Otherwise all files would be read after an outage of the bucket."""
    suspects = Suspects()
    suspects.record(StoreUnreachable("tenant=org_1/day=2026-03-01/seg_1a.parquet: no answer"))

    assert suspects.take() == ([], [])


def test_no_more_is_remembered_than_a_limit() -> None:
    suspects = Suspects()
    for number in range(2 * SUSPECTS_MAX):
        suspects.record(
            StoreFault(f"seg_{number}: damaged; org_1 on 2026-03-04, seq {number} to 9")
        )

    segments, batches = suspects.take()
    assert (len(segments), len(batches)) == (SUSPECTS_MAX, SUSPECTS_MAX)
