"""Pictures: the answers themselves, for the page to draw; never written anywhere as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsmark.core.mlp import mlp_forward
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.questions import Questions, key_questions

Table = NDArray[np.floating]
"""One row per text."""


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

    @classmethod
    def of(
        cls, key: WatermarkKey, answers: RecordedOutputs, questions: Questions | None = None
    ) -> Pictures:
        """Collect what the page draws.

        Args:
            key: The key; its extractor is applied.
            answers: What the suspect answered.
            questions: The texts asked, if they were not the key's, with the owner's answers.
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
        return cls(**outputs, owner_untriggered=asked.owner_untriggered, **extracted)
