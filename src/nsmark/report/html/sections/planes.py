"""The answers, and what the extractor makes of them, as points in a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsmark.report.html.blocks import figure, paragraph, section
from nsmark.report.html.markup import Markup, element
from nsmark.report.html.projection import in_the_plane, thinned
from nsmark.report.html.svg.scatter import scatter_plot
from nsmark.report.pictures import Pictures

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


def planes_section(pictures: Pictures | None) -> Markup:
    """Return two pictures: of the outputs and of the extractor's outputs."""
    heading = "Pictures of the answers"
    if pictures is None:
        return section(7, heading, paragraph("The answers were not handed to this page."))
    return section(
        7,
        heading,
        paragraph(
            "For the eye only: no verdict rests on them. One point is one text. A thief can move "
            "the points of the first picture at will with a linear map; the numbers above are "
            "what such a map does not change."
        ),
        element("div", _outputs(pictures), _extracted(pictures), class_="side-by-side"),
    )


def _outputs(pictures: Pictures) -> Markup:
    suspect = (pictures.suspect_triggered, pictures.suspect_untriggered)
    groups = {"suspect triggered": suspect[0], "suspect untriggered": suspect[1]}
    remark = "Each model's answers are divided by their typical length."
    if pictures.owner_triggered.shape[1] == pictures.suspect_triggered.shape[1]:
        groups = {"owner triggered": pictures.owner_triggered, **groups}
    else:
        remark = "The owner's are left out: they have another number of dimensions."
    chosen = thinned(groups)
    owner_length, suspect_length = (
        _typical_length([rows for kind, rows in chosen.items() if kind.startswith(model)])
        for model in ("owner", "suspect")
    )
    scaled = {
        kind: rows / (owner_length if kind.startswith("owner") else suspect_length)
        for kind, rows in chosen.items()
    }
    return _figure("plane-outputs", "Answers of the models", scaled, remark)


def _extracted(pictures: Pictures) -> Markup:
    heading = "What the extractor makes of them"
    tables = (
        pictures.extracted_owner_triggered,
        pictures.extracted_suspect_triggered,
        pictures.extracted_suspect_untriggered,
    )
    kinds = ("owner triggered", "suspect triggered", "suspect untriggered")
    groups = {kind: table for kind, table in zip(kinds, tables, strict=True) if table is not None}
    if len(groups) < len(kinds):
        return figure(
            heading, "", "No picture: the suspect's answers have other dimensions than the key's."
        )
    remark = "Where the mark can be read, points with the trigger lie apart from those without."
    return _figure("plane-extracted", heading, thinned(groups), remark)


def _figure(name: str, heading: str, groups: dict[str, NDArray[np.float64]], remark: str) -> Markup:
    found = in_the_plane(groups)
    if found is None:
        return figure(heading, "", "No picture: the points are too few, or all the same.")
    points, method = found
    texts = len(next(iter(groups.values())))
    caption = f"{_METHODS[method]} {texts} texts of each kind. {remark}"
    return figure(heading, scatter_plot(name, f"{heading}, {method}", points), caption)


def _typical_length(tables: list[NDArray[np.float64]]) -> float:
    """Return the median length of all rows; a size of 1e200 must not overflow when squared."""
    rows = np.concatenate(tables) if tables else np.ones((1, 1))
    largest = float(np.abs(rows).max()) if rows.size else 0.0
    if largest == 0.0:
        return 1.0
    return largest * float(np.median(np.linalg.norm(rows / largest, axis=1))) or 1.0
