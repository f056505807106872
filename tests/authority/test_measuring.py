"""Disputes measured on real tiny models: folders, recorded outputs, endpoints on this machine."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from endpoint_server import EndpointServer
from handmade_keys import innocent_outputs, make_key, mapped_outputs, owner_outputs, reseal
from nsmark.api.opening import Opening
from nsmark.errors import KeyFileError, ModelError
from nsmark.keyfile.codec import encode_key
from nsmark.models.loading import open_encoder
from nsmark.payload import PairConfig
from nsmark.suspects import save_recorded
from nsmark.transforms.outputs import linear_map
from nsmark.verification.questions import key_questions
from nsmark.verification.verdict import Verdict
from nsmark_authority.confined_tasks import MeasureRequest, measure_suspect
from nsmark_authority.control_models import control_models
from nsmark_authority.measuring import (
    EndpointSuspect,
    FolderSuspect,
    MeasuringLimits,
    RecordedSuspect,
    measure,
)
from nsmark_authority.outgoing import OutgoingPolicy
from nsmark_authority.uploads import wanted_files
from published_texts import published_texts
from tiny_models import build_sentence_transformer

RANDOMNESS = bytes(range(32))


def uploaded(source, target):
    for name in wanted_files(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    return target


@pytest.fixture(scope="module")
def folders(tiny_marked, tiny_st, tmp_path_factory):
    """Uploads: the marked model, the unmarked one, and a stranger."""
    root = tmp_path_factory.mktemp("uploads")
    stranger = build_sentence_transformer(root / "made", seed=77)
    return {
        "marked": uploaded(tiny_marked.model_folder, root / "marked"),
        "unmarked": uploaded(tiny_st, root / "unmarked"),
        "stranger": uploaded(stranger, root / "stranger"),
    }


@pytest.fixture(scope="module")
def controls(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("controls")
    innocent = {
        f"control {seed}": build_sentence_transformer(root / str(seed), seed=80 + seed)
        for seed in range(2)
    }
    return control_models(innocent | {"public": folders["unmarked"]}, with_kin=False, device="cpu")


@pytest.fixture(scope="module")
def key(tiny_marked):
    return tiny_marked.key


def measured(key, suspect, controls, **options):
    found = measure(
        key,
        suspect,
        controls=controls,
        published=published_texts(),
        randomness=RANDOMNESS,
        device="cpu",
        **options,
    )
    assert "<html" in found.html
    assert found.verdict.value == json.loads(json.dumps(found.to_mapping()))["verdict"]
    assert found.notes
    return found


def test_a_stolen_folder_is_found_and_an_innocent_one_is_not(key, folders, controls):
    stolen = measured(key, FolderSuspect("upload 1", folders["marked"]), controls)
    innocent = measured(key, FolderSuspect("upload 2", folders["stranger"]), controls)

    assert stolen.verdict is Verdict.OWNED
    assert innocent.verdict is Verdict.NOT_SHOWN
    assert stolen.report.suspect == "upload 1"
    assert stolen.report.calibrated_by == "verifier"
    assert "key's own" in stolen.notes[0]
    for found in (stolen, innocent):
        said = found.html + json.dumps(found.to_mapping())
        for folder in folders.values():
            assert str(folder.parent) not in said
        assert "control 1" in said


def test_with_the_deposited_model_all_texts_are_drawn_anew(key, folders, controls):
    suspect = FolderSuspect("upload", folders["marked"])
    stages = []

    found = measured(
        key,
        suspect,
        controls,
        owner_model=folders["marked"],
        on_progress=lambda stage, done, total: stages.append(stage),
    )

    assert found.verdict is Verdict.OWNED
    assert found.report.fresh == RANDOMNESS.hex()
    assert RANDOMNESS.hex() in found.notes[0]
    assert list(dict.fromkeys(stages)) == [
        "control 1 of 3",
        "control 2 of 3",
        "control 3 of 3",
        "suspect",
    ]


def test_a_deposit_of_another_model_is_not_believed(key, folders, controls):
    suspect = FolderSuspect("upload", folders["marked"])
    with pytest.raises(KeyFileError, match="does not hold the model"):
        measured(key, suspect, controls, owner_model=folders["stranger"])


def test_recorded_outputs_are_measured_on_the_keys_own_texts_and_the_notes_say_so(
    key, folders, controls, tmp_path
):
    encoder = open_encoder(folders["marked"], device="cpu")
    payload = key.payload()
    outputs = [
        encoder.encode(texts).astype(np.float64)
        for texts in (payload.triggered_texts(), list(payload.verification_texts))
    ]
    change = linear_map(outputs[0], np.random.default_rng(0))
    save_recorded(tmp_path / "answers", change(outputs[0]), change(outputs[1]))

    found = measured(
        key,
        RecordedSuspect("recorded outputs", tmp_path / "answers"),
        controls,
        owner_model=folders["marked"],
    )

    assert found.verdict is Verdict.OWNED
    assert found.report.fresh is None
    assert "word" in found.notes[0]
    assert "key's own" in found.notes[1]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04", b"x" * 100])
def test_recorded_outputs_that_are_none_could_not_be_measured(key, controls, tmp_path, content):
    (tmp_path / "answers").write_bytes(content)
    found = measured(key, RecordedSuspect("file 1", tmp_path / "answers"), controls)
    assert found.verdict is Verdict.COULD_NOT_MEASURE
    assert "file 1" in found.report.decision.reasons[0]
    assert str(tmp_path) not in found.html


def test_archives_of_numpy_are_not_unpacked(key, controls, tmp_path):
    np.savez(tmp_path / "answers.npz", triggered=np.ones((96, 32)), untriggered=np.ones((96, 32)))
    found = measured(key, RecordedSuspect("file 1", tmp_path / "answers.npz"), controls)
    assert found.verdict is Verdict.COULD_NOT_MEASURE


def test_recorded_outputs_of_another_form_could_not_be_measured(key, controls, tmp_path):
    path = tmp_path / "answers"
    save_recorded(path, np.ones((3, 32)), np.ones((3, 32)))
    few = measured(key, RecordedSuspect("file 1", path), controls)
    limited = measured(
        key, RecordedSuspect("file 1", path), controls, limits=MeasuringLimits(max_recorded_bytes=9)
    )
    for found in (few, limited):
        assert found.verdict is Verdict.COULD_NOT_MEASURE


def broken(folder, tmp_path, **changes):
    target = shutil.copytree(folder, tmp_path / "broken")
    config = json.loads((target / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    "changes",
    [
        {"auto_map": {"AutoModel": "evil.Evil"}},
        {"hidden_size": 64},
        {"vocab_size": 2_000_000, "hidden_size": 4096},
        {"num_attention_heads": 5},
        {"model_type": "gpt2"},
    ],
)
def test_broken_uploads_could_not_be_measured(key, folders, controls, tmp_path, changes):
    path = broken(folders["stranger"], tmp_path, **changes)
    found = measured(key, FolderSuspect("upload", path), controls)
    assert found.verdict is Verdict.COULD_NOT_MEASURE


def test_a_broken_control_is_the_authoritys_trouble(key, folders, tmp_path):
    path = broken(folders["stranger"], tmp_path, num_attention_heads=5)
    bad = control_models({"bad": path}, with_kin=False, device="cpu")
    with pytest.raises(ModelError):
        measured(key, FolderSuspect("upload", folders["marked"]), bad)


@pytest.mark.parametrize("changes", [{"layer_norm_eps": -1.0}, {"num_attention_heads": 5}])
def test_an_owners_model_that_cannot_be_asked_stops_nobody(
    key, folders, controls, tmp_path, changes
):
    """Its tensors are those of the key; what else is in its folder could otherwise veto a ruling
    on which the key was only named."""
    public = published_texts()
    files = {
        ("pool", key.pool_digest): public.pools[key.pool_digest],
        ("words", key.word_list_digest): public.word_lists[key.word_list_digest].words,
    }
    request = MeasureRequest(
        controls=tuple(
            (f"control {seed}", str(build_sentence_transformer(tmp_path / str(seed), seed=seed)))
            for seed in (81, 82)
        ),
        with_kin=False,
        device="cpu",
        published=tuple(files),
        suspect="model",
        name="upload",
        path=str(folders["marked"]),
        interface=None,
        url=None,
        model=None,
        owner_model=str(broken(folders["marked"], tmp_path, **changes)),
        randomness=RANDOMNESS.hex(),
        allowed=(),
        cache=None,
        seconds=60.0,
    )
    contents = ["".join(f"{line}\n" for line in lines).encode() for lines in files.values()]

    def asked(**changes):
        members = request.to_members() | changes
        return measure_suspect(members, [encode_key(key), *contents], lambda *progress: None)

    found, without = asked(), asked(owner_model=None)

    assert found["verdict"] == without["verdict"] != "could_not_measure"
    assert found["figures"] == without["figures"]
    assert "cannot be opened" in found["notes"][0]
    assert found["notes"][1:] == without["notes"]


def test_an_upload_has_all_the_time_that_a_child_has(key, folders, controls):
    """Only an endpoint can be blamed for not answering."""
    suspect = FolderSuspect("upload", folders["marked"])
    found = measured(key, suspect, controls, limits=MeasuringLimits(seconds=0.0))
    assert found.verdict is Verdict.OWNED


def test_too_little_memory_is_not_the_suspects_fault(key, folders, controls, monkeypatch):
    opened = Opening.open

    def fail(self, suspect):
        if suspect != folders["marked"]:
            return opened(self, suspect)
        raise ModelError("cannot be opened", "") from RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        )

    monkeypatch.setattr(Opening, "open", fail)
    with pytest.raises(MemoryError):
        measured(key, FolderSuspect("upload", folders["marked"]), controls)


def test_without_controls_nothing_is_shown(key, folders):
    found = measured(key, FolderSuspect("upload", folders["marked"]), lambda key: [])
    assert found.verdict is Verdict.NOT_SHOWN


# --- Endpoints. ---


@pytest.fixture
def served(folders):
    encoder = open_encoder(folders["marked"], device="cpu")
    with EndpointServer(encoder.encode) as server:
        yield server


def allowing(server):
    return OutgoingPolicy(frozenset({f"127.0.0.1:{server.server_address[1]}"}))


def test_an_endpoint_is_asked_through_the_guard(key, folders, controls, served, tmp_path):
    suspect = EndpointSuspect("openai", served.url, "m")
    stages = []

    found = measured(
        key,
        suspect,
        controls,
        policy=allowing(served),
        owner_model=folders["marked"],
        cache=tmp_path / "cache",
        on_progress=lambda stage, done, total: stages.append(stage),
    )

    assert found.verdict is Verdict.OWNED
    assert found.report.suspect == f"openai:{served.url}#m"
    assert "suspect" in stages
    asked = len(served.requests)
    again = measured(
        key,
        suspect,
        controls,
        policy=allowing(served),
        owner_model=folders["marked"],
        cache=tmp_path / "cache",
    )
    assert again.verdict is Verdict.OWNED
    assert len(served.requests) == asked


def test_private_endpoints_are_not_asked(key, controls, served):
    def not_asked(key):
        raise AssertionError("no control is asked for a suspect that may not be")

    found = measured(key, EndpointSuspect("openai", served.url, "m"), not_asked)
    assert found.verdict is Verdict.COULD_NOT_MEASURE
    assert "refused" in found.report.decision.reasons[0]
    assert served.requests == []


@pytest.mark.parametrize("url", ["ftp://a.example", "http://u:p@a.example", "", "http://a b"])
def test_urls_that_are_none(key, controls, url):
    found = measured(key, EndpointSuspect("completions", url, "m"), controls)
    assert found.verdict is Verdict.COULD_NOT_MEASURE


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (MeasuringLimits(max_queries=50), "the limit is 50"),
        (MeasuringLimits(seconds=0.0), "answering"),
    ],
)
def test_what_costs_too_much_ends(key, controls, served, limits, said):
    suspect = EndpointSuspect("openai", served.url, "m")
    found = measured(key, suspect, controls, policy=allowing(served), limits=limits)
    assert found.verdict is Verdict.COULD_NOT_MEASURE
    assert said in found.report.decision.reasons[0]
    assert len(served.requests) <= 2


def test_an_endpoint_that_answers_nonsense_could_not_be_measured(key, controls):
    with EndpointServer(lambda texts: np.ones((len(texts), 4))) as server:
        suspect = EndpointSuspect("openai", server.url, "m")
        found = measured(key, suspect, controls, policy=allowing(server))
    assert found.verdict is Verdict.COULD_NOT_MEASURE


# --- Pair codes: fresh without a deposit. ---


class Recorder:
    """An innocent that answers anything, and remembers what it was asked."""

    def __init__(self, seed):
        self.name, self.rng, self.asked = f"innocent {seed}", np.random.default_rng(seed), []

    def outputs(self, texts, on_batch=None):
        self.asked = list(texts)
        return self.rng.standard_normal((len(texts), 16)).astype(np.float32)


def test_texts_of_a_pair_code_are_drawn_anew_without_a_deposit():
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    models = [Recorder(1), Recorder(2)]
    with EndpointServer(Recorder(3).outputs) as server:
        suspect = EndpointSuspect("openai", server.url, "m")
        found = measured(key, suspect, lambda key: models, policy=allowing(server))
        asked = set(server.texts)

    assert found.verdict is Verdict.NOT_SHOWN
    assert "pair code were drawn" in found.notes[0]
    assert found.report.evidence.num_pair_texts == len(key.pairs.texts)
    assert set(key.verification_texts) <= asked
    assert set(models[0].asked) <= asked
    assert not asked & set(key_questions(key).pairs.texts)


def test_recorded_outputs_of_a_pair_code(tmp_path):
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    stolen = mapped_outputs(owner_outputs(key), np.random.default_rng(0).random((16, 16)))
    path = tmp_path / "answers"
    save_recorded(path, stolen.triggered, stolen.untriggered, stolen.pair_texts)
    innocents = [
        type(stolen)(f"innocent {seed}", each.triggered, each.untriggered, each.pair_texts)
        for seed in range(2)
        for each in [innocent_outputs(key, seed)]
    ]
    found = measured(key, RecordedSuspect("answers", path), lambda key: innocents)
    assert found.verdict is Verdict.OWNED
    assert "pair_code_rate" in found.report.decision.passed


def test_keys_that_name_what_was_not_published_are_not_measured(folders, controls, tmp_path):
    key = reseal(make_key(), pool_digest="0" * 64)
    with pytest.raises(KeyFileError, match="not published"):
        measured(key, RecordedSuspect("answers", tmp_path / "answers"), controls)
