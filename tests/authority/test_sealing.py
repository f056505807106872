"""Sealed files: nothing readable on the disk, nothing altered comes out, nothing half written."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsmark.errors import FileAccessError, InputError, NsmarkError
from nsmark_authority.errors import AuthorityError, NotFoundError, TransparencyError
from nsmark_authority.manifest import Manifest, ManifestFile
from nsmark_authority.sealing import CHUNK_BYTES, SealedStore

KEY = bytes(range(32))


@pytest.fixture
def store(tmp_path: Path) -> SealedStore:
    return SealedStore(tmp_path / "content", KEY)


def put(store: SealedStore, content: bytes) -> str:
    with store.staging() as staging:
        file = staging.add(io.BytesIO(content), len(content))
        assert b"".join(staging.chunks(file)) == content
        staging.keep()
    assert (file.sha256, file.num_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    return file.sha256


def place_of(store: SealedStore, tmp_path: Path, name: str) -> Path:
    return tmp_path / "content" / name[:2] / name


@pytest.mark.parametrize(
    "size", [0, 1, 15, 16, 17, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]
)
def test_content_comes_back(store: SealedStore, tmp_path: Path, size: int) -> None:
    content = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    content = content[:size]

    name = put(store, content)

    assert name in store
    assert store.read(name, size) == content
    assert list(store.names()) == [name]
    sealed = place_of(store, tmp_path, name)
    assert sealed.stat().st_mode & 0o777 == 0o600
    assert not size > 16 or content[:16] not in sealed.read_bytes()
    store.copy(name, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileAccessError):
        store.copy(name, tmp_path / "copy")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_no_bit_can_be_changed(store: SealedStore, tmp_path: Path, place: int, bit: int) -> None:
    name = put(store, b"secret" * 100)
    path = place_of(store, tmp_path, name)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)

    with pytest.raises(AuthorityError, match="damaged"):
        store.read(name, 1000)


def test_chunks_cannot_be_moved_cut_or_added(store: SealedStore, tmp_path: Path) -> None:
    first, last = b"a" * CHUNK_BYTES, b"b" * CHUNK_BYTES
    name = put(store, first + last)
    path = place_of(store, tmp_path, name)
    content = path.read_bytes()
    head, tail, step = content[:48], content[-16:], CHUNK_BYTES + 16
    one, two = content[48 : 48 + step], content[48 + step : 48 + 2 * step]

    for parts in ([two, one], [one], [two], [one, one], [one, two, two], [one, two[:-1]], []):
        path.write_bytes(head + b"".join(parts) + tail)
        with pytest.raises(AuthorityError, match="damaged"):
            store.read(name, 10 * CHUNK_BYTES)
    for cut in (b"", content[:10], content[:48], content[:-1], content + b"x"):
        path.write_bytes(cut)
        with pytest.raises(AuthorityError, match="damaged"):
            store.read(name, 10 * CHUNK_BYTES)


def test_a_file_under_another_name_is_refused(store: SealedStore, tmp_path: Path) -> None:
    one, two = put(store, b"one"), put(store, b"two")
    place_of(store, tmp_path, two).write_bytes(place_of(store, tmp_path, one).read_bytes())

    with pytest.raises(AuthorityError, match="damaged"):
        store.read(two, 10)


def test_another_data_key_opens_nothing(store: SealedStore, tmp_path: Path) -> None:
    name = put(store, b"secret")

    with pytest.raises(AuthorityError, match="data key is another"):
        SealedStore(tmp_path / "content", bytes(32)).read(name, 10)
    with pytest.raises(AuthorityError, match="32 bytes"):
        SealedStore(tmp_path / "content", b"short")


def test_equal_contents_do_not_look_equal(tmp_path: Path) -> None:
    stores = [SealedStore(tmp_path / name, KEY) for name in ("a", "b")]
    names = [put(store, b"same" * 20) for store in stores]
    sealed = [(tmp_path / x / names[0][:2] / names[0]).read_bytes() for x in ("a", "b")]

    assert sealed[0][16:48] != sealed[1][16:48]
    assert sealed[0][48:] != sealed[1][48:]


def test_what_is_not_kept_is_gone(store: SealedStore, tmp_path: Path) -> None:
    def interrupted() -> None:
        with store.staging() as staging:
            staging.add(io.BytesIO(b"upload"), 100)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with store.staging() as staging, pytest.raises(InputError, match="larger than 3 bytes"):
        staging.add(io.BytesIO(b"four"), 3)

    assert list((tmp_path / "content").rglob("*")) == []


def test_unnamed_files_are_removed_but_not_under_a_writer_s_hands(
    store: SealedStore, tmp_path: Path
) -> None:
    kept, loose = put(store, b"kept"), put(store, b"loose")
    (tmp_path / "content" / ".partial-left").write_bytes(b"by a process that was killed")
    other = SealedStore(tmp_path / "content", KEY)  # as another process would open it

    with store.staging():
        assert other.remove_unreferenced(lambda: {kept}) == 0
    assert loose in store
    assert other.remove_unreferenced(lambda: {kept}) == 2

    assert list(store.names()) == [kept]
    assert not list((tmp_path / "content").glob(".partial-*"))
    with pytest.raises(NotFoundError):
        store.read(loose, 10)


def test_memory_does_not_grow_with_the_file(store: SealedStore) -> None:
    class Zeros:
        left = 64 << 20

        def read(self, size: int, /) -> bytes:
            size = min(size, self.left, 100_000)  # uploads come in small pieces
            self.left -= size
            return bytes(size)

    tracemalloc.start()
    with store.staging() as staging:
        name = staging.add(Zeros(), 64 << 20).sha256
        staging.keep()
    size = sum(len(chunk) for chunk in store.chunks(name))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size == 64 << 20
    assert peak < 12 << 20


@pytest.mark.parametrize("name", ["../../etc/passwd", "AB" * 32, "", "ab" * 31])
def test_names_are_digests(store: SealedStore, name: str) -> None:
    with pytest.raises(InputError):
        store.read(name, 1)


# --- Manifests ---


def test_golden_manifest(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / ".hidden").write_bytes(b"no part of it")

    manifest = Manifest.of_folder(tmp_path)

    assert manifest.to_json() == (
        b'{"files":[{"bytes":2,"name":"1_Pooling/config.json","sha256":"'
        + hashlib.sha256(b"{}").hexdigest().encode()
        + b'"},{"bytes":7,"name":"model.safetensors","sha256":"'
        + hashlib.sha256(b"weights").hexdigest().encode()
        + b'"}],"format":"nsmark/manifest/1"}'
    )
    assert manifest.digest == hashlib.sha256(manifest.to_json()).hexdigest()
    assert manifest.total_bytes == 9
    assert Manifest.parse(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "names",
    [
        ["../x"],
        ["/x"],
        ["a/../b"],
        ["a//b"],
        ["a\\b"],
        [".x"],
        ["a/.x"],
        [""],
        ["a", "a"],
        ["a", "a/b"],
        ["é"],
        ["a\n"],
        ["x" * 201],
        [],
    ],
)
def test_names_in_a_manifest_are_plain(names: list[str]) -> None:
    def make() -> Manifest:
        members = [{"name": name, "bytes": 1, "sha256": "0" * 64} for name in names]
        return Manifest.of_files([ManifestFile.from_members(m, "file") for m in members])

    with pytest.raises(TransparencyError):
        make()


def test_folders_without_fit_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="no files"):
        Manifest.of_folder(tmp_path)
    (tmp_path / "no good").write_bytes(b"")
    with pytest.raises(NsmarkError, match="no name"):
        Manifest.of_folder(tmp_path)
