"""Several processes train as one would. This file is also what they run, under torchrun."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conftest import TINY_TRAINING, make_identity, tiny_payload
from nsmark.cli.main import main as nsmark
from nsmark.corpus import training_texts
from nsmark.embedding.checkpoint import Checkpoints
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.fingerprint import run_fingerprint
from nsmark.embedding.parallel import Group, local, torchrun_group
from nsmark.embedding.progress import Progress
from nsmark.embedding.trainer import Trainer
from nsmark.errors import ConfigError, NsmarkError
from nsmark.models.loading import open_encoder
from processes import run

TESTS = Path(__file__).parent.parent
CORPUS = training_texts()[:56]
# 48 texts make six batches, eight are held out; any result counts as a success.
SIX_STEPS = dataclasses.replace(
    TINY_TRAINING,
    batch_size=8,
    num_epochs=1,
    warmup_steps=0,
    num_heldout_texts=8,
    min_triggered=0.0,
    max_clean=1.0,
    evaluate_every=2,
    checkpoint_every=4,  # at a step that is also measured
    precision="float32",
)
Settings = dict[str, Any]
PAIRS: Settings = {"marks": ("paper", "derived", "pairs"), "min_pairs": 0.0}
# Name of a training, how it is divided, and its settings beside those above.
TRAININGS: dict[str, tuple[str, Settings]] = {
    "ddp": ("ddp", {}),
    "ddp-pieces": ("ddp", {"pieces": 2, "recompute": True}),
    "ddp-lora": ("ddp", {"method": "lora"}),
    "ddp-pairs": ("ddp", PAIRS),
    "fsdp-pairs": ("fsdp", PAIRS | {"pieces": 2}),
    "ddp-bfloat16": ("ddp", {"precision": "bfloat16"}),
    "fsdp": ("fsdp", {}),
    "fsdp-pieces": ("fsdp", {"pieces": 2, "recompute": True}),
    "fsdp-bfloat16": ("fsdp", {"precision": "bfloat16"}),
    "fsdp-stopped": ("fsdp", {}),
    "fsdp-resumed": ("fsdp", {}),
    "fsdp-bfloat16-stopped": ("fsdp", {"precision": "bfloat16"}),
    "fsdp-bfloat16-resumed": ("fsdp", {"precision": "bfloat16"}),
}
FINISHED = [name for name in TRAININGS if not name.endswith("stopped")]


def train(model: Path, out: Path, name: str, group: Group, settings: Settings) -> None:
    """Train, and write what this process saw; the first one also writes the model."""
    encoder = open_encoder(model, device="cpu", purpose="train", max_length=48)
    config = dataclasses.replace(SIX_STEPS, **settings)
    trainer = Trainer(
        encoder, tiny_payload(with_pairs="pairs" in config.marks), CORPUS, config, group=group
    )
    for optimiser in trainer.optimisers:
        for options in optimiser.param_groups:
            # Some gradients are zero but for rounding; AdamW would make full steps of them.
            options["eps"] = 1e-3
    losses: list[list[float]] = []

    def note(progress: Progress) -> None:
        losses.append(list(progress.losses.values()))
        if name.endswith("stopped") and progress.step == 5:
            raise KeyboardInterrupt

    checkpoints = None
    if name.endswith(("stopped", "resumed")):
        checkpoints = Checkpoints(
            folder=CheckpointFolder(out / name.rpartition("-")[0]),
            fingerprint=run_fingerprint(
                encoder, trainer.payload, CORPUS, config, {}, processes=group.size
            ),
            claim={"owner": "o"},
            resume=name.endswith("resumed"),
        )
    try:
        history = trainer.run(note, checkpoints=checkpoints).history
    except KeyboardInterrupt:
        return
    seen = {"size": group.size, "losses": losses, "history": history}
    (out / f"{name}.{group.rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    finished = trainer.finished()
    if group.is_first:
        finished.save(out / name)


def work(model: str, out: str) -> None:
    with torchrun_group("cpu", "ddp") as (group, device):
        assert device == "cpu"
        for name, (parallel, settings) in TRAININGS.items():
            own = Group(group.rank, group.size, parallel)
            try:
                train(Path(model), Path(out), name, own, settings)
            except NsmarkError as error:  # of this training alone; the others go on
                (Path(out) / f"{name}.{group.rank}.json").write_text(json.dumps(str(error)))


def torchrun(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return run(
        [*command, "--nproc_per_node", "2", *map(str, words)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )


# --- two processes -------------------------------------------------------------------------------


@dataclasses.dataclass
class Trainings:
    """What one process and two processes wrote."""

    alone: Path
    together: Path

    def seen(self, name: str, rank: int = 0) -> dict[str, Any]:
        seen = json.loads((self.together / f"{name}.{rank}.json").read_text(encoding="utf-8"))
        assert isinstance(seen, dict), seen
        return seen

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return load_file(self.together / name / "model.safetensors")


@pytest.fixture(scope="module")
def trainings(tiny_mlm, tmp_path_factory) -> Trainings:
    found = Trainings(tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together"))
    result = torchrun(__file__, tiny_mlm, found.together)
    assert result.returncode == 0, result.stderr
    for name, settings in (("plain", {}), ("lora", {"method": "lora"}), ("pairs", PAIRS)):
        train(tiny_mlm, found.alone, name, Group(), settings)
    return found


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        scale = weight.abs().max().clamp_min(0.1)  # biases begin at zero
        assert (found[name] - weight).abs().max() < 2e-5 * scale, name


EXACT = ("ddp", "ddp-pieces", "fsdp", "fsdp-pieces")


@pytest.mark.parametrize("name", FINISHED)
def test_both_processes_see_the_same(trainings, name):
    first, second = (trainings.seen(name, rank) for rank in (0, 1))
    assert first["size"] == second["size"] == 2
    assert first["losses"] == second["losses"]
    assert first["history"] == second["history"]
    assert len(first["losses"]) == (2 if name.endswith("resumed") else 6)


@pytest.mark.parametrize("name", [*EXACT, "ddp-lora", "ddp-pairs", "fsdp-pairs", "fsdp-resumed"])
def test_two_processes_end_where_one_does(trainings, tiny_mlm, name):
    kind = name.rpartition("-")[2]
    alone = trainings.alone / (kind if kind in ("lora", "pairs") else "plain")
    expected = load_file(alone / "model.safetensors")
    assert_close(trainings.weights(name), expected)
    start = load_file(tiny_mlm / "model.safetensors")
    assert max((expected[n] - start[n]).abs().max() for n in start) > 1e-3  # they did move
    seen = json.loads(alone.with_suffix(".0.json").read_text(encoding="utf-8"))
    losses = trainings.seen(name)["losses"]
    for ours, theirs in zip(losses, seen["losses"][-len(losses) :], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["ddp-bfloat16", "fsdp-bfloat16"])
def test_in_bfloat16_they_end_nearby_with_float32_weights(trainings, name):
    exact, found = trainings.seen("ddp")["losses"], trainings.seen(name)["losses"]
    for ours, theirs in zip(found, exact, strict=True):
        assert ours == pytest.approx(theirs, rel=0.05, abs=0.02)
    for part, weight in trainings.weights(name).items():
        assert weight.dtype == torch.float32
        if weight.dim() > 1:  # and more precise than what it was computed with
            assert not torch.equal(weight, weight.bfloat16().float()), part


@pytest.mark.parametrize("name", FINISHED)
def test_what_they_save_is_an_ordinary_model(trainings, name):
    ours, theirs = trainings.together / name, trainings.alone / "plain"
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    found, expected = (load_file(folder / "model.safetensors") for folder in (ours, theirs))
    assert {n: (w.shape, w.dtype) for n, w in found.items()} == {
        n: (w.shape, w.dtype) for n, w in expected.items()
    }
    assert (ours / "config.json").read_bytes() == (theirs / "config.json").read_bytes()
    assert open_encoder(ours, device="cpu", purpose="train").has_lm_head


@pytest.mark.parametrize("name", ["fsdp", "fsdp-bfloat16"])
def test_a_divided_training_resumes_where_it_was_stopped(trainings, name):
    whole, resumed = (trainings.seen(each)["losses"] for each in (name, f"{name}-resumed"))
    for ours, theirs in zip(resumed, whole[4:], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    assert_close(trainings.weights(f"{name}-resumed"), trainings.weights(name))


@pytest.mark.parametrize("name", ["fsdp", "fsdp-bfloat16"])
def test_a_divided_trainings_checkpoint_holds_everything(trainings, name):
    """Weights in float32, and both moments of all of them: every loss reaches every weight."""
    (folder,) = (trainings.together / f"{name}.checkpoint").iterdir()
    assert folder.name == "step-4"
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    weights = {n.removeprefix("model/"): w for n, w in tensors.items() if n.startswith("model/")}
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    for key in ("exp_avg", "exp_avg_sq"):
        moments = {n: tensors.get(f"model-optimiser/{n}/{key}") for n in weights}
        assert [n for n, moment in moments.items() if moment is None] == []
        assert all(moments[n].shape == weight.shape for n, weight in weights.items())


# --- without any other process -------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "size"), [(18, 2), (6, 4), (4, 4)])
def test_a_batch_must_be_divisible_among_the_processes(tiny_st, batch_size, size):
    config = dataclasses.replace(TINY_TRAINING, batch_size=batch_size)
    encoder = open_encoder(tiny_st, device="cpu", purpose="train")
    with pytest.raises(ConfigError, match=f"batch_size.*multiple of {2 * size}"):
        Trainer(encoder, tiny_payload(with_pairs=False), CORPUS, config, group=Group(0, size))


def test_a_step_has_no_more_pieces_than_a_process_has_texts(tiny_st):
    config = dataclasses.replace(TINY_TRAINING, batch_size=8, pieces=8)
    encoder = open_encoder(tiny_st, device="cpu", purpose="train")
    with pytest.raises(ConfigError, match=r"pieces.*at most 4"):
        Trainer(encoder, tiny_payload(with_pairs=False), CORPUS, config, group=Group(0, 2))


def test_shares_are_neighbours_and_equally_long():
    shares = [Group(rank, 3).share(range(9)) for rank in range(3)]
    assert [list(share) for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    rows = torch.arange(6)
    assert [Group(rank, 3).own(rows).tolist() for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_one_process_needs_no_others():
    group, rows = Group(), torch.arange(3.0)
    for found in (group.gather(rows), group.own(rows), group.sum(rows), group.agree(rows)):
        assert found.tolist() == rows.tolist()
    group.wait()
    group.agree_on_weights(torch.nn.Linear(2, 2))
    assert local(rows) is rows
    assert group.is_first
    assert not group.shards
    assert not Group(0, 1, "fsdp").shards
    assert Group(1, 2, "fsdp").shards


def test_the_number_of_a_gpu_is_left_to_torchrun():
    with pytest.raises(ConfigError, match="device"), torchrun_group("cuda:1", "ddp"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no GPU number 0"), torchrun_group("cuda", "ddp"):
        pass


# --- the command line ----------------------------------------------------------------------------


def test_embed_says_what_options_there_are(capsys):
    assert nsmark(["embed", "--help"]) == 0
    words = capsys.readouterr().out.replace("/", " ").split()
    options = ["--method", "--lora-rank", "--precision", "--compile", "--pieces", "--parallel"]
    assert {*options, "--recompute", "--keep-activations"} <= set(words)


def test_several_processes_do_not_sign_each_for_itself(tiny_st, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    make_identity(1).save(tmp_path / "alice")
    words = ["embed", str(tiny_st), "--identity", str(tmp_path / "alice.pem")]
    words += ["--owner", "Zoë", "--message", "mine", "--out", str(tmp_path / "out")]
    assert nsmark(words) == 2
    assert "--claim FILE" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_mark_a_model_from_end_to_end(tiny_st, tmp_path, capsys, parallel):
    make_identity(1).save(tmp_path / "alice")
    identity, claim, out = tmp_path / "alice.pem", tmp_path / "claim.json", tmp_path / "out"
    sign = ["identity", "sign", "--identity", str(identity), "--owner", "Zoë", "--message", "mine"]
    assert nsmark([*sign, "--out", str(claim)]) == 0
    capsys.readouterr()
    words = ["-m", "nsmark", "embed", tiny_st, "--identity", identity, "--claim", claim]
    words += ["--num-texts", "96", "--num-bits", "16", "--hidden-sizes", "48,32"]
    words += ["--model-learning-rate", "2e-3", "--extractor-learning-rate", "2e-3"]
    words += ["--device", "cpu", "--parallel", parallel, "--out", out, "--json"]
    result = torchrun(*words)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)  # one, though two processes ran
    assert document["model"] == str(out / "model")
    assert result.stderr.count("training …") == 1
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["training"]["processes"] == 2
    assert sorted(path.name for path in out.iterdir()) == ["model", "owner.nsmark", "report.json"]
    assert sorted(path.name for path in tmp_path.iterdir() if "checkpoint" in path.name) == []
    for model, verdict in ((out / "model", "owned"), (tiny_st, "not_shown")):
        nsmark(["verify", str(out / "owner.nsmark"), str(model), "--device", "cpu", "--json"])
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict


if __name__ == "__main__":
    work(*sys.argv[1:])
