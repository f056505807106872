"""Key files as bytes: one form for one key, and nothing else is accepted."""

import io
import json
import os
import pickle
import struct
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import rfc8785
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from handmade_keys import (
    forge,
    make_identity,
    make_key,
    make_signed_claim,
    pack,
    read_container,
    reseal,
    spec_content_digest,
    write_container,
    write_header,
)
from nsmark.errors import KeyFileError
from nsmark.keyfile.codec import MAX_HEADER_BYTES, decode_key, encode_key


def decode(content):
    return decode_key(io.BytesIO(content), len(content))


def refuse(content, match=None):
    with pytest.raises(KeyFileError, match=match):
        decode(content)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def content(key):
    return encode_key(key)


@pytest.fixture(scope="module")
def small_key():
    # Few bytes, so that every one of them can be visited.
    return make_key(num_texts=16, output_dim=4, num_bits=8, spread_factor=1, hidden_sizes=(2,))


@pytest.fixture(scope="module")
def small_content(small_key):
    return encode_key(small_key)


def header_end(content):
    return 8 + int.from_bytes(content[:8], "little")


# --- what is written can be read, by us and by the safetensors library ---


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_round_trip_keeps_every_field_and_bit(data):
    output_dim = data.draw(st.integers(3, 12), "output_dim")
    key = make_key(
        identity_seed=data.draw(st.integers(1, 3), "identity"),
        owner=data.draw(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), "owner"
        ),
        num_texts=output_dim + data.draw(st.integers(2, 24), "more texts"),
        output_dim=output_dim,
        num_bits=data.draw(st.integers(8, 24), "num_bits"),
        spread_factor=data.draw(st.integers(1, 4), "spread_factor"),
        hidden_sizes=tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))),
        with_null_basis=data.draw(st.booleans(), "null basis"),
    )

    written = encode_key(key)
    back = decode(written)

    assert back == key
    assert back.to_document() == key.to_document()
    assert back.seal == key.seal
    for name, array in key.tensors().items():
        np.testing.assert_array_equal(back.tensors()[name], array, strict=True)
    assert encode_key(back) == written


def test_equal_keys_give_equal_bytes_whatever_the_memory_layout(key, content):
    other_layout = replace(
        key,
        owner_triggered=np.asfortranarray(key.owner_triggered),
        owner_untriggered=np.repeat(key.owner_untriggered, 2, axis=0)[::2],
        extractor=tuple((np.asfortranarray(weight), bias) for weight, bias in key.extractor),
    )

    assert encode_key(make_key()) == content
    assert encode_key(other_layout) == content


def test_safetensors_library_opens_what_we_write(tmp_path):
    key = make_key(with_null_basis=True)
    written = encode_key(key)
    file = tmp_path / "key.safetensors"
    file.write_bytes(written)

    loaded = safetensors.numpy.load(written)

    assert set(loaded) == set(key.tensors())
    for name, array in key.tensors().items():
        np.testing.assert_array_equal(loaded[name], array, strict=True)
    with safetensors.safe_open(file, framework="numpy") as opened:
        assert opened.metadata() == {
            "nsmark": key.document_bytes().decode(),
            "seal": key.seal.hex(),
        }


@pytest.mark.parametrize("owner", ["Example Lab", 'Gödel & "Söhne" \\ \x01\x7f\u2028 🦆'])
@pytest.mark.parametrize("reverse", [False, True])
def test_files_of_the_safetensors_library_are_accepted(owner, reverse):
    key = make_key(owner=owner)
    metadata = {"nsmark": key.document_bytes().decode(), "seal": key.seal.hex()}
    if reverse:
        metadata = dict(reversed(metadata.items()))

    # The library hashes its metadata with a random seed: a few draws show both orders.
    for _ in range(6):
        assert decode(safetensors.numpy.save(key.tensors(), metadata)) == key


def test_order_of_header_members_is_free(key, content):
    header, body = read_container(content)
    metadata = header.pop("__metadata__")
    turned = dict(reversed([(n, dict(reversed(i.items()))) for n, i in header.items()]))
    for first in (metadata, dict(reversed(metadata.items()))):
        assert decode(write_container({"__metadata__": first} | turned, body)) == key
        assert decode(write_container(turned | {"__metadata__": first}, body)) == key


def test_tensors_begin_at_a_multiple_of_eight(content):
    assert header_end(content) % 8 == 0


def test_key_without_a_fitting_seal_is_not_written(key):
    for seal in (b"", bytes(64), make_identity(2).sign_bytes(key.content_digest)):
        with pytest.raises(KeyFileError, match="not sealed"):
            encode_key(replace(key, seal=seal))


@pytest.mark.parametrize(
    "changes",
    [
        {"trigger": "Two Words"},
        {"word_list_digest": "AB" * 32},
        {"library_version": "9" * 65},
        {"skipped_words": ("x",)},
    ],
)
def test_key_that_no_reader_would_accept_is_not_written(key, changes):
    with pytest.raises(KeyFileError):
        encode_key(reseal(key, **changes))


# --- damage: any byte, any length ---


@settings(max_examples=300, deadline=None)
@given(data=st.data(), change=st.integers(1, 255))
def test_any_flipped_byte_is_refused(data, change, small_content):
    damaged = bytearray(small_content)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= change

    refuse(bytes(damaged))


def test_every_byte_of_the_header_counts(small_content):
    changes = np.random.default_rng(0).integers(1, 256, header_end(small_content))
    for position, change in enumerate(changes):
        damaged = bytearray(small_content)
        damaged[position] ^= int(change)
        refuse(bytes(damaged))


def test_no_other_spelling_of_the_public_key_is_accepted(small_key, small_content):
    # The PEM reader takes any white space for a line break, so the seal alone would not notice.
    header, body = read_container(small_content)
    document = header["__metadata__"]["nsmark"]
    pem = json.dumps(small_key.signed_claim.public_key.to_pem())[1:-1]
    assert pem in document
    spellings = [
        pem.replace("\\n", "\\r"),
        pem.replace("\\n", " "),
        pem.replace("-----\\n", "-----\\t", 1),
        pem + "\\n",
        "\\n" + pem,
        "comment\\n" + pem,
    ]
    for spelling in spellings:
        header["__metadata__"]["nsmark"] = document.replace(pem, spelling)
        refuse(write_container(header, body), "not as nsmark writes it")


def test_truncation_at_any_length_is_refused(small_content):
    for length in range(len(small_content)):
        refuse(small_content[:length])


def test_body_shorter_than_the_file_said_is_refused(content):
    # A file that shrinks between the question for its size and the reading of it.
    with pytest.raises(KeyFileError, match="cut off"):
        decode_key(io.BytesIO(content[:-4]), len(content))


@pytest.mark.parametrize("tail", [b"\x00", b" ", b"\x00" * 8, b"{}", b"\xff" * 4096])
def test_trailing_data_is_refused(content, tail):
    refuse(content + tail, "follows its last tensor")


def test_file_joined_to_itself_is_refused(content):
    refuse(content + content)


# --- the header ---


def test_header_with_extra_white_space_is_refused(content):
    header, body = read_container(content)
    plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    spellings = [
        plain + " " * 8,
        plain + "\n",
        " " + plain,
        "\ufeff" + plain,
        json.dumps(header, ensure_ascii=False),
        json.dumps(header, indent=1, ensure_ascii=False),
        plain.replace('"dtype"', '"\\u0064type"', 1),
        plain.replace("[0,", "[0 ,", 1),
        plain.replace("[0,", "[-0,", 1),
        plain.replace("[0,", "[0.0,", 1),
        plain.replace("[0,", "[0e0,", 1),
    ]

    assert decode(write_header(plain) + body)
    for spelling in spellings:
        assert spelling != plain
        refuse(write_header(spelling) + body)


def test_duplicate_names_are_refused(key, content):
    header, body = read_container(content)
    plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    metadata = json.dumps(header["__metadata__"], separators=(",", ":"), ensure_ascii=False)
    bias = '"extractor.0.bias":' + json.dumps(header["extractor.0.bias"], separators=(",", ":"))
    assert bias in plain
    for doubled in (
        plain[:-1] + ',"__metadata__":' + metadata + "}",
        plain.replace(bias, bias + "," + bias),
        plain.replace('"dtype":"F32"', '"dtype":"F32","dtype":"F32"', 1),
        plain.replace('"seal":', f'"seal":"{key.seal.hex()}","seal":', 1),
    ):
        refuse(write_header(doubled) + body, "header cannot be read")


def test_duplicate_names_in_the_document_are_refused(key, content):
    header, body = read_container(content)
    text = header["__metadata__"]["nsmark"]
    header["__metadata__"]["nsmark"] = text.replace(
        '"trigger":', f'"trigger":"{key.trigger}","trigger":', 1
    )

    refuse(write_container(header, body), "document cannot be read")


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1, 2**40, MAX_HEADER_BYTES + 8])
def test_header_length_out_of_bounds_is_refused_before_reading_on(content, length):
    hostile = struct.pack("<Q", length) + content[8:]
    stream = CountingStream(hostile)

    with pytest.raises(KeyFileError, match="truncated or no safetensors"):
        decode_key(stream, 2**50)  # however large the file says it is
    assert stream.bytes_read == 8


class CountingStream(io.BytesIO):
    """Counts what the reader takes."""

    bytes_read = 0

    def read(self, size=-1):
        taken = super().read(size)
        self.bytes_read += len(taken)
        return taken


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        [],
        "nsmark",
        {"nsmark": "{}"},
        {"nsmark": "{}", "seal": "00", "format": "pt"},
        {"nsmark": {}, "seal": "00"},
        {"nsmark": "{}", "seal": 0},
    ],
)
def test_other_metadata_is_refused(content, metadata):
    header, body = read_container(content)
    header["__metadata__"] = metadata

    refuse(write_container(header, body), "metadata")


def test_header_that_is_no_object_is_refused():
    for text in ("[]", '"x"', "12", "null", "{", "\x00\x01", "{}garbage"):
        refuse(write_header(text))


def test_header_that_is_not_unicode_is_refused():
    refuse(struct.pack("<Q", 8) + b'{"a":"\xff"')


def test_deep_nesting_is_refused_and_not_a_crash(content):
    header, body = read_container(content)
    for depth in (200, 900, 100_000):
        nested = "[" * depth + "]" * depth
        refuse(write_header('{"__metadata__":' + nested + "}"))
        for text in (nested, f'{{"claim":{nested}}}', _with_claim(header, f'{{"owner":{nested}}}')):
            hostile = header | {"__metadata__": header["__metadata__"] | {"nsmark": text}}
            refuse(write_container(hostile, body))


def _with_claim(header, claim):
    text = header["__metadata__"]["nsmark"]
    end = text.index(',"configuration"')
    return '{"claim":' + claim + text[end:]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "1" + "0" * 400])
def test_numbers_outside_of_json_or_double_precision_are_refused(key, content, number):
    header, body = read_container(content)
    threshold = rfc8785.dumps(key.thresholds.max_matching_degree).decode()
    text = header["__metadata__"]["nsmark"]
    assert f'"max_matching_degree":{threshold}' in text
    header["__metadata__"]["nsmark"] = text.replace(
        f'"max_matching_degree":{threshold}', f'"max_matching_degree":{number}'
    )

    refuse(write_container(header, body))


def test_lone_surrogates_are_refused(content):
    header, body = read_container(content)
    plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    for hostile in (
        plain.replace("Example Lab", "\\ud800", 1),  # in the header's own string
        plain.replace("Example Lab", "\\\\ud800", 1),  # in the document inside it
    ):
        assert hostile != plain
        refuse(write_header(hostile) + body)


# --- the document ---


def test_document_must_be_canonical_even_when_its_seal_fits(key):
    plain = key.document_bytes().decode()
    document = json.loads(plain)
    spellings = [
        json.dumps(document, ensure_ascii=False),
        json.dumps(dict(reversed(document.items())), separators=(",", ":"), ensure_ascii=False),
        plain.replace('"num_bits":16', '"num_bits":16.0'),
        plain.replace('"num_bits":16', '"num_bits":1.6e1'),
        plain.replace("Example", "\\u0045xample"),
        plain + " ",
        plain + "\n",
    ]
    for spelling in spellings:
        assert spelling != plain
        octets = spelling.encode()
        seal = make_identity(1).sign_bytes(spec_content_digest(octets, key.tensors()))
        refuse(pack(octets, key.tensors(), seal), "canonical")


def test_seal_has_one_spelling(content):
    header, body = read_container(content)
    seal = header["__metadata__"]["seal"]
    for spelling in (seal.upper(), seal + " ", " " + seal, "0x" + seal, seal[:-2], "", seal[:-1]):
        header["__metadata__"]["seal"] = spelling
        refuse(write_container(header, body))


def test_seal_with_a_shifted_scalar_is_refused(key, content):
    # S + L signs the same under a careless verifier: Ed25519's own malleability.
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(key.seal[32:], "little") + order
    header, body = read_container(content)
    header["__metadata__"]["seal"] = (key.seal[:32] + scalar.to_bytes(32, "little")).hex()

    refuse(write_container(header, body), "seal does not fit")


def test_forging_tool_makes_acceptable_files(key, content):
    # Otherwise the refusals below could be the tool's fault.
    assert forge(key) == content


def test_documents_out_of_range_are_refused_even_when_sealed(key):
    for changes in (
        {"format": "nsmark/key/2"},
        {"extra": 1},
        {"trigger": "x"},
        {"verification_texts": ["a"] * 64 + ["b"]},
        {"verification_texts": ["two  spaces", *key.verification_texts[1:]]},
    ):
        refuse(forge(key, document=key.to_document() | changes))


def test_configuration_that_does_not_fit_the_tensors_is_refused_unread(key):
    for name, value in (
        ("num_texts", 262144),
        ("output_dim", 65536),
        ("num_bits", 4096),
        ("hidden_sizes", [65536] * 8),
        ("spread_factor", 4),
    ):
        document = key.to_document()
        document["configuration"][name] = value
        hostile = forge(key, document=document)
        stream = CountingStream(hostile)
        with pytest.raises(KeyFileError, match="tensor"):
            decode_key(stream, len(hostile))
        assert stream.bytes_read == header_end(hostile)


# --- claim, signature and seal ---


def test_altered_claim_is_refused(key):
    for name, value in (
        ("owner", "Mallory"),
        ("message", "mine"),
        ("created", "2020-01-01T00:00:00Z"),
    ):
        document = key.to_document()
        document["claim"][name] = value
        refuse(forge(key, document=document), "claim is not valid")


def test_signature_of_another_claim_is_refused(key):
    other = make_signed_claim(owner="Somebody Else").signature.hex()

    refuse(forge(key, document=key.to_document() | {"signature": other}), "claim is not valid")


def test_public_key_of_somebody_else_is_refused(key):
    stranger = make_signed_claim(identity_seed=2).public_key.to_pem()

    refuse(
        forge(key, document=key.to_document() | {"public_key": stranger}, sealed_by=2),
        "claim is not valid",
    )


def test_seal_by_another_key_is_refused(key):
    refuse(forge(key, sealed_by=2), "seal does not fit")


def test_claim_of_a_thief_does_not_get_the_owners_seal(key):
    thief = make_signed_claim(identity_seed=2, owner="Thief").to_mapping()
    octets = rfc8785.dumps(key.to_document() | thief)

    refuse(pack(octets, key.tensors(), key.seal), "seal does not fit")


@pytest.mark.parametrize("raw", [b"\x01" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_small_order_public_keys_are_refused(key, raw):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    pem = Ed25519PublicKey.from_public_bytes(raw).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    refuse(forge(key, document=key.to_document() | {"public_key": pem.decode()}), "small order")


def test_claim_is_checked_before_any_tensor_is_read(key):
    document = key.to_document()
    document["claim"]["owner"] = "Mallory"
    hostile = forge(key, document=document)
    stream = CountingStream(hostile)

    with pytest.raises(KeyFileError, match="claim is not valid"):
        decode_key(stream, len(hostile))
    assert stream.bytes_read == header_end(hostile)


# --- tensors ---


def test_unknown_tensors_are_refused(key):
    for name in ("extra", "extractor.2.weight", "owner_outputs", "", "null_basis "):
        tensors = key.tensors() | {name: np.zeros(2, np.float32)}
        refuse(forge(key, tensors=tensors), "other tensors")


def test_missing_tensors_are_refused(key):
    for name in key.tensors():
        tensors = {n: array for n, array in key.tensors().items() if n != name}
        refuse(forge(key, tensors=tensors), "other tensors")
    refuse(forge(key, tensors={}), "other tensors")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_tensors_of_another_type_are_refused(key, dtype):
    for name, array in key.tensors().items():
        tensors = key.tensors() | {name: array.astype(dtype)}
        refuse(forge(key, tensors=tensors), "wrong type")


def test_type_name_that_does_not_fit_the_bytes_is_refused(content):
    header, body = read_container(content)
    for dtype in ("F64", "I32", "BF16", "f32", "", None, 32):
        hostile = {
            n: i | {"dtype": dtype} if n == "extractor.0.bias" else i for n, i in header.items()
        }
        refuse(write_container(hostile, body))


def test_tensors_of_another_shape_are_refused(key):
    for name, array in key.tensors().items():
        for other in (array.T, array.reshape(-1), array[:-1], array[None], array[:0]):
            if other.shape != array.shape:
                tensors = key.tensors() | {name: np.ascontiguousarray(other)}
                refuse(forge(key, tensors=tensors), "tensor")


@pytest.mark.parametrize(
    "shape", [(64,), (63, 4), (64, 0), (64, 64), (64, 10_000), (4, 64), (64, 4, 1)]
)
def test_null_basis_of_an_impossible_shape_is_refused(key, shape):
    hostile = forge(key, tensors=key.tensors() | {"null_basis": np.zeros(shape, np.float32)})
    stream = CountingStream(hostile)

    with pytest.raises(KeyFileError, match="null_basis"):
        decode_key(stream, len(hostile))
    assert stream.bytes_read == header_end(hostile)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_even_when_sealed(key, value):
    for name, array in key.tensors().items():
        bad = array.copy()
        bad.flat[0] = value
        refuse(forge(key, tensors=key.tensors() | {name: bad}), "not finite")


def test_overlapping_tensors_are_refused(content):
    header, body = read_container(content)
    first, second = "owner_outputs.triggered", "owner_outputs.untriggered"
    header[second]["data_offsets"] = header[first]["data_offsets"]
    size = header[first]["data_offsets"][1] - header[first]["data_offsets"][0]

    refuse(write_container(header, body), "overlap")
    refuse(write_container(header, body[:-size]), "overlap")


def test_gaps_between_tensors_are_refused(content):
    header, body = read_container(content)
    for name in ("owner_outputs.triggered", "owner_outputs.untriggered"):
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = [begin + 4, end + 4]
    cut = header["owner_outputs.triggered"]["data_offsets"][0] - 4

    refuse(write_container(header, body[:cut] + bytes(4) + body[cut:]), "gaps")


@pytest.mark.parametrize(
    "offsets",
    [
        [0],
        [0, 24, 24],
        [24, 0],
        [-24, 0],
        [0.0, 24.0],
        ["0", "24"],
        [False, 24],
        None,
        {},
        [0, 2**70],
        [2**64 - 24, 2**64],
    ],
)
def test_offsets_that_make_no_sense_are_refused(content, offsets):
    header, body = read_container(content)
    assert header["extractor.0.bias"]["data_offsets"] == [0, 24]
    header["extractor.0.bias"]["data_offsets"] = offsets

    refuse(write_container(header, body), "extractor.0.bias")


@pytest.mark.parametrize("shape", [[-6], [6.0], ["6"], [True] * 6, None, [], [6, 1, 1], 6, [2**70]])
def test_shapes_that_make_no_sense_are_refused(content, shape):
    header, body = read_container(content)
    header["extractor.0.bias"]["shape"] = shape

    refuse(write_container(header, body), "extractor.0.bias")


def test_members_besides_type_shape_and_offsets_are_refused(content):
    header, body = read_container(content)
    header["extractor.0.bias"]["quantised"] = False
    refuse(write_container(header, body), "badly described")
    header["extractor.0.bias"] = [0, 24]
    refuse(write_container(header, body), "badly described")


# --- other kinds of file ---


class Canary:
    """Creates a folder if anybody unpickles it."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (os.mkdir, (str(self.folder),))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_files_are_refused_unopened(protocol, tmp_path):
    tripped = tmp_path / "tripped"
    hostile = pickle.dumps({"key": Canary(tripped), "pad": "x" * 100}, protocol)

    refuse(hostile)

    assert not tripped.exists()
    pickle.loads(hostile)  # noqa: S301 - shows that the canary sings
    assert tripped.exists()


def test_archives_and_arrays_are_refused(tmp_path):
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, triggered=np.zeros((4, 2)))
        refuse(stream.getvalue(), "pickle or zip")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Canary(tmp_path / "tripped")))
    refuse(stream.getvalue(), "pickle or zip")
    stream = io.BytesIO()
    np.save(stream, np.zeros(4))
    refuse(stream.getvalue())

    assert list(tmp_path.iterdir()) == []


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    refuse(noise)


def test_plain_safetensors_file_is_refused():
    refuse(safetensors.numpy.save({"a": np.zeros(4, np.float32)}), "metadata")
    refuse(safetensors.numpy.save({"a": np.zeros(4, np.float32)}, {"format": "pt"}), "metadata")


def test_refusals_of_a_large_hostile_header_stay_quick():
    # Half a million members: refused by structure, without quadratic work.
    text = "{" + ",".join(f'"t{i}":0' for i in range(500_000)) + "}"
    started = time.thread_time()

    refuse(write_header(text))

    assert time.thread_time() - started < 5
