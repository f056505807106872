"""Controls: what innocent models measure under a key, and which of them stand beside a suspect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nsmark.core.null_space import expected_matching_degree
from nsmark.errors import KeyFileError
from nsmark.keyfile.document import ControlRecord
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.base import BatchCallback, Suspect
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.outputs import principal_cut, random_cut
from nsmark.verification.evidence import Evidence, OwnerReference, ask
from nsmark.verification.statistics import EXTRACTION, STATISTIC_NAMES, Statistics

CHANGED = " | "
"""Stands in a control's name between the model and what was done to its outputs."""
_RANK = "rank"
"""Beside the statistics, a control's record holds the rank of its outputs under this name."""
_FULL_RANK = 0.9
_SAME_LEVEL = 0.9
_FALLING = ("predictability", "aligned_predictability")
"""What is the lower, the fewer dimensions there are."""


@dataclass(frozen=True, slots=True)
class Control:
    """What one innocent model measured, as it is or after a change of its outputs."""

    name: str
    triggered: Statistics
    rank: int | None = None
    """Dimensions in which its outputs vary; None where it was not recorded."""
    untriggered: Statistics = field(default_factory=Statistics)
    """On the same texts without the trigger: how much it is like the owner's model anyway."""

    @classmethod
    def of(cls, evidence: Evidence) -> Control:
        """Return a measured model as a control."""
        return cls(evidence.suspect, evidence.counted, evidence.rank, evidence.untriggered)

    @property
    def model(self) -> str:
        """The model, without what was done to its outputs."""
        return self.name.partition(CHANGED)[0]

    def record(self) -> ControlRecord:
        """Return it as a key stores it."""
        rank: dict[str, float | None] = {} if self.rank is None else {_RANK: float(self.rank)}
        return ControlRecord(
            name=self.name,
            triggered=self.triggered.to_mapping() | rank,
            untriggered=self.untriggered.to_mapping(),
        )

    def without(self, names: Collection[str]) -> Control:
        """Return it without some of what it measured."""
        nothing: dict[str, Any] = dict.fromkeys(names)
        return replace(
            self,
            triggered=replace(self.triggered, **nothing),
            untriggered=replace(self.untriggered, **nothing),
        )


def owner_controls(key: WatermarkKey) -> list[Control]:
    """Return the controls that an owner wrote into the key: taken only if they are possible.

    A control invented to be far away would move the thresholds until every model passes. What
    no outputs at all can give is refused here; an honest-looking lie is what ``--independent``
    is for.

    Raises:
        KeyFileError: A rate lies outside [0, 1], or a matching degree above its maximum.
    """
    # Rows of unit length that lie wholly in a null space of p ≤ q − 1 dimensions reach this.
    most = expected_matching_degree(key.configuration.num_texts, key.configuration.num_texts)
    controls = []
    for record in key.controls:
        statistics = Statistics.from_mapping(record.triggered)
        rate, degree = statistics.extraction_rate, statistics.invariant_matching_degree
        if (rate is not None and not 0 <= rate <= 1) or (
            degree is not None and not 0 <= degree <= most
        ):
            raise KeyFileError(
                f"the key's control {record.name!r} has statistics that no model can have",
                "the key is forged: refuse it",
            )
        rank = record.triggered.get(_RANK)
        controls.append(
            Control(
                record.name,
                statistics,
                None if rank is None else int(rank),
                Statistics.from_mapping(record.untriggered),
            )
        )
    return controls


@dataclass(frozen=True, slots=True)
class Controls:
    """All innocent models that a verdict may rest on."""

    measured: Sequence[Control]
    by: str = "owner"
    """Whose they are: ``owner`` or ``verifier``."""
    answers: Sequence[RecordedOutputs] = ()
    """What the verifier's own answered: it can be cut to a suspect's rank."""
    judged: str | None = None
    """The one among them that is judged itself: no threshold is drawn from it."""

    @classmethod
    def ask(
        cls,
        owner: OwnerReference,
        models: Iterable[Suspect | RecordedOutputs],
        on_batch: BatchCallback | None = None,
    ) -> Controls:
        """Measure the verifier's own, one after the other; without any, nobody's are trusted."""
        answers = [ask(owner.questions, model, on_batch) for model in models]
        return cls([Control.of(owner.compare(each)) for each in answers], "verifier", answers)

    def beside(self, owner: OwnerReference, evidence: Evidence) -> list[Control]:
        """Return those that a suspect may be compared with, cut to its rank where needed."""
        owner_rank = owner.triggered.rank
        others = [control for control in self.measured if control.model != self.judged]
        like = controls_like(others, evidence.rank, owner_rank)
        has_row_spaces = any(each.triggered.aligned_subspace_overlap is not None for each in like)
        if not self.answers or has_row_spaces:
            return like
        cuts = [cut for each in self.answers for cut in _cut(owner, each, evidence.rank)]
        return controls_like([*cuts, *others], evidence.rank, owner_rank)


def _cut(owner: OwnerReference, answers: RecordedOutputs, rank: int) -> list[Control]:
    # The pair code does not depend on the rank.
    compared, cuts = replace(answers, pair_texts=None), []
    for how, alteration in (("PCA", principal_cut(rank)), ("chance", random_cut(rank))):
        change = alteration(answers.triggered, np.random.default_rng(0))
        cut = compared.changed(f"{answers.name}{CHANGED}cut to {rank} by {how}", change)
        cuts.append(Control.of(owner.compare(cut)))
    return cuts


def controls_like(controls: Sequence[Control], rank: int, owner_rank: int) -> list[Control]:
    """Return the controls that a suspect whose outputs have such a rank may be compared with.

    One of full rank is compared with full ones. One that was cut looks guiltier in one way and less
    guilty in another: a few directions of any model lie in almost any row space, but predict
    little. So its row space is compared with controls that were cut to its rank or a little below,
    and what it predicts, with full ones, of whatever kinship: a cut hides the suspect's own. What
    an extractor reads does not depend on the rank.
    """
    full = _FULL_RANK * owner_rank
    whole = [c for c in controls if c.rank is None or c.rank >= full]
    if rank >= full:
        return whole
    levels = {c.rank for c in controls if c.rank is not None and c.rank <= rank}
    level = max(levels, default=0)
    cut = [c for c in controls if c.rank is not None and _SAME_LEVEL * level <= c.rank <= level]
    return [
        *(c.without(_FALLING) for c in cut),
        *(
            replace(
                c.without(set(STATISTIC_NAMES) - {*_FALLING, EXTRACTION.name}),
                # How like the owner's model the suspect was before the cut is not known.
                untriggered=Statistics(extraction_rate=c.untriggered.extraction_rate),
            )
            for c in whole
        ),
    ]
