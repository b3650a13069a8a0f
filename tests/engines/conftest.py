"""A service whose lake is published in both formats, in its data dir or in a bucket."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from service.audit.open_table.places import ALL_TENANTS
from service.core.settings import Settings
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, settings_over
from tests.service.audit.conftest import AuditWorld, audit
from tests.service.audit.open_table.conftest import DAY, Answers, LakeWorld
from tests.service.audit.pruning import always_on, prune
from tests.service.audit.test_import import line, take

__all__ = ["audit"]


@dataclass
class Lakes:
    """A published lake, through everything that happens to it."""

    audit: AuditWorld

    @property
    def data_dir(self) -> Path:
        return self.audit.services.settings.data_dir

    async def seal(self) -> None:
        """Five weeks of two organisations."""
        for week in range(5):
            at = START - week * 7 * DAY
            events = ["blocklist_hit", "install_allowed", "blocklist_hit"] * 20
            rows = [sample_row(at, event=event) for event in events]
            await self.audit.accept(rows)
            await self.audit.accept(rows[: 10 + week], self.audit.world.other)
        await self.audit.seal()

    async def merge(self) -> None:
        """The segments of a day become one."""
        await self.audit.accept([sample_row(START)] * 7)
        await self.audit.seal()
        self.audit.clock.now += 2 * DAY
        assert await self.audit.services.compactor.compact_due(everything=True)

    async def bring_in(self) -> None:
        """Rows with a history of their own, which count from 0 in their files at first."""
        lines = [line(START - n * DAY, f"i{n}") for n in range(12)]
        assert (await take(self.audit, b"".join(lines))).rows == 12

    async def prune(self) -> None:
        """Acme's older days go."""
        await always_on(self.audit, "free")
        assert await prune(self.audit)

    async def publish(self, *, is_per_tenant: bool = False) -> None:
        publisher = self.audit.services.publisher
        await publisher.publish(["iceberg", "delta"], is_per_tenant=is_per_tenant)

    def location(self, format_: str, tenant_id: str = ALL_TENANTS) -> str:
        """What an engine is given."""
        key = LakeWorld(self.audit, format_).key(tenant_id)
        return self.audit.services.publisher.places.location(key).removeprefix("file://")

    @property
    def is_in_bucket(self) -> bool:
        return bool(self.audit.services.settings.segments_url)

    @property
    def environment(self) -> dict[str, str]:
        """What an engine finds the bucket by; the credentials are in that of the test."""
        endpoint = self.audit.services.settings.segments_endpoint
        return environment_of(endpoint) if endpoint else {}

    async def own(self) -> Answers:
        """Countersign's own answers."""
        return await LakeWorld(self.audit, "iceberg").sealed()


def environment_of(endpoint: str) -> dict[str, str]:
    """AWS_* variables of the address of an S3 server."""
    is_http = urlsplit(endpoint).scheme == "http"
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(is_http).lower()}


@pytest.fixture(params=["data dir", pytest.param("bucket", marks=only_full)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    settings = msgspec.structs.replace(settings_over(tmp_path), orphan_grace_s=3600.0)
    if request.param == "bucket":
        return request.getfixturevalue("bucket").settings(settings)
    return settings


@pytest.fixture
def lakes(audit: AuditWorld) -> Lakes:
    return Lakes(audit)
