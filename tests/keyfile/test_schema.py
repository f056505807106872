"""WatermarkKey is consistent by construction, and its document is strict."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import make_identity, make_key, make_payload, reseal
from nsmark.errors import KeyFileError
from nsmark.keyfile.document import KeyDocument, parse_document
from nsmark.keyfile.schema import expected_shapes


@pytest.fixture(scope="module")
def key():
    return make_key(with_null_basis=True)


@pytest.fixture
def document(key):
    return copy.deepcopy(key.to_document())


def test_document_has_the_fields_of_the_specification(document):
    assert set(document) == {
        "format",
        "claim",
        "public_key",
        "signature",
        "configuration",
        "trigger",
        "skipped_words",
        "verification_texts",
        "word_list_sha256",
        "pool_sha256",
        "model_sha256",
        "thresholds",
        "controls",
        "library_version",
    }
    assert {
        "pooling",
        "max_length",
        "num_bits",
        "spread_factor",
        "copies",
        "hidden_sizes",
    } <= set(document["configuration"])
    assert document["format"] == "nsmark/key/1"


def test_document_survives_validation_unchanged(document):
    parsed = parse_document(document)

    assert parsed.model_dump(mode="json", exclude_unset=True) == document


def test_payload_of_the_key_is_the_one_it_was_made_from(key):
    assert key.payload() == make_payload(1, "Example Lab", 64, 16, 3)


def test_expected_shapes_follow_from_the_configuration(key):
    assert expected_shapes(key.configuration) == {
        "owner_outputs.triggered": (64, 16),
        "owner_outputs.untriggered": (64, 16),
        "extractor.0.weight": (6, 16),
        "extractor.0.bias": (6,),
        "extractor.1.weight": (48, 6),
        "extractor.1.bias": (48,),
    }


# --- construction ---


@pytest.mark.parametrize(
    "name", ["owner_triggered", "owner_untriggered", "null_basis", "extractor weight", "bias"]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(key, name, value):
    arrays = {n: getattr(key, n) for n in ("owner_triggered", "owner_untriggered", "null_basis")}
    weight, bias = key.extractor[-1]
    arrays |= {"extractor weight": weight, "bias": bias}
    bad = arrays[name].copy()
    bad.flat[-1] = value
    if name in ("extractor weight", "bias"):
        layer = (bad, bias) if name == "extractor weight" else (weight, bad)
        changes = {"extractor": (*key.extractor[:-1], layer)}
    else:
        changes = {name: bad}

    with pytest.raises(KeyFileError, match="not finite"):
        replace(key, **changes)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, ">f4"])
def test_tensors_of_another_type_are_refused(key, dtype):
    with pytest.raises(KeyFileError, match="float32"):
        replace(key, owner_triggered=key.owner_triggered.astype(dtype))


@pytest.mark.parametrize(
    "changes",
    [
        {"owner_triggered": np.zeros((16, 64), np.float32)},
        {"owner_triggered": np.zeros((63, 16), np.float32)},
        {"owner_untriggered": np.zeros((64, 16, 1), np.float32)},
        {"owner_untriggered": np.zeros(64 * 16, np.float32)},
        {"null_basis": np.zeros(64, np.float32)},
        {"null_basis": np.zeros((63, 4), np.float32)},
        {"null_basis": np.zeros((64, 0), np.float32)},
        {"null_basis": np.zeros((64, 64), np.float32)},  # p = q − rank, and no rank is 0
        {"null_basis": np.zeros((64, 4, 1), np.float32)},
        {"null_basis": np.zeros((), np.float32)},
        {"extractor": ()},
    ],
    ids=lambda changes: "-".join(f"{k}{getattr(v, 'shape', '')}" for k, v in changes.items()),
)
def test_tensors_that_do_not_fit_the_configuration_are_refused(key, changes):
    with pytest.raises(KeyFileError):
        replace(key, **changes)


def test_extractor_with_a_layer_too_few_or_too_many_is_refused(key):
    for layers in (key.extractor[:1], key.extractor[1:], (*key.extractor, key.extractor[-1])):
        with pytest.raises(KeyFileError):
            replace(key, extractor=layers)


def test_number_of_texts_must_be_the_one_of_the_configuration(key):
    for texts in (key.verification_texts[:-1], (*key.verification_texts, "one more text")):
        with pytest.raises(KeyFileError, match="texts"):
            replace(key, verification_texts=texts)


@pytest.mark.parametrize(
    "text",
    [
        "two  spaces",
        " leading",
        "trailing ",
        "a\ttab",
        "a\nline",
        "cafe\u0301 not composed",
        " ".join(["word"] * 65),
    ],
)
def test_texts_that_are_not_in_normal_form_are_refused(key, text):
    with pytest.raises(KeyFileError, match="normal form"):
        replace(key, verification_texts=with_first_text(key, text))


def with_first_text(key, text):
    return (text, *key.verification_texts[1:])


# --- seal, equality, printing ---


def test_only_the_identity_of_the_claim_can_seal(key):
    with pytest.raises(KeyFileError, match="not the one that signed"):
        key.sealed_by(make_identity(2))


def test_seal_stops_fitting_when_anything_changes(key):
    other = key.owner_triggered.copy()
    other[0, 0] = np.nextafter(other[0, 0], np.float32(9))
    weight, bias = key.extractor[0]

    assert key.has_valid_seal()
    for changes in (
        {"trigger": "someword"},
        {"skipped_words": ("someword",)},
        {"verification_texts": with_first_text(key, "another text")},
        {"model_digest": "00" * 32},
        {"controls": ()},
        {"library_version": "9"},
        {"owner_triggered": other},
        {"null_basis": None},
        {"extractor": ((weight, bias + 1), *key.extractor[1:])},
        {"thresholds": key.thresholds.model_copy(update={"min_extraction_rate": 0.0})},
        {"seal": b""},
        {"seal": key.seal[:-1]},
        {"seal": bytes(64)},
    ):
        assert not replace(key, **changes).has_valid_seal()


def test_equal_keys_are_equal_and_one_bit_makes_them_differ(key):
    twin = make_key(with_null_basis=True)
    outputs = key.owner_triggered.copy()
    outputs[3, 3] += np.float32(0.5)

    assert twin == key
    assert hash(twin) == hash(key)
    assert reseal(key, owner_triggered=outputs) != key
    assert replace(key, seal=b"") != key
    assert key != key.key_id


def test_printing_a_key_does_not_show_its_secret(key):
    shown = repr(key) + str(key)

    assert key.key_id in shown
    assert key.signature.hex() not in shown
    assert repr(key.signature) not in shown
    assert key.trigger not in shown
    assert key.verification_texts[0] not in shown


# --- document ---


@pytest.mark.parametrize("found", ["nsmark/key/2", "", None, 1, ["nsmark/key/1"]])
def test_other_formats_are_named_in_the_refusal(document, found):
    document["format"] = found

    with pytest.raises(KeyFileError, match="format"):
        parse_document(document)


def test_every_field_is_required_and_no_other_is_allowed(document):
    for name in document:
        with pytest.raises(KeyFileError):
            parse_document({k: v for k, v in document.items() if k != name})
    with pytest.raises(KeyFileError, match="extra"):
        parse_document(document | {"extra": 1})
    for part in ("configuration", "thresholds"):
        for name in document[part]:
            partial = {k: v for k, v in document[part].items() if k != name}
            with pytest.raises(KeyFileError, match=name):
                parse_document(document | {part: partial})
        with pytest.raises(KeyFileError, match=f"{part}.extra"):
            parse_document(document | {part: document[part] | {"extra": 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_bits", 7),
        ("num_bits", 4097),
        ("num_bits", "16"),
        ("num_bits", 16.5),
        ("num_bits", True),
        ("spread_factor", 0),
        ("spread_factor", 64),
        ("copies", 0),
        ("copies", 65),
        ("window", 0),
        ("window", 65),
        ("placement", "back"),
        ("output_dim", 1),
        ("output_dim", 65537),
        ("num_texts", 1),
        ("num_texts", 262145),
        ("hidden_sizes", []),
        ("hidden_sizes", [0]),
        ("hidden_sizes", [65537]),
        ("hidden_sizes", [6] * 9),
        ("hidden_sizes", ["6"]),
        ("hidden_sizes", "6"),
        ("pooling", "weighted"),
        ("normalise", 1),
        ("normalise", "yes"),
        ("max_length", 0),
        ("max_length", 2**20 + 1),
        ("marks", []),
        ("marks", ["other"]),
    ],
)
def test_configuration_out_of_range_is_refused(document, name, value):
    document["configuration"][name] = value

    with pytest.raises(KeyFileError, match=f"configuration.{name}"):
        parse_document(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim", []),
        ("claim", {"owner": {"deep": ["nested"]}}),
        ("public_key", "x" * 1025),
        ("signature", "ab" * 63),
        ("signature", "AB" * 64),
        ("signature", "ab" * 64 + "\n"),
        ("trigger", "two words"),
        ("trigger", "abc"),
        ("trigger", "Upper"),
        ("trigger", "trigger\n"),
        ("skipped_words", ["x"]),
        ("skipped_words", "abcd"),
        ("verification_texts", [""]),
        ("verification_texts", [1]),
        ("verification_texts", ["x" * 65537]),
        ("word_list_sha256", "0" * 63),
        ("pool_sha256", "G" * 64),
        ("model_sha256", "0" * 64 + "\n"),
        ("model_sha256", None),
        ("thresholds", {"min_extraction_rate": "0.5", "max_matching_degree": 1.0}),
        ("thresholds", {"min_extraction_rate": True, "max_matching_degree": 1.0}),
        ("thresholds", {"min_extraction_rate": float("nan"), "max_matching_degree": 1.0}),
        ("thresholds", {"min_extraction_rate": 0.5, "max_matching_degree": float("inf")}),
        ("thresholds", None),
        ("controls", [{"name": "", "triggered": {}, "untriggered": {}}]),
        ("controls", [{"name": "c", "triggered": {"x": "1"}, "untriggered": {}}]),
        ("controls", [{"name": "c", "triggered": {}, "untriggered": {"x": float("nan")}}]),
        ("controls", [{"name": "c", "triggered": {}}]),
        ("controls", {}),
        ("library_version", "9" * 65),
    ],
)
def test_fields_of_the_wrong_type_or_size_are_refused(document, name, value):
    document[name] = value

    with pytest.raises(KeyFileError, match=name):
        parse_document(document)


def test_controls_may_leave_values_out(document):
    document["controls"] = [{"name": "c", "triggered": {"x": None}, "untriggered": {}}]

    parsed = parse_document(document)

    assert isinstance(parsed, KeyDocument)
    assert parsed.controls[0].triggered == {"x": None}
