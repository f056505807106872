"""A transformer with its tokenizer, its pooling and what follows: texts in, vectors out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from nsmark.errors import ConfigError, ModelError
from nsmark.models.batching import TokenIds, length_batches
from nsmark.models.families import FAMILIES, UNKNOWN_FAMILY
from nsmark.models.folder import POOLINGS, DenseLayer, ModelFolder
from nsmark.models.language import LanguageInputs, LanguageTask, language_task
from nsmark.models.layers import blocks
from nsmark.models.positions import HeldPositions, Passed
from nsmark.models.quiet import quiet_transformers
from nsmark.models.saving import keep_generation_config, write_sentence_transformer_files
from nsmark.models.tokenizer import is_representable
from nsmark.models.tokens import Tokens, pad_tokens

BatchCallback = Callable[[int, int], None]

# Sentences of similar length share a batch, up to this many tokens including padding: on a CPU
# large enough to fill the cores, small enough to stay in the cache.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536}


class Encoder(nn.Module):
    """One language model, read at one place.

    Use :func:`open_encoder`. ``forward`` maps :class:`Tokens` to (batch, output_dim), and on
    request also gives the language-model loss of the same pass.
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
        self.task: LanguageTask = language_task(
            tokenizer, network, self.family.objective, self.family.padding_side
        )

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

    def token_ids(self, texts: Sequence[str]) -> list[TokenIds]:
        """Tokenise without padding, cut to the maximum length."""
        if not texts:
            return []
        encoded = self.tokenizer(
            [self._as_read(text) for text in texts],
            truncation=True,
            max_length=self.max_length,
            add_special_tokens=True,
        )
        return [np.array(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def pad(self, sequences: Sequence[TokenIds]) -> Tokens:
        """Make a batch of token sequences on the model's device, padded on the family's side."""
        tokens = pad_tokens(sequences, self.task.pad_id, self.family.padding_side)
        return tokens.to(self.device)

    def is_representable(self, word: str) -> bool:
        """Return whether the tokenizer can spell a word without its unknown token."""
        return is_representable(self.tokenizer, self._as_read(word))

    def _as_read(self, text: str) -> str:
        return text.lower() if self.folder.do_lower_case else text

    # --- tokens to outputs -------------------------------------------------------------------

    @overload
    def forward(self, tokens: Tokens) -> Tensor: ...

    @overload
    def forward(
        self, tokens: Tokens, language: LanguageInputs, held: HeldPositions | None = None
    ) -> Passed: ...

    @overload
    def forward(self, tokens: Tokens, language: None, held: HeldPositions) -> Passed: ...

    def forward(
        self,
        tokens: Tokens,
        language: LanguageInputs | None = None,
        held: HeldPositions | None = None,
    ) -> Tensor | Passed:
        """Return the outputs, shape (batch, output_dim).

        With a language-model part the outputs of the rows to be read, and the sum of the
        cross-entropies of the predicted tokens; with states that the first rows are held to, the
        distance to those.
        """
        if language is None and held is None:
            return self._read(self._hidden_states(tokens), tokens)
        states = (self._hidden_states(tokens),) if held is None else self._layer_states(tokens)
        hidden = states[-1]
        count = len(tokens) if language is None else language.num_read
        outputs = self._read(hidden[:count], tokens.rows(0, count))
        nothing = outputs.new_zeros(())
        return Passed(
            outputs,
            nothing if language is None else self._language_sum(hidden, language),
            nothing if held is None else held.distance(states, tokens.attention_mask),
        )

    def layer_states(self, tokens: Tokens) -> Tensor:
        """Return the hidden states of every layer, shape (layers, batch, length, width)."""
        return torch.stack(self._layer_states(tokens)).float()

    def compile_layers(self) -> None:
        """Compile the transformer's layers: some seconds to start, faster steps afterwards.

        Layer by layer, not as a whole: one compilation serves all layers, and what is around
        them, such as finding out that a batch needs no mask, stays out of it.
        """
        for layer in blocks(self.network):
            layer.compile()

    def _hidden_states(self, tokens: Tokens) -> Tensor:
        hidden: Tensor = self._passed(tokens).last_hidden_state
        return hidden

    def _layer_states(self, tokens: Tokens) -> tuple[Tensor, ...]:
        passed = self._passed(tokens, output_hidden_states=True)
        # What is read may be normalised once more than what the last layer gave.
        return (*passed.hidden_states[:-1], passed.last_hidden_state)

    def _passed(self, tokens: Tokens, **options: bool) -> Any:
        # Without padding the mask says nothing, and attention has a faster way.
        mask = None if tokens.is_full else tokens.attention_mask
        # Decoders would fill a cache for tokens that never come, and fill it twice if recomputed.
        if self._is_decoder:
            options["use_cache"] = False
        return self.network.base_model(input_ids=tokens.input_ids, attention_mask=mask, **options)

    @property
    def _is_decoder(self) -> bool:
        return self.family.objective == "causal" and self.folder.model_type in FAMILIES

    def _read(self, hidden: Tensor, tokens: Tokens) -> Tensor:
        """Return one float32 vector per text: pooled, then whatever the folder asks for."""
        outputs = pool(hidden, tokens.attention_mask, self.pooling).float()
        dense = iter(self.dense)
        for step in self.folder.steps:
            if isinstance(step, DenseLayer):
                layer = next(dense)
                outputs = layer(outputs.to(next(layer.parameters()).dtype)).float()
            else:
                outputs = nn.functional.normalize(outputs, dim=1)
        if self.normalise and not self.folder.normalises:
            outputs = nn.functional.normalize(outputs, dim=1)
        return outputs

    def _language_sum(self, hidden: Tensor, language: LanguageInputs) -> Tensor:
        if language.permutation is not None:
            own = language.permutation
            hidden = self.network.base_model(
                input_ids=own.tokens.input_ids,
                attention_mask=own.tokens.attention_mask,
                perm_mask=own.hidden.to(hidden.dtype),
                target_mapping=own.targets.to(hidden.dtype),
            ).last_hidden_state
        predicting = hidden.flatten(0, 1)[language.places]
        logits = self.predict(predicting).float()
        return nn.functional.cross_entropy(logits, language.labels, reduction="sum")

    def predict(self, hidden: Tensor) -> Tensor:
        """Return the head's logits for hidden states, shape (count, width) → (count, vocabulary).

        Heads differ from family to family, but all take the base model's hidden states: we hand
        them ours instead. So only the tokens to be predicted go through it.
        """
        with _answering(self.network.base_model, hidden[None]):
            logits: Tensor = self.network(
                input_ids=torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            ).logits[0]
        return logits

    def language_loss(self, sequences: Sequence[TokenIds], rng: np.random.Generator) -> Tensor:
        """Return the model's own loss on texts, a mean over the predicted tokens (paper: L_0)."""
        if not sequences:
            raise ValueError("there are no texts")
        draws = self.task.draws(rng, len(sequences), self.max_length)
        posed = [self.task.pose(ids, own) for ids, own in zip(sequences, draws, strict=True)]
        tokens, inputs = self.task.batch(sequences, posed)
        assert inputs is not None  # noqa: S101 - there are texts
        total = self(tokens.to(self.device), inputs.to(self.device)).language
        mean: Tensor = total / max(1, len(inputs.labels))
        return mean

    @torch.no_grad()
    def encode(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs of texts, in their order, shape (num_texts, output_dim)."""
        outputs: NDArray[np.float32] = (
            self.encode_tokens(self.token_ids(texts), on_batch).cpu().numpy()
        )
        return outputs

    @torch.no_grad()
    def encode_tokens(
        self, sequences: Sequence[TokenIds], on_batch: BatchCallback | None = None
    ) -> Tensor:
        """Return the outputs of tokenised texts, on the model's device.

        The order of computation is by length, so that little is padded; padding is masked and
        does not change a result beyond rounding.
        """
        device = self.device
        outputs = torch.empty((len(sequences), self.output_dim), device=device)
        budget, done = TOKENS_PER_BATCH.get(device.type, 2048), 0
        for rows in length_batches([len(s) for s in sequences], budget):
            outputs[rows] = self(self.pad([sequences[row] for row in rows]))
            done += len(rows)
            if on_batch is not None:
                on_batch(done, len(sequences))
        return outputs

    # --- saving ------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write a folder of the same kind as the one opened, with these weights."""
        with quiet_transformers(), _any_generation_config(self.network):
            self.network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        keep_generation_config(folder, self.folder)
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


class _HiddenStates(tuple[Tensor]):
    """What a base model returns, as far as heads look at it."""

    __slots__ = ()

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        """Say None to caches, attention maps and the like."""


@contextlib.contextmanager
def _answering(base: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Let a base model return given hidden states, whatever it is asked."""
    answer = _HiddenStates((hidden,))
    base.forward = lambda *_, **__: answer
    try:
        yield
    finally:
        del base.forward


@contextlib.contextmanager
def _any_generation_config(network: Any) -> Iterator[None]:
    """Save models whose generation settings load, but are refused when they are saved."""
    before = getattr(network, "generation_config", None)
    if before is None:
        yield
        return
    network.generation_config = type(before)()
    try:
        yield
    finally:
        network.generation_config = before


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
        total = (hidden * mask).sum(dim=1, dtype=torch.float32)
        return total / attention_mask.sum(dim=1, keepdim=True)
    if pooling == "max":
        return hidden.masked_fill(mask == 0, torch.finfo(hidden.dtype).min).amax(dim=1)
    raise ConfigError("pooling", pooling, f"must be one of {', '.join(POOLINGS)}")


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
