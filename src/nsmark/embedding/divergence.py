"""When to give a training up: it went where no further step will bring it back from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsmark.embedding.config import EmbeddingConfig

_FACTOR = 10
# An extractor that says nothing (all zeros) has a match loss of 1, the mean square of ±1: below
# half of that, a rise is noise between batches.
_NOISE = 0.5
# L_0 is made of a cross-entropy (chance is the logarithm of the vocabulary, about 12) and a
# squared distance in units of the outputs' variance (2 is an unrelated text): 100 is a destroyed
# model, unless its weights in the settings are so high that it began there.
_ORIGINAL = 100.0
# Single batches may be wild, above all under a high learning rate; so many in a row are no noise.
_PATIENCE = 20


def trained_losses(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return which of the watched losses settings train the model for.

    Without a weight on the trigger, as in a first stage, the extractor alone learns, and follows a
    model that moves for other reasons: its loss wanders, and says nothing.
    """
    match, original = config.model_match_weight, config.fidelity_weight
    weights = {"match": match, "original": (1 - match) * original}
    return tuple(name for name, weight in weights.items() if weight > 0)


@dataclass(slots=True)
class DivergenceWatch:
    """Counts steps in a row whose losses are out of bounds; only of what is trained.

    Bounds: L_match at most 10 × its first value, and once the targets held at most 10 × its best
    since; L_0 at most 100, or 10 × its first value. Twenty steps in a row beyond one of them are
    a divergence.
    """

    first_match: float | None = None
    first_original: float | None = None
    best_match: float | None = None
    """The best since the targets held."""
    strikes: int = 0
    """Steps in a row out of bounds, up to now."""

    def update(self, losses: Mapping[str, float], targets_held: bool) -> str | None:
        """Look at one step; return what is wrong once it has been so for too long.

        Args:
            losses: Those of ``match`` and ``original`` that are trained.
            targets_held: Whether the held-out texts' targets hold.
        """
        problem = self._match_problem(losses.get("match"), targets_held)
        problem = problem or self._original_problem(losses.get("original"))
        self.strikes = 0 if problem is None else self.strikes + 1
        return problem if self.strikes >= _PATIENCE else None

    def _match_problem(self, match: float | None, targets_held: bool) -> str | None:
        if match is None:
            return None
        if self.first_match is None:
            self.first_match = match
        bound = _FACTOR * max(self.first_match, 1.0)
        if targets_held:
            self.best_match = match if self.best_match is None else min(self.best_match, match)
        if self.best_match is not None:
            bound = min(bound, max(_FACTOR * self.best_match, _NOISE))
        return f"the match loss is {match:.3g}, beyond {bound:.3g}" if match > bound else None

    def _original_problem(self, original: float | None) -> str | None:
        if original is None:
            return None
        if self.first_original is None:
            self.first_original = original
        bound = max(_FACTOR * self.first_original, _ORIGINAL)
        if original <= bound:
            return None
        return f"the original loss is {original:.3g}, beyond {bound:.3g}"
