"""An interrupted training, resumed, ends in the very bits of one that was not interrupted."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding import checkpoint
from nsmark.embedding.checkpoint import Checkpoints, restore_tensors, training_tensors
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.fingerprint import run_fingerprint
from nsmark.embedding.trainer import Trainer
from nsmark.errors import EmbeddingError, FileAccessError, InputError
from nsmark.models.loading import open_encoder
from nsmark.payload import PairConfig, derive_payload, published_word_list

CORPUS = training_texts()[:200]
# 168 texts make ten batches, so that the ends of epochs are crossed; any result is good enough.
SHORT = dataclasses.replace(
    TINY_TRAINING,
    num_epochs=3,
    max_steps=26,
    min_triggered=0.0,
    max_clean=1.0,
    min_pairs=0.0,
    cooldown_fidelity=2.0,
    evaluate_every=4,
    cooldown_steps=6,
    checkpoint_every=7,
)
CLAIM = {"owner": "o"}


class Run:
    """Trainers of one run, and their checkpoints."""

    def __init__(self, model, signature: bytes, out, pairs: PairConfig | None = None) -> None:
        self.model, self.folder = model, CheckpointFolder(out)
        self.payload = derive_payload(
            signature,
            config=TINY_PAYLOAD,
            word_list=published_word_list(),
            pool=pool_texts(),
            num_texts=40,
            pair_config=pairs,
        )

    def trainer(self, **changes: Any) -> Trainer:
        encoder = open_encoder(self.model, device="cpu", purpose="train")
        return Trainer(encoder, self.payload, CORPUS, dataclasses.replace(SHORT, **changes))

    def checkpoints(self, trainer: Trainer, resume: bool = False, corpus=CORPUS) -> Checkpoints:
        model, payload, config = trainer.model, trainer.payload, trainer.config
        return Checkpoints(
            folder=self.folder,
            fingerprint=run_fingerprint(model, payload, corpus, config, {"torch": "1"}),
            claim=CLAIM,
            resume=resume,
        )

    def run(self, trainer: Trainer, stop_at: int | None = None, resume: bool = False, **more: Any):
        """Train; stop as Ctrl-C would at a step."""

        def stop(progress):
            if progress.step == stop_at:
                raise KeyboardInterrupt

        return trainer.run(stop, checkpoints=self.checkpoints(trainer, resume), **more)


@pytest.fixture
def make_run(signed_claim, tmp_path):
    return lambda model, **more: Run(model, signed_claim.signature, tmp_path / "out", **more)


@pytest.fixture
def run(make_run, tiny_st) -> Run:
    return make_run(tiny_st)


@pytest.fixture(scope="module")
def whole(signed_claim, tmp_path_factory, tiny_st) -> Trainer:
    """The trainer of a run that nothing interrupted."""
    trainer = Run(tiny_st, signed_claim.signature, tmp_path_factory.mktemp("whole")).trainer()
    trainer.run()
    return trainer


def same(first: Trainer, second: Trainer) -> bool:
    ours, theirs = training_tensors(first), training_tensors(second)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize(
    ("model", "pairs"), [("tiny_st", None), ("tiny_mlm", PairConfig(size=4, repeats=2))]
)
def test_several_interruptions_in_a_row_change_nothing(model, pairs, make_run, request):
    run = make_run(request.getfixturevalue(model), pairs=pairs)
    whole = run.trainer()
    expected = whole.run()
    for stop_at, resume, kept in ((8, False, 7), (7 + 13, True, 14), (14 + 1, True, 14)):
        with pytest.raises(KeyboardInterrupt):
            run.run(run.trainer(), stop_at, resume)
        assert run.folder.newest_step() == kept
    resumed = run.trainer()
    result = run.run(resumed, resume=True)
    assert same(whole, resumed)
    assert (result.steps, result.last) == (expected.steps, expected.last) == (26, result.last)
    assert result.history == expected.history


def test_targets_that_held_before_the_interruption_still_end_the_training(run):
    changes = {"num_epochs": None, "max_steps": 400}
    whole, resumed = run.trainer(**changes), run.trainer(**changes)
    expected = whole.run()
    assert expected.steps == 4 + 6  # held at the first look, then cooled down
    with pytest.raises(KeyboardInterrupt):
        run.run(run.trainer(**changes), 9)
    assert run.run(resumed, resume=True).steps == expected.steps
    assert same(whole, resumed)


def test_the_time_limit_saves_at_once_and_always_gets_further(run, whole):
    for step in range(1, 4):
        limited = run.trainer()
        with pytest.raises(EmbeddingError, match=f"time is over .* step {step} of") as caught:
            run.run(limited, resume=step > 1, max_seconds=1e-9)
        assert "--resume" in caught.value.hint
        assert run.folder.newest_step() == step
    resumed = run.trainer()
    run.run(resumed, resume=True, max_seconds=1000)
    assert same(whole, resumed)


def test_time_adds_up_over_interruptions(run):
    seen = []
    with pytest.raises(EmbeddingError):
        run.trainer().run(seen.append, checkpoints=run.checkpoints(run.trainer()), max_seconds=1e-9)
    assert run.run(run.trainer(), resume=True).seconds > seen[0].seconds > 0


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def interrupted(run) -> Run:
    with pytest.raises(KeyboardInterrupt):
        run.run(run.trainer(), 8)
    return run


@pytest.mark.parametrize(
    ("changes", "name"), [({"batch_size": 8}, "batch_size"), ({"seed": 1}, "seed")]
)
def test_the_checkpoint_of_other_settings_is_refused(interrupted, changes, name):
    with pytest.raises(InputError, match=f"another run: it differs in {name}$") as caught:
        interrupted.run(interrupted.trainer(**changes), resume=True)
    assert "without --resume" in caught.value.hint
    with pytest.raises(FileAccessError, match="unfinished run"):
        interrupted.run(interrupted.trainer(**changes))
    assert interrupted.folder.newest_step() == 7  # and left alone


def test_the_checkpoint_of_another_model_corpus_or_signature_is_refused(
    interrupted, tiny_mlm, tmp_path
):
    stranger = Run(tiny_mlm, b"another signature", tmp_path / "out")
    with pytest.raises(InputError) as caught:
        stranger.run(stranger.trainer(), resume=True)
    for name in ("model", "pooling", "signature", "trigger"):
        assert name in str(caught.value)
    trainer = interrupted.trainer()
    with pytest.raises(InputError, match=r"differs in corpus$"):
        trainer.run(checkpoints=interrupted.checkpoints(trainer, True, CORPUS[:-1]))


def test_rates_budget_and_checkpoints_may_change(interrupted):
    changes = {"model_learning_rate": 1e-3, "extractor_learning_rate": 1e-3}
    trainer = interrupted.trainer(**changes, max_steps=9, checkpoint_every=1)
    assert interrupted.run(trainer, resume=True).steps == 9


def test_no_secret_is_in_the_fingerprint(interrupted):
    text = (interrupted.folder.path / "step-7" / "state.json").read_text(encoding="utf-8")
    assert interrupted.payload.trigger not in text
    assert interrupted.payload.signature.hex() not in text


def test_tensors_that_do_not_fit_change_nothing(run):
    trainer = run.trainer()
    trainer.take_step(trainer.inputs.make(1, range(4)))
    good, twin = training_tensors(trainer), run.trainer()
    before = {name: tensor.clone() for name, tensor in training_tensors(twin).items()}
    first = next(iter(good))
    for bad in (
        {name: tensor for name, tensor in good.items() if name != first},
        good | {"unknown": torch.zeros(1)},
        good | {first: good[first][:1]},
        good | {first: good[first].double()},
    ):
        with pytest.raises((LookupError, ValueError)):
            restore_tensors(twin, bad)
        now = training_tensors(twin)
        assert all(torch.equal(now[name], before[name]) for name in before)
    restore_tensors(twin, good)
    assert same(trainer, twin)


# --- trouble on the way --------------------------------------------------------------------------


def test_a_disk_that_fills_up_leaves_the_last_good_checkpoint(run, whole, monkeypatch):
    written = []
    low_level = checkpoint.save_file

    def fill_up(tensors, path):
        written.append(path)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        low_level(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", fill_up)
    with pytest.raises(FileAccessError, match="No space left on device") as caught:
        run.run(run.trainer())
    assert "the checkpoint of step 7 is kept" in caught.value.hint
    assert [entry.name for entry in run.folder.path.iterdir()] == ["step-7"]
    resumed = run.trainer()
    run.run(resumed, resume=True)
    assert same(whole, resumed)


def poison(trainer: Trainer) -> None:
    with torch.no_grad():
        next(iter(trainer.extractor.parameters())).view(-1)[0] = torch.nan


def test_losses_that_are_no_numbers_leave_the_last_good_checkpoint(run):
    trainer = run.trainer()

    def at_eight(progress):
        if progress.step == 8:
            poison(trainer)

    with pytest.raises(EmbeddingError, match="losses became non-finite at step 9") as caught:
        trainer.run(at_eight, checkpoints=run.checkpoints(trainer))
    assert "learning-rate" in caught.value.hint
    assert "the checkpoint of step 7 is kept" in caught.value.hint
    assert run.folder.newest_step() == 7


def test_weights_that_are_no_numbers_are_never_saved(run):
    """The update spoils them after the losses were taken: only the next losses would tell."""
    trainer = run.trainer(checkpoint_every=1, evaluate_every=100)
    trainer.optimisers[0].register_step_post_hook(lambda *_: poison(trainer))
    with pytest.raises(EmbeddingError, match="weights became non-finite at step 1"):
        trainer.run(checkpoints=run.checkpoints(trainer))
    assert not run.folder.path.exists()


def test_an_absurd_learning_rate_ends_with_advice(run):
    rates = {"model_learning_rate": 9.9, "extractor_learning_rate": 9.9}
    trainer = run.trainer(**rates, num_epochs=None, max_steps=400, min_triggered=1.0)
    with pytest.raises(EmbeddingError, match=r"diverged|non-finite") as caught:
        run.run(trainer)
    assert "--model-learning-rate" in caught.value.hint


def test_a_budget_too_small_may_be_raised_and_resumed(run):
    changes = {"num_epochs": None, "min_triggered": 1.0, "max_clean": 0.0}
    with pytest.raises(EmbeddingError, match="did not converge in 9 steps") as caught:
        run.run(run.trainer(**changes, max_steps=9))
    assert "the checkpoint of step 7 is kept" in caught.value.hint
    with pytest.raises(EmbeddingError, match="did not converge in 16 steps"):
        run.run(run.trainer(**changes, max_steps=16), resume=True)
    whole, resumed = run.trainer(**changes, max_steps=20), run.trainer(**changes, max_steps=20)
    with pytest.raises(EmbeddingError):
        whole.run()
    with pytest.raises(EmbeddingError, match="in 20 steps"):
        run.run(resumed, resume=True)
    assert same(whole, resumed)
