"""The bounded cache: what goes, and when."""

from analytics.byte_cache import ByteCache


def test_a_cache_keeps_to_its_bytes_and_lets_go_what_was_used_longest_ago():
    """Memory has a stated bound."""
    cache = ByteCache(10)
    for key in "abc":
        cache.get(key, lambda: ("value", 4))

    assert ("a" in cache, "b" in cache, "c" in cache) == (False, True, True)
    cache.get("b", lambda: ("other", 4))
    cache.get("d", lambda: ("value", 4))
    assert ("b" in cache, "c" in cache) == (True, False)
    assert cache.size == 8
    assert cache.get("huge", lambda: ("value", 11)) == "value"
    assert ("huge" in cache, "b" in cache) == (False, True)
