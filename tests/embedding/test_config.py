from __future__ import annotations

import dataclasses
import math

import pytest

from nsmark.embedding.config import EmbeddingConfig, parse_marks, preset_config
from nsmark.errors import ConfigError


def test_the_paper_preset_trains_as_published():
    config = preset_config("paper")
    assert config.marks == ("paper",)
    assert (config.batch_size, config.num_epochs) == (4, 10)
    assert config.model_learning_rate == config.extractor_learning_rate == 1e-4
    assert (config.extractor_match_weight, config.model_match_weight) == (0.5, 0.2)
    assert config.max_steps >= 10**8  # the epochs are the budget
    assert config.min_copies == 64  # always as many copies as at verification
    assert config.checkpoint_every == 1000


def test_the_default_embeds_both_marks_and_stops_when_they_hold():
    config = preset_config("fast")
    assert config == EmbeddingConfig()
    assert config.marks == ("paper", "derived")
    assert config.num_epochs is None
    assert config.checkpoint_every == 50
    assert (config.extractor_match_weight, config.model_match_weight) == (0.5, 0.2)


def test_the_strong_preset_spreads_and_decorrelates_in_batches_large_enough():
    config = preset_config("strong")
    assert min(config.spread_weight, config.decorrelation_weight) > 0
    assert config.batch_size >= 64
    assert config.cooldown_steps > preset_config("fast").cooldown_steps
    assert config.max_steps > config.cooldown_steps


def test_the_strong_preset_has_all_marks_unless_others_are_asked_for():
    config = preset_config("strong")
    assert config.marks == ("paper", "derived", "pairs")
    assert (config.method, config.pairs_first) == ("full", True)  # adapters for the pairs alone
    assert config.cooldown_fidelity > 1
    # The pruned model is asked for what is read, up to nine tenths, not for whole outputs.
    assert (config.pruned_weight, config.pruned_most) == (0.0, 0.9)
    assert min(config.pruned_pair_weight, config.pruned_trigger_weight) > 0
    without = preset_config("strong", ("paper", "derived"))
    assert config.decorrelation_weight > without.decorrelation_weight  # the pair code pulls back
    assert (without.pairs_first, without.cooldown_fidelity) == (False, 1.0)
    assert preset_config("fast", ("paper",), "lora").method == "lora"


def test_all_weights_take_smaller_steps_than_adapters():
    full, lora = (preset_config("strong", method=method) for method in ("full", "lora"))
    assert (full.method, full.pairs_first, "pairs" in full.marks) == ("full", False, True)
    assert (lora.method, lora.pairs_first, "pairs" in lora.marks) == ("lora", False, True)
    assert full.model_learning_rate < lora.model_learning_rate


def test_there_is_no_other_preset():
    with pytest.raises(ConfigError, match="preset"):
        preset_config("quick")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("marks", ()),
        ("marks", ("derived",)),
        ("marks", ("paper", "pears")),
        ("batch_size", 0),
        ("max_steps", 0),
        ("num_epochs", 0),
        ("num_epochs", -1),
        ("model_learning_rate", 0.0),
        ("model_learning_rate", -1e-4),
        ("extractor_learning_rate", math.inf),
        ("extractor_learning_rate", math.nan),
        ("warmup_steps", -1),
        ("cooldown_steps", 0),
        ("extractor_match_weight", 1.5),
        ("model_match_weight", -0.1),
        ("derived_weight", -0.5),
        ("derived_weight", math.nan),
        ("derived_weight", math.inf),
        ("derived_margin", 0.0),
        ("min_copies", 0),
        ("hidden_sizes", ()),
        ("hidden_sizes", (0,)),
        ("hidden_sizes", (8,) * 9),
        ("hidden_sizes", (65537,)),
        ("evaluate_every", 0),
        ("checkpoint_every", 0),
        ("num_heldout_texts", 1),
        ("min_triggered", 1.01),
        ("max_clean", math.nan),
        ("seed", -1),
        ("seed", 2**63),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        EmbeddingConfig(**{name: value})
    assert caught.value.exit_code == 2


def test_settings_are_checked_also_when_replaced_and_cannot_be_changed():
    config = EmbeddingConfig()
    with pytest.raises(ConfigError):
        dataclasses.replace(config, batch_size=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.batch_size = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paper", ("paper",)),
        ("paper,derived", ("paper", "derived")),
        (" derived , paper ", ("derived", "paper")),
        ("paper,paper,", ("paper",)),
    ],
)
def test_marks_are_read_from_a_list(text, expected):
    assert parse_marks(text) == expected


@pytest.mark.parametrize("text", ["paper;derived", "Paper", "paper,extra"])
def test_unknown_marks_are_refused_with_the_known_ones(text):
    with pytest.raises(ConfigError, match="paper, derived"):
        parse_marks(text)
