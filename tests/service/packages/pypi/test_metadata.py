"""METADATA is read from wheels that are not trusted."""

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.packages.pypi.metadata import (
    DIRECTORY_BYTES_MAX,
    METADATA_BYTES_MAX,
    MetadataUnavailable,
    extract_metadata,
)
from tests.budgets import budget

METADATA = b"Metadata-Version: 2.1\nName: some-project\nVersion: 1.0\n"
PATH = "some_project-1.0.dist-info/METADATA"


def archive(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A wheel with these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as wheel:
        for path, content in entries:
            wheel.writestr(path, content)
    return file.getvalue()


def extracted(wheel: bytes, tmp_path: Path, version: str = "1.0") -> bytes:
    path = tmp_path / "wheel"
    path.write_bytes(wheel)
    return extract_metadata(path, "some-project", version)


@pytest.mark.parametrize(
    "path",
    [
        PATH,
        "Some.Project-1.0.dist-info/METADATA",
        "some_project-1.0.0.dist-info/METADATA",
        "some_project-01.0.dist-info/METADATA",
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_metadata_is_that_of_the_wheels_own_directory(
    path: str, method: int, tmp_path: Path
) -> None:
    entries = [("some_project/__init__.py", b""), (path, METADATA), ("x/y.dist-info/METADATA", b"")]

    assert extracted(archive(*entries, method=method), tmp_path) == METADATA


def test_local_versions_and_epochs_are_read(tmp_path: Path) -> None:
    """Wheels of accelerated builds have them."""
    wheel = archive(("some_project-1!2.0+cu.118.dist-info/METADATA", METADATA))

    assert extracted(wheel, tmp_path, "1!2.0+cu.118") == METADATA


NONE = "the wheel has not exactly one .dist-info directory"
OTHER = "the .dist-info directory is of another project or version"
DAMAGED = "the wheel is not a readable archive"
MISSING = "the wheel has not exactly one METADATA"
METHOD = "METADATA is compressed in a way that wheels must not use"


@pytest.mark.parametrize(
    ("wheel", "reason"),
    [
        (b"", DAMAGED),
        (b"PK\x05\x06", DAMAGED),
        (b"\x1f\x8b" * 100, DAMAGED),
        (archive((PATH, METADATA))[:-30], DAMAGED),
        (archive((PATH, METADATA), method=0).replace(b"Name:", b"name:"), DAMAGED),
        (archive(), NONE),
        (archive(("METADATA", METADATA)), NONE),
        (archive(("../" + PATH, METADATA)), NONE),
        (archive(("/" + PATH, METADATA)), NONE),
        (archive((PATH, METADATA), ("b-1.dist-info/METADATA", b"")), NONE),
        (archive(("other-1.0.dist-info/METADATA", METADATA)), OTHER),
        (archive(("some_project-1.1.dist-info/METADATA", METADATA)), OTHER),
        (archive(("some_project-x.dist-info/METADATA", METADATA)), OTHER),
        (archive(("some_project.dist-info/METADATA", METADATA)), OTHER),
        (archive(("some_project-1.0.dist-info/RECORD", b"")), MISSING),
        (archive((PATH, METADATA), method=zipfile.ZIP_LZMA), METHOD),
        (archive((PATH, bytes(METADATA_BYTES_MAX + 1))), "METADATA is too large"),
    ],
)
def test_a_wheel_that_is_not_in_order_has_no_metadata(
    wheel: bytes, reason: str, tmp_path: Path
) -> None:
    """The reason is one constant text, for the log."""
    with pytest.raises(MetadataUnavailable) as unavailable:
        extracted(wheel, tmp_path)

    assert str(unavailable.value) == reason


def patched(wheel: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """`wheel` with other bytes in its first header that begins with `signature`."""
    start = wheel.index(signature) + offset
    return wheel[:start] + value + wheel[start + len(value) :]


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    "patches",
    [
        pytest.param([(CENTRAL, 8, b"\x01\x00")], id="encrypted"),
        pytest.param([(CENTRAL, 8, b"\x01\x00"), (LOCAL, 6, b"\x01\x00")], id="encrypted twice"),
        pytest.param([(CENTRAL, 38, struct.pack("<I", 0o120777 << 16))], id="link"),
        pytest.param([(CENTRAL, 24, struct.pack("<I", 10))], id="shorter"),
        pytest.param([(CENTRAL, 24, struct.pack("<I", 5000))], id="longer"),
        pytest.param([(CENTRAL, 16, b"\x00\x00\x00\x00")], id="checksum"),
        pytest.param([(CENTRAL, 42, b"\xff\xff\xff\x7f")], id="offset"),
        pytest.param([(CENTRAL, 10, b"\x63\x00")], id="method"),
        pytest.param([(CENTRAL, 6, b"\xff\x00")], id="needs version"),
        pytest.param([(LOCAL, 30, b"other")], id="other name"),
        pytest.param([(END, 16, b"\xff\xff\xff\x7f")], id="directory offset"),
        pytest.param([(END, 12, b"\xff\xff\xff\x7f")], id="directory size"),
    ],
)
def test_a_forged_header_is_refused(
    patches: list[tuple[bytes, int, bytes]], tmp_path: Path
) -> None:
    wheel = archive((PATH, METADATA * 20))
    for patch in patches:
        wheel = patched(wheel, *patch)

    with pytest.raises(MetadataUnavailable):
        extracted(wheel, tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_metadata_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Installers differ in which of the two they take."""
    with pytest.raises(MetadataUnavailable, match="exactly one METADATA"):
        extracted(archive((PATH, METADATA), (PATH, b"Name: other")), tmp_path)


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    """It states a small size: no more than that is inflated, and the checksum then differs."""
    wheel = archive((PATH, bytes(budget(20, 200) << 20)))
    wheel = patched(wheel, CENTRAL, 24, struct.pack("<I", 1000))

    with pytest.raises(MetadataUnavailable):
        extracted(wheel, tmp_path)


def test_a_huge_directory_is_not_read(tmp_path: Path) -> None:
    """A sparse file states a central directory larger than any wheel's."""
    path = tmp_path / "wheel"
    size = DIRECTORY_BYTES_MAX + 1
    with path.open("wb") as file:
        file.seek(size)
        file.write(struct.pack("<4s4H2LH", END, 0, 0, 1, 1, size, 0, 0))

    with pytest.raises(MetadataUnavailable, match="directory is too large"):
        extract_metadata(path, "some-project", "1.0")


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        extract_metadata(tmp_path / "missing", "some-project", "1.0")


@settings(
    max_examples=budget(200, 3000),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=4))
def test_damage_anywhere_is_the_typed_error_or_harmless(
    tmp_path: Path, damage: list[tuple[int, bytes]]
) -> None:
    """No other exception, and never other bytes than the wheel's METADATA has."""
    wheel = archive(("some_project/__init__.py", b"pass"), (PATH, METADATA))
    for offset, value in damage:
        offset %= len(wheel)
        wheel = wheel[:offset] + value + wheel[offset + len(value) :]

    try:
        metadata = extracted(wheel, tmp_path)
    except MetadataUnavailable:
        return

    assert metadata == METADATA
