"""What differs from run to run gets a name; everything else stays."""

import pytest

from tests.goldens.normalised import Normaliser

ONE, OTHER = "obind_0123456789abcdef", "obind_4t9xkz2mq8w5r7vn"


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        (f"{OTHER} {ONE} {OTHER}", "obind_1 obind_2 obind_1"),
        (f"{ONE} key_0123456789abcdef", "obind_1 key_1"),
        ("req_01a21a68986921a4cec7e498", "req_1"),
        ("cs_7jkHEN56DtLHtvxWvT2gU_W_iXejlC7-TMouBGq3_OI", "secret_1"),
        ("juqOLpYojDU9gT1UO-lXPstlrcqnxspvcmYq3mmK6Zo", "secret_1"),
        (f"{ONE[:-4]}… {ONE}", "obind_1… obind_2"),
        ("0" * 63 + "a" + " " + "0" * 64, "hex_1 hex_2"),
        ("5f0c7d3e-8a43-4c60-9a51-0d8e7d1c2b3a", "uuid_1"),
        (f"actor=%21{ONE}&actor=google%3A{ONE}", "actor=%21obind_1&actor=google%3Aobind_1"),
        ('requests{route="/x"} 1.79e+09', 'requests{route="/x"} N'),
        (f"{ONE[:-4]}\\u2026", "obind_1\\u2026"),
        ("took 12.5 ms", "took N ms"),
        ("14 rows in 2,104 ms", "14 rows in N ms"),
        ("In force, after 0.1 s.", "In force, after N s."),
        ("/work/goldens-x/data/countersign.db", "{folder}/data/countersign.db"),
    ],
)
def test_what_differs_gets_a_name(text: str, normalised: str) -> None:
    assert Normaliser({"/work/goldens-x": "folder"})(text) == normalised


@pytest.mark.parametrize(
    "text",
    [
        "aud_0000000000000238880",
        "2026-03-04T12:00:00.123456Z",
        "12 messages",
        "x" * 300,
        "dashboard-policy-exceptions-page-of-an-organisation",
        "COUNTERSIGN_METRICS_MAX_AGE_IN_SECONDS_0",
        "repo:acme/payments:ref:refs/heads/main",
    ],
)
def test_what_is_always_the_same_stays(text: str) -> None:
    assert Normaliser({})(text) == text
