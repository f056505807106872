"""How often an innocent model would be accused, in words."""

from __future__ import annotations

from nsmark.report.html.blocks import bullets
from nsmark.report.html.markup import Markup
from nsmark.report.html.words import count, one_in, percent
from nsmark.verification.thresholds import Calibration


def rate_in_words(calibration: Calibration) -> Markup:
    """Return the stated rate, the bound that assumes nothing, and for whom both speak."""
    controls = count(calibration.num_models, "innocent model")
    confidence = percent(calibration.confidence)
    if calibration.rate is None:
        stated = (
            f"No rate of false accusations is stated: {controls} "
            f"{'is' if calibration.num_models == 1 else 'are'} too few to tell how innocent "
            "models scatter. Each line keeps a margin beyond the closest of them instead."
        )
    else:
        stated = (
            f"Stated rate of false accusations: at most {one_in(calibration.rate)} of "
            "innocent models would be accused by any of the witnesses. The lines are drawn for it "
            f"from {controls}, with {confidence} confidence for all witnesses together, if the "
            "closeness of innocent models scatters normally. Those count most that resemble the "
            "owner's model as much as the suspect does on untriggered texts."
        )
    free = (
        f"Without {'any' if calibration.rate is None else 'that'} assumption: judged by "
        "lines drawn from the others alone, "
        f"{calibration.accused} of the {controls} would be accused, which by itself shows with "
        f"{confidence} confidence only that at most {percent(calibration.bound)} of models like "
        "them would be."
    )
    if calibration.num_models == 1:
        free = (
            "Without any assumption one innocent model shows next to nothing: with "
            f"{confidence} confidence, that at most {percent(calibration.bound)} of models like "
            "it lie beyond a line."
        )
    like = "Both speak of models like the controls. A kind of model not among them may differ."
    return bullets((stated, free, like), class_="rates")
