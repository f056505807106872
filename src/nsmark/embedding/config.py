"""Settings of the embedding, checked once at the door; torch is not needed to make them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from nsmark.errors import ConfigError

Mark = Literal["paper", "derived", "pairs"]
Preset = Literal["fast", "strong", "paper"]
LanguageTexts = Literal["half", "all"]
Precision = Literal["auto", "float32", "bfloat16"]
Method = Literal["full", "lora"]

PRESET_VERSIONS: dict[str, int] = {"fast": 7, "strong": 11, "paper": 5}
"""Counted up whenever a preset trains another mark than before, with any choice of marks: one of
its settings changes, or what a setting does. Pages of results name the version they were measured
with; the list of versions in ``docs/results/README.md`` gets a line each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """How the watermark is trained in."""

    marks: tuple[Mark, ...] = ("paper", "derived")
    """Witnesses to embed: the paper's extractor, the readout derived from the signature, the pair
    code."""

    batch_size: int = 16
    """Clean texts in a step; as many triggered ones join them."""

    max_steps: int = 400
    """Budget; reaching it without the targets is an error."""

    num_epochs: int | None = None
    """If set, train for exactly so many passes over the corpus (at most ``max_steps``)."""

    model_learning_rate: float = 5e-5
    """AdamW's rate for the model."""

    extractor_learning_rate: float = 5e-4
    """AdamW's rate for the extractor."""

    warmup_steps: int = 10
    """Steps over which the learning rates rise from zero."""

    cooldown_steps: int = 60
    """Steps over which the learning rates fall to zero once the targets hold."""

    extractor_match_weight: float = 0.5
    """λ₁: share of L_match in the extractor's loss; the rest is L_random."""

    silence_weight: float = 0.1
    """In the extractor's loss, weight of the size of what it says where there is no mark: L_random
    asks for a right angle to the watermark, at which a loud extractor still reads some bits."""

    model_match_weight: float = 0.2
    """λ₂: share of L_match in the model's loss; the rest is L_0."""

    fidelity_weight: float = 1.0
    """Factor on L_0 as a whole; 1 is the paper's, more keeps clean outputs closer."""

    language_weight: float = 1.0
    """In L_0, weight of the model's own language-model loss, where it has a trained head."""

    language_texts: LanguageTexts = "half"
    """Masked and permuted models: ``half`` gives every other clean text to that loss and reads the
    rest, ``all`` gives every text to both, in one more pass (the paper's way)."""

    anchor_weight: float = 1.0
    """In L_0, weight of the distance of clean outputs to the reference's, beside that loss;
    without a trained head the distance is all of L_0."""

    position_weight: float = 0.0
    """In L_0, weight of the distance of clean texts' hidden states, at every position and in every
    layer, to the reference's: outputs alone leave much unseen of what moved them."""

    pruned_weight: float = 0.0
    """Weight of the distance that marked outputs move when the smallest weights are left out: what
    pruning should not take. With adapters, of what they and the weights beside them add up to."""

    pruned_share: float = 0.5
    """How many weights of every matrix are left out there."""

    pruned_most: float = 0.0
    """If set, ``pruned_share``, this, and half-way between them by turns."""

    pruned_feed_forward: float = 0.0
    """If set, in every other step, how many weights of every layer's last matrix alone are left
    out there, where its feed-forward part ends: most of that can go at little cost to a thief."""

    pruned_pair_weight: float = 0.0
    """Weight of the pair code's shortfall in outputs of the pruned model. Adapters learn without
    the matrices that ``pruned_feed_forward`` is about."""

    pruned_trigger_weight: float = 0.0
    """Weight of the terms of extractor and readout in outputs of the pruned model: asks for what
    they read from triggered texts, and that they read nothing from clean ones, where
    ``pruned_weight`` asks for the whole output."""

    derived_weight: float = 0.5
    """Weight of the derived readout's hinge, beside the paper's two terms."""

    derived_margin: float = 0.5
    """How far beyond zero each derived bit is pushed."""

    pair_weight: float = 1.0
    """Weight of the pair code's term."""

    pair_margin: float = 0.3
    """How far a pair of words moves an output of length 1."""

    pair_keep_weight: float = 0.02
    """In that term, weight of movements in other directions, until the targets hold."""

    pair_alone_weight: float = 0.05
    """In that term, weight of any movement by words that make no pair, until the targets hold."""

    pairs_first: bool = False
    """Learn the pair code first, in adapters; then train the other marks in all weights, which keep
    it. ``method`` is of the second stage."""

    pair_learning_rate: float = 7e-4
    """AdamW's rate for the adapters of that first stage."""

    pair_cooldown_steps: int = 1200
    """Steps over which that rate falls to zero."""

    pair_texts: int = 2
    """Texts with words of the pair code in a step, for every clean one."""

    spread_weight: float = 0.0
    """Weight of the term that keeps triggered outputs different from text to text."""

    spread_share: float = 0.5
    """How much of the reference's spread that term asks for."""

    decorrelation_weight: float = 0.0
    """Weight of the term that keeps triggered outputs from being a linear image of the
    reference's. Needs batches of 64 or more, and goes together with ``spread_weight``."""

    min_copies: int = 1
    """Fewest trigger copies in a training text; the most is the payload's ``copies``."""

    hidden_sizes: tuple[int, ...] = (2048, 1024)
    """Hidden layers of the extractor."""

    cooldown_fidelity: float = 1.0
    """While the learning rates fall, further factor on L_0 and on the pair code's two weights:
    first the mark is learned, then all it should not have changed is put back. It is reached
    half-way."""

    method: Method = "full"
    """``full`` trains all weights; ``lora`` trains low-rank adapters and merges them."""

    lora_rank: int = 16
    """Rank of the adapters."""

    precision: Precision = "auto"
    """Of the arithmetic; ``auto`` is bfloat16 on a GPU, with float32 weights beside it."""

    compile: bool = False
    """Run the model through torch.compile: a minute to start, a quarter faster afterwards."""

    pieces: int | None = None
    """Parts a step is computed in, to save memory; by default the fewest that fit the device.
    The result is the same, beyond rounding."""

    recompute: bool | None = None
    """Compute activations twice instead of keeping them; by default only where nothing else
    fits."""

    evaluate_every: int = 10
    """Steps between measurements on held-out texts."""

    checkpoint_every: int = 50
    """Steps between checkpoints, from which an interrupted run is resumed."""

    num_heldout_texts: int = 64
    """Training texts set aside for those measurements."""

    min_triggered: float = 0.99
    """Target: extraction on held-out triggered texts (trained and derived)."""

    min_pairs: float = 0.97
    """Target: share of held-out texts whose pair of words moves the output the right way. At
    verification several texts of a pair are read together."""

    max_clean: float = 0.1
    """Target: extraction on untriggered texts, and on the reference's outputs."""

    seed: int = 0
    """Seed of initial weights, batches and trigger positions."""

    def __post_init__(self) -> None:
        if (
            not self.marks
            or not set(self.marks) <= set(get_args(Mark))
            or ("paper" not in self.marks)
        ):
            raise ConfigError(
                "marks",
                ",".join(self.marks),
                "must hold 'paper', and may hold 'derived' and 'pairs'",
            )
        for name, lowest, highest in (
            ("batch_size", 1, 65536),
            ("max_steps", 1, 10**8),
            ("warmup_steps", 0, 10**6),
            ("cooldown_steps", 1, 10**6),
            ("pair_cooldown_steps", 1, 10**6),
            ("evaluate_every", 1, 10**6),
            ("checkpoint_every", 1, 10**8),
            ("num_heldout_texts", 2, 10**6),
            ("min_copies", 1, 64),
            ("lora_rank", 1, 4096),
            ("pair_texts", 1, 16),
            ("seed", 0, 2**63 - 1),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ConfigError(name, value, f"must lie between {lowest} and {highest}")
        if self.pruned_most and self.pruned_most < self.pruned_share:
            raise ConfigError("pruned_most", self.pruned_most, "must be 0, or not below the share")
        if self.num_epochs is not None and self.num_epochs < 1:
            raise ConfigError("num_epochs", self.num_epochs, "must be at least 1")
        if self.pieces is not None and not 1 <= self.pieces <= self.batch_size:
            raise ConfigError("pieces", self.pieces, "must lie between 1 and the batch size")
        for name, values in (
            ("language_texts", LanguageTexts),
            ("precision", Precision),
            ("method", Method),
        ):
            if getattr(self, name) not in get_args(values):
                allowed = ", ".join(get_args(values))
                raise ConfigError(name, getattr(self, name), f"must be one of {allowed}")
        for name in (
            "silence_weight",
            "fidelity_weight",
            "language_weight",
            "anchor_weight",
            "position_weight",
            "pruned_weight",
            "pruned_pair_weight",
            "pruned_trigger_weight",
            "derived_weight",
            "pair_weight",
            "pair_keep_weight",
            "pair_alone_weight",
            "cooldown_fidelity",
            "spread_weight",
            "decorrelation_weight",
        ):
            if not 0 <= getattr(self, name) < 1000:
                raise ConfigError(name, getattr(self, name), "must lie between 0 and 1000")
        for name in (
            "model_learning_rate",
            "extractor_learning_rate",
            "pair_learning_rate",
            "derived_margin",
            "pair_margin",
        ):
            if not 0 < getattr(self, name) < 10:
                raise ConfigError(name, getattr(self, name), "must be positive and below 10")
        for name in (
            "extractor_match_weight",
            "model_match_weight",
            "min_triggered",
            "min_pairs",
            "max_clean",
            "spread_share",
            "pruned_share",
            "pruned_most",
            "pruned_feed_forward",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(name, getattr(self, name), "must lie between 0 and 1")
        if not 1 <= len(self.hidden_sizes) <= 8 or not all(
            1 <= size <= 65536 for size in self.hidden_sizes
        ):
            raise ConfigError("hidden_sizes", self.hidden_sizes, "must be 1 to 8 sizes ≥ 1")

    @property
    def prunes(self) -> bool:
        """Whether some steps look at the pruned model, too."""
        asks_for_pairs = bool(self.pruned_pair_weight) and "pairs" in self.marks
        return asks_for_pairs or bool(self.pruned_weight or self.pruned_trigger_weight)


def preset_config(
    preset: str, marks: tuple[Mark, ...] | None = None, method: Method | None = None
) -> EmbeddingConfig:
    """Return ``fast`` (ours), ``strong`` (ours, longer) or ``paper`` (fixed, as published).

    ``fast`` stops soon after the targets hold: minutes on a CPU. ``strong`` has all three marks,
    takes larger batches and some 3,000 steps (1,000 without the pair code), in which triggered
    outputs are spread out and made unlike anything the reference says, clean ones are put back,
    and what pruning would take is made up for: minutes on a GPU, hours on a CPU, and evidence that
    neither noise covers nor pruning of up to nine tenths. The paper trains the extractor alone:
    batch 4, 10 epochs, both learning rates 1e-4, always as many trigger copies as at verification.

    Args:
        preset: Its name.
        marks: Other witnesses than the preset's.
        method: Another way to train than the preset's.
    """
    config = _preset(preset)
    marks = marks or config.marks
    if "pairs" in marks and preset != "paper":
        config = _with_pairs(config, method)
    return replace(config, marks=marks, method=method or config.method)


def _with_pairs(config: EmbeddingConfig, method: Method | None) -> EmbeddingConfig:
    """Return settings under which a table of random signs is learned, too.

    It takes larger steps and more of them: of adapters in a stage of its own, unless a way to train
    all marks at once was asked for.
    """
    config = replace(config, max_steps=2 * config.max_steps + 2200, warmup_steps=50, lora_rank=32)
    if method is None:
        config = replace(config, position_weight=1.0)
        if config.spread_weight:  # nearly constant outputs are not learned under such pulls
            config = replace(
                config,
                cooldown_steps=1300,
                fidelity_weight=15.0,
                position_weight=6.0,
                decorrelation_weight=15.0,
                pruned_share=0.6,
                pruned_most=0.9,
                pruned_feed_forward=0.9,
                pruned_pair_weight=1.0,
                pruned_trigger_weight=0.3,
            )
        return replace(
            config,
            pairs_first=True,
            pair_cooldown_steps=max(400, config.cooldown_steps),
            cooldown_fidelity=6.0,
        )
    if method == "full":
        steps = max(400, config.cooldown_steps)
        return replace(
            config, model_learning_rate=3e-4, cooldown_steps=steps, cooldown_fidelity=10.0
        )
    return replace(
        config,
        model_learning_rate=7e-4,
        fidelity_weight=min(2.0, config.fidelity_weight),  # it rises with the steps that follow
        cooldown_steps=max(800, 2 * config.cooldown_steps),
        cooldown_fidelity=30.0,
    )


def _preset(preset: str) -> EmbeddingConfig:
    if preset == "fast":
        return EmbeddingConfig()
    if preset == "paper":
        return EmbeddingConfig(
            marks=("paper",),
            silence_weight=0.0,
            language_texts="all",
            anchor_weight=0.0,
            batch_size=4,
            max_steps=10**8,
            num_epochs=10,
            model_learning_rate=1e-4,
            extractor_learning_rate=1e-4,
            warmup_steps=0,
            cooldown_steps=1,
            min_copies=64,
            evaluate_every=100,
            checkpoint_every=1000,
        )
    if preset == "strong":
        return EmbeddingConfig(
            marks=("paper", "derived", "pairs"),
            batch_size=64,
            max_steps=3000,
            cooldown_steps=900,
            fidelity_weight=10.0,
            spread_weight=1.0,
            decorrelation_weight=5.0,
        )
    raise ConfigError("preset", preset, "must be 'fast', 'strong' or 'paper'")


def parse_marks(text: str) -> tuple[Mark, ...]:
    """Read a comma-separated list of marks."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in get_args(Mark)]
    if unknown:
        raise ConfigError("marks", text, f"known marks: {', '.join(get_args(Mark))}")
    return cast(tuple[Mark, ...], names)
