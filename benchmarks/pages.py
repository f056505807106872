"""Makes the pages of docs/results anew from the JSON files of results/.

    python benchmarks/pages.py

Nothing is measured. Needed whenever a page is worded otherwise, or the version of a preset or of
the rule was raised: pages then say that they are older.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # benchmarks are scripts, not a package

import attacks_table.page
import endpoints_table.page
import evidence_table.page
import family_table.page
import fidelity_table.page
import filters
import pair_table.page
import speed

ROOT = Path(__file__).parents[1]

WRITERS = {
    "attacks": ("attacks-h200", lambda d: attacks_table.page.markdown(d, "attacks.svg")),
    "embedding": ("embedding", family_table.page.markdown),
    "endpoints": ("endpoints-cpu", endpoints_table.page.markdown),
    "evidence": ("evidence-strong-h200", lambda d: evidence_table.page.markdown([d])),
    "fidelity": ("fidelity-pairs-minilm-h200", fidelity_table.page.page),
    "filters": ("filters-cpu", filters.markdown),
    "speed": ("speed-h200", speed.markdown),
    "pair-code": ("pair-code-h200", pair_table.page.markdown),
}
"""By page: the JSON file that it is made from, and what makes it."""


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every page with the text that it should hold."""
    for name, (source, write) in WRITERS.items():
        document = json.loads((ROOT / "results" / f"{source}.json").read_text(encoding="utf-8"))
        yield ROOT / "docs" / "results" / f"{name}.md", write(document)


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
