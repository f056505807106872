"""The suspects: thefts and innocents, each as it is and behind changes of its outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence_table.tasks import Task, WeightChange, distil, finetune_on
from nsmark.models.encoder import Encoder
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.transforms.outputs import (
    OUTPUT_ALTERATIONS,
    OutputAlteration,
    bfloat16,
    chain,
    isotropic_noise,
    linear_map,
    noise_per_dimension,
    principal_cut,
)
from nsmark.transforms.weights import (
    add_noise,
    leave_out_layers,
    prune,
    prune_feed_forward,
    quantise,
    reinitialise,
)
from nsmark.verification.questions import Questions

CHANGES: dict[str, OutputAlteration] = OUTPUT_ALTERATIONS | {
    "two linear maps": OutputAlteration("two linear maps", chain(linear_map, linear_map)),
    "three linear maps": OutputAlteration(
        "three linear maps", chain(linear_map, linear_map, linear_map)
    ),
    "bfloat16": OutputAlteration("bfloat16", bfloat16),
    **{
        f"{share:.0%} noise per dimension".replace("%", " %"): OutputAlteration(
            "noise", noise_per_dimension(share)
        )
        for share in (0.01, 0.1, 0.5)
    },
    "50 % noise per dimension, linear map": OutputAlteration(
        "50 % noise per dimension, linear map", chain(noise_per_dimension(0.5), linear_map)
    ),
    "10 % isotropic noise averaged over 8 answers, linear map": OutputAlteration(
        "averaged", chain(isotropic_noise(0.1 / np.sqrt(8)), linear_map)
    ),
    "cut to a third": OutputAlteration(
        "cut to a third",
        lambda example, rng: principal_cut(max(1, example.shape[1] // 3))(example, rng),
    ),
}


@dataclass(frozen=True)
class Base:
    """A model, before anything is done to its outputs."""

    name: str
    is_theft: bool
    answers: Callable[[], RecordedOutputs]
    is_beyond: bool = False
    """Whether so much was pruned that nobody was promised to find it."""


@dataclass(frozen=True)
class Models:
    """What suspects are made from."""

    marked: Encoder
    reference: Encoder
    overwritten: Encoder | None
    """The marked model, marked again by another owner."""
    marked_by_another: Encoder | None
    """The unmarked model, marked by another owner."""
    tasks: list[Task]
    student_texts: list[str]


def bases(models: Models, questions: Questions) -> Iterator[Base]:
    """Yield every model; none of them is among the controls that lines are drawn from."""

    def base(
        name: str,
        is_theft: bool,
        encoder: Encoder,
        *changes: WeightChange,
        pooling: str = "",
        is_beyond: bool = False,
    ) -> Base:
        def answers() -> RecordedOutputs:
            model = copy.deepcopy(encoder)
            for change in changes:
                change(model)
            if pooling:
                model.pooling = pooling
            return ask(model.eval(), name, questions)

        return Base(name, is_theft, answers, is_beyond)

    for is_theft, model, name in (
        (True, models.marked, "marked"),
        (False, models.reference, "unmarked"),
    ):
        yield base(name, is_theft, model)
        for task in models.tasks:
            yield base(f"{name}, fine-tuned on {task.name}", is_theft, model, finetune_on(task))
        for share in (0.2, 0.4, 0.5, 0.6):
            pruned = f"{name}, pruned {share:.0%}"
            yield base(pruned, is_theft, model, prune(share), is_beyond=share > 0.4)
        for share in (0.5, 0.8, 0.9):
            how = prune_feed_forward(share)
            pruned = f"{name}, feed-forward pruned {share:.0%}"
            yield base(pruned, is_theft, model, how, is_beyond=share > 0.5)
        yield base(f"{name}, 8-bit weights", is_theft, model, quantise(8))
        if models.tasks:
            task = models.tasks[0]
            tuned = f"{name}, fine-tuned on {task.name}, pruned 30%"
            yield base(tuned, is_theft, model, finetune_on(task), prune(0.3))
    if models.overwritten is not None:
        yield base("marked, then marked by another owner", True, models.overwritten)
    if models.marked_by_another is not None:
        yield base("unmarked, marked by another owner", False, models.marked_by_another)
    reference = models.reference
    student = distil(models.marked, models.student_texts)
    yield base("student of the marked model's clean answers", False, reference, student)
    for seed in (101, 102):
        yield base(f"random weights {seed}", False, reference, reinitialise(None, seed))
    yield base("unmarked, last layer drawn anew", False, reference, reinitialise(1, 103))
    yield base("unmarked, weights + 15% noise", False, reference, add_noise(0.15, 104))
    for count in (1, 2):
        how = leave_out_layers(count)
        yield base(f"unmarked, without its last {count} layers", False, reference, how)
    for pooling in ("first", "max"):
        yield base(f"unmarked, pooling {pooling}", False, reference, pooling=pooling)
    yield from synthetic(questions)


def synthetic(questions: Questions) -> Iterator[Base]:
    """Yield outputs that no model made."""
    shape = questions.owner_triggered.shape
    rng = np.random.default_rng(105)

    def fixed(name: str, *outputs: np.ndarray) -> Base:
        return Base(name, False, lambda: RecordedOutputs(name, outputs[0], outputs[1]))

    yield fixed("Gaussian outputs", *(rng.standard_normal(shape) for _ in range(2)))
    constant = rng.standard_normal(shape[1])
    yield fixed(
        "constant outputs + 0.1 % noise",
        *(constant + 1e-3 * rng.standard_normal(shape) for _ in range(2)),
    )


def ask(encoder: Encoder, name: str, questions: Questions) -> RecordedOutputs:
    """Return a model's answers."""
    outputs = encoder.encode([*questions.triggered, *questions.untriggered]).astype(np.float64)
    count = len(questions.triggered)
    return RecordedOutputs(name, outputs[:count], outputs[count:])


def changed(answers: RecordedOutputs, change: str, seed: int) -> RecordedOutputs:
    """Return answers as an API would send them after a change, rounded to float32."""
    parts = (answers.triggered, answers.untriggered)
    if change in CHANGES:
        drawn = CHANGES[change].draw(answers.triggered, np.random.default_rng(seed))
        parts = (drawn(answers.triggered), drawn(answers.untriggered))
    rounded = (part.astype(np.float32).astype(np.float64) for part in parts)
    return RecordedOutputs(f"{answers.name} | {change}", *rounded)


def open_models(folder: Path) -> Encoder:
    """Open a folder to be measured."""
    from nsmark.models.loading import open_encoder

    return open_encoder(folder)
