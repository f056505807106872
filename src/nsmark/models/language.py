"""The language-model losses that checkpoints were pretrained with (paper: L_0).

A loss is posed text by text: which tokens are hidden, which are to be predicted where. The
randomness is the caller's, so that a run can be repeated on any device and in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nsmark.models.batching import TokenIds
from nsmark.models.families import Objective
from nsmark.models.tokens import Tokens, pad_tokens, to_device

_MASKED_SHARE = 0.15
_PREDICTED_SHARE = 1 / 6  # XLNet predicts one token in six


@dataclass(frozen=True, slots=True)
class PosedText:
    """One text as a language-model task."""

    ids: TokenIds
    """What the model is given."""
    places: NDArray[np.int64]
    """Where it predicts."""
    labels: NDArray[np.int64]
    """What it should predict there."""
    order: NDArray[np.float64] | None = None
    """XLNet: when each token comes; open ones at −1, before all."""


@dataclass(frozen=True, slots=True)
class Permutation:
    """XLNet's own pass: who sees whom, and which positions are predicted."""

    tokens: Tokens
    hidden: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> Permutation:
        """Return it on a device."""
        hidden, targets = to_device(self.hidden, device), to_device(self.targets, device)
        return Permutation(self.tokens.to(device), hidden, targets)


@dataclass(frozen=True, slots=True)
class LanguageInputs:
    """The language-model part of a batch."""

    num_read: int
    """The first so many rows of the batch are read; any others are there for this loss."""
    places: Tensor
    """Predicting positions, counted through all rows of the pass."""
    labels: Tensor
    permutation: Permutation | None = None

    def to(self, device: torch.device) -> LanguageInputs:
        """Return it on a device."""
        return replace(
            self,
            places=to_device(self.places, device),
            labels=to_device(self.labels, device),
            permutation=None if self.permutation is None else self.permutation.to(device),
        )


@dataclass(frozen=True, slots=True)
class LanguageTask:
    """How a model's own loss is posed."""

    objective: Objective
    special_ids: tuple[int, ...]
    mask_id: int
    vocab_size: int
    pad_id: int
    padding_side: str

    @property
    def replaces_text(self) -> bool:
        """Whether the text is changed, so that its output cannot be read in the same pass."""
        return self.objective != "causal"

    def draws(self, rng: np.random.Generator, num_texts: int, length: int) -> NDArray[np.float64]:
        """Draw what posing so many texts of at most such a length needs."""
        rows = {"causal": 0, "permutation": 2, "masked": 3}[self.objective]
        return rng.random((num_texts, rows, length))

    def pose(self, ids: TokenIds, draws: NDArray[np.float64]) -> PosedText:
        """Choose what is hidden in a text and what is to be predicted.

        Args:
            ids: The text.
            draws: Its part of :meth:`draws`.
        """
        count = len(ids)
        if self.objective == "causal":
            return PosedText(ids, np.arange(count - 1), ids[1:].astype(np.int64))
        ordinary = ~np.isin(ids, self.special_ids, kind="table")
        share = _MASKED_SHARE if self.objective == "masked" else _PREDICTED_SHARE
        chosen = (draws[0, :count] < share) & ordinary
        places = np.flatnonzero(chosen)
        labels = ids[places].astype(np.int64)
        if self.objective == "permutation":
            return PosedText(ids, places, labels, np.where(chosen, draws[1, :count], -1.0))
        # Of the chosen tokens 80 % are masked, 10 % random, 10 % left as they are.
        treatment = draws[1, places]
        strangers = (draws[2, places] * self.vocab_size).astype(np.int32)
        replaced = np.where(treatment < 0.9, ids[places], strangers)
        given = ids.copy()
        given[places] = np.where(treatment < 0.8, self.mask_id, replaced)
        return PosedText(given, places, labels)

    def batch(
        self, read: Sequence[TokenIds], posed: Sequence[PosedText]
    ) -> tuple[Tokens, LanguageInputs | None]:
        """Make one batch of texts to read and texts to predict in.

        Args:
            read: Sequences whose outputs are wanted.
            posed: Texts of the language-model loss; with a causal model these are the first of
                ``read``, and one pass serves both.
        """
        if not posed:
            return pad_tokens(read, self.pad_id, self.padding_side), None
        if self.objective == "permutation":
            return self._permutation_batch(read, posed)
        joins = self.objective == "masked"
        rows = [*read, *(text.ids for text in posed)] if joins else list(read)
        tokens = pad_tokens(rows, self.pad_id, self.padding_side)
        first, length = len(read) if joins else 0, tokens.input_ids.shape[1]
        places = [
            (first + row) * length + self._shift(text, length) + text.places
            for row, text in enumerate(posed)
        ]
        return tokens, _language_inputs(len(read), places, posed)

    def _permutation_batch(
        self, read: Sequence[TokenIds], posed: Sequence[PosedText]
    ) -> tuple[Tokens, LanguageInputs]:
        tokens = pad_tokens([text.ids for text in posed], self.pad_id, self.padding_side)
        rows, length = tokens.input_ids.shape
        width = max(1, *(len(text.places) for text in posed))
        hidden = np.zeros((rows, length, length), dtype=np.float32)
        targets = np.zeros((rows, width, length), dtype=np.float32)
        places = []
        for row, text in enumerate(posed):
            shift = self._shift(text, length)
            order = np.full(length, -1.0)
            order[shift : shift + len(text.ids)] = text.order
            # Position j is hidden from i if j is to be predicted and does not come before i.
            hidden[row] = (order >= 0) & (order[:, None] <= order)
            targets[row, np.arange(len(text.places)), shift + text.places] = 1
            places.append(row * width + np.arange(len(text.places)))
        inputs = _language_inputs(len(read), places, posed)
        own_pass = Permutation(tokens, torch.from_numpy(hidden), torch.from_numpy(targets))
        return (
            pad_tokens(read, self.pad_id, self.padding_side),
            replace(inputs, permutation=own_pass),
        )

    def _shift(self, text: PosedText, length: int) -> int:
        return length - len(text.ids) if self.padding_side == "left" else 0


def language_task(tokenizer: Any, network: Any, objective: Objective, side: str) -> LanguageTask:
    """Return the task of a model with its tokenizer."""
    pad_id = tokenizer.pad_token_id
    mask_id = tokenizer.mask_token_id if objective == "masked" else None
    return LanguageTask(
        objective,
        tuple(sorted(set(tokenizer.all_special_ids))),
        -1 if mask_id is None else int(mask_id),
        int(getattr(network.config, "vocab_size", 0)),
        0 if pad_id is None else int(pad_id),
        side,
    )


def _language_inputs(
    num_read: int, places: Sequence[NDArray[np.int64]], posed: Sequence[PosedText]
) -> LanguageInputs:
    labels = np.concatenate([text.labels for text in posed])
    return LanguageInputs(
        num_read, torch.from_numpy(np.concatenate(places)), torch.from_numpy(labels)
    )
