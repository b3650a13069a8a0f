"""Where segments on S3 are, and what is said when they cannot be reached."""

import hashlib

import pytest

from analytics.model.errors import StoreUnreachable
from analytics.storage.bucket_place import BucketPlace, InvalidPlace, parse_place
from analytics.storage.objects import Objects
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://acme-lake/prod", BucketPlace("acme-lake", "prod")),
        ("s3://acme-lake", BucketPlace("acme-lake", "")),
        ("s3://acme.lake/a/b=c/", BucketPlace("acme.lake", "a/b=c")),
    ],
)
def test_a_url_names_a_bucket_and_a_prefix(url, place):
    assert parse_place(url) == place


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket/prefix",
        "s3://",
        "s3:///prefix",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket/a b",
        "s3://bucket/x?versions",
        "s3://bucket/x#y",
        "s3://Bucket/x",
        "s3://key:secret@bucket/x",
        "s3://[bucket/x",
    ],
)
def test_any_other_url_is_refused_and_not_repeated(url):
    """It may contain a credential."""
    with pytest.raises(InvalidPlace) as refused:
        parse_place(url)

    assert "secret" not in str(refused.value)


def test_objects_are_created_once_read_listed_and_deleted(bucket, tmp_path):
    objects, source = bucket.objects(), tmp_path / "source"
    source.write_bytes(b"some bytes")

    assert objects.create("a/b=1/c.parquet", source)
    source.write_bytes(b"other bytes")
    assert not objects.create("a/b=1/c.parquet", source)

    assert objects.read("a/b=1/c.parquet") == b"some bytes"
    (entry,) = objects.entries("a")
    assert (entry.key, entry.size) == ("a/b=1/c.parquet", 10)
    assert objects.find("a/b=1/c.parquet") == entry
    assert abs(objects.now_s() - entry.written_s) < 60
    objects.delete(["a/b=1/c.parquet", "never/there"])
    assert objects.find("a/b=1/c.parquet") is None
    with pytest.raises(ObjectMissing):
        objects.download("a/b=1/c.parquet", tmp_path / "target", 10)
    assert not (tmp_path / "target").exists()


def test_of_an_object_one_byte_more_than_its_bound_is_read(bucket, tmp_path):
    """That suffices to know that it is not the object of the catalog."""
    bucket.write("large", b"x" * 3_000_000)
    objects = bucket.objects()

    size, sha256 = objects.download("large", tmp_path / "target", 9)

    assert (size, sha256) == (10, hashlib.sha256(b"x" * 10).hexdigest())
    assert objects.digest("large", 9) == sha256
    assert (tmp_path / "target").read_bytes() == b"x" * 10
    with pytest.raises(ObjectDamaged, match="more than 9 bytes"):
        objects.read("large", 9)


def test_a_small_object_is_created_once(bucket):
    objects = bucket.objects()

    assert objects.create_small("a/b", b"some bytes")
    assert not objects.create_small("a/b", b"others")

    assert objects.read("a/b") == b"some bytes"


def test_a_bucket_that_does_not_exist_is_no_missing_object(bucket):
    objects = Objects(BucketPlace("no-such-bucket", ""), bucket.server.endpoint, 2.0)

    with pytest.raises(StoreUnreachable, match="does not exist"):
        objects.read("some/key")


def test_a_store_that_cannot_be_reached_is_asked_once_and_then_not_for_a_while(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    objects = Objects(BucketPlace("lake", ""), "http://127.0.0.1:9", 0.4)

    with pytest.raises(StoreUnreachable, match="is not reachable"):
        objects.read("some/key")
    with pytest.raises(StoreUnreachable, match="a moment ago"):
        objects.read("some/key")


def test_more_objects_than_one_request_takes_are_deleted(bucket):
    """S3 takes 1,000 in one."""
    objects = bucket.objects()
    objects.write("a/kept", b"x")
    objects.write("a/removed", b"x")

    objects.delete([*(f"a/never-{number}" for number in range(1_500)), "a/removed"])

    assert [entry.key for entry in objects.entries("a")] == ["a/kept"]
