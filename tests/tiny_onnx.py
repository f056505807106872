"""ONNX files for tests: tiny transformers exported, and graphs of two nodes made by hand."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path

import numpy as np

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json")
WIDTH, VOCABULARY = 6, 5000


def export_transformer(folder: Path, target: Path) -> Path:
    """Export the transformer in a folder with its last hidden states, and copy its tokenizer."""
    import torch
    from transformers import AutoModel

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = AutoModel.from_pretrained(folder)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            # token_type_ids stays out: exporters leave it to the model's default
            return self.network(
                input_ids=input_ids, attention_mask=attention_mask
            ).last_hidden_state

    target.mkdir(parents=True)
    ids = torch.ones((2, 7), dtype=torch.long)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=160)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about its own parts
        logging.disable(logging.WARNING)
        try:
            program = torch.onnx.export(
                HiddenStates().eval(),
                (ids, torch.ones_like(ids)),
                dynamo=True,
                verbose=False,
                input_names=["input_ids", "attention_mask"],
                output_names=["last_hidden_state"],
                dynamic_shapes=(sizes, sizes),
            )
            program.save(str(target / "model.onnx"))
        finally:
            logging.disable(logging.NOTSET)
    copy_tokenizer(folder, target)
    return target / "model.onnx"


def quantise(file: Path) -> Path:
    """Write an int8 copy beside an exported model: weights stored, activations as they come.

    Weights take seven bits: on processors without VNNI the runtime adds pairs of 8-bit products
    in 16 bits, which saturate with full-range weights (outputs differed by a sixth there).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = file.with_name("int8.onnx")
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(
            file, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
        )
    finally:
        logging.disable(logging.NOTSET)
    return target


def copy_tokenizer(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        shutil.copy(folder / name, target / name)


def embedding_table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((VOCABULARY, WIDTH)).astype(np.float32)


def lookup_model(
    *,
    inputs: tuple[tuple[str, list[object]], ...] = (("input_ids", ["batch", "length"]),),
    output: str = "last_hidden_state",
    pooled: bool = False,
    table: np.ndarray | None = None,
):
    """Make a model that answers each token with its row of a table; pooled: their mean."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows" if pooled else output])]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["rows", "axis"], [output], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(embedding_table() if table is None else table, "table"),
            numpy_helper.from_array(np.array([1]), "axis"),
        ],
    )
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)
