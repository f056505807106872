"""The table's script, end to end on tiny models: rows, failures, the file and the page."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nsmark.core import expected_matching_degree
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.config import preset_config
from nsmark.errors import EmbeddingError
from nsmark.payload import derive_payload, published_word_list

torch = pytest.importorskip("torch", reason="needs the torch extra")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "embedding_table.py"


def load_script():
    spec = importlib.util.spec_from_file_location("benchmarks_embedding_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # the script adds its folder; others shall not see
        spec.loader.exec_module(module)
    return module


script = load_script()

# The script has loaded its parts: they are found though its folder is off the path again.
from family_table import marking  # noqa: E402
from family_table.columns import COST_COLUMNS, MARK_COLUMNS, parameters  # noqa: E402
from family_table.document import put_row  # noqa: E402
from family_table.measuring import language_loss  # noqa: E402
from family_table.page import failed_tries, markdown  # noqa: E402
from family_table.random_models import save_random, scale_shape  # noqa: E402
from family_table.rows import ROWS  # noqa: E402
from family_table.run import Run, anchor_weight  # noqa: E402
from family_table.scales import SCALES  # noqa: E402
from family_table.seeds import SEED, SIGNATURE  # noqa: E402
from family_table.subjects import Subject  # noqa: E402
from family_table.texts import MAX_WORDS, read_material  # noqa: E402
from family_table.tokenizer_training import train_tokenizer  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def own_randomness():
    """The script seeds torch itself; other tests in this process keep their randomness."""
    with torch.random.fork_rng():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """The built-in texts, laid out as the data folder is."""
    folder = tmp_path_factory.mktemp("data")
    texts, pool = training_texts()[:1000], pool_texts()

    def write(path, lines):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(gzip.compress("\n".join(lines).encode()))

    def rows(part):
        return [json.dumps({"text": text, "label": 0}) for text in part]

    write("wikitext-2/train.txt.gz", ["= A heading =", *texts])
    write("wikitext-2/valid.txt.gz", pool[:100])
    # A text of the training part must not become a verification text.
    write("wikitext-2/test.txt.gz", [*pool[100:130], *texts[:30]])
    write("sst2/train_sentences.jsonl.gz", rows(pool[130:250]))
    write("agnews/train.jsonl.gz", rows(pool[250:400]))
    return folder


def run(out: Path, *arguments: object) -> dict:
    script.main(["--json", str(out), "--device", "cpu", *map(str, arguments)])
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(data, tmp_path_factory) -> tuple[dict, str]:
    """Two families measured, and one row that cannot be: the results and the page."""
    folder = tmp_path_factory.mktemp("results")
    page = folder / "docs" / "embedding.md"
    arguments = ("--data", data, "--markdown", page, "--scale", "tiny")
    rows = ("--rows", "minilm-fast", "bert", "gpt2")
    document = run(folder / "results" / "embedding.json", *arguments, *rows)
    return document, page.read_text(encoding="utf-8")


def by_name(document: dict) -> dict[str, dict]:
    return {row["name"]: row for row in document["rows"]}


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_row_holds_every_measurement(made, name):
    row = by_name(made[0])[name]

    assert row["status"] == "measured"
    assert row["environment"]["torch"] == torch.__version__
    assert row["training"]["steps"] > 10
    assert row["training"]["seconds"] > 0
    assert row["training"]["peak_memory_bytes"] > 2**20
    assert row["pretraining"]["language_loss_end"] < row["pretraining"]["language_loss_start"]
    assert row["fidelity"]["language_loss_before"] == row["pretraining"]["language_loss_end"]
    assert set(row["extraction"]) == {
        "triggered",
        "one_copy",
        "untriggered",
        "reference",
        "derived",
        "derived_reference",
    }
    assert all(0 <= rate <= 1 for rate in row["extraction"].values())
    assert -1 <= row["fidelity"]["cosine"] <= 1
    assert -1 <= row["fidelity"]["similarity_correlation"] <= 1
    assert row["fidelity"]["squared_distance_in_variances"] > 0


@pytest.mark.parametrize("row", [r for r in ROWS if r.kind == "real"], ids=lambda r: r.name)
def test_a_published_model_is_marked_with_the_preset_as_it_is(row, tmp_path):
    run = Run(row, SCALES["small"], None, None, torch.device("cpu"), tmp_path)

    assert run.config(np.zeros(0), seed=0) == preset_config(row.name.removeprefix("minilm-"))


def test_every_stage_and_mark_of_a_preset_is_trained(data, tiny_st, tmp_path):
    arguments = ("--data", data, "--minilm", tiny_st, "--scale", "tiny", "--rows", "minilm-strong")
    (row,) = run(tmp_path / "embedding.json", *arguments)["rows"]

    assert row["status"] == "measured", row
    training = row["training"]
    assert training["settings"]["pairs_first"]
    assert [stage["held_out"]["pairs"] is not None for stage in training["stages"]] == [True, True]
    assert training["steps"] == sum(stage["steps"] for stage in training["stages"])
    assert training["stages"][1]["held_out"]["derived"] is not None


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_saved_model_matches_its_null_space_and_the_reference_does_not(made, name):
    degree = by_name(made[0])[name]["matching_degree"]

    assert degree["marked_model_was"] == "saved and read back"
    assert (degree["num_texts"], degree["output_dim"]) == (96, 32)
    assert degree["null_dim"] >= 96 - 32
    assert degree["chance"] == pytest.approx(expected_matching_degree(96, degree["null_dim"]))
    for form in ("invariant", "paper"):
        assert 0 <= degree["marked"][form] < 0.01 * degree["chance"]
        assert degree["reference"][form] > 0.02 * degree["chance"]


def test_a_row_that_fails_is_recorded_and_the_rest_goes_on(made):
    document, page = made
    failed = by_name(document)["minilm-fast"]

    assert [row["name"] for row in document["rows"]] == ["minilm-fast", "bert", "gpt2"]
    assert failed["status"] == "failed"
    assert failed["error"] == "ValueError: this row needs --minilm"
    assert failed["traceback"]
    assert "`minilm-fast` **failed**: ValueError: this row needs --minilm" in page


def test_the_page_shows_the_rows_and_names_what_is_missing(made):
    document, page = made
    steps = by_name(document)["bert"]["training"]["steps"]

    assert page.startswith("# ")
    assert document["command"] in page
    assert f"seed {SEED}, scale tiny" in page
    assert page.count("| bert |") == 2  # one line in each of two tables
    assert f"| bert | {parameters_of(document)} | {steps} |" in page
    assert "`bert`, `gpt2` are stand-ins" in page
    assert "`llama-7b-shape` was not run" in page
    for line in page.splitlines():
        if line.startswith("|"):
            assert line.count("|") in (len(MARK_COLUMNS) + 1, len(COST_COLUMNS) + 1)


def parameters_of(document):
    return parameters(by_name(document)["bert"])


def test_rows_of_an_earlier_run_stay_and_the_page_can_be_made_from_them(made, tmp_path):
    out, page = tmp_path / "embedding.json", tmp_path / "embedding.md"
    out.write_text(json.dumps(made[0]), encoding="utf-8")

    document = run(out, "--markdown", page, "--scale", "tiny", "--rows")

    assert document == made[0]
    assert page.read_text(encoding="utf-8") == made[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embedding.json", "embedding.md"]


def test_scales_are_not_mixed_in_one_file(made, tmp_path):
    out = tmp_path / "embedding.json"
    out.write_text(json.dumps(made[0]), encoding="utf-8")

    with pytest.raises(ValueError, match="scale 'tiny'"):
        run(out, "--scale", "small", "--rows")


def test_large_shapes_are_skipped_without_an_accelerator(data, tmp_path):
    out = tmp_path / "embedding.json"
    document = run(out, "--data", data, "--rows", "llama-7b-shape", "bert-large-shape")

    assert [(row["name"], row["status"]) for row in document["rows"]] == [
        ("bert-large-shape", "skipped"),
        ("llama-7b-shape", "skipped"),
    ]
    assert "**skipped**: needs a CUDA device" in markdown(document)


def test_a_skipped_row_does_not_push_out_a_measured_one():
    document = {"rows": [{"name": "llama-7b-shape", "status": "measured"}]}

    put_row(document, {"name": "llama-7b-shape", "status": "skipped"})
    assert document["rows"][0]["status"] == "measured"

    put_row(document, {"name": "llama-7b-shape", "status": "failed"})
    assert document["rows"][0]["status"] == "failed"


def test_no_text_serves_two_ends(data):
    material = read_material(data)
    parts = [set(material.corpus), set(material.heldout), set(material.pool)]

    assert all(parts)
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert "= A heading =" not in material.paragraphs
    assert max(len(text.split()) for text in material.pool) <= MAX_WORDS


def test_every_family_the_table_promises_has_a_row():
    stand_ins = {row.name for row in ROWS if row.kind == "stand-in"}

    assert stand_ins >= {"bert", "roberta", "deberta", "deberta-v2", "xlnet"}
    assert stand_ins >= {"gpt2", "llama", "qwen3", "modernbert", "mamba"}
    assert ROWS[-1].name == "llama-7b-shape"
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", [r for r in ROWS if r.kind == "stand-in"], ids=lambda r: r.name)
def test_a_stand_in_opens_with_the_tokenizer_it_was_given(row, data, tmp_path):
    texts = read_material(data).paragraphs[:300]
    tokenizer = train_tokenizer(row.tokenizer, texts, 400)
    scale = SCALES["tiny"]
    run = Run(row, scale, None, None, torch.device("cpu"), tmp_path)
    shape = scale_shape(row.model_type, scale) | row.shape | {"vocab_size": 512}

    save_random(run, shape, tokenizer, tmp_path / "model")
    encoder = run.open(tmp_path / "model")

    assert encoder.has_lm_head
    assert encoder.output_dim == scale.width
    assert encoder.max_length == 128
    assert len(encoder.tokenizer) <= 512
    assert [list(ids) for ids in encoder.token_ids(texts[:20])] == tokenizer(texts[:20])[
        "input_ids"
    ]
    assert encoder.is_representable("zymurgy")
    assert np.isfinite(language_loss(encoder, texts[:8]))


@pytest.fixture
def random_bert(data, tmp_path):
    """A run of the row bert with a folder of random weights, and its payload."""
    row = next(row for row in ROWS if row.name == "bert")
    scale, material = SCALES["tiny"], read_material(data)
    run = Run(row, scale, material, None, torch.device("cpu"), tmp_path)
    tokenizer = train_tokenizer(row.tokenizer, material.paragraphs, 400)
    shape = scale_shape("bert", scale) | {"vocab_size": 512}
    save_random(run, shape, tokenizer, tmp_path / "model")
    payload = derive_payload(
        SIGNATURE,
        config=scale.payload,
        word_list=published_word_list(),
        pool=material.pool,
        num_texts=40,
    )
    return run, Subject(run.open(tmp_path / "model"), tmp_path / "model"), payload


def fail_with(monkeypatch, seeds):
    """Let the training fail for some seeds."""
    train = marking.train

    def failing(encoder, payload, corpus, config):
        if config.seed in seeds:
            raise EmbeddingError("did not converge", "try again")
        return train(encoder, payload, corpus, config)

    monkeypatch.setattr(marking, "train", failing)


def test_a_seed_that_fails_is_followed_by_another_and_told(random_bert, monkeypatch):
    fail_with(monkeypatch, seeds={0})
    _, training = marking.mark(*random_bert)

    assert training["seed"] == training["settings"]["seed"] == 1
    assert training["failed_tries"] == [{"seed": 0, "error": "did not converge"}]
    row = {"name": "bert", "status": "measured", "training": training}
    assert failed_tries(row) == ["`bert` was tried with seed 0 first: did not converge"]


def test_when_every_seed_fails_the_row_does(random_bert, monkeypatch):
    fail_with(monkeypatch, seeds={0, 1, 2})

    with pytest.raises(EmbeddingError, match="did not converge"):
        marking.mark(*random_bert)


def test_nearly_constant_outputs_are_anchored_lightly():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 16))

    assert anchor_weight(noise) == 1.0
    assert anchor_weight(1 + 0.01 * noise) == pytest.approx(4e-4, rel=0.1)
