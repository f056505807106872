"""Words and numbers as people read them; text from outside made harmless and short."""

from __future__ import annotations

import math
import re
import unicodedata

from markupsafe import Markup

from nsmark.report.html.markup import element
from nsmark.report.odds import power_of_ten

NAME_LIMIT = 120
TEXT_LIMIT = 1200
# No script stacks more marks on a letter; a hostile name does, over the lines above it.
_MARKS_LIMIT = 4

# Bounded and without overlaps: a hostile text of any length is searched in linear time.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}://\S+")
_TOKEN = re.compile(r"(?i)\b(bearer\s+|sk-|hf_)[A-Za-z0-9._~+/-]{8,}=*")


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """Return outside text without control characters and credentials, shortened.

    Characters that do not print, or that turn the direction of writing, are shown as escapes.
    """
    text = _TOKEN.sub(r"\1…", _ADDRESS.sub(lambda found: _without_secrets(found[0]), text))
    shown, marks = [], 0
    for character in text[: limit + 1]:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= _MARKS_LIMIT:
            shown.append(character if character.isprintable() else repr(character)[1:-1])
    result = "".join(shown)
    if len(text) > limit or len(result) > 2 * limit:
        return f"{result[:limit]}… ({len(text):,} characters)"
    return result


def _without_secrets(address: str) -> str:
    """Leave out who asks, and the values of parameters: people put their passwords there."""
    address = re.sub(r"://[^/?#]*@", "://…@", address)
    return re.sub(r"([?&;][^=?&;#]*=)[^&;#]+", r"\1…", address)


def outside(text: str, limit: int = NAME_LIMIT) -> Markup:
    """Return outside text set apart, so that it can neither run on nor turn the text around it."""
    return element("bdi", clean(text, limit), class_="said")


def number(value: float | None) -> str:
    """Return a statistic: a dash where there is none, powers of ten where 0.000 would mislead."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    if value == 0 or 5e-4 <= abs(value) < 1e5:
        return f"{value:.3f}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.replace('-', '−')}×{power_of_ten(int(exponent))}"


def finite(value: float | None) -> float | None:
    """Return a value that can be drawn, or None."""
    return value if value is not None and math.isfinite(value) else None


def fixed(value: float | None) -> str:
    """Return a statistic with three digits, where there is no room for more."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.3f}".replace("-", "−").replace("−0.000", "0.000")


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.3g} %"


def one_in(rate: float) -> str:
    """Return a small rate as people say it, and in percent."""
    if rate <= 0:
        return "none"
    return percent(rate) if rate > 0.4 else f"1 in {round(1 / rate):,} ({percent(rate)})"


def count(amount: int, one: str, many: str | None = None) -> str:
    """Return ``1 control``, ``1,500 controls``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
