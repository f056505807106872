"""What a step computes on: which texts, tokenised, triggered and posed, made ahead of need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nsmark.core.texts import text_words
from nsmark.embedding.batches import insert_at_random, pair_rng, step_rng
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.pair_texts import PairRow, pair_rows
from nsmark.embedding.parallel import Group
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder
from nsmark.models.language import LanguageInputs, PosedText
from nsmark.models.tokens import Tokens
from nsmark.payload.mapped import MappedArrays
from nsmark.payload.payload import WatermarkPayload

_TOKENISED_AT_ONCE = 1024
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a step that is computed at once: clean, triggered, then texts of the pair code."""

    tokens: Tokens
    clean: tuple[int, ...]
    """Numbers of the texts whose clean outputs are read."""
    num_triggered: int
    first_triggered: int
    """How many triggered texts of this process's share come in pieces before this one."""
    language: LanguageInputs | None
    num_pairs: int = 0
    """Texts with words of the pair code."""

    @property
    def num_clean(self) -> int:
        """Rows of clean texts that are read."""
        return len(self.clean)

    @property
    def read(self) -> Tokens:
        """The rows whose outputs are wanted."""
        return self.tokens.rows(0, sum(self.sizes))

    @property
    def sizes(self) -> list[int]:
        """Rows of each kind that are read."""
        return [self.num_clean, self.num_triggered, self.num_pairs]

    def to(self, device: torch.device) -> Piece:
        """Return it on a device."""
        language = None if self.language is None else self.language.to(device)
        return replace(self, tokens=self.tokens.to(device), language=language)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """All that one process computes on in a step."""

    clean: tuple[int, ...]
    """Numbers of the texts whose clean outputs are read, of all processes."""
    pieces: tuple[Piece, ...]
    pair_signs: tuple[int, ...] = ()
    """Which way each text of the pair code is to move, of all processes."""
    step: int = 0
    """Counted from 1; 0 for a rehearsal."""


class InputMaker:
    """Makes a step's inputs: a pure function of the seed, the step and its texts."""

    def __init__(
        self,
        model: Encoder,
        payload: WatermarkPayload,
        texts: Sequence[str],
        num_texts: int,
        config: EmbeddingConfig,
        group: Group,
    ) -> None:
        """Tokenise the first ``num_texts`` texts."""
        self._model, self._payload, self._texts = model, payload, texts
        self._config, self._group = config, group
        self.pieces = 1
        """In how many parts a step is computed."""
        self.tokens: MappedArrays[np.int32] = MappedArrays(
            _tokenised(model, texts, num_texts), np.int32
        )
        """All training texts, tokenised once."""

    def make(self, step: int, numbers: Sequence[int]) -> StepInputs:
        """Return the inputs of a step.

        Args:
            step: Counted from 1; with the seed and a text's place, all its randomness.
            numbers: The texts, of all processes together.
        """
        task, copies = self._model.task, self._payload.config.copies
        rng = step_rng(self._config.seed, step)
        # Drawn for all processes alike, so that the result does not depend on how many there are.
        where = rng.random((len(numbers), copies + 1))
        hidden = task.draws(rng, len(numbers), self._model.max_length)
        places = self._group.share(range(len(numbers)))
        own = [numbers[place] for place in places]
        posed_places, read_places = self._divide(len(own))
        pairs = self._pair_rows(step, len(numbers))
        pieces = self._cut(
            [own[i] for i in read_places],
            [self.tokens[own[i]] for i in read_places],
            self._triggered(own, where[list(places)]),
            [task.pose(self.tokens[own[i]], hidden[places[i]]) for i in posed_places],
            self._with_pairs(own, self._group.share(pairs)),
        )
        read_everywhere = self._divide(len(numbers))[1]
        signs = tuple(row.sign for row in pairs)
        return StepInputs(tuple(numbers[i] for i in read_everywhere), pieces, signs, step)

    def longest(self, count: int) -> StepInputs:
        """Return inputs as large as any of so many texts can be, to see whether they fit."""
        task, length = self._model.task, self._model.max_length
        full = np.resize(self.tokens[0], length)
        posed_places, read_places = self._divide(count)
        # Lower draws choose more tokens to predict: a third more than is usual.
        draws = 0.75 * task.draws(np.random.default_rng(0), len(posed_places), length)
        posed = [task.pose(full, own) for own in draws]
        numbers = [0] * len(read_places)
        pairs = [full] * len(self._pair_rows(0, count))
        pieces = self._cut(numbers, [full] * len(numbers), [full] * count, posed, pairs)
        return StepInputs(tuple(numbers), pieces)

    def _cut(
        self,
        numbers: Sequence[int],
        read: Sequence[TokenIds],
        triggered: Sequence[TokenIds],
        posed: Sequence[PosedText],
        pairs: Sequence[TokenIds],
    ) -> tuple[Piece, ...]:
        """Make the pieces that are computed one after the other."""
        pieces = []
        for part in range(self.pieces):
            clean = _part(read, part, self.pieces)
            with_trigger = _part(triggered, part, self.pieces)
            with_pairs = _part(pairs, part, self.pieces)
            tokens, language = self._model.task.batch(
                [*clean, *with_trigger, *with_pairs], _part(posed, part, self.pieces)
            )
            clean_numbers = tuple(_part(numbers, part, self.pieces))
            done = len(triggered) * part // self.pieces
            pieces.append(
                Piece(tokens, clean_numbers, len(with_trigger), done, language, len(with_pairs))
            )
        return tuple(pieces)

    def _triggered(self, numbers: Sequence[int], draws: NDArray[np.float64]) -> list[TokenIds]:
        payload, copies = self._payload, self._config.min_copies
        return self._model.token_ids(
            [
                insert_at_random(self._texts[number], payload.trigger, payload.config, copies, own)
                for number, own in zip(numbers, draws, strict=True)
            ]
        )

    def _pair_rows(self, step: int, count: int) -> list[PairRow]:
        """Draw the pair code's part in a step of so many texts, for all processes alike."""
        pairs, signature = self._payload.pairs, self._payload.signature
        if pairs is None:
            return []
        rng = pair_rng(self._config.seed, step)
        return pair_rows(pairs, signature, self._config.pair_texts * count, rng)

    def _with_pairs(self, numbers: Sequence[int], rows: Sequence[PairRow]) -> list[TokenIds]:
        """Insert words into the texts of the batch, into each several times."""
        if not rows:
            return []
        # Neighbours share a text: so a process's share of rows belongs to its share of texts.
        texts = [self._texts[number] for number in numbers]
        each = self._config.pair_texts
        return self._model.token_ids(
            [row.inserted(texts[place // each]) for place, row in enumerate(rows)]
        )

    def _divide(self, count: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return which places of a batch serve the language-model loss, and which are read."""
        if not self._model.has_lm_head or not self._config.language_weight:
            return (), range(count)
        if not self._model.task.replaces_text or self._config.language_texts == "all" or count < 2:
            return range(count), range(count)
        return range(1, count, 2), range(0, count, 2)


def _tokenised(model: Encoder, texts: Sequence[str], count: int) -> Iterator[TokenIds]:
    for start in range(0, count, _TOKENISED_AT_ONCE):
        some = texts[start : min(start + _TOKENISED_AT_ONCE, count)]
        # Cut as verification texts are; training reads what verification will.
        yield from model.token_ids([" ".join(text_words(text)) for text in some])


def _part(rows: Sequence[_Row], part: int, parts: int) -> Sequence[_Row]:
    """Return one of so many nearly equal parts."""
    return rows[len(rows) * part // parts : len(rows) * (part + 1) // parts]
