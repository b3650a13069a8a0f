"""The bounded cache: what goes, and when."""

from analytics.cache.lru import ByteCache


def test_a_cache_keeps_to_its_bytes_and_lets_go_what_was_used_longest_ago():
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


def test_what_is_kept_again_takes_the_place_of_what_was_there():
    cache = ByteCache(10)
    cache.keep("a", "old", 4)
    for _ in range(10):
        cache.keep("b", "new", 6)
    cache.keep("a", "newer", 3)
    assert (cache.find("a"), cache.find("b")) == ((True, "newer"), (True, "new"))
    assert cache.size == 9
