"""A transformer with its tokenizer, its pooling and what follows: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from nsmark.errors import ConfigError, ModelError
from nsmark.models.families import FAMILIES, UNKNOWN_FAMILY
from nsmark.models.folder import POOLINGS, DenseLayer, ModelFolder
from nsmark.models.lm_loss import lm_loss
from nsmark.models.quiet import quiet_transformers
from nsmark.models.saving import write_sentence_transformer_files

BatchCallback = Callable[[int, int], None]

# Sentences of similar length share a batch, up to this many tokens including padding: large
# enough to fill the cores, small enough to stay in the cache.
_TOKENS_PER_BATCH = 2048


@dataclass(frozen=True, slots=True)
class Tokens:
    """A padded batch, on the model's device."""

    input_ids: Tensor
    attention_mask: Tensor


class Encoder(nn.Module):
    """One language model, read at one place.

    Use :func:`open_encoder`. ``forward`` maps :class:`Tokens` to (batch, output_dim).
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        folder: ModelFolder,
        *,
        pooling: str,
        normalise: bool,
        max_length: int,
        has_lm_head: bool,
    ) -> None:
        super().__init__()
        self.network = network
        self.tokenizer = tokenizer
        self.folder = folder
        self.pooling = pooling
        self.normalise = normalise
        self.max_length = max_length
        self.has_lm_head = has_lm_head
        self.family = FAMILIES.get(folder.model_type, UNKNOWN_FAMILY)
        layers = [step for step in folder.steps if isinstance(step, DenseLayer)]
        width = int(network.config.hidden_size)
        for layer in layers:
            if layer.in_features != width:
                raise ModelError(
                    f"the dense layer in {layer.path!r} takes {layer.in_features} dimensions, "
                    f"but is given {width}",
                    "the model folder is damaged",
                )
            width = layer.out_features
        self.dense = nn.ModuleList(_load_dense(folder.path, layer) for layer in layers)
        self._output_dim = width

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.network.parameters()).device
        return device

    @property
    def output_dim(self) -> int:
        """Entries of one output."""
        return self._output_dim

    # --- texts to tokens ---------------------------------------------------------------------

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise without padding, cut to the maximum length."""
        if not texts:
            return []
        encoded = self.tokenizer(
            list(texts), truncation=True, max_length=self.max_length, add_special_tokens=True
        )
        return [list(ids) for ids in encoded["input_ids"]]

    def pad(self, sequences: Sequence[Sequence[int]]) -> Tokens:
        """Make a batch of token sequences, padded on the family's side."""
        longest = max(map(len, sequences))
        pad_id = self.tokenizer.pad_token_id
        ids = torch.full((len(sequences), longest), 0 if pad_id is None else pad_id)
        mask = torch.zeros((len(sequences), longest), dtype=torch.long)
        for row, sequence in enumerate(sequences):
            start = 0 if self.family.padding_side == "right" else longest - len(sequence)
            ids[row, start : start + len(sequence)] = torch.tensor(sequence)
            mask[row, start : start + len(sequence)] = 1
        return Tokens(ids.to(self.device), mask.to(self.device))

    def is_representable(self, word: str) -> bool:
        """Return whether the tokenizer can spell a word without its unknown token."""
        unknown = self.tokenizer.unk_token_id
        ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        return bool(ids) and (unknown is None or unknown not in ids)

    # --- tokens to outputs -------------------------------------------------------------------

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the outputs, shape (batch, output_dim)."""
        hidden = self.network.base_model(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask
        ).last_hidden_state
        outputs = pool(hidden, tokens.attention_mask, self.pooling)
        dense = iter(self.dense)
        for step in self.folder.steps:
            outputs = (
                next(dense)(outputs)
                if isinstance(step, DenseLayer)
                else nn.functional.normalize(outputs, dim=1)
            )
        if self.normalise and not self.folder.normalises:
            outputs = nn.functional.normalize(outputs, dim=1)
        return outputs

    @torch.inference_mode()
    def encode(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs of texts, in their order, shape (num_texts, output_dim).

        The order of computation is by length, so that little is padded; padding is masked and
        does not change a result beyond rounding.
        """
        sequences = self.token_ids(texts)
        outputs = np.empty((len(sequences), self.output_dim), dtype=np.float32)
        done = 0
        for rows in length_batches([len(s) for s in sequences], _TOKENS_PER_BATCH):
            tokens = self.pad([sequences[row] for row in rows])
            outputs[rows] = self(tokens).float().cpu().numpy()
            done += len(rows)
            if on_batch is not None:
                on_batch(done, len(sequences))
        return outputs

    def lm_loss(self, tokens: Tokens, generator: torch.Generator) -> Tensor:
        """Return the loss the model was pretrained with (paper: L_0); needs its head."""
        return lm_loss(self, tokens, generator)

    # --- saving ------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write a folder of the same kind as the one opened, with these weights."""
        with quiet_transformers():
            self.network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        if self.folder.kind == "st":
            write_sentence_transformer_files(
                folder,
                self.folder,
                self.pooling,
                self.network.config.hidden_size,
                self.dense_weights(),
            )

    def dense_weights(self) -> list[bytes]:
        """Return each dense layer as a safetensors file of sentence-transformers' form."""
        return [
            save_safetensors(
                {f"linear.{name}": t.detach().cpu() for name, t in layer.state_dict().items()}
            )
            for layer in self.dense
        ]


def pool(hidden: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """Reduce (batch, length, width) hidden states to one vector per text; padding is ignored."""
    if pooling in ("first", "last"):
        # argmax finds the first of equal entries: where the text begins, on whichever side it
        # is padded.
        position = attention_mask.argmax(dim=1)
        if pooling == "last":
            position = position + attention_mask.sum(dim=1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), position]
    mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
    if pooling == "mean":
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    if pooling == "max":
        return hidden.masked_fill(mask == 0, torch.finfo(hidden.dtype).min).amax(dim=1)
    raise ConfigError("pooling", pooling, f"must be one of {', '.join(POOLINGS)}")


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield index batches of similar length, each within a budget of padded tokens."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    start = 0
    while start < len(order):
        size = max(1, tokens_per_batch // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def _load_dense(root: Path, layer: DenseLayer) -> nn.Linear:
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.has_bias)
    try:
        weights = load_file(root / layer.path / "model.safetensors")
        linear.load_state_dict({key.removeprefix("linear."): t for key, t in weights.items()})
    except Exception as error:  # safetensors and torch raise several kinds for damaged files
        raise ModelError(
            f"the dense layer in {layer.path!r} cannot be opened", "the model folder is damaged"
        ) from error
    return linear
