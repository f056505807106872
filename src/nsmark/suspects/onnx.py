"""An ONNX model on this machine, run by onnxruntime (needs the extra ``onnx``, not torch).

The file is looked through before it is opened (:mod:`nsmark.suspects.onnx_file`). How long its
graph computes, and with how much memory, nobody can tell beforehand: measure a model you do not
trust where it may fail.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import ConfigError, MissingExtraError, ModelError
from nsmark.models.batching import (
    TokenIds,
    equal_length_batches,
    length_batches,
    pad_arrays,
    pool_array,
)
from nsmark.models.families import FAMILIES, UNKNOWN_FAMILY, Family
from nsmark.models.folder import (
    POOLINGS,
    DenseLayer,
    ModelFolder,
    describe_folder,
    read_json_object,
)
from nsmark.models.quiet import quiet_transformers
from nsmark.models.tokenizer import (
    first_line,
    is_representable,
    load_tokenizer,
    require_known_words,
)
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.onnx_file import check_onnx_file

# In order of preference. A pooler's output is left aside: keys are made from what it is fed.
_OUTPUT_NAMES = (
    "sentence_embedding",
    "last_hidden_state",
    "token_embeddings",
    "hidden_states",
    "logits",
)
_INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_INPUT_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
)
_TOKENS_PER_BATCH = {"CPUExecutionProvider": 2048, "CUDAExecutionProvider": 65536}
_MAX_WIDTH = 1 << 20
_MAX_LENGTH = 1 << 20


class OnnxModel:
    """A ``.onnx`` file with the tokenizer that belongs to it.

    A 2-D output (a sentence embedding, a classifier's logits) is taken as it is; 3-D hidden
    states are pooled and, if asked for, scaled to unit length.
    """

    def __init__(
        self,
        address: str,
        *,
        pooling: str | None = None,
        normalise: bool | None = None,
        max_length: int = 128,
        device: str = "auto",
    ) -> None:
        if pooling is not None and pooling not in POOLINGS:
            raise ConfigError("pooling", pooling, f"must be one of {', '.join(POOLINGS)}")
        if max_length < 1:
            raise ConfigError("max_length", max_length, "must be at least 1")
        file, chosen = _split_address(address)
        references = check_onnx_file(file)
        folder = _tokenizer_folder(file, chosen)
        described = _describe_sentence_transformer(folder)
        tokenizer_folder = described.transformer_path if described else folder
        family, positions = _read_config(tokenizer_folder)
        self._session, self._provider = _open_session(file, device)
        with quiet_transformers():
            self._tokenizer = load_tokenizer(tokenizer_folder)
        self._inputs = {node.name: node for node in self._session.get_inputs()}
        self._fixed_length = _check_inputs(self._inputs)
        self._output = _choose_output([node.name for node in self._session.get_outputs()])
        # A folder that says itself how it is read is read so, as with st:.
        if described:
            pooling, normalise = described.pooling, described.normalises
        self._pooling = pooling or family.pooling
        self._normalise = bool(normalise) and self._output != "logits"
        self._side = family.padding_side
        self._lower = described is not None and described.do_lower_case
        limits = (
            max_length,
            described.max_length if described else None,
            positions,
            self._fixed_length,
            min(int(self._tokenizer.model_max_length), _MAX_LENGTH),
        )
        self._max_length = min(limit for limit in limits if limit)
        # Ranges of activations that are found while it runs are those of a whole batch: what
        # stands beside a text would change its output. So each text is asked alone.
        self._alone = any("DynamicQuantize" in name for name in references.operators)
        self._name = f"onnx:{address}"

    @property
    def name(self) -> str:
        """How reports call it."""
        return self._name

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return one row per text, in their order."""
        if not texts:
            raise ModelError("there are no texts to ask", "give at least one")
        require_known_words(texts, self._is_representable)
        sequences = self._token_ids(texts)
        rows: list[NDArray[np.float32] | None] = [None] * len(sequences)
        done = 0
        for batch in self._batches([len(sequence) for sequence in sequences]):
            answers = self._answer([sequences[index] for index in batch])
            for index, answer in zip(batch, answers, strict=True):
                rows[index] = answer
            done += len(batch)
            if on_batch is not None:
                on_batch(done, len(sequences))
        try:
            return np.stack([row for row in rows if row is not None])
        except ValueError as error:
            raise ModelError(
                "the model's outputs differ in size from text to text",
                "export it with one vector per text",
            ) from error

    def _is_representable(self, word: str) -> bool:
        return is_representable(self._tokenizer, word.lower() if self._lower else word)

    def _token_ids(self, texts: Sequence[str]) -> list[TokenIds]:
        encoded = self._tokenizer(
            [text.lower() if self._lower else text for text in texts],
            truncation=True,
            max_length=self._max_length,
            add_special_tokens=True,
        )
        return [np.array(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def _batches(self, lengths: Sequence[int]) -> Sequence[list[int]]:
        budget = _TOKENS_PER_BATCH[self._provider]
        if self._alone or self._inputs["input_ids"].shape[0] == 1:
            return [[index] for index in range(len(lengths))]
        if "attention_mask" not in self._inputs:  # nothing would tell it what is padding
            return list(equal_length_batches(lengths, budget))
        return list(length_batches([max(n, self._fixed_length) for n in lengths], budget))

    def _answer(self, sequences: Sequence[TokenIds]) -> NDArray[np.float32]:
        pad_id = self._tokenizer.pad_token_id or 0
        ids, mask = pad_arrays(sequences, pad_id, self._side, self._fixed_length)
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.maximum(mask.cumsum(axis=1) - 1, 0),
        }
        feed = {
            name: given[name].astype(_INPUT_TYPES[node.type]) for name, node in self._inputs.items()
        }
        try:
            (answer,) = self._session.run([self._output], feed)
        except Exception as error:  # onnxruntime's kinds have no common name
            raise ModelError(
                "onnxruntime could not run the model on the key's texts", first_line(error)
            ) from error
        return self._read(answer, mask)

    def _read(self, answer: Any, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Turn what the model returns into one vector per text."""
        # A model may also return a list or a map, which have no shape.
        shape: tuple[int, ...] = getattr(answer, "shape", ())
        is_table = len(shape) == 2 and shape[0] == len(mask)
        is_hidden = len(shape) == 3 and shape[:2] == mask.shape
        if not (is_table or is_hidden) or not 0 < shape[-1] <= _MAX_WIDTH:
            raise ModelError(
                f"the model's output {self._output!r} has shape {shape} "
                f"for {len(mask)} texts of {mask.shape[1]} tokens",
                "expected one vector per text or per token; export it with dynamic sizes",
            )
        if answer.dtype.kind not in "fiu":
            raise ModelError(
                f"the model's output {self._output!r} holds {answer.dtype} values",
                "expected numbers",
            )
        if is_table:
            return np.asarray(answer, dtype=np.float32)
        outputs = pool_array(answer, mask, self._pooling)
        if self._normalise:
            norms = np.linalg.norm(outputs, axis=1, keepdims=True)
            outputs = outputs / np.maximum(norms, 1e-12)  # as torch does
        return outputs


def _split_address(address: str) -> tuple[Path, Path | None]:
    """Split ``FILE#FOLDER``; a file whose own name has a # is still found."""
    file, _, folder = address.rpartition("#")
    if not file or Path(address).is_file():
        return Path(address), None
    return Path(file), Path(folder)


def _tokenizer_folder(file: Path, chosen: Path | None) -> Path:
    for folder in (file.parent, file.absolute().parent.parent) if chosen is None else (chosen,):
        if any((folder / name).is_file() for name in (*_TOKENIZER_FILES, "modules.json")):
            return folder
    raise ModelError(
        f"there are no tokenizer files beside {file}"
        if chosen is None
        else f"no tokenizer in {chosen}",
        "put tokenizer.json beside the .onnx file, or name its folder: onnx:FILE#FOLDER",
    )


def _describe_sentence_transformer(folder: Path) -> ModelFolder | None:
    if not (folder / "modules.json").is_file():
        return None
    described = describe_folder(folder)
    if any(isinstance(step, DenseLayer) for step in described.steps):
        raise ModelError(
            "the folder has dense layers, which are no part of the .onnx file",
            "export the model with its sentence_embedding output, or name another tokenizer "
            "folder: onnx:FILE#FOLDER",
        )
    return described


def _read_config(folder: Path) -> tuple[Family, int | None]:
    """Return the model's family and for how many tokens it has positions, if a config says so."""
    if not (folder / "config.json").is_file():
        return UNKNOWN_FAMILY, None
    config = read_json_object(folder / "config.json")
    positions = config.get("max_position_embeddings")
    family = FAMILIES.get(str(config.get("model_type")), UNKNOWN_FAMILY)
    return family, positions if type(positions) is int and positions > 0 else None


def _open_session(file: Path, device: str) -> tuple[Any, str]:
    try:
        import onnxruntime
        import transformers  # noqa: F401 - its absence should be told now
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "onnx") from error
    kind, _, number = device.partition(":")
    cuda = "CUDAExecutionProvider"
    has_cuda = cuda in onnxruntime.get_available_providers()
    if kind not in ("auto", "cpu", "cuda") or (number and not number.isdigit()):
        raise ConfigError("device", device, "must be auto, cpu, cuda or cuda:NUMBER")
    if kind == "cuda" and not has_cuda:
        raise ConfigError("device", device, "is not available to onnxruntime here")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit():  # what users set for the other libraries should hold here
        options.intra_op_num_threads = int(threads)
    use_cuda = has_cuda and kind != "cpu"
    provider = cuda if use_cuda else "CPUExecutionProvider"
    settings = {"device_id": number or "0"} if use_cuda else {}
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=[(provider, settings)])
    except Exception as error:  # onnxruntime's kinds have no common name
        raise ModelError(f"onnxruntime cannot open {file}", first_line(error)) from error
    return session, provider


def _check_inputs(inputs: dict[str, Any]) -> int:
    """Refuse a model that asks for more than texts; return its fixed length, or 0."""
    unknown = [name for name in inputs if name not in _INPUT_NAMES]
    if unknown or "input_ids" not in inputs:
        raise ModelError(
            f"the model asks for the input {unknown[0][:40]!r}"
            if unknown
            else "the model has no input named 'input_ids'",
            f"known inputs: {', '.join(_INPUT_NAMES)}; export the model without a cache",
        )
    for name, node in inputs.items():
        if node.type not in _INPUT_TYPES or len(node.shape) != 2:
            raise ModelError(
                f"the model's input {name!r} is a {node.type} of {len(node.shape)} dimensions",
                "expected one row of token numbers per text",
            )
    rows, length = inputs["input_ids"].shape
    if isinstance(rows, int) and rows != 1:
        raise ModelError(
            f"the model was exported for batches of exactly {rows} texts",
            "export it with a dynamic batch size",
        )
    if isinstance(length, int) and not 0 < length <= _MAX_LENGTH:
        raise ModelError(f"the model takes texts of {length} tokens", "the file is damaged")
    return length if isinstance(length, int) else 0


def _choose_output(names: Sequence[str]) -> str:
    for name in _OUTPUT_NAMES:
        if name in names:
            return name
    others = [name for name in names if name != "pooler_output"]
    if not others:
        raise ModelError(
            "the model has no output that can be read",
            f"known outputs: {', '.join(_OUTPUT_NAMES)}",
        )
    return others[0]
