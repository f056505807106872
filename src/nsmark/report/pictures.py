"""Pictures: the answers themselves, for the page to draw; never written anywhere as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsmark.core.mlp import mlp_forward
from nsmark.core.pair_code import deal_pairs
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.questions import PairQuestions, Questions, key_questions

Table = NDArray[np.floating]
"""One row per text."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PairTable:
    """The true table of a pair code, to compare with what was read."""

    size: int
    """Rows, and columns."""
    signs: NDArray[np.int64]
    """The entries that were asked, ±1, row by row from the first."""
    in_first_half: NDArray[np.bool_]
    """Into which half each was dealt: scores of the two have different sizes."""
    is_shown: bool = False
    """Whether the page may draw the table itself, and not only where it was read rightly."""

    @classmethod
    def of(cls, size: int, asked: PairQuestions, is_shown: bool = False) -> PairTable:
        """Collect what was asked of a table.

        Args:
            size: Rows, and columns.
            asked: The texts of its pairs.
            is_shown: Whether the page may draw the table itself.
        """
        count = len(asked.signs)
        first = np.zeros(count, dtype=bool)
        first[deal_pairs(count, asked.seed)[: count // 2]] = True
        return cls(size=size, signs=asked.signs, in_first_half=first, is_shown=is_shown)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Pictures:
    """Outputs of suspect and owner on the same texts, and what the key's extractor makes of them.

    Outputs have shape (num_texts, output_dim); what is extracted has a column for every copy of
    every bit, or is None where the suspect's dimensions are not the extractor's.
    """

    suspect_triggered: Table
    suspect_untriggered: Table
    owner_triggered: Table
    owner_untriggered: Table
    extracted_suspect_triggered: Table | None = None
    extracted_suspect_untriggered: Table | None = None
    extracted_owner_triggered: Table | None = None
    pair_table: PairTable | None = None
    """Of the texts that were asked; None where there were none of a pair code."""

    @classmethod
    def of(
        cls,
        key: WatermarkKey,
        answers: RecordedOutputs,
        questions: Questions | None = None,
        *,
        show_table: bool = False,
    ) -> Pictures:
        """Collect what the page draws.

        Args:
            key: The key; its extractor is applied.
            answers: What the suspect answered.
            questions: The texts asked, if they were not the key's, with the owner's answers.
            show_table: Draw the table of the pair code, for the owner's own eyes; by default the
                page shows only where it was read rightly, and can be handed on.
        """
        asked = questions or key_questions(key)
        outputs: dict[str, Table] = {
            "suspect_triggered": answers.triggered,
            "suspect_untriggered": answers.untriggered,
            "owner_triggered": asked.owner_triggered,
        }
        extracted: dict[str, Table] = {}
        if answers.triggered.shape[1] == key.configuration.output_dim:
            # A suspect may answer beyond float32: such rows are left out when they are drawn.
            with np.errstate(over="ignore", invalid="ignore"):
                extracted = {
                    f"extracted_{name}": mlp_forward(table, key.extractor)
                    for name, table in outputs.items()
                }
        table = None
        if key.pairs is not None and asked.pairs is not None:
            table = PairTable.of(key.pairs.config.size, asked.pairs, show_table)
        return cls(
            **outputs, owner_untriggered=asked.owner_untriggered, pair_table=table, **extracted
        )
