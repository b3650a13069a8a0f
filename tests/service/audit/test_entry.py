"""GET …/audit/<id>: one row."""

import pytest

from tests.analytics.samples import sample_row
from tests.conftest import START, refused

GONE = (404, "Audit row not found for this org")


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_an_id_from_a_page_leads_to_the_same_entry(audit, is_sealed):
    """A link to a row stays good when the row is sealed."""
    await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(5)])
    page = await audit.page(event="blocklist_hit")
    if is_sealed:
        await audit.seal()

    for entry in page["entries"]:
        response = await audit.get(f"/{entry['id']}")
        assert response.status_code == 200
        assert await response.get_json() == entry


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_another_organisations_row_is_not_there(audit, is_sealed):
    """Not 403: other organisations' ids are not disclosed."""
    await audit.accept([sample_row(START)], audit.world.other)
    (entry,) = (await audit.page(slug="other", event="blocklist_hit"))["entries"]
    if is_sealed:
        await audit.seal()

    assert (await audit.get(f"/{entry['id']}", slug="other")).status_code == 200
    assert await refused(await audit.get(f"/{entry['id']}")) == GONE


async def test_an_id_that_names_no_row_is_a_404(audit):
    for audit_id in ("aud_9223372036854775807", "aud_1", "aud_0000000000000000001%00", "%2e%2e"):
        assert (await refused(await audit.get(f"/{audit_id}")))[0] == 404


async def test_one_row_takes_no_parameters(audit):
    """A filter that is ignored would look like one that matched."""
    (entry, *_) = (await audit.page())["entries"]

    response = await audit.get(f"/{entry['id']}", event="x")

    assert await refused(response) == (400, "unknown query parameter: event")
