from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nsmark.corpus import training_texts
from nsmark.models.folder import POOLING_FLAGS, describe_folder, model_digest
from nsmark.models.loading import open_encoder
from nsmark.models.saving import usage_settings
from tiny_models import build_family

TEXTS = [*training_texts()[:30], "short", "", "word " * 200]


def encode_with_sentence_transformers(folder: Path) -> np.ndarray:
    with warnings.catch_warnings():
        # Its imports and its reading of older folders warn; what it computes is all we want.
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def resave(folder: Path, target: Path) -> Path:
    open_encoder(folder, device="cpu", purpose="train").save(target)
    return target


def ours(folder: Path) -> np.ndarray:
    return open_encoder(folder, device="cpu").encode(TEXTS)


def add_modules(folder: Path, *names: str) -> Path:
    """Append modules to a sentence-transformers folder; a Dense gets random weights and a bias."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    kind = "sentence_transformers.models."
    for name in names:
        path = f"{len(modules)}_{name}"
        (folder / path).mkdir()
        modules.append({"idx": len(modules), "name": path, "path": path, "type": kind + name})
        if name == "Dense":
            config = {
                "in_features": 32,
                "out_features": 32,
                "bias": True,
                "activation_function": "torch.nn.modules.linear.Identity",
            }
            (folder / path / "config.json").write_text(json.dumps(config), encoding="utf-8")
            rng = torch.Generator().manual_seed(len(modules))
            weights = {
                "linear.weight": torch.randn(32, 32, generator=rng),
                "linear.bias": torch.randn(32, generator=rng),
            }
            save_file(weights, folder / path / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return folder


# --- we read what sentence-transformers reads ----------------------------------------------------


def test_a_folder_is_read_as_sentence_transformers_reads_it(tiny_st):
    assert np.abs(ours(tiny_st) - encode_with_sentence_transformers(tiny_st)).max() < 1e-5


@pytest.mark.parametrize("flag", POOLING_FLAGS)
def test_every_pooling_is_read_as_sentence_transformers_reads_it(tiny_st, tmp_path, flag):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    config = {"word_embedding_dimension": 32, **{name: name == flag for name in POOLING_FLAGS}}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert np.abs(ours(folder) - encode_with_sentence_transformers(folder)).max() < 1e-5


def test_dense_modules_are_read_as_sentence_transformers_reads_them(tiny_st, tmp_path):
    folder = add_modules(shutil.copytree(tiny_st, tmp_path / "copy"), "Dense", "Normalize", "Dense")
    outputs = ours(folder)
    assert np.abs(np.linalg.norm(outputs, axis=1) - 1).max() > 0.1
    assert np.abs(outputs - encode_with_sentence_transformers(folder)).max() < 1e-5


def test_a_transformer_in_a_sub_folder_is_read_and_saved(tiny_st, tmp_path):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    (folder / "0_Transformer").mkdir()
    for file in [entry for entry in folder.iterdir() if entry.is_file()]:
        if file.name != "modules.json":
            file.rename(folder / "0_Transformer" / file.name)
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    np.testing.assert_array_equal(ours(folder), ours(tiny_st))
    open_encoder(folder, device="cpu").save(tmp_path / "saved")
    np.testing.assert_array_equal(ours(tmp_path / "saved"), ours(tiny_st))


# --- and it reads what we write ------------------------------------------------------------------


def test_a_marked_model_opens_in_sentence_transformers(tiny_marked):
    folder = tiny_marked.model_folder
    assert np.abs(ours(folder) - encode_with_sentence_transformers(folder)).max() < 1e-5


def test_saving_and_opening_gives_the_same_outputs(tiny_st, tmp_path):
    encoder = open_encoder(tiny_st, device="cpu", purpose="train")
    with torch.no_grad():
        encoder.network.embeddings.word_embeddings.weight.mul_(1.1)
    encoder.save(tmp_path / "saved")
    np.testing.assert_array_equal(ours(tmp_path / "saved"), encoder.encode(TEXTS))
    assert np.abs(encoder.encode(TEXTS) - ours(tiny_st)).max() > 1e-3
    before, after = describe_folder(tiny_st), describe_folder(tmp_path / "saved")
    for name in ("kind", "model_type", "pooling", "steps", "max_length"):
        assert getattr(before, name) == getattr(after, name)


def test_untouched_weights_keep_their_digest(tiny_st, tiny_bert, tiny_mlm, tmp_path):
    for number, folder in enumerate((tiny_st, tiny_bert, tiny_mlm)):
        open_encoder(folder, device="cpu", purpose="train").save(tmp_path / str(number))
        assert model_digest(tmp_path / str(number)) == model_digest(folder)


def test_dense_layers_are_saved_as_trained_not_as_found(tiny_st, tmp_path):
    folder = add_modules(shutil.copytree(tiny_st, tmp_path / "copy"), "Dense", "Normalize", "Dense")
    encoder = open_encoder(folder, device="cpu", purpose="train")
    with torch.no_grad():
        for layer in encoder.dense:
            layer.weight.mul_(2)
            layer.bias.add_(1)
    encoder.save(tmp_path / "saved")
    np.testing.assert_array_equal(ours(tmp_path / "saved"), encoder.encode(TEXTS))
    found = encode_with_sentence_transformers(tmp_path / "saved")
    # Entries of a few dozen, so the tolerance is in units of their size.
    assert np.abs(found - encoder.encode(TEXTS)).max() < 1e-5 * np.abs(found).max()
    assert np.abs(encoder.encode(TEXTS) - ours(folder)).max() > 1e-3


def test_another_pooling_is_saved_with_the_model(tiny_st, tmp_path):
    encoder = open_encoder(tiny_st, pooling="max", device="cpu", purpose="train")
    encoder.save(tmp_path / "saved")
    assert describe_folder(tmp_path / "saved").pooling == "max"
    found = encode_with_sentence_transformers(tmp_path / "saved")
    assert np.abs(found - encoder.encode(TEXTS)).max() < 1e-5


# --- what a folder says besides its weights ------------------------------------------------------

USAGE = {
    "prompts": {"query": "Find: ", "document": "", "größe": "☃\n"},
    "default_prompt_name": "query",
    "similarity_fn_name": "dot",
}
USAGE_FILE = "config_sentence_transformers.json"


def test_prompts_and_similarity_are_kept_as_sentence_transformers_reads_them(tiny_st, tmp_path):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    write(folder / USAGE_FILE, USAGE | {"__version__": {"torch": "9"}, "requirements": ["other"]})
    saved = resave(folder, tmp_path / "saved")
    assert read(saved / USAGE_FILE) == USAGE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(saved), device="cpu")
    assert model.prompts == USAGE["prompts"]
    assert (model.default_prompt_name, model.similarity_fn_name) == ("query", "dot")


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ({}, {}),
        ([], {}),
        ({"prompts": {}, "default_prompt_name": None, "similarity_fn_name": None}, {}),
        ({"prompts": ["a"], "default_prompt_name": "a", "similarity_fn_name": "maxsim"}, {}),
        ({"prompts": "query", "default_prompt_name": ["query"], "similarity_fn_name": {}}, {}),
        ({"prompts": {"a": 5, "b": None, "c": "C"}}, {"prompts": {"c": "C"}}),
        ({"prompts": {"a": "\ud800", "\udfff": "b"}}, {}),
        # sentence-transformers would not open a folder with such a default
        ({"prompts": {"a": "A"}, "default_prompt_name": "b"}, {"prompts": {"a": "A"}}),
        ({"prompts": {"a": 5}, "default_prompt_name": "a"}, {}),
        (
            {"model_type": "CrossEncoder", "similarity_fn_name": "dot"},
            {"similarity_fn_name": "dot"},
        ),
    ],
)
def test_of_other_usage_settings_only_what_makes_sense_is_kept(tiny_st, tmp_path, found, kept):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    write(folder / USAGE_FILE, found)
    assert usage_settings(describe_folder(folder)) == kept
    saved = resave(folder, tmp_path / "saved")
    assert (read(saved / USAGE_FILE) if kept else None) == (kept or None)
    assert (saved / USAGE_FILE).exists() == bool(kept)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"prompts":' + b" " * (8 << 20) + b"{}}"]
)
def test_damaged_usage_settings_do_not_stop_the_saving(tiny_st, tmp_path, content):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    (folder / USAGE_FILE).write_bytes(content)
    assert not (resave(folder, tmp_path / "saved") / USAGE_FILE).exists()


def test_usage_settings_are_those_of_sentence_transformers_folders_only(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "copy")
    write(folder / USAGE_FILE, USAGE)
    assert usage_settings(describe_folder(folder)) == {}
    assert not (resave(folder, tmp_path / "saved") / USAGE_FILE).exists()


@pytest.mark.parametrize("limit", [{}, {"max_seq_length": 77}])
@pytest.mark.parametrize("lower", [{}, {"do_lower_case": False}, {"do_lower_case": True}])
def test_lower_case_and_length_are_kept(tiny_st, tmp_path, limit, lower):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    write(folder / "sentence_bert_config.json", {**limit, **lower})
    before = describe_folder(folder)
    assert before.do_lower_case == lower.get("do_lower_case", False)
    after = describe_folder(resave(folder, tmp_path / "saved"))
    assert (after.do_lower_case, after.max_length) == (before.do_lower_case, before.max_length)
    assert after.max_length == limit.get("max_seq_length")


@pytest.mark.parametrize("value", [None, 1, "true", "false", [True]])
def test_lower_case_is_true_or_it_is_not(tiny_st, tmp_path, value):
    folder = shutil.copytree(tiny_st, tmp_path / "copy")
    write(folder / "sentence_bert_config.json", {"do_lower_case": value})
    assert describe_folder(folder).do_lower_case is False


# --- transformers --------------------------------------------------------------------------------


def test_saved_folders_open_with_auto_model(tiny_marked, tiny_bert, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    open_encoder(tiny_bert, device="cpu", purpose="train").save(tmp_path / "saved")
    for folder in (tiny_marked.model_folder, tmp_path / "saved"):
        network, info = AutoModel.from_pretrained(
            folder, add_pooling_layer=False, output_loading_info=True
        )
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        tokens = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
        with torch.inference_mode():
            hidden = network.eval()(**tokens).last_hidden_state
        encoder = open_encoder(folder, pooling="first", normalise=False, ignore_modules=True)
        np.testing.assert_allclose(encoder.encode(TEXTS[:1]), hidden[:, 0], atol=1e-5)


def test_a_language_model_head_is_saved_with_the_model(tiny_mlm, tmp_path):
    from transformers import AutoModelForMaskedLM

    encoder = open_encoder(tiny_mlm, device="cpu", purpose="train")
    with torch.no_grad():
        encoder.network.cls.predictions.transform.dense.weight.mul_(3)
    encoder.save(tmp_path / "saved")
    network, info = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert not info["missing_keys"]
    stored = load_file(tiny_mlm / "model.safetensors")["cls.predictions.transform.dense.weight"]
    assert torch.equal(network.cls.predictions.transform.dense.weight, 3 * stored)
    assert describe_folder(tmp_path / "saved").kind == "hf"
    assert not (tmp_path / "saved" / "modules.json").exists()


def test_generation_settings_and_chat_template_are_saved_with_a_decoder(tmp_path):
    from transformers import AutoTokenizer, GenerationConfig

    folder = build_family(tmp_path / "llama", "llama")
    chosen = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [3, 4]}
    write(folder / "generation_config.json", chosen)
    template = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    saved = resave(folder, tmp_path / "saved")
    found = GenerationConfig.from_pretrained(saved)
    assert {name: getattr(found, name) for name in chosen} == chosen
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert tokenizer.chat_template == template
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<a><b>"


def test_only_known_kinds_of_files_are_written(tiny_marked):
    suffixes = {file.suffix for file in tiny_marked.model_folder.rglob("*") if file.is_file()}
    assert suffixes <= {".json", ".md", ".txt", ".safetensors"}
