"""Values that an upstream may put anywhere into a document, for generated tests."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.budgets import budget
from tests.service.packages.proxy.synthetic import FILES, INDEX

SEEDED = settings(
    max_examples=budget(50, 1000),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
PATH_PARTS = (
    "a,%2e%2e,..,.,,%2F,%5c,\\,?x,#sha256=00,a%2Bb,%00,é,"
    '&quot;,",<a>, ,\n,//,user@,:,;,%25,%zz,@s,-'
)
path_part = st.sampled_from(PATH_PARTS.split(","))
url = st.builds(
    "{}/{}".format,
    st.sampled_from(
        [FILES, INDEX, FILES.upper(), "..", "", "//evil.example", "https://evil.example"]
    )
    | st.sampled_from(["https://files.example@evil.example", "http://files.example", "file:///"]),
    st.lists(path_part, max_size=4).map("/".join),
)
reason = st.text(max_size=20) | st.sampled_from(
    ['"><script>', "</a>", "'", "&lt;", "\u2028", "\x00"]
)
