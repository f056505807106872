"""Every statistic in one line of plain language, and in which direction it is close."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a statistic is explained."""

    label: str
    meaning: str
    higher_is_closer: bool
    same: str
    """The value of the owner's own model, in words."""


_SCALED = "The same after undoing one unknown scale and sign per text, which costs a thief nothing."

GLOSSARY: dict[str, Meaning] = {
    "extraction_rate": Meaning(
        "Extraction rate",
        "Share of the owner's signature that the reader trained with the mark finds in the "
        "answers. Without the trigger it must find next to nothing.",
        True,
        "1 = all of it",
    ),
    "sized_extraction_rate": Meaning(
        "Extraction rate at the owner's size",
        "The same after every answer was brought to the length of the owner's: answers much larger "
        "than any that the reader was trained with may be read by accident. The rule `calibrated` "
        "goes by the lower of both.",
        True,
        "1 = all of it",
    ),
    "derived_extraction_rate": Meaning(
        "Derived extraction",
        "Share of the signature read by a rule that follows from the signature itself, so that "
        "nobody could fit it to this suspect. One half is chance.",
        True,
        "1 = all of it",
    ),
    "derived_p_value": Meaning(
        "Derived extraction, p-value",
        "How often pure chance would read as many bits; it holds for a signature that was not "
        "picked from very many.",
        False,
        "0 = never",
    ),
    "pair_code_rate": Meaning(
        "Pair code",
        "Share of secret pairs of words whose sign, which follows from the signature, is foretold "
        "from the answers to other pairs. One half is chance. It tells of training with the "
        "signature, not who did it: dates do. A dash: its texts were not answered.",
        True,
        "1 = all of them",
    ),
    "pair_code_p_value": Meaning(
        "Pair code, p-value",
        "How often, at most, a model that was not trained with this signature would do as well. It "
        "holds for every such model, without controls.",
        False,
        "0 = never",
    ),
    "pair_wager_p_value": Meaning(
        "Pair code, p-value by betting",
        "How often, at most, bets on the signs of the pair code, placed one after the other, would "
        "win as much from a model that was not trained with this signature. Words that a filter "
        "takes out of the queries cost it little.",
        False,
        "0 = never",
    ),
    "matching_degree": Meaning(
        "Matching degree, as in the paper",
        "What the answers leave where the owner's model leaves nothing (its null space). No "
        "invertible linear map of the answers changes a 0.",
        False,
        "0 = same model",
    ),
    "invariant_matching_degree": Meaning(
        "Matching degree, any basis",
        "The same, whichever way the null space is written down; the paper's rule uses this one.",
        False,
        "0 = same model",
    ),
    "centred_matching_degree": Meaning(
        "Matching degree, centred",
        "The same after taking away a constant that was added to every answer.",
        False,
        "0 = same model",
    ),
    "projective_matching_degree": Meaning(
        "Matching degree, up to a scale per text", _SCALED, False, "0 = same model"
    ),
    "subspace_overlap": Meaning(
        "Subspace overlap",
        "How much of the way answers vary from text to text both models share, beyond chance (0). "
        "Any invertible linear map leaves it as it is.",
        True,
        "1 = same model",
    ),
    "predictability": Meaning(
        "Predictability",
        "How well the owner's answers to texts held back can be computed from the suspect's by "
        "one linear rule. 0 or less: not at all.",
        True,
        "1 = exactly",
    ),
    "alignment_gap": Meaning(
        "Alignment gap",
        "What the best choice of one scale per text leaves over, as a share of what the next best "
        "leaves. Near 1 no choice fits better than another.",
        False,
        "0 = same model",
    ),
    "aligned_subspace_overlap": Meaning(
        "Subspace overlap, up to a scale per text", _SCALED, True, "1 = same model"
    ),
    "aligned_predictability": Meaning(
        "Predictability, up to a scale per text", _SCALED, True, "1 = exactly"
    ),
}


def meaning_of(name: str) -> Meaning:
    """Return the explanation of a statistic; one that is new here goes by its own name."""
    plain = name.replace("_", " ").capitalize()
    return GLOSSARY.get(name) or Meaning(plain, "", "p_value" not in name, "")
