"""Files and documents share the limit of the settings, and one folder of the data dir."""

from functools import partial

from analytics.cache.lru import ENTRY_BYTES
from service.audit.lake import Lake
from service.core.origins import parse_registry
from service.core.settings import Settings
from service.packages.proxy.registries import open_caches
from service.packages.proxy.upstream import Upstream
from tests.service.packages.proxy.files import BIG, PATH, key_of, read


async def test_they_are_made_on_first_use_and_kept_within_their_parts(tmp_path, registry, http):
    """A service without the proxy has no folder for it."""
    settings = Settings(data_dir=tmp_path / "data", proxy_cache_bytes_max=len(BIG) + len(BIG) // 2)
    lake = Lake(settings)
    caches = open_caches(settings, lake)
    await caches.sweep()
    assert not settings.package_cache_dir.exists()

    upstream = Upstream(http, parse_registry(registry.url))
    for content in (BIG, BIG[1:]):
        registry.says(PATH, content)
        admit = partial(upstream.admit_file, registry.url + PATH, "acme")
        assert await read(await caches.files.open(key_of(content), None, admit)) == content
    await caches.close()
    await caches.sweep()

    assert (await caches.files.usage()).files == 1
    assert caches.memory.size < ENTRY_BYTES
    lake.close()
