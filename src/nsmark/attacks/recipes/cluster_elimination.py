"""CSE: clustering, selection, elimination, the attack that WARDEN was built against.

Shetty, Teng, He & Xu 2024, "WARDEN: Multi-directional backdoor watermarks for
embedding-as-a-service copyright protection". Marked answers lean towards a few directions that the
provider chose. The thief looks for texts whose answers are oddly alike, and takes the directions
that they share out of every answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges
from nsmark.errors import UsageError
from nsmark.transforms.changes import Linear, Rows, UnitLength

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen

Places = NDArray[np.intp]

_MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEliminationSettings:
    """Settings of clustering, selection and elimination."""

    clusters: int = 20
    """Into which the answers are divided."""

    share: float = 0.05
    """Of the texts, the oddest are selected."""

    directions: int = 5
    """That the selected answers share, and that are taken out of every answer."""

    standard: str = ""
    """Folder of an unmarked model, or ``reference`` for the one at hand: texts are odd that are
    more alike here than there. Without it, texts are odd that lie far from their cluster's
    centre."""

    num_texts: int = 2000
    """Texts that are asked; as many as there are, at most."""

    seed: int = 0
    """Of the texts and of the clusters' first centres."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            clusters=(1, 1000),
            directions=(1, 4096),
            num_texts=(8, 100_000),
            seed=SEEDS,
        )
        check_positive(self, share=1)


def k_means(rows: Rows, clusters: int, rng: np.random.Generator) -> tuple[Places, Rows]:
    """Return the cluster of every row, and the centres.

    The first centres are rows far from one another (k-means++); a cluster that loses all its rows
    keeps its centre.
    """
    clusters = min(clusters, len(rows))
    centres = rows[rng.integers(len(rows))][None]
    nearest = _squared_distances(rows, centres)[:, 0]
    while len(centres) < clusters:
        total = nearest.sum()
        # Where all rows are some centre already, any will do.
        weights = nearest / total if total > 0 else None
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=weights)]])
        nearest = np.minimum(nearest, _squared_distances(rows, centres[-1:])[:, 0])
    labels = np.full(len(rows), -1, dtype=np.intp)
    for _ in range(_MAX_ROUNDS):
        found = _squared_distances(rows, centres).argmin(axis=1)
        if np.array_equal(found, labels):
            break
        labels = found
        for label in np.unique(labels):
            centres[label] = rows[labels == label].mean(axis=0)
    return labels, centres


def _squared_distances(rows: Rows, centres: Rows) -> Rows:
    lengths = (rows**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * rows @ centres.T, 0.0))


def oddness(rows: Rows, labels: Places, centres: Rows, standard: Rows | None) -> Rows:
    """Return how suspicious every answer is, larger is more so.

    Args:
        rows: Answers of unit length.
        labels: Their clusters.
        centres: Of the clusters.
        standard: What an unmarked model answers to the same texts, of unit length, if there is one.
    """
    if standard is None:
        return np.asarray(np.linalg.norm(rows - centres[labels], axis=1))
    scores = np.full(len(rows), -np.inf)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        if len(own) < 2:
            continue  # alike to nobody
        # The mean cosine to the others, here less there; each row's own is 1 in both.
        here, there = (each[own] @ each[own].sum(axis=0) for each in (rows, standard))
        scores[own] = (here - there) / (len(own) - 1)
    return scores


def shared_directions(selected: Rows, mean: Rows, count: int) -> Rows:
    """Return orthonormal directions in which some answers lie most away from the mean of all."""
    _, _, right = np.linalg.svd(selected - mean, full_matrices=False)
    return np.asarray(right[:count])


def apply(stolen: Stolen, settings: ClusterEliminationSettings, material: Material) -> Facts:
    """Find odd answers and project what they share out of all answers."""
    from nsmark.attacks.stolen import Stolen

    dim = stolen.output_dim
    if settings.directions >= dim:
        raise UsageError(
            f"{settings.directions} directions cannot be taken out of {dim}",
            f"choose directions below {dim}",
        )
    standard_model = (
        Stolen.open(material.folder(settings.standard), device=material.device)
        if settings.standard
        else None
    )
    texts = material.some_texts(min(settings.num_texts, len(material.texts)), settings.seed)
    scaled = UnitLength()
    answers = scaled(stolen.outputs(texts))
    standard = None if standard_model is None else scaled(standard_model.outputs(texts))
    labels, centres = k_means(answers, settings.clusters, np.random.default_rng(settings.seed))
    scores = oddness(answers, labels, centres, standard)
    count = min(len(texts), max(settings.directions, math.ceil(settings.share * len(texts))))
    selected = np.argsort(-scores, kind="stable")[:count]
    mean = answers.mean(axis=0)
    directions = shared_directions(answers[selected], mean, settings.directions)
    projector = np.eye(dim) - directions.T @ directions
    lost = float(((answers @ directions.T) ** 2).sum(axis=1).mean())
    stolen.add_change(Linear(projector))
    return {
        "output_dim": dim,
        "clusters": len(np.unique(labels)),
        "selected_texts": count,
        "directions": len(directions),
        "share_of_length_lost": lost,
        "compared_with_standard": standard is not None,
    }


RECIPE = Recipe(
    source="Shetty, Teng, He & Xu 2024, 'WARDEN: Multi-directional backdoor watermarks for "
    "embedding-as-a-service copyright protection'",
    deviations="There, answers are cleaned before a student is trained on them; here, the answers "
    "of the stolen model itself are sent without the directions. A text's oddness is its mean "
    "over all pairs in its cluster. Without a standard model, the distance from the cluster's "
    "centre stands in for it. Directions are those of the selected answers around the mean of "
    "all answers, so that what all answers share stays.",
    cost="some thousand queries, k-means, then one matrix product per answer; no training",
    keeps="all but a few directions of the answers",
    settings=ClusterEliminationSettings,
    apply=apply,
    trials=("", "directions=1", "directions=20,share=0.1"),
    reference_trials=("standard=reference", "directions=20,share=0.1,standard=reference"),
)
