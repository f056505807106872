"""Answers of hundreds of dimensions, and what the extractor makes of them, as points in a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.report.html.document import Figure
from nsmark.report.html.svg.planes import scatter_plot
from nsmark.report.pictures import Pictures

Groups = dict[str, NDArray[np.float64]]
MOST_POINTS = 600
_FEWEST_FOR_TSNE = 12
_DIMENSIONS_FOR_TSNE = 30
_METHODS = {
    "t-SNE": (
        "t-SNE (scikit-learn): neighbours stay neighbours; distances between groups and the size "
        "of a group mean little."
    ),
    "principal components": (
        "The two principal components: the directions in which the points differ most; what "
        "differs only in others is not seen. With the extra ‘report’ a t-SNE picture is drawn."
    ),
}


def planes(pictures: Pictures) -> tuple[Figure, Figure]:
    """Return pictures of the outputs and of the extractor's outputs."""
    return _outputs(pictures), _extracted(pictures)


def _outputs(pictures: Pictures) -> Figure:
    groups = {
        "owner triggered": pictures.owner_triggered,
        "suspect triggered": pictures.suspect_triggered,
        "suspect untriggered": pictures.suspect_untriggered,
    }
    remark = "Each model's answers are divided by their typical length."
    if pictures.owner_triggered.shape[1] != pictures.suspect_triggered.shape[1]:
        del groups["owner triggered"]
        remark = "The owner's are left out: they have another number of dimensions."
    chosen = thinned(groups)
    lengths = {
        model: _typical_length([rows for kind, rows in chosen.items() if kind.startswith(model)])
        for model in ("owner", "suspect")
    }
    scaled = {kind: rows / lengths[kind.partition(" ")[0]] for kind, rows in chosen.items()}
    return _figure("plane-outputs", "Answers of the models", scaled, remark)


def _extracted(pictures: Pictures) -> Figure:
    heading = "What the extractor makes of them"
    tables = {
        "owner triggered": pictures.extracted_owner_triggered,
        "suspect triggered": pictures.extracted_suspect_triggered,
        "suspect untriggered": pictures.extracted_suspect_untriggered,
    }
    groups = {kind: table for kind, table in tables.items() if table is not None}
    if len(groups) < len(tables):
        return Figure(
            heading, "", "No picture: the suspect's answers have other dimensions than the key's."
        )
    remark = "Where the mark can be read, points with the trigger lie apart from those without."
    return _figure("plane-extracted", heading, thinned(groups), remark)


def _figure(name: str, heading: str, groups: Groups, remark: str) -> Figure:
    found = in_the_plane(groups)
    if found is None:
        return Figure(heading, "", "No picture: the points are too few, or all the same.")
    points, method = found
    texts = len(next(iter(groups.values())))
    caption = f"{_METHODS[method]} {texts} texts of each kind. {remark}"
    return Figure(heading, scatter_plot(name, f"{heading}, {method}", points), caption)


def _typical_length(tables: list[NDArray[np.float64]]) -> float:
    """Return the median length of all rows; a size of 1e200 must not overflow when squared."""
    rows = np.concatenate(tables) if tables else np.ones((1, 1))
    largest = float(np.abs(rows).max()) if rows.size else 0.0
    if largest == 0.0:
        return 1.0
    return largest * float(np.median(np.linalg.norm(rows / largest, axis=1))) or 1.0


def thinned(groups: dict[str, NDArray[np.floating]]) -> Groups:
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
    groups: Groups,
) -> tuple[Groups, str] | None:
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
