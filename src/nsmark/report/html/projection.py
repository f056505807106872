"""Answers of hundreds of dimensions as points in a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 600
_FEWEST_FOR_TSNE = 12
_DIMENSIONS_FOR_TSNE = 30


def thinned(groups: dict[str, NDArray[np.floating]]) -> dict[str, NDArray[np.float64]]:
    """Take the same texts, evenly spaced, from every group: few enough to draw in seconds.

    Texts with an answer that is not finite in any group are left out.
    """
    num_texts = min(len(group) for group in groups.values())
    finite = np.ones(num_texts, dtype=bool)
    for group in groups.values():
        finite &= np.isfinite(group[:num_texts]).all(axis=1)
    usable = np.flatnonzero(finite)
    most = MOST_POINTS // len(groups)
    if len(usable) > most:
        usable = usable[np.linspace(0, len(usable) - 1, most).round().astype(int)]
    return {name: np.asarray(group[usable], dtype=np.float64) for name, group in groups.items()}


def in_the_plane(
    groups: dict[str, NDArray[np.float64]],
) -> tuple[dict[str, NDArray[np.float64]], str] | None:
    """Place the rows of all groups in one plane; also the name of the method.

    t-SNE where scikit-learn is installed, else the two principal components. None where there
    is nothing to see: fewer than three points, or all of them the same.
    """
    rows = np.concatenate(list(groups.values()))
    if len(rows) < 3:
        return None
    largest = np.abs(rows).max()
    rows = rows / largest if largest > 0 else rows
    components = _principal_components(rows - rows.mean(axis=0))
    if np.ptp(components[:, 0]) <= 1e-12:
        return None
    found = _tsne(components) if len(rows) >= _FEWEST_FOR_TSNE else None
    points = components[:, :2] if found is None else found
    method = "principal components" if found is None else "t-SNE"
    ends = np.cumsum([len(group) for group in groups.values()])[:-1]
    return dict(zip(groups, np.split(points, ends), strict=True)), method


def _principal_components(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    # The sign of a singular vector is arbitrary: make its largest entry positive.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    components = left * values * np.where(signs == 0, 1.0, signs)
    if components.shape[1] < 2:
        components = np.column_stack([components, np.zeros(len(components))])
    return np.asarray(components[:, :_DIMENSIONS_FOR_TSNE])


def _tsne(components: NDArray[np.float64]) -> NDArray[np.float64] | None:
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        return None
    start = components[:, :2] / np.std(components[:, 0]) * 1e-4
    tsne = TSNE(
        perplexity=min(30.0, (len(components) - 1) / 4),
        init=start.astype(np.float32),
        learning_rate="auto",
        max_iter=500,
        random_state=0,
    )
    # One thread: sums in another order would end in another picture of the same answers.
    with threadpool_limits(limits=1):
        return np.asarray(tsne.fit_transform(components), dtype=np.float64)
