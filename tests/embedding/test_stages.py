"""A pair code first, in adapters; then the other marks in all weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.checkpoint import Checkpoints
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.config import preset_config
from nsmark.embedding.fingerprint import run_fingerprint
from nsmark.embedding.stages import Trained, train, training_stages
from nsmark.embedding.trainer import Trainer
from nsmark.errors import ConfigError, EmbeddingError
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder
from nsmark.payload import PairConfig, derive_payload, published_word_list

CORPUS = training_texts()[:200]
ALL = ("paper", "derived", "pairs")
# Any result is good enough; targets hold at the first look, so each stage ends soon.
SHORT = dataclasses.replace(
    TINY_TRAINING,
    marks=ALL,
    pairs_first=True,
    min_triggered=0.0,
    max_clean=1.0,
    min_pairs=0.0,
    evaluate_every=4,
    cooldown_steps=10,
    pair_cooldown_steps=8,
    checkpoint_every=5,
    lora_rank=4,
    pruned_weight=0.2,
    pruned_feed_forward=0.5,
    pruned_pair_weight=0.3,
)
FIRST, SECOND = 4 + 8, 4 + 10  # steps of the two stages


class Run:
    """One run's model, payload and checkpoints."""

    def __init__(self, model: Any, signature: bytes, out: Any) -> None:
        self.model, self.folder = model, CheckpointFolder(out)
        self.payload = derive_payload(
            signature,
            config=TINY_PAYLOAD,
            word_list=published_word_list(),
            pool=pool_texts(),
            num_texts=40,
            pair_config=PairConfig(size=4, repeats=2),
        )

    def open(self) -> Encoder:
        return open_encoder(self.model, device="cpu", purpose="train")

    def train(
        self, resume: bool = False, stop: tuple[str, int] | None = None, **more: Any
    ) -> tuple[Trained, list[str]]:
        """Train; stop as Ctrl-C would at a step of a stage."""
        encoder, seen = self.open(), []

        def on_progress(progress: Any) -> None:
            if stop is not None and stop == (seen[-1], progress.step):
                raise KeyboardInterrupt

        checkpoints = Checkpoints(
            folder=self.folder,
            fingerprint=run_fingerprint(encoder, self.payload, CORPUS, SHORT, {"torch": "1"}),
            claim={"owner": "o"},
            resume=resume,
        )
        trained = train(
            encoder,
            self.payload,
            CORPUS,
            SHORT,
            checkpoints=checkpoints,
            on_progress=on_progress,
            on_stage=seen.append,
            **more,
        )
        return trained, seen


@pytest.fixture
def run(signed_claim, tmp_path, tiny_st) -> Run:
    return Run(tiny_st, signed_claim.signature, tmp_path / "out")


@pytest.fixture(scope="module")
def whole(signed_claim, tmp_path_factory, tiny_st) -> tuple[Trained, list[str]]:
    """What a run comes to that nothing interrupts."""
    return Run(tiny_st, signed_claim.signature, tmp_path_factory.mktemp("whole") / "out").train()


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in encoder.named_parameters()}


def test_both_stages_run_and_leave_an_ordinary_model(run, whole):
    original = weights(run.open())
    trained, seen = whole
    assert seen == ["pairs", "marks"]
    assert [result.steps for result in trained.results] == [FIRST, SECOND]
    assert trained.last is trained.results[-1]
    # Also what is there in every other step only.
    told = [set(result.history[-1]) for result in trained.results]
    assert all("pruned_feed_forward_pairs" in names for names in told)
    assert ["pruned" in names for names in told] == [False, True]
    marked = weights(trained.model)
    assert marked.keys() == original.keys()
    assert any(not torch.equal(marked[name], original[name]) for name in marked)
    assert all(parameter.requires_grad for parameter in trained.model.parameters())


def test_clean_outputs_are_held_to_the_model_before_both_stages(run, whole):
    trained, _ = whole
    first, second = (result.last.clean_cosine for result in trained.results)
    texts = CORPUS[-32:]
    before, after = (torch.tensor(e.encode(texts)) for e in (run.open(), trained.model))
    assert torch.cosine_similarity(before, after).mean() == pytest.approx(second, abs=2e-3)
    assert first < 1


@pytest.mark.parametrize(
    ("stop", "left"),
    [
        (("pairs", 7), ["pairs", "marks"]),
        (("marks", 3), ["pairs", "marks"]),  # no checkpoint yet: from the first one's end
        (("marks", 8), ["marks"]),
    ],
)
def test_an_interrupted_run_goes_on_where_it_was(run, whole, stop, left):
    expected, _ = whole
    with pytest.raises(KeyboardInterrupt):
        run.train(stop=stop)
    resumed, seen = run.train(resume=True)
    assert seen == left
    ours, theirs = weights(resumed.model), weights(expected.model)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert resumed.last.last == expected.last.last


def test_the_time_limit_covers_both_stages(run):
    with pytest.raises(EmbeddingError, match="time is over"):
        run.train(max_seconds=1e-6)
    assert run.folder.newest_step() == 1
    run.train(resume=True)


def test_one_stage_where_nothing_else_is_asked_for():
    assert [s.name for s in training_stages(preset_config("fast"))] == ["marks"]
    assert [s.name for s in training_stages(preset_config("strong"))] == ["pairs", "marks"]
    for method in ("full", "lora"):
        assert len(training_stages(preset_config("strong", method=method))) == 1
    without = dataclasses.replace(SHORT, marks=("paper", "derived"))
    assert len(training_stages(without)) == 1


def test_the_first_stage_leaves_the_trigger_alone():
    first, second = training_stages(preset_config("strong"))
    assert (first.config.method, second.config.method) == ("lora", "full")
    assert first.config.model_match_weight == first.config.spread_weight == 0
    assert first.config.model_learning_rate > second.config.model_learning_rate
    assert second.config.marks == ALL
    # Both stages end with the same weight on what pairs of words may not move.
    ends = [s.config.pair_keep_weight * s.config.cooldown_fidelity for s in (first, second)]
    assert ends[0] == pytest.approx(ends[1])


def test_an_extractor_that_loses_its_way_does_not_stop_the_first_stage(run):
    """The trigger waits for the second stage: until then only the extractor's own loss is wild."""
    settings = dataclasses.replace(SHORT, extractor_learning_rate=1e-6, pair_cooldown_steps=30)
    trainer = Trainer(run.open(), run.payload, CORPUS, training_stages(settings)[0].config)
    losses = []

    def push_away(progress: Any) -> None:
        losses.append(progress.losses["match"])
        if progress.step == 4:
            with torch.no_grad():
                for parameter in trainer.extractor.parameters():
                    parameter.add_(1.0)

    assert trainer.run(push_away).steps == 4 + 30
    assert min(losses[4:]) > 10 * max(1.0, losses[0])


def test_the_first_stage_learns_pairs_in_the_pruned_model_too():
    first, second = (stage.config for stage in training_stages(preset_config("strong")))
    assert first.prunes
    assert first.pruned_feed_forward == second.pruned_feed_forward > 0
    assert first.pruned_pair_weight == second.pruned_pair_weight > 0
    without = dataclasses.replace(preset_config("strong"), pruned_pair_weight=0.0)
    assert not training_stages(without)[0].config.prunes


def test_only_the_second_stage_pulls_pruned_outputs():
    config = dataclasses.replace(SHORT, pruned_weight=0.5, position_weight=2.0)
    stages = [stage.config for stage in training_stages(config)]
    assert [stage.pruned_weight for stage in stages] == [0.0, 0.5]
    assert [stage.position_weight for stage in stages] == [2.0, 2.0]


def test_adapters_have_no_other_reference_than_their_own_model(run):
    config = dataclasses.replace(SHORT, method="lora", pruned_weight=0.0)
    with pytest.raises(ConfigError, match="reference"):
        train(run.open(), run.payload, CORPUS, config)
