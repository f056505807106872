"""Pages of results say what they were measured with, and whether that is older than today's."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nsmark.embedding.config import PRESET_VERSIONS, preset_config
from nsmark.verification.controls import Control, controls_like
from nsmark.verification.evidence import Evidence
from nsmark.verification.statistics import Statistics
from nsmark.verification.thresholds import calibrate
from nsmark.verification.verdict import RULE_VERSION, decide_calibrated

ROOT = Path(__file__).parent.parent
RESULTS = sorted(set((ROOT / "docs" / "results").glob("*.md")) - {ROOT / "docs/results/README.md"})
OTHERS = [
    page
    for page in (ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs" / "adr").glob("0*.md"))
    if re.search(r"\*\*Measured\*\*|easured at [0-9a-f]{7}", page.read_text(encoding="utf-8"))
]
MEASURED = re.compile(
    r"(?:M|m)easured at (?P<commit>[0-9a-f]{7}\+?)"
    r"(?:;\s+neither a preset nor a rule matters here|(?P<versions>\s+with\s[^.;]*))[.;]"
)
VERSION = re.compile(r"(preset|rule)\s`(\w+)`\sversion\s(\d+)")


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    """The script, by itself: modules of benchmarks have names that tests have, too."""
    path, loaded, folder = list(sys.path), set(sys.modules), ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    yield importlib.import_module("pages")
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def provenance(pages: ModuleType) -> ModuleType:
    return sys.modules["provenance"]


def outdated(text: str) -> list[str]:
    """Return the presets and rules that a page was measured with and that have changed since."""
    today = {("preset", name): version for name, version in PRESET_VERSIONS.items()}
    today["rule", "calibrated"] = RULE_VERSION
    return [
        f"{kind} `{name}`"
        for found in MEASURED.finditer(text)
        for kind, name, version in VERSION.findall(found["versions"] or "")
        if int(version) != today[kind, name]
    ]


def said_to_be_older(text: str) -> str:
    """Return what a page says has changed since it was measured."""
    return " ".join(re.findall(r"Since\s+then\s+([^.]*?)\s+ha(?:s|ve)\s+changed", text))


@pytest.mark.parametrize("page", [*RESULTS, *OTHERS], ids=lambda page: page.name)
def test_a_page_says_what_it_was_measured_with_and_whether_that_is_older(page):
    text = page.read_text(encoding="utf-8")
    head = text if page in OTHERS else "\n".join(text.splitlines()[:5])
    assert MEASURED.search(head), f"{page.name} does not say 'Measured at COMMIT with preset …'"
    told = said_to_be_older(text)
    for what in outdated(text):
        assert what in told, (
            f"{page.name} was measured with an older {what}: `python benchmarks/pages.py` makes "
            f"pages of scripts anew; in others write 'Since then {what} has changed'"
        )
    if not outdated(text):
        assert not told, f"{page.name} says that it is older than it is"


def test_pages_are_what_their_json_files_say(pages):
    made = dict(pages.pages())
    assert set(made) < set(RESULTS)
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} is not what its JSON file gives: run python benchmarks/pages.py"
        )


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "results").glob("*.json")),
    ids=lambda file: file.name,
)
def test_every_file_of_results_says_what_it_was_measured_with(file):
    document = json.loads(file.read_text(encoding="utf-8"))
    parts = document["parts"].values() if "parts" in document else [document]
    for part in parts:
        found = part["measured"]
        assert re.fullmatch(r"[0-9a-f]{7}\+?", found["commit"])
        assert found["device"]
        for name, version in found["presets"].items():
            assert 1 <= version <= PRESET_VERSIONS[name]
        assert found["rule"] is None or 1 <= found["rule"] <= RULE_VERSION


def test_the_list_of_versions_ends_with_todays():
    text = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    rule, presets = text.split("## Versions of the presets")
    assert max(int(n) for n in re.findall(r"^\| (\d+) \|", rule, re.MULTILINE)) == RULE_VERSION
    newest: dict[str, int] = {}
    last = ""
    for name, version in re.findall(r"^\| (`\w+`)? ?\| (\d+) \|", presets, re.MULTILINE):
        last = name.strip("`") or last
        newest[last] = int(version)
    assert newest == PRESET_VERSIONS


def test_what_is_measured_now_is_no_older(provenance, monkeypatch):
    monkeypatch.setenv(provenance.COMMIT, "0123abc")
    now = provenance.measured(("fast", "strong"), rule=True)
    assert not outdated(provenance.when_measured(now))
    assert "Since then" not in provenance.when_measured(now)
    older = now | {"rule": RULE_VERSION - 1, "note": "What differs."}
    told = provenance.when_measured(older)
    assert outdated(told) == [said_to_be_older(told)] == ["rule `calibrated`"]
    assert told.endswith("What differs.")
    assert "not known" in provenance.when_measured(provenance.measured(None, rule=True))
    assert MEASURED.search(provenance.when_measured(provenance.measured()))


def test_without_a_repository_the_commit_is_asked_for(provenance, monkeypatch, tmp_path):
    monkeypatch.delenv(provenance.COMMIT, raising=False)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.COMMIT in provenance.measured()["commit"]


# --- Guards: what a version stands for does not change unnoticed. ---

PRESETS_OF_THESE_VERSIONS = {
    "fast": (7, "a02f8fa6478c"),
    "strong": (11, "47f3aeb97259"),
    "paper": (5, "fd5636787467"),
}
RULE_OF_THIS_VERSION = (12, "a24f302623df")
WHAT_TO_DO = (
    "If {what} now {does}, raise {version}, add a line to docs/results/README.md, and run "
    "python benchmarks/pages.py. In any case put this here: {found}"
)


def digest(thing: object) -> str:
    text = json.dumps(thing, sort_keys=True, default=lambda each: np.asarray(each).tolist())
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize("preset", PRESET_VERSIONS)
def test_a_preset_does_not_change_without_its_version(preset):
    marks = (None, ("paper",), ("paper", "derived"), ("paper", "derived", "pairs"))
    settings = [
        asdict(preset_config(preset, chosen, method))
        for chosen, method in product(marks, (None, "full", "lora"))
    ]
    found = (PRESET_VERSIONS[preset], digest(settings))
    assert found == PRESETS_OF_THESE_VERSIONS[preset], WHAT_TO_DO.format(
        what=f"the preset {preset!r}",
        does="trains another mark",
        version=f"PRESET_VERSIONS[{preset!r}] in nsmark.embedding.config",
        found=found,
    )


MODULES_OF_THE_RULE = (
    *(
        f"verification.{name}"
        for name in ("verdict", "controls", "thresholds", "statistics", "evidence")
    ),
    *(f"core.{name}" for name in ("null_space", "statistics", "pair_code", "pair_wager")),
)


def constants_of_the_rule() -> dict[str, object]:
    """Return every number that the modules of the rule hold."""
    modules = [importlib.import_module(f"nsmark.{name}") for name in MODULES_OF_THE_RULE]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) and name != "RULE_VERSION"
        for values in [value if isinstance(value, tuple) else (value,)]
        if all(isinstance(each, int | float | range | np.ndarray) for each in values)
    }


def judged_at_random(count: int) -> list[object]:
    """Return what the rule makes of made-up measurements, the same ones every time."""
    rng = np.random.default_rng(20261119)

    def statistics(like: float) -> Statistics:
        shares = np.clip(rng.normal(like, 0.25, 6), -0.05, 1.0)
        return Statistics(
            extraction_rate=max(0.0, float(shares[0])),
            derived_extraction_rate=max(0.0, float(shares[1])),
            derived_p_value=float(10.0 ** -rng.uniform(0, 40 * like)),
            pair_code_rate=max(0.0, float(shares[2])),
            pair_code_p_value=float(10.0 ** -rng.uniform(0, 30 * like)),
            pair_wager_p_value=float(f"1e-{int(rng.uniform(0, 40 * like))}"),
            predictability=float(shares[3]),
            aligned_predictability=float(shares[4]),
            aligned_subspace_overlap=float(shares[5]),
        )

    found: list[object] = []
    for _ in range(count):
        controls = [
            Control(f"model {n // 2}", statistics(0.1), int(rng.choice([8, 32])), statistics(0.3))
            for n in range(int(rng.integers(0, 40)))
        ]
        rank = int(rng.choice([4, 8, 32]))
        evidence = Evidence(
            suspect="suspect",
            triggered=statistics(float(rng.uniform(0, 0.9))),
            untriggered=statistics(0.05),
            num_texts=int(rng.choice([40, 200])),
            output_dim=32,
            null_dim=8,
            dead_rows=0,
            rank=rank,
            notes=(),
            sized_extraction_rate=float(rng.choice([0.0, 0.6, 1.0])),
        )
        like = controls_like(controls, rank, 32)
        lines = calibrate(like, suspect=evidence.untriggered, num_bits=64)
        decision = decide_calibrated(evidence, lines, controls[:2], owner_rank=32)
        thresholds = [] if lines is None else [round(line.value, 3) for line in lines.thresholds]
        found.append([decision.verdict.value, sorted(decision.passed), thresholds])
    return found


def test_the_rule_does_not_change_without_its_version():
    outcomes = judged_at_random(300)
    assert len({json.dumps(each[:2]) for each in outcomes}) > 10
    found = (RULE_VERSION, digest([constants_of_the_rule(), outcomes]))
    assert found == RULE_OF_THIS_VERSION, WHAT_TO_DO.format(
        what="the rule",
        does="judges the same answers otherwise",
        version="RULE_VERSION in nsmark.verification.verdict",
        found=found,
    )
