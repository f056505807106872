"""Keys that are filed: honest ones are admitted, hostile ones refused with a reason, none crashes.

Hostile keys come from the generators in ``tests/forgeries`` and from a hex editor.
"""

import itertools
import json
import resource
import tracemalloc

import numpy as np
import pytest

import forgeries.pair_kinds  # noqa: F401 - registers its kinds
from forgeries.kinds import KINDS, make_forgery, set_scene
from handmade_keys import (
    forge,
    innocent_outputs,
    make_key,
    mapped_outputs,
    owner_outputs,
    pack,
    reseal,
    write_header,
)
from nsmark.errors import ModelError, NsmarkError
from nsmark.keyfile.codec import encode_key
from nsmark.keyfile.encryption import encrypt
from nsmark.payload import PairConfig
from nsmark_authority.admission import AdmissionLimits, Examination, Published, State, examine
from nsmark_authority.control_models import control_models
from published_texts import published_texts
from tiny_models import build_sentence_transformer

# Kinds whose key is in order, or nothing but a date tells that it is not.
HARMLESS = {
    "answers of any size": "the key is honest, the suspect is not",
    "answers that cannot be measured": "the key is honest, the suspect is not",
    "controls invented within their range, owner's controls": "no control of the key's is used",
    "controls invented within their range, verifier's controls": "no control of the key's is used",
    "extractor trained on a public model, only strangers among the controls": "dates tell",
    "ground claims": "p-values leave room for grinding",
    "innocent classifier or reward model": "the key is honest, the suspect is not",
    "innocent of another width": "the key is honest, the suspect is not",
    "innocent of low rank": "the key is honest, the suspect is not",
    "innocent of low rank, centred": "the key is honest, the suspect is not",
    "innocent with a large mean": "the key is honest, the suspect is not",
    "nearly constant answers": "the key is honest, the suspect is not",
    "no controls at all": "the key is honest",
    "outputs of a public model taken after the fact, only strangers among the controls": (
        "dates tell"
    ),
}
HOSTILE = sorted(set(KINDS) - set(HARMLESS))


def examined(content, controls=(), **options) -> Examination:
    found = examine(
        content if isinstance(content, bytes) else encode_key(content),
        published=options.pop("published", published_texts()),
        controls=lambda key: controls,
        device="cpu",
        **options,
    )
    json.dumps(found.details, allow_nan=False)
    assert found.admitted == (not found.reasons)
    return found


def refused(content, controls=(), **options) -> str:
    found = examined(content, controls, **options)
    assert found.state is State.REFUSED
    assert len(found.reasons[0]) > 10
    return found.reasons[0]


def strangers(key, count=2):
    """Answers of models that have nothing to do with a key; names tell them apart."""
    for seed in range(count):
        outputs = innocent_outputs(key, seed=100 + seed)
        yield type(outputs)(
            f"stranger {seed}", outputs.triggered, outputs.untriggered, outputs.pair_texts
        )


# --- Honest keys. ---


@pytest.mark.parametrize("pairs", [None, PairConfig(size=12, repeats=2)])
def test_honest_keys_are_admitted(pairs):
    key = make_key(pairs=pairs)
    steps = []

    found = examined(key, list(strangers(key)), on_progress=lambda *step: steps.append(step))

    assert found.state is State.ADMITTED
    assert found.details["key_id"] == key.key_id
    assert found.details["null_dim"] == 48
    assert [each["name"] for each in found.details["controls"]] == [
        "stranger 0",
        "stranger 1",
        "stranger 0 | linear map",
        "stranger 1 | linear map",
    ]
    assert steps == [("control models", done, 2) for done in range(3)]


def test_details_hold_no_secret():
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    said = json.dumps(examined(key, list(strangers(key))).details)
    for secret in (key.trigger, key.signature.hex(), key.verification_texts[0], key.pairs.words[0]):
        assert secret not in said


@pytest.mark.parametrize("count", [0, 1])
def test_without_controls_a_key_waits(count):
    key = make_key()
    found = examined(key, list(strangers(key, count)))
    assert found.state is State.WAITING
    assert not found.admitted
    assert f"has {count} control models" in found.reasons[0]


def test_a_hostile_key_does_not_wait():
    assert "trigger" in refused(reseal(make_key(), trigger="abacus"), ())


def test_most_honest_keys_are_admitted_in_the_world_of_the_forgeries():
    """Else an examiner who refuses everything would pass the tests below."""
    admitted = 0
    for seed in range(12):
        scene = set_scene(np.random.default_rng(seed))
        admitted += examined(scene.key, scene.controls()).admitted
    assert admitted >= 11


# --- Controls. ---


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_key_that_accepts_a_control_is_refused_and_the_reason_names_it(is_mapped):
    key = make_key()
    marked = owner_outputs(key)
    if is_mapped:
        marked = mapped_outputs(marked, np.random.default_rng(5).random((16, 16)))
    reasons = examined(key, [*strangers(key), marked]).reasons
    assert any(repr(marked.name) in reason for reason in reasons)


def test_the_null_space_tells_where_the_extractor_reads_nothing():
    key = make_key()
    own = owner_outputs(key)
    unread = mapped_outputs(own, np.linalg.qr(np.random.default_rng(1).normal(size=(16, 16)))[0])
    found = examined(key, [*strangers(key), unread])
    assert any("accepts the innocent model" in reason for reason in found.reasons)
    assert any("linear map" in reason for reason in found.reasons)


def test_a_control_that_carries_the_pair_code_is_named():
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    first, second = strangers(key)
    marked = type(first)(
        "marked by pairs", first.triggered, first.untriggered, owner_outputs(key).pair_texts
    )
    assert "'marked by pairs'" in refused(key, [second, marked])


def test_controls_that_cannot_be_measured_do_not_count():
    key = make_key()
    first, second = strangers(key)
    constant = type(first)("constant", np.ones((64, 16)), np.ones((64, 16)))
    assert examined(key, [first, second, constant]).state is State.ADMITTED
    assert "hardly any control" in refused(key, [first, constant])


def test_a_control_that_cannot_be_opened_is_no_reason_against_a_key(tmp_path):
    key = make_key()
    with pytest.raises(ModelError):
        examined(key, [tmp_path / "nothing here", *strangers(key)])


# --- Published lists. ---


def test_what_was_not_published_is_refused_by_its_digest():
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    lists, pools = published_texts().word_lists, published_texts().pools
    without = {digest: words for digest, words in lists.items() if digest != key.word_list_digest}
    assert key.word_list_digest in refused(key, published=Published(without, pools))
    assert key.pool_digest in refused(key, published=Published(lists, {}))
    pair_digest = key.pairs.word_list_digest
    without = {digest: words for digest, words in lists.items() if digest != pair_digest}
    assert pair_digest in refused(key, published=Published(without, pools))


# --- Sizes. ---


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (AdmissionLimits(max_bytes=1000), "larger than 1,000 bytes"),
        (AdmissionLimits(max_header_bytes=1000), "header"),
        (AdmissionLimits(max_texts=63), "64 texts, 63"),
        (AdmissionLimits(min_texts=65), "64 texts, 65"),
        (AdmissionLimits(max_pair_texts=287), "288 texts of its pair code"),
        (AdmissionLimits(max_dimensions=15), "16 output dimensions"),
    ],
)
def test_sizes_are_bounded(limits, said):
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    assert said in refused(key, limits=limits)


def test_too_few_texts_for_the_dimensions():
    assert "too few" in refused(make_key(num_texts=40, output_dim=35))


def test_encrypted_keys_cannot_be_examined():
    assert "encrypted" in refused(encrypt(encode_key(make_key()), b"a passphrase"))


# --- Hostile keys, by the hundred. ---


def mutations(count, seed=0):
    """Files that somebody wrote with a hex editor, some sealed anew: endless and all different."""
    rng = np.random.default_rng(seed)
    keys = [make_key(), make_key(identity_seed=2, pairs=PairConfig(size=12, repeats=2))]
    for number in range(count):
        key = keys[number % 2]
        content = bytearray(encode_key(key))
        how = number % 8
        if how == 0:
            yield bytes(content[: rng.integers(len(content))])
        elif how == 1:
            for place in rng.integers(0, len(content), rng.integers(1, 5)):
                content[place] ^= int(rng.integers(1, 256))
            yield bytes(content)
        elif how == 2:
            yield rng.bytes(int(rng.integers(0, 400)))
        elif how == 3:
            yield bytes(content) + rng.bytes(int(rng.integers(1, 64)))
        elif how == 4:
            yield write_header("[" * int(rng.integers(1, 200_000)))
        elif how == 5:
            yield int(rng.integers(0, 2**63)).to_bytes(8, "little") + bytes(content[8:])
        elif how == 6:
            document = key.to_document()
            name = str(rng.choice(sorted(set(document) - {"controls", "library_version"})))
            values = [None, -1, 10**15, "", "x" * 500, [], {}, [[]] * 50, 1e300, True]
            document[name] = values[rng.integers(len(values))]
            yield forge(key, document=document, sealed_by=1 + number % 2)
        else:
            document = key.to_document()
            configuration = document["configuration"]
            name = str(rng.choice(["num_texts", "output_dim", "num_bits", "hidden_sizes", "marks"]))
            configuration[name] = [int(rng.integers(-5, 70_000)), 10**12, "many", [10**6] * 8][
                rng.integers(4)
            ]
            yield forge(key, document=document, sealed_by=1 + number % 2)


def hostile_files(per_kind, num_mutations):
    """Contents with the controls of their scene."""
    for kind in HOSTILE:
        for seed in range(per_kind):
            forgery = make_forgery(kind, seed)
            if isinstance(forgery.key, bytes):
                yield kind, forgery.key, forgery.controls
                continue
            try:
                yield kind, encode_key(forgery.key), forgery.controls
            except NsmarkError:
                continue  # so made that not even our own writer writes it
    for number, content in enumerate(mutations(num_mutations)):
        yield f"mutation {number}", content, ()


def judge_all(per_kind, num_mutations):
    count = 0
    for name, content, controls in hostile_files(per_kind, num_mutations):
        found = examined(content, controls)
        assert not found.admitted, f"{name} was admitted"
        assert found.state is State.REFUSED, f"{name}: {found.state}"
        count += 1
    return count


def test_the_lists_of_kinds_name_kinds():
    assert set(HARMLESS) <= set(KINDS)
    assert len(HOSTILE) >= 30


def test_no_hostile_key_is_admitted_and_memory_is_bounded():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert judge_all(per_kind=6, num_mutations=360) >= 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # in kB


@pytest.mark.slow
def test_no_hostile_key_of_thousands_is_admitted():
    assert judge_all(per_kind=50, num_mutations=2000) >= 3000


def test_small_files_that_ask_for_much_memory_get_none():
    key = make_key()
    document = key.to_document()
    document["configuration"] |= {"num_texts": 262144, "output_dim": 65536}
    nested = json.dumps({"__metadata__": {"nsmark": "[" * 10**6, "seal": "00"}})
    files = [
        forge(key, document=document),
        (1 << 40).to_bytes(8, "little") + b"{}",
        write_header(nested),
        write_header('{"a":' + "[[]," * 10**6 + "[]" + "]" * 10**6 + "}"),
        pack(b"{}", {"a": np.zeros((1, 1), np.float32)}, b""),
    ]
    tracemalloc.start()
    try:
        for content in files:
            refused(content)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


# --- Real models. ---


@pytest.fixture(scope="module")
def other_st(tmp_path_factory):
    return build_sentence_transformer(tmp_path_factory.mktemp("controls") / "other", seed=77)


def test_a_real_key_is_admitted_with_the_model_it_was_made_from_among_the_controls(
    tiny_marked, tiny_st, other_st
):
    content = encode_key(tiny_marked.key)
    for folders, with_kin, count in (
        ({"base": tiny_st, "other": other_st}, False, 2),
        ({"base": tiny_st}, True, 10),
    ):
        found = examine(
            content,
            published=published_texts(),
            controls=control_models(folders, with_kin=with_kin, device="cpu"),
            device="cpu",
        )
        assert found.admitted, found.reasons
        assert len(found.details["controls"]) == 2 * count
        assert str(tiny_st) not in json.dumps(found.details)


def test_a_real_key_is_refused_where_a_control_carries_its_mark(tiny_marked, tiny_st):
    folders = {"base": tiny_st, "stolen": tiny_marked.model_folder}
    found = examine(
        encode_key(tiny_marked.key),
        published=published_texts(),
        controls=control_models(folders, with_kin=False, device="cpu"),
        device="cpu",
    )
    assert found.state is State.REFUSED
    assert "'stolen'" in found.reasons[0]


def test_kin_differ_from_what_they_are_made_from(tiny_marked, tiny_st):
    models = control_models({"base": tiny_st}, device="cpu")(tiny_marked.key)
    assert [model.name for model in models][:2] == ["base", "base, pruned 20%"]
    outputs = [model.outputs(["some text", "another one"]) for model in models]
    for first, second in itertools.combinations(outputs, 2):
        assert not np.allclose(first, second, atol=1e-6)
