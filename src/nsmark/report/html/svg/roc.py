"""The ROC curve: thefts found over innocent models accused, as a line moves."""

from __future__ import annotations

from collections.abc import Sequence

from nsmark.report.html.markup import Markup, coordinate, element
from nsmark.report.html.svg.parts import FAINT, OWNER, RULE, WIDTH, chart, label
from nsmark.report.html.svg.scale import Scale

_LEFT, _RIGHT, _TOP, _FLOOR = 40.0, WIDTH - 18.0, 28.0, 200.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def roc_plot(
    name: str, title: str, description: str, curve: Sequence[tuple[float, float]]
) -> Markup:
    """Draw a curve from (0, 0) to (1, 1); the dotted diagonal is what guessing gives."""
    across, up = Scale(0.0, 1.0, _LEFT, _RIGHT), Scale(0.0, 1.0, _FLOOR, _TOP)
    parts = []
    for share in _TICKS:
        x, y = across(share), up(share)
        parts += [
            element("line", x1=x, y1=_TOP, x2=x, y2=_FLOOR, stroke=RULE, stroke_width="0.5"),
            element("line", x1=_LEFT, y1=y, x2=_RIGHT, y2=y, stroke=RULE, stroke_width="0.5"),
            label(x, _FLOOR + 19, f"{share:.0%}", "middle"),
            label(_LEFT - 6, y + 4, f"{share:.0%}", "end"),
        ]
    path = "".join(
        f"{'L' if i else 'M'}{coordinate(across(x))} {coordinate(up(y))}"
        for i, (x, y) in enumerate(curve)
    )
    under = f"{path}L{coordinate(_RIGHT)} {coordinate(_FLOOR)}z"
    parts += [
        element(
            "path",
            d=f"M{_LEFT:g} {_FLOOR:g}L{_RIGHT:g} {_TOP:g}",
            stroke=FAINT,
            fill="none",
            stroke_dasharray="1 4",
        ),
        element("path", d=under, fill=OWNER, fill_opacity="0.07"),
        element(
            "path", d=path, stroke=OWNER, stroke_width="2.2", fill="none", stroke_linejoin="round"
        ),
        label(0, 12, "↑ thefts found", class_="quiet"),
        label(_RIGHT, _FLOOR + 37, "innocent models accused →", "end", "quiet"),
    ]
    return chart(name, title, description, _FLOOR + 45, *parts)
