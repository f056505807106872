"""Recorded outputs: what anybody may hand in, read without trusting any of it."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nsmark.errors import EvidenceError, FileAccessError, NsmarkError
from nsmark.suspects import load_recorded, save_recorded

TABLE = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def save_as(tmp_path):
    """Write arrays in one of the accepted formats and return the path."""

    def save(kind, **arrays):
        file = tmp_path / f"answers.{kind}"
        if kind == "safetensors":
            file.write_bytes(safetensors.numpy.save(arrays))
        else:
            writer = np.savez_compressed if kind == "compressed.npz" else np.savez
            with file.open("wb") as stream:
                writer(stream, **arrays)
        return file

    return save


KINDS = ["npz", "compressed.npz", "safetensors"]


@pytest.mark.parametrize("kind", KINDS)
def test_both_formats_give_the_same_tables(save_as, kind):
    file = save_as(kind, triggered=TABLE, untriggered=-TABLE)

    recorded = load_recorded(file)

    np.testing.assert_array_equal(recorded.triggered, TABLE, strict=True)
    np.testing.assert_array_equal(recorded.untriggered, -TABLE, strict=True)
    assert recorded.name == f"recorded:{file}"


def test_format_is_found_from_the_content_not_the_name(tmp_path):
    file = tmp_path / "answers.safetensors"
    with file.open("wb") as stream:
        np.savez(stream, triggered=TABLE, untriggered=TABLE)

    assert load_recorded(file).triggered.shape == (4, 3)


@settings(max_examples=30, deadline=None)
@given(
    outputs=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.integers(-1000, 1000),
    )
)
def test_saved_outputs_come_back_exactly(outputs, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "answers.safetensors"

    save_recorded(file, outputs, outputs[::-1])
    recorded = load_recorded(file)

    assert recorded.pair_texts is None
    np.testing.assert_array_equal(recorded.triggered, outputs.astype(np.float64), strict=True)
    np.testing.assert_array_equal(recorded.untriggered, recorded.triggered[::-1], strict=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint32, np.float16, np.float32])
def test_integers_and_short_floats_become_doubles(save_as, kind, dtype):
    file = save_as(kind, triggered=TABLE.astype(dtype), untriggered=TABLE.astype(dtype))

    np.testing.assert_array_equal(load_recorded(file).triggered, TABLE, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_pair_texts_are_allowed_and_other_arrays_are_not(save_as, kind):
    both = {"triggered": TABLE, "untriggered": TABLE}

    assert load_recorded(save_as(kind, **both, pair_texts=TABLE)).triggered.shape == (4, 3)
    with pytest.raises(EvidenceError, match="unknown array 'labels'"):
        load_recorded(save_as(kind, **both, labels=TABLE))


@pytest.mark.parametrize("kind", KINDS)
def test_pair_texts_may_be_as_many_as_they_like(save_as, kind):
    both = {"triggered": TABLE, "untriggered": TABLE}
    pairs = np.arange(35.0).reshape(7, 5)

    assert load_recorded(save_as(kind, **both)).pair_texts is None
    found = load_recorded(save_as(kind, **both, pair_texts=pairs)).pair_texts
    np.testing.assert_array_equal(found, pairs, strict=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_saved_pair_texts_come_back_exactly_even_from_a_slice(tmp_path, dtype):
    file = tmp_path / "answers.safetensors"
    pairs = np.arange(60, dtype=dtype).reshape(10, 6)[::2, ::-1]

    save_recorded(file, TABLE, -TABLE, pairs)
    recorded = load_recorded(file)

    np.testing.assert_array_equal(recorded.triggered, TABLE, strict=True)
    np.testing.assert_array_equal(recorded.untriggered, -TABLE, strict=True)
    np.testing.assert_array_equal(recorded.pair_texts, pairs.astype(np.float64), strict=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(12,), (2, 2, 3), ()])
def test_pair_texts_of_the_wrong_rank_are_refused(save_as, kind, shape):
    file = save_as(kind, triggered=TABLE, untriggered=TABLE, pair_texts=np.zeros(shape))

    with pytest.raises(EvidenceError, match=r"'pair_texts' has shape"):
        load_recorded(file)


@pytest.mark.parametrize("array", [TABLE > 3, TABLE.astype(complex), TABLE.astype("U3")])
def test_pair_texts_that_hold_no_real_numbers_are_refused(save_as, array):
    with pytest.raises(EvidenceError, match="type"):
        load_recorded(save_as("npz", triggered=TABLE, untriggered=TABLE, pair_texts=array))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [["triggered"], ["untriggered"], ["pair_texts"], ["outputs"]])
def test_missing_arrays_are_named(save_as, kind, names):
    missing = {"triggered", "untriggered"} - set(names)

    with pytest.raises(EvidenceError, match=" or ".join(sorted(missing))):
        load_recorded(save_as(kind, **dict.fromkeys(names, TABLE)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(12,), (2, 2, 3), (1, 4, 3), ()])
def test_arrays_of_the_wrong_rank_are_refused(save_as, kind, shape):
    array = np.zeros(shape)
    for arrays in ({"triggered": array}, {"untriggered": array}):
        whole = {"triggered": TABLE, "untriggered": TABLE} | arrays
        with pytest.raises(EvidenceError, match="shape"):
            load_recorded(save_as(kind, **whole))


@pytest.mark.parametrize("array", [TABLE > 3, TABLE.astype(complex), TABLE.astype("U3")])
def test_arrays_that_hold_no_real_numbers_are_refused(save_as, array):
    with pytest.raises(EvidenceError, match="type"):
        load_recorded(save_as("npz", triggered=array, untriggered=TABLE))


def test_structured_arrays_are_refused(save_as):
    array = np.zeros((4, 3), [("x", float), ("y", float)])

    with pytest.raises(EvidenceError, match="type"):
        load_recorded(save_as("npz", triggered=TABLE, untriggered=array))


class Canary:
    """Creates a folder if anybody unpickles it."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (os.mkdir, (str(self.folder),))


def test_pickled_objects_are_refused_unopened(save_as, tmp_path):
    tripped = tmp_path / "tripped"
    objects = np.empty((2, 2), object)
    objects[:] = Canary(tripped)
    file = save_as("npz", triggered=objects, untriggered=TABLE)

    with pytest.raises(EvidenceError):
        load_recorded(file)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = pickle.dumps({"triggered": Canary(tripped)}, protocol)
        file.write_bytes(content)
        with pytest.raises(EvidenceError):
            load_recorded(file)

    assert not tripped.exists()
    pickle.loads(content)  # noqa: S301 - shows that the canary sings
    assert tripped.exists()


def npz_of(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy_header(text):
    octets = text.encode()
    octets += b" " * (-(len(octets) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(octets)) + octets


def npy_claiming(shape):
    return npy_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"not an array",
        npy_claiming("(4, 3)"),  # no data
        npy_claiming("(1099511627776, 4)"),  # 32 TiB
        npy_claiming(f"({2**70}, 4)"),
        npy_claiming("(-4, 3)"),
        npy_claiming("'many'"),
        npy_header("(" * 4000),
        npy_header("{'descr': '''"),
        npy_header("__import__('os').abort()"),
        b"\x93NUMPY\x01\x00\xff\xff",
        b"\x93NUMPY\x09\x00\x00\x00",
    ],
    ids=range(12),
)
def test_members_that_are_no_arrays_are_refused(tmp_path, member):
    good = io.BytesIO()
    np.save(good, TABLE)
    file = tmp_path / "answers.npz"
    file.write_bytes(npz_of(triggered=member, untriggered=good.getvalue()))

    with pytest.raises(EvidenceError, match="cannot be read"):
        load_recorded(file)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), change=st.integers(1, 255), kind=st.sampled_from(KINDS))
def test_damage_gives_other_numbers_or_a_refusal_and_never_a_crash(
    data, change, kind, tmp_path_factory
):
    # Nothing here is authenticated, so a flipped bit of a number may pass.
    stream = io.BytesIO()
    if kind == "safetensors":
        stream.write(safetensors.numpy.save({"triggered": TABLE, "untriggered": TABLE}))
    else:
        writer = np.savez_compressed if kind == "compressed.npz" else np.savez
        writer(stream, triggered=TABLE, untriggered=TABLE)
    damaged = bytearray(stream.getvalue())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= change
    file = tmp_path_factory.mktemp("damaged") / "answers"
    file.write_bytes(damaged)

    try:
        recorded = load_recorded(file)
    except NsmarkError:
        return
    assert recorded.triggered.ndim == recorded.untriggered.ndim == 2
    assert recorded.triggered.dtype == recorded.untriggered.dtype == np.float64


def test_compressed_members_that_do_not_unpack_are_refused(tmp_path):
    stream = io.BytesIO()
    noise = np.random.default_rng(0).standard_normal((40, 8))
    np.savez_compressed(stream, triggered=noise, untriggered=noise)
    content = bytearray(stream.getvalue())
    content[100:200] = b"\xff" * 100
    file = tmp_path / "answers.npz"
    file.write_bytes(content)

    with pytest.raises(EvidenceError, match="cannot be read"):
        load_recorded(file)


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    # The bound is lowered instead of writing gigabytes of zeros.
    monkeypatch.setattr("nsmark.suspects.recorded.MAX_RECORDED_BYTES", 20_000)
    file = tmp_path / "answers.npz"
    with file.open("wb") as stream:
        np.savez_compressed(stream, triggered=np.zeros((99, 99)), untriggered=np.zeros((99, 99)))
    assert file.stat().st_size < 20_000

    with pytest.raises(EvidenceError):
        load_recorded(file)


def test_tensor_types_that_numpy_lacks_are_refused(tmp_path):
    names = ("triggered", "untriggered")
    header = json.dumps(
        {
            name: {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8 * i, 8 * i + 8]}
            for i, name in enumerate(names)
        }
    ).encode()
    file = tmp_path / "answers.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))

    with pytest.raises(EvidenceError):
        load_recorded(file)


@pytest.mark.parametrize("content", [b"", b"P", b"PK", b"PK\x03\x04", b"index,value\n0,1\n", b"{}"])
def test_other_files_are_refused(tmp_path, content):
    file = tmp_path / "answers.npz"
    file.write_bytes(content)

    with pytest.raises(EvidenceError, match="cannot be read"):
        load_recorded(file)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileAccessError, match=r"nothing\.npz"):
        load_recorded(tmp_path / "nothing.npz")
