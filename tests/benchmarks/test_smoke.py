"""Every script of the benchmarks runs from end to end, on tiny models, in seconds."""

from __future__ import annotations

import ast
import json
import runpy
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsmark.corpus import pool_texts, training_texts

pytest.importorskip("torch", reason="needs the torch extra")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
SCRIPTS = {
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
}


@dataclass(frozen=True)
class Smoke:
    """How a script is run; what it is told to write under ``{out}`` must be there afterwards."""

    words: str
    status: tuple[int, ...] = (0,)


_MARK = "{out}/marks/plain/owner"
_THIEF = (
    f"--key {_MARK}/owner.nsmark --marked {_MARK}/model --reference {{st}} --texts 60 "
    "--task-texts 60 --device cpu --markdown {out}/page.md"
)
# Each in turn: the first marks the model that all of them measure.
ON_ONE_MARK = {
    "pair_code.py": Smoke(
        "--model {st} --tiny --device cpu --processes 1 --parts mark --work {out}/marks/plain "
        "--json {out}/pair-code.json --markdown {out}/pair-code.md"
    ),
    "measuring.py": Smoke(
        f"--key {_MARK}/owner.nsmark --suspect {_MARK}/model --rounds 1 --json {{out}}/cost.json"
    ),
    "attacks.py": Smoke(f"{_THIEF} --only unit-length --json {{out}}/attacks.json"),
    "filters.py": Smoke(f"{_THIEF} --json {{out}}/filters.json"),
    "mark_settings.py": Smoke(
        "--model {st} --tiny --device cpu --work {out}/marks --settings {settings} "
        "--json {out}/mark-settings.json"
    ),
    "evidence.py": Smoke(
        "--model {st} --tiny --tasks 1 --steps 3 --processes 1 --device cpu --only ^(un)?marked$ "
        "--work {out}/marks/plain --json {out}/evidence.json --markdown {out}/evidence.md"
    ),
    "endpoints.py": Smoke(
        f"--tiny --model {{st}} --marked {_MARK}/model --key {_MARK}/owner.nsmark "
        "--suspects marked --json {out}/endpoints.json --markdown {out}/endpoints.md"
    ),
}
ALONE = {
    "attacks_table/page.py": Smoke("{results}/attacks-h200.json {out}/attacks.md"),
    "authority_load.py": Smoke(
        "--seconds 0.2 --clients 2 --filings 3 --json {out}/load.json",
        status=(0, 1),  # nothing is promised about a busy machine
    ),
    "ceiling.py": Smoke("--device cpu", status=(2,)),  # said: it measures GPUs
    "evidence_table/page.py": Smoke("{results}/evidence-strong-h200.json"),
    "null_space.py": Smoke("--tiny --json {out}/null-space.json"),
    "on_one_gpu.py": Smoke(
        "--model {st} --tiny --device cpu --work {out}/work --out {out} --tables pair-code "
        "--minutes 0",
        status=(1,),  # it begins, and is stopped at once
    ),
    "reference_loop.py": Smoke(
        "--tokenizer {st} --tiny --steps 1 --warmup 0 --json {out}/reference.json"
    ),
    "speed.py": Smoke(
        "--tokenizer {st} --corpus {corpus} --tiny --device cpu --runs "
        "fast-16-corpus,strong-64-corpus --json {out}/speed.json --markdown {out}/speed.md"
    ),
    "strength.py": Smoke(
        "--model {st} --corpus {corpus} --task {task} {task} --tiny --only base --device cpu "
        "--json {out}/strength.json"
    ),
}
ELSEWHERE = {
    "common_words.py": "test_common_words.py::test_the_list_can_be_read_as_one_for_pair_codes",
    "embedding_table.py": "test_embedding_table.py::test_a_row_holds_every_measurement",
    "fidelity.py": "test_fidelity.py::test_a_small_run_from_end_to_end",
    "pages.py": "../test_results_pages.py::test_pages_are_what_their_json_files_say",
}
"""Tests that run a script's main."""


@pytest.fixture(scope="module")
def inputs(tiny_st, tmp_path_factory) -> dict[str, Path]:
    """What scripts are given."""
    folder = tmp_path_factory.mktemp("inputs")
    files = {name: folder / name for name in ("corpus", "task", "settings")}
    files["corpus"].write_text("\n".join(training_texts()[:300]) + "\n", encoding="utf-8")
    rows = [{"text": text, "label": row % 2} for row, text in enumerate(pool_texts()[:200])]
    files["task"].write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    files["settings"].write_text('{"plain": {}}', encoding="utf-8")
    return {**files, "st": tiny_st, "results": ROOT / "results"}


@pytest.fixture
def run(inputs, tmp_path, monkeypatch):
    """Run a script as the command line does, in this process; leave nothing of it behind."""
    import torch

    precision, handler = torch.get_float32_matmul_precision(), signal.getsignal(signal.SIGTERM)
    loaded = set(sys.modules)

    def run_script(name: str, smoke: Smoke) -> None:
        words = [word.format(out=tmp_path, **inputs) for word in smoke.words.split()]
        monkeypatch.setattr(sys, "path", [*sys.path])  # scripts add their folder
        monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *words])
        try:
            runpy.run_path(str(FOLDER / name), run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code or 0
        assert status in smoke.status, f"{name} ended with {status}"
        for path in map(Path, words):
            if path.parent == tmp_path and path.suffix:
                assert path.stat().st_size > 0, f"{name} wrote no {path.name}"

    with torch.random.fork_rng():
        yield run_script
    torch.set_float32_matmul_precision(precision)
    signal.signal(signal.SIGTERM, handler)
    for name in set(sys.modules) - loaded:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and FOLDER in Path(file).parents:
            del sys.modules[name]


def test_scripts_about_a_marked_model_run(run):
    for name, smoke in ON_ONE_MARK.items():
        run(name, smoke)


@pytest.mark.parametrize("name", ALONE)
def test_a_script_runs(run, name):
    run(name, ALONE[name])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_script_is_run_by_a_test_of_its_own(name):
    file, _, test = ELSEWHERE[name].partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if getattr(each, "name", None) == test)
    marks = " ".join(map(ast.unparse, found.decorator_list))
    assert "slow" not in marks
    assert "gpu" not in marks


def test_every_script_is_in_one_of_the_tables():
    tables = [*ON_ONE_MARK, *ALONE, *ELSEWHERE]
    assert sorted(tables) == sorted(SCRIPTS)
