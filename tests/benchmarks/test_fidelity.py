from __future__ import annotations

import copy
import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from nsmark.corpus import pool_texts, training_texts

torch = pytest.importorskip("torch", reason="needs the torch extra")

from nsmark.models.loading import open_encoder  # noqa: E402

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# A mark of a few steps: whatever it reaches counts as a success.
QUICK = (
    'marks=["paper", "derived"]',
    "max_steps=4",
    "warmup_steps=1",
    "cooldown_steps=1",
    "evaluate_every=2",
    "min_triggered=0.0",
    "max_clean=1.0",
    "hidden_sizes=[48, 32]",
    "num_heldout_texts=16",
    "model_learning_rate=0.002",
)


@pytest.fixture(scope="module")
def fidelity() -> ModuleType:
    """The script as a module; its folder is no package, but the scripts in it share parts."""
    spec = importlib.util.spec_from_file_location("fidelity", BENCHMARKS / "fidelity.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.setitem(sys.modules, "fidelity", module)  # where dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
    sys.modules.pop("strength", None)


@pytest.fixture(scope="module")
def encoder(tiny_st: Path) -> Any:
    return open_encoder(tiny_st, device="cpu", purpose="train")


@pytest.fixture
def task(fidelity: ModuleType, encoder: Any) -> Any:
    """Long texts against short ones: something a random model can learn."""
    texts = [" ".join(text.split()[: 4 + 12 * (i % 2)]) for i, text in enumerate(pool_texts()[:96])]
    labels = np.arange(96) % 2
    train = fidelity.make_split(encoder, texts[:64], labels[:64])
    return fidelity.Task("length", train, fidelity.make_split(encoder, texts[64:], labels[64:]))


def drifted(encoder: Any, size: float) -> Any:
    """Return a copy with noise on its weights."""
    other = copy.deepcopy(encoder)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in other.parameters():
            weight += size * torch.randn(weight.shape, generator=generator)
    return other


def write_tasks(folder: Path, rows: int = 30) -> None:
    """Write five tasks of the built-in corpus' texts, as the public ones are stored."""
    texts = iter(pool_texts())
    splits = {"sst2": ("train", "train_sentences", "dev")}
    for name in ("sst2", "sst5", "offenseval", "lingspam", "agnews"):
        (folder / name).mkdir(parents=True)
        for split in splits.get(name, ("train", "test")):
            lines = [json.dumps({"text": next(texts), "label": i % 3}) for i in range(rows)]
            path = folder / name / f"{split}.jsonl.gz"
            path.write_bytes(gzip.compress("\n".join(lines).encode()))


# --- paired fine-tuning --------------------------------------------------------------------------


def test_a_pair_of_identical_models_gets_the_same_accuracy(fidelity, encoder, task, monkeypatch):
    seen: list[np.ndarray] = []  # accuracies of few rows may agree by chance, scores do not
    measure = fidelity.accuracy
    monkeypatch.setattr(
        fidelity, "accuracy", lambda scores, labels: seen.append(scores) or measure(scores, labels)
    )
    plan = fidelity.make_plan(task, encoder, fidelity.Frozen.of(encoder, task).train, seed=5)
    before = copy.deepcopy(encoder.state_dict())
    cell = fidelity.measure_cell(
        fidelity.CleanSide.of(encoder, [task]),
        copy.deepcopy(encoder),
        task,
        fidelity.Frozen.of(encoder, task),
        seed=5,
    )
    assert cell["fine_tuned"]["difference"] == cell["probe"]["difference"] == 0
    assert cell["cosine"] == pytest.approx(1)
    assert cell["similarity_correlation"] == pytest.approx(1)
    assert fidelity.fine_tuned_accuracy(encoder, plan) == cell["fine_tuned"]["clean"]
    clean, marked, *_, again = seen
    assert np.array_equal(clean, marked)
    assert np.array_equal(clean, again)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_fine_tuning_learns_the_task(fidelity, encoder, task, monkeypatch):
    monkeypatch.setattr(fidelity, "MAX_EPOCHS", 30)
    monkeypatch.setattr(fidelity, "MODEL_RATE", 2e-3)
    monkeypatch.setattr(fidelity, "HEAD_RATE", 1e-2)
    plan = fidelity.make_plan(task, encoder, fidelity.Frozen.of(encoder, task).train, seed=0)
    assert fidelity.fine_tuned_accuracy(encoder, plan) > 0.8


def test_a_damaged_model_is_seen(fidelity, encoder, task):
    frozen = fidelity.Frozen.of(encoder, task)
    slight, strong = (fidelity.Frozen.of(drifted(encoder, size), task) for size in (0.001, 1.0))
    close, far = (
        fidelity.similarity_correlation(part.test, frozen.test) for part in (slight, strong)
    )
    assert far < 0.9 < 0.99 < close <= 1


def test_every_epoch_takes_every_row_once_in_batches_of_similar_length(fidelity):
    lengths = np.random.default_rng(1).integers(3, 128, size=1000)
    batches = fidelity.grouped_batches(lengths, 2, seed=4)
    assert batches == fidelity.grouped_batches(lengths, 2, seed=4)
    assert batches != fidelity.grouped_batches(lengths, 2, seed=5)
    half = len(batches) // 2
    for epoch in (batches[:half], batches[half:]):
        assert sorted(row for rows in epoch for row in rows) == list(range(1000))
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    assert padded < 1.1 * 2 * lengths.sum()


def test_the_rates_rise_to_one_and_fall_to_nearly_nothing(fidelity):
    factors = [fidelity.rate_factor(step, 100) for step in range(100)]
    assert max(factors) == factors[9] == 1
    assert factors[:10] == sorted(factors[:10])
    assert factors[9:] == sorted(factors[9:], reverse=True)
    assert 0 < factors[-1] < 0.02
    assert fidelity.rate_factor(0, 1) == 1


def test_epochs_fit_into_the_budget_of_steps(fidelity, encoder, task):
    assert task.num_epochs == 3
    texts = ["a word"] * 9000
    large = fidelity.make_split(encoder, texts, np.zeros(9000, dtype=int))
    assert fidelity.Task("large", large, task.test).num_epochs == 2


# --- frozen outputs ------------------------------------------------------------------------------


def test_outputs_come_in_the_order_of_the_texts(fidelity, encoder):
    texts = pool_texts()[:40]
    split = fidelity.make_split(encoder, texts, np.zeros(40, dtype=int), block_size=7)
    outputs = fidelity.outputs_of(encoder, split).numpy()
    np.testing.assert_allclose(outputs, encoder.encode(texts), atol=1e-5)


def test_the_probe_separates_what_is_linearly_separable_at_any_scale(fidelity, task):
    rng = np.random.default_rng(0)
    train, test = (
        rng.normal(size=(len(part.labels), 8)) + 6 * np.eye(8)[part.labels]
        for part in (task.train, task.test)
    )
    assert fidelity.probe_accuracy(train, test, task) == 1
    assert fidelity.probe_accuracy(1e-3 * train, 1e-3 * test, task) == 1


def test_similarity_correlation_is_pearsons_over_pairs(fidelity):
    rng = np.random.default_rng(2)
    first = rng.normal(size=(20, 5))
    second = first + 0.5 * rng.normal(size=(20, 5))
    pairs = np.triu_indices(20, 1)
    units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (first, second)]
    expected = stats.pearsonr(*((part @ part.T)[pairs] for part in units)).statistic
    assert fidelity.similarity_correlation(first, second) == pytest.approx(expected)


# --- summary -------------------------------------------------------------------------------------


@pytest.fixture
def summary(fidelity: ModuleType) -> ModuleType:
    """The part that says what all seeds say together."""
    return sys.modules[fidelity.summarise.__module__]


def row(*differences: float, seed: int = 0) -> dict[str, Any]:
    """Return a seed's differences on two tasks."""
    cells = {
        name: {view: {"difference": value} for view in ("fine_tuned", "probe")}
        for name, value in zip(("one", "two"), differences, strict=True)
    }
    return {"seed": seed, "tasks": cells}


def test_the_interval_is_the_paired_t_interval(fidelity, summary):
    clean = np.random.default_rng(0).uniform(0.5, 1.0, size=15)
    marked = clean + np.random.default_rng(1).normal(0, 0.01, size=15)
    result = summary.mean_interval(
        [fidelity.paired(*pair)["difference"] for pair in zip(clean, marked, strict=True)]
    )
    expected = stats.ttest_rel(100 * marked, 100 * clean).confidence_interval(0.95)
    assert result["interval_95"] == pytest.approx([expected.low, expected.high])
    differences = 100 * (marked - clean)
    assert result["standard_error"] == pytest.approx(stats.sem(differences))
    by_hand = stats.t.interval(0.95, 14, loc=differences.mean(), scale=stats.sem(differences))
    assert result["interval_95"] == pytest.approx(by_hand)


def test_one_value_has_no_interval_and_equal_values_an_empty_one(summary):
    assert summary.mean_interval([1.5])["interval_95"] is None
    assert summary.mean_interval([0.5, 0.5])["interval_95"] == [0.5, 0.5]


def test_the_summary_averages_over_cells_seeds_and_tasks(summary):
    found = summary.summarise([row(1.0, 2.0), row(3.0, 6.0)])["fine_tuned"]
    assert found["cells"] == summary.mean_interval([1.0, 2.0, 3.0, 6.0])
    assert found["seed_means"] == summary.mean_interval([1.5, 4.5])
    assert found["tasks"]["two"] == summary.mean_and_error([2.0, 6.0])


def part(digest: str | None, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"settings": {"marked_sha256": digest, "seeds": []}, "seeds": list(rows)}


def test_several_marks_are_merged_and_their_means_make_the_interval(summary):
    first = part("a", row(1.0, 2.0), row(3.0, 6.0, seed=1))
    second = part("b", row(5.0, 4.0, seed=1), row(-1.0, 0.0))
    report = summary.merged([first, second])
    assert report["settings"] == {"marked_sha256": ["a", "b"], "seeds": [0, 1]}
    assert [(each["marked_sha256"], each["seed"]) for each in report["seeds"]] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    found = report["summary"]["fine_tuned"]
    assert found["cells"]["count"] == 8
    assert found["mark_means"] == summary.mean_interval([3.0, 2.0])
    assert found["tasks"]["one"] == summary.mean_and_error([2.0, 2.0])
    # A probe is the same for every seed of a mark.
    assert report["summary"]["probe"]["cells"] == summary.mean_interval([1.0, 2.0, -1.0, 0.0])
    assert summary.num_marks(report) == 2
    assert "Cells of one mark share it" in report["summary"]["note"]
    with pytest.raises(SystemExit, match="its parts"):
        summary.merged([report, first])


def test_runs_of_one_mark_are_merged_as_before(summary):
    report = summary.merged([part("a", row(1.0, 2.0, seed=1)), part("a", row(3.0, 6.0))])
    assert report["settings"] == {"marked_sha256": "a", "seeds": [0, 1]}
    assert report["summary"]["fine_tuned"]["seed_means"]["count"] == 2
    assert report["summary"]["probe"]["seed_means"]["count"] == 1


@pytest.mark.parametrize(
    "parts",
    [
        (part("a", row(1.0, 2.0)), part(None, row(1.0, 2.0))),
        (part("a", row(1.0, 2.0)), part("b", row(1.0, 2.0, seed=1))),
        (part("a", row(1.0, 2.0)), {"settings": {"marked_sha256": "a", "limit": 3}, "seeds": []}),
    ],
)
def test_runs_that_do_not_belong_together_are_not_merged(summary, parts):
    with pytest.raises(SystemExit):
        summary.merged(parts)


def test_settings_replace_the_presets(fidelity):
    config = fidelity.embedding_config("strong", QUICK)
    assert (config.max_steps, config.hidden_sizes) == (4, (48, 32))
    assert config.spread_weight == fidelity.preset_config("strong").spread_weight


# --- the whole -----------------------------------------------------------------------------------


def test_a_small_run_from_end_to_end(fidelity, tiny_st, tmp_path, capsys):
    write_tasks(tmp_path / "tasks")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(training_texts()[:200]) + "\n", encoding="utf-8")
    out = tmp_path / "out.json"
    words = ["--model", str(tiny_st), "--corpus", str(corpus), "--tasks", str(tmp_path / "tasks")]
    words += ["--json", str(out), "--seeds", "0", "1", "--limit", "24", "--device", "cpu"]
    fidelity.main([*words, "--set", *QUICK])
    report = json.loads(out.read_text(encoding="utf-8"))

    assert [row["seed"] for row in report["seeds"]] == [0, 1]
    assert list(report["settings"]["tasks"]) == list(fidelity.SOURCES)
    assert report["settings"]["tasks"]["sst2"]["train_rows"] == 24
    assert report["settings"]["embedding"]["max_steps"] == 4
    for row in report["seeds"]:
        assert sum(row["mark"]["steps"]) <= 4
        assert row["cosine"] < 0.99999
        assert {"triggered", "one_copy", "untriggered", "reference"} <= set(row["mark"])
        for cell in row["tasks"].values():
            for view in ("fine_tuned", "probe"):
                pair = cell[view]
                assert pair["difference"] == pytest.approx(100 * (pair["marked"] - pair["clean"]))
    summary = report["summary"]
    assert summary["fine_tuned"]["cells"]["count"] == 10
    assert summary["fine_tuned"]["seed_means"]["count"] == 2
    assert "not fully independent" in summary["note"]
    printed = capsys.readouterr().out
    assert "| sst2 | 24 |" in printed
    assert "over 10 cells" in printed


def test_a_model_marked_elsewhere_is_compared_with_accuracies_made_before(
    fidelity, tiny_st, tmp_path, monkeypatch
):
    write_tasks(tmp_path / "tasks")
    words = ["--model", str(tiny_st), "--tasks", str(tmp_path / "tasks"), "--limit", "24"]
    words += ["--kept", str(tmp_path / "kept"), "--seeds", "3", "--device", "cpu"]
    out = tmp_path / "out.json"
    fidelity.main([*words, "--clean-only", "--json", str(out)])
    assert not out.exists()
    assert len(list((tmp_path / "kept").iterdir())) == 5
    tuned: list[Any] = []
    measure = fidelity.fine_tuned_accuracy
    monkeypatch.setattr(
        fidelity, "fine_tuned_accuracy", lambda model, plan: tuned.append(1) or measure(model, plan)
    )
    fidelity.main([*words, "--marked", str(tiny_st), "--json", str(out), "--markdown", str(out)])
    assert len(tuned) == 5  # the clean side was kept
    page = out.read_text(encoding="utf-8")
    assert "another signature" not in page
    assert "1.0000 | 1.0000 |" in page  # the same model twice: nothing differs
    assert "All cells share one mark" in page
    assert "mean difference +0.00 ± 0.00 points" in page


def test_what_a_run_needs_is_said(fidelity, tmp_path, capsys):
    for words in (["--model", "m", "--tasks", "t"], ["--clean-only", "--model", "m"]):
        with pytest.raises(SystemExit):
            fidelity.main([*words, "--json", str(tmp_path / "out.json")])
    shown = capsys.readouterr().err
    assert "--corpus or --marked are needed" in shown
    assert "--clean-only needs" in shown
