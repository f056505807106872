"""Whose controls stand beside a suspect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsmark.api.opening import AnySuspect, Opening
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.outputs import principal_cut, random_cut
from nsmark.verification.calibration import controls_like
from nsmark.verification.control import CHANGED, Control, control_of
from nsmark.verification.controls import owner_controls
from nsmark.verification.measure import Evidence, Yardstick, ask


class Controls:
    """The verifier's controls, else the owner's; none where the owner's are not trusted."""

    def __init__(
        self,
        yardstick: Yardstick,
        opening: Opening,
        controls: Sequence[AnySuspect],
        independent: bool,
    ) -> None:
        self._yardstick, self._opening, self._given = yardstick, opening, controls
        self._answers: list[RecordedOutputs] = []
        self.by = "verifier" if controls or independent else "owner"
        self.measured: list[Control] = []
        if not controls and not independent:
            self.measured = owner_controls(yardstick.key)

    def ask(self, on_batch: BatchCallback | None) -> None:
        """Measure the verifier's own."""
        for control in self._given:
            answers = ask(self._yardstick.questions, self._opening.open(control), on_batch)
            evidence = self._yardstick.compare(answers)
            self._answers.append(answers)
            self.measured.append(control_of(evidence))

    def like(self, evidence: Evidence) -> list[Control]:
        """Return the controls that may stand beside a suspect, cut to its rank where needed."""
        owner_rank = self._yardstick.triggered.rank
        like = controls_like(self.measured, evidence.rank, owner_rank)
        has_row_spaces = any(each.triggered.aligned_subspace_overlap is not None for each in like)
        if not self._answers or has_row_spaces:
            return like
        cuts = [cut for answers in self._answers for cut in self._cut(answers, evidence.rank)]
        return controls_like([*cuts, *self.measured], evidence.rank, owner_rank)

    def _cut(self, answers: RecordedOutputs, rank: int) -> list[Control]:
        cuts = []
        for how, alteration in (("PCA", principal_cut(rank)), ("chance", random_cut(rank))):
            change = alteration(answers.triggered, np.random.default_rng(0))
            name = f"{answers.name}{CHANGED}cut to {rank} by {how}"
            evidence = self._yardstick.compare(
                RecordedOutputs(name, change(answers.triggered), change(answers.untriggered))
            )
            cuts.append(control_of(evidence))
        return cuts
