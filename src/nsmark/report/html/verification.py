"""The page of a verification: what its template is given."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nsmark.core.null_space import expected_matching_degree
from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.report.html.document import Figure, key_rows, render
from nsmark.report.html.glossary import Meaning, meaning_of
from nsmark.report.html.pair_code import pair_figures
from nsmark.report.html.planes import planes
from nsmark.report.html.svg.chart import nice_ticks
from nsmark.report.html.svg.closeness import Pair, Strip, dumbbell_plot, strip_plot
from nsmark.report.html.words import TEXT_LIMIT, clean, finite, fixed, number
from nsmark.report.pictures import Pictures
from nsmark.report.report import PAIR_CODE_NAMES, Report, with_sized
from nsmark.verification.statistics import STATISTIC_NAMES, STATISTICS
from nsmark.verification.thresholds import Threshold
from nsmark.verification.verdict import (
    MAX_PAIR_P_VALUE,
    MAX_WAGER_P_VALUE,
    PAIR_STATISTICS,
    Verdict,
)

# Claims that an owner may have tried on the suspect before he took this one: each costs him a
# measurement.
_TRIES = 10**6
_SHARES = (
    "extraction_rate",
    "derived_extraction_rate",
    "subspace_overlap",
    "predictability",
    "aligned_subspace_overlap",
    "aligned_predictability",
)
_DEGREES = (
    "matching_degree",
    "invariant_matching_degree",
    "centred_matching_degree",
    "projective_matching_degree",
)
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class PairCode:
    """What was read of a pair code."""

    reading: PairReading
    wager: PairWager | None
    in_table: int | None
    """How many pairs the key's table has."""
    counts: bool
    """Whether the verdict rests on it, too."""

    @property
    def asked(self) -> int:
        """How many pairs were asked."""
        return sum(self.reading.halves)

    @property
    def _won_enough(self) -> bool:
        return self.wager is not None and self.wager.p_value <= MAX_WAGER_P_VALUE

    @property
    def would_suffice(self) -> bool:
        """Whether it is beyond what the rule asks for, in either way of reading."""
        return self.reading.p_value <= MAX_PAIR_P_VALUE or self._won_enough

    @property
    def by_counting(self) -> bool:
        """Whether counting right signs tells more than betting on them: where it is enough."""
        return self.reading.p_value <= MAX_PAIR_P_VALUE or not self._won_enough

    @property
    def p_value(self) -> float:
        """What the page leads with."""
        if self.by_counting or self.wager is None:
            return self.reading.p_value
        return self.wager.p_value

    @property
    def searched_p_value(self) -> float:
        """For an owner who tried many claims: there are two ways of reading each."""
        p_values = [self.reading.p_value, *([self.wager.p_value] if self.wager else [])]
        return min(len(p_values) * _TRIES * min(p_values), 1.0)


def render_html(report: Report, pictures: Pictures | None = None) -> str:
    """Return the page of a verification; the same report gives the same bytes.

    Nothing secret is on it: neither signature nor trigger nor texts, of the answers only their
    places in a plane, of a pair code only where it was read rightly. The one exception is asked
    for by name (``show_table`` of :meth:`~nsmark.report.pictures.Pictures.of`).

    Args:
        report: What was asked, what was seen, what follows.
        pictures: The answers to draw; without them the page has no pictures of them.
    """
    evidence, key = report.evidence, report.key_summary
    triggered, untriggered = with_sized(evidence) if evidence else ({}, {})
    has_pair_code = bool(key.get("pairs")) or any(
        triggered.get(name) is not None for name in PAIR_CODE_NAMES
    )
    pairs = _pairs(report)
    table = pictures.pair_table if pictures is not None else None
    title = f"{report.verdict.value.replace('_', ' ')}: "
    return render(
        "verification.html",
        title=f"nsmark verification, {title}{clean(report.suspect or 'a suspect not named', 60)}",
        report=report,
        reasons=list(
            dict.fromkeys((*report.decision.reasons, *(evidence.notes if evidence else ())))
        ),
        num_texts=evidence.num_texts if evidence else key.get("configuration", {}).get("num_texts"),
        statistics=_statistics(triggered, untriggered, has_pair_code),
        has_pair_code=has_pair_code,
        pairs=pairs,
        most_p_value=MAX_PAIR_P_VALUE,
        most_wager_p_value=MAX_WAGER_P_VALUE,
        pair_figures=pair_figures(pairs.reading, table) if pairs and table else (),
        table_is_shown=table is not None and table.is_shown,
        calibrated_strips=_calibrated_strips(report, triggered),
        paper_strips=_paper_strips(report, triggered),
        derived=_derived(triggered),
        sides=list(_sides(report, triggered, untriggered)),
        planes=planes(pictures) if pictures else (),
        command=_command(report, pairs),
        key_rows=key_rows(report.key_id, key, report.versions),
    )


def _pairs(report: Report) -> PairCode | None:
    evidence, size = report.evidence, (report.key_summary.get("pairs") or {}).get("size")
    if evidence is None or evidence.pairs is None:
        return None
    return PairCode(
        evidence.pairs,
        evidence.wager,
        size**2 if isinstance(size, int) else None,
        bool(PAIR_STATISTICS & set(report.decision.passed)),
    )


def _statistics(
    triggered: Values, untriggered: Values, has_pair_code: bool
) -> list[tuple[Meaning, tuple[float | None, float | None]]]:
    # Beside the statistics stands what else was measured, behind the first: it is of that kind.
    further = (name for name in triggered if name not in STATISTIC_NAMES)
    names = [STATISTIC_NAMES[0], *further, *STATISTIC_NAMES[1:]]
    return [
        (meaning_of(name), (triggered.get(name), untriggered.get(name)))
        for name in names
        if has_pair_code or name not in PAIR_CODE_NAMES
    ]


def _calibrated_strips(report: Report, triggered: Values) -> list[Figure]:
    calibration, found = report.calibration, []
    counted = report.evidence.counted.to_mapping() if report.evidence else {}
    for witness in STATISTICS if calibration else ():
        line = calibration.threshold(witness.name) if calibration else None
        if line is None:
            continue
        at_size = ", at the size of the owner's outputs,"
        found.append(
            _strip(
                report,
                "calibrated",
                witness.name,
                finite(counted.get(witness.name)),
                line.value,
                witness.closeness,
                bounds=(0.0, 1.0) if witness.name == "extraction_rate" else None,
                remark=at_size if counted.get(witness.name) != triggered.get(witness.name) else "",
                line=line,
            )
        )
    return found


def _paper_strips(report: Report, triggered: Values) -> list[Figure]:
    thresholds = report.thresholds
    if thresholds is None or (report.calibration is not None and report.rule != "paper"):
        return []
    rate, degree = "extraction_rate", "invariant_matching_degree"
    suspect = finite(triggered.get(degree))
    degrees = [value for _, value in _controls(report, degree)]
    degrees += [thresholds.max_matching_degree, *([] if suspect is None else [suspect])]
    farthest = max(1.0, 1.1 * max(value for value in degrees if math.isfinite(value)))
    return [
        _strip(report, "paper", rate, finite(triggered.get(rate)), thresholds.min_extraction_rate,
               float, bounds=(0.0, 1.0)),
        _strip(report, "paper", degree, suspect, thresholds.max_matching_degree,
               lambda value: -value, bounds=(farthest, 0.0)),
    ]  # fmt: skip


def _strip(
    report: Report,
    rule: str,
    name: str,
    suspect: float | None,
    threshold: float,
    closeness: Callable[[float], float],
    *,
    bounds: tuple[float, float] | None,
    remark: str = "",
    line: Threshold | None = None,
) -> Figure:
    controls = _controls(report, name)
    label = meaning_of(name).label
    sentences = ["The suspect's value could not be had."]
    if suspect is not None:
        passed = closeness(suspect) > closeness(threshold)
        reaches = "lies beyond" if passed else "does not reach beyond"
        # A key can be refused for its own sake; then a witness beyond its line changes nothing.
        accuses = "accuses" if report.verdict is Verdict.OWNED else "by itself would accuse"
        sentences = [
            f"The suspect's {number(suspect)}{remark} {reaches} the line at {number(threshold)}: "
            f"this witness {accuses if passed else 'does not accuse'}."
        ]
    closest = line.closest_control if line else None
    if closest is None and controls:
        closest = max((value for _, value in controls), key=closeness)
    if closest is None:
        sentences.append("The innocent models behind the line are not recorded in this report.")
    else:
        models = line.num_controls if line else len(controls)
        who = f"closest of {models:,} innocent models" if models > 1 else "only innocent model"
        sentences.append(f"The {who} has {number(closest)}.")
        if not controls:
            sentences.append("Their single values are not recorded in this report.")
    if line is not None and not line.can_be_reached:
        sentences.append("Not even the owner's own model could pass this line.")
    caption = " ".join(sentences)
    strip = Strip(
        closeness=closeness,
        bounds=bounds,
        suspect=suspect,
        innocents=controls,
        line=finite(threshold),
    )
    title = f"{label}: suspect, line and innocent models"
    drawn = strip_plot(f"strip-{rule}-{name.replace('_', '-')}", title, caption, strip)
    return Figure(label, drawn, caption)


def _controls(report: Report, name: str) -> list[tuple[str, float]]:
    found = ((each.name, finite(getattr(each.triggered, name))) for each in report.controls)
    return [(control, value) for control, value in found if value is not None]


def _derived(triggered: Values) -> dict[str, float] | None:
    rate, p_value = triggered.get("derived_extraction_rate"), triggered.get("derived_p_value")
    if rate is None or p_value is None or not math.isfinite(p_value):
        return None
    return {"rate": rate, "p_value": p_value}


def _sides(report: Report, triggered: Values, untriggered: Values) -> Iterable[Figure]:
    """Yield the pictures of triggered against untriggered texts."""

    def pairs(names: Iterable[str]) -> list[Pair]:
        found = []
        for name in names:
            values = finite(triggered.get(name)), finite(untriggered.get(name))
            if values != (None, None):
                label = meaning_of(name).label.removeprefix("Matching degree, ")
                found.append((label[0].upper() + label[1:], *values))
        return found

    if shares := pairs(_SHARES):
        title = "Shares with and without the trigger"
        drawn = dumbbell_plot("pairs-shares", title, shares, far=0.0, same=1.0, form=fixed)
        caption = "1 is the owner's own model. Values below 0 are drawn at 0."
        yield Figure("Shares", drawn, caption)
    if degrees := pairs(_DEGREES):
        evidence, chance = report.evidence, 1.0
        if evidence is not None and 0 < evidence.null_dim <= evidence.num_texts:
            chance = expected_matching_degree(evidence.num_texts, evidence.null_dim)
        far = max([chance, *(value for _, *values in degrees for value in values if value)])
        title = "Matching degrees with and without the trigger"
        drawn = dumbbell_plot("pairs-degrees", title, degrees, far=_round_above(far), same=0.0)
        caption = (
            "0, at the right, is the owner's own model; unrelated answers without any pattern "
            f"lie at about {chance:.0f}."
        )
        yield Figure("Matching degrees", drawn, caption)


def _round_above(value: float) -> float:
    ticks = nice_ticks(0.0, value, 4)
    step = ticks[1] if len(ticks) > 1 else value
    return value if value in ticks else (ticks[-1] + step if ticks else 1.0)


def _command(report: Report, pairs: PairCode | None) -> str:
    """Return the command without secrets: keys of an API come from the environment."""
    suspect = report.suspect or "a suspect not named"
    words = ["nsmark verify KEY", shlex.quote(clean(suspect, TEXT_LIMIT))]
    words.append(f"--rule {shlex.quote(clean(report.rule))}")
    if report.calibrated_by == "verifier":
        words.append("--controls CONTROL …")
    size = (report.key_summary.get("pairs") or {}).get("size")
    asked = pairs.asked if pairs else 0
    if report.evidence is not None and isinstance(size, int) and asked < size**2:
        # Fewer pairs than the table has: every one of them was asked once, or none at all.
        words.append(f"--pair-texts {asked}")
    if report.fresh:
        words.append(f"--owner-model DIR --fresh {shlex.quote(clean(report.fresh, 200))}")
    return " ".join([*words, "--report page.html"])
