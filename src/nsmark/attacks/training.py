"""Further training of a stolen model: through a new head on a task, or towards answers (torch)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from nsmark.attacks.catalogue import Facts
from nsmark.attacks.material import Material, StepCallback
from nsmark.attacks.recipes.ll_lfea import HEAD_FILE, Head, head_bytes
from nsmark.attacks.settings import SEEDS, check_positive, check_ranges
from nsmark.attacks.stolen import Stolen
from nsmark.errors import EmbeddingError
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder
from nsmark.transforms.changes import Linear, UnitLength

# A new head has farther to go than weights that were trained before.
_HEAD_RATE = 1e-3
_MAX_GRADIENT = 1.0
_PROBE_DECAY = 1e-3
MOST_STEPS = 10**6


class TaskSettings(Protocol):
    """Settings of any recipe that trains on the task."""

    @property
    def epochs(self) -> float: ...  # noqa: D102 - explained where they are settings
    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def learning_rate(self) -> float: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


def check_task_settings(settings: TaskSettings) -> None:
    """Refuse what is out of range among the settings that train on the task.

    Raises:
        ConfigError: Names the first.
    """
    check_ranges(settings, steps=(0, MOST_STEPS), batch_size=(1, 4096), seed=SEEDS)
    check_positive(settings, learning_rate=1, epochs=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how fast."""

    steps: int
    batch_size: int
    learning_rate: float
    """Of the first step; it falls linearly to zero."""
    seed: int
    """Of the order of the texts, of a new head and of dropout."""


def plan_for(settings: TaskSettings, num_texts: int) -> Plan:
    """Return the plan of so many steps, or else of so many passes over the texts."""
    size = min(settings.batch_size, num_texts)
    by_epochs = max(1, round(settings.epochs * math.ceil(num_texts / size)))
    return Plan(
        steps=settings.steps or min(by_epochs, MOST_STEPS),
        batch_size=size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
    )


def batches(num_texts: int, plan: Plan) -> Iterator[list[int]]:
    """Yield the places of a batch for every step, pass after pass, each in a new order."""
    rng = np.random.default_rng(plan.seed)
    rest: list[int] = []
    for _ in range(plan.steps):
        if not rest:
            rest = rng.permutation(num_texts).tolist()
        yield rest[: plan.batch_size]
        rest = rest[plan.batch_size :]


def descend(
    encoder: Encoder,
    loss_of: Callable[[list[int]], Tensor],
    num_texts: int,
    plan: Plan,
    *,
    weights: Sequence[nn.Parameter] | None = None,
    head: nn.Module | None = None,
    dropout: bool = True,
    on_step: StepCallback | None = None,
    after_step: Callable[[], None] | None = None,
) -> float:
    """Train weights by AdamW.

    Args:
        encoder: Afterwards it answers again as it is served, and no weight waits for training.
        loss_of: Returns the loss of the texts at some places.
        num_texts: How many there are.
        plan: How long and how fast.
        weights: By default all of the encoder's.
        head: Trained along, faster.
        dropout: Whether units are left out meanwhile, as many as the model says.
        on_step: Told of steps.
        after_step: Called after every step, to put back what must not change.

    Returns:
        The loss of the last tenth of the steps, on average.

    Raises:
        EmbeddingError: The training diverged.
    """
    chosen = list(encoder.parameters()) if weights is None else list(weights)
    chosen = [weight for weight in chosen if weight.is_floating_point()]
    groups: list[dict[str, Any]] = [{"params": chosen, "lr": plan.learning_rate}]
    if head is not None:
        rate = max(_HEAD_RATE, plan.learning_rate)
        groups.append({"params": list(head.parameters()), "lr": rate})
    together = [weight for group in groups for weight in group["params"]]
    late: list[Tensor] = []
    with _being_trained(encoder, chosen, dropout), seeded(encoder.device, plan.seed):
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda done: 1 - done / plan.steps)
        for step, rows in enumerate(batches(num_texts, plan), 1):
            loss = loss_of(rows)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(together, _MAX_GRADIENT)
            optimiser.step()
            schedule.step()
            if after_step is not None:
                after_step()
            if step > plan.steps - max(1, plan.steps // 10):
                late.append(loss.detach())
            if on_step is not None:
                on_step(step, plan.steps)
    found = float(torch.stack(late).mean())
    if not math.isfinite(found) or not all(bool(each.isfinite().all()) for each in chosen):
        raise EmbeddingError("the training diverged", "choose a smaller learning_rate")
    return found


@contextlib.contextmanager
def _being_trained(
    encoder: Encoder, weights: Sequence[nn.Parameter], dropout: bool
) -> Iterator[None]:
    encoder.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    encoder.train(dropout)
    try:
        yield
    finally:
        encoder.requires_grad_(False)
        for weight in weights:
            weight.grad = None  # as large as the model
        encoder.eval()


@contextlib.contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Draw the same numbers for the same seed, and leave the generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def train_on_task(
    stolen: Stolen,
    settings: TaskSettings,
    material: Material,
    *,
    weights: Sequence[nn.Parameter] | None = None,
    begin: Callable[[], None] | None = None,
    after_step: Callable[[], None] | None = None,
    finish: Callable[[], None] | None = None,
) -> Facts:
    """Train weights through a new head on the task, and tell what that did to its accuracy.

    The head reads what the encoder says, and behind the maps and unit length that directly follow
    it, as whoever trains such a model does (paper: Tab. lfeafine); what else is done to answers
    stays as it is. The head is kept beside the model where it fits its answers, that is, where
    nothing else is done.

    Args:
        stolen: Changed in place.
        settings: How long and how fast.
        material: The task.
        weights: By default all of the encoder's.
        begin: Called before the first step, after the accuracy before was measured.
        after_step: Called after every step.
        finish: Called after the last step, before the accuracy is measured.

    Returns:
        Steps, loss, and the accuracy on the test part: ``accuracy_before`` and
        ``accuracy_after`` of a head fitted to the outputs as they were and as they are,
        ``accuracy_of_head`` of the one that was trained along.
    """
    encoder, task = stolen.encoder.eval(), material.task
    train_texts = stolen.serving.texts(task.train_texts)
    sequences = encoder.token_ids(train_texts)
    tests = encoder.token_ids(stolen.serving.texts(task.test_texts))
    labels = torch.tensor(list(task.train_labels), device=encoder.device)
    wanted = torch.tensor(list(task.test_labels), device=encoder.device)
    plan = plan_for(settings, len(sequences))
    front = stolen.maps_in_front()
    through = _as_module(front, encoder.device)
    is_whole = len(front) == len(stolen.serving.changes)

    @torch.no_grad()
    def read(some: Sequence[TokenIds]) -> Tensor:
        found: Tensor = through(encoder.encode_tokens(some))
        return found

    before = read(sequences)
    accuracy_before = accuracy(fit_head(before, labels, task.num_classes), read(tests), wanted)
    # Whatever length outputs have: a head starts with logits of ordinary size.
    scale = _scale_of(before)
    if begin is not None:
        begin()
    with seeded(encoder.device, plan.seed):
        head = nn.Linear(before.shape[1], task.num_classes).to(encoder.device)

    def loss_of(rows: list[int]) -> Tensor:
        outputs = through(encoder(encoder.pad([sequences[row] for row in rows])))
        return nn.functional.cross_entropy(head(scale * outputs), labels[rows])

    loss = descend(
        encoder,
        loss_of,
        len(sequences),
        plan,
        weights=weights,
        head=head,
        on_step=material.on_step,
        after_step=after_step,
    )
    if finish is not None:
        finish()
    after, outputs = read(sequences), read(tests)
    kept = _as_head(head, scale)
    if is_whole:
        stolen.extras[HEAD_FILE] = head_bytes(kept)
    return {
        "task": task.name,
        "steps": plan.steps,
        "loss": round(loss, 6),
        "accuracy_before": accuracy_before,
        "accuracy_after": accuracy(fit_head(after, labels, task.num_classes), outputs, wanted),
        "accuracy_of_head": accuracy(kept, outputs, wanted),
        "head": HEAD_FILE if is_whole else None,
    }


def _as_module(changes: Sequence[Linear | UnitLength], device: torch.device) -> nn.Module:
    """Return changes of answers as layers that gradients go through; they are not trained."""
    layers: list[nn.Module] = []
    for change in changes:
        if isinstance(change, UnitLength):
            layers.append(_UnitLength())
            continue
        rows, columns = change.matrix.shape
        layer = nn.Linear(columns, rows, bias=change.offset is not None)
        layer.weight.data = torch.tensor(change.matrix, dtype=torch.float32)
        if change.offset is not None:
            layer.bias.data = torch.tensor(change.offset, dtype=torch.float32)
        layers.append(layer)
    return nn.Sequential(*layers).to(device).requires_grad_(False)


class _UnitLength(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.normalize(rows, dim=1)


def fit_head(outputs: Tensor, labels: Tensor, classes: int) -> Head:
    """Fit a head to outputs as they are, by logistic regression; deterministic."""
    scale = _scale_of(outputs)
    inputs, targets = scale * outputs.double().cpu(), labels.cpu()
    with seeded(inputs.device, 0):  # it draws weights, though none of them is used
        head = nn.Linear(inputs.shape[1], classes).double()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(head(inputs), targets)
        loss = loss + _PROBE_DECAY * head.weight.square().sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    with torch.enable_grad():
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    return _as_head(head, scale)


def accuracy(head: Head, outputs: Tensor, labels: Tensor) -> float:
    """Return the share of texts whose label the head finds."""
    found = head.logits(outputs.cpu().numpy()).argmax(axis=1)
    return round(float((found == labels.cpu().numpy()).mean()), 6)


def _scale_of(outputs: Tensor) -> float:
    """Return what makes entries of outputs about 1."""
    size = float(outputs.norm(dim=1).mean().clamp_min(1e-6))
    return math.sqrt(outputs.shape[1]) / size


def _as_head(head: nn.Linear, scale: float) -> Head:
    """Return a head that reads outputs as they are, not scaled."""
    weight = head.weight.detach().double().cpu().numpy()
    return Head(scale * weight, head.bias.detach().double().cpu().numpy())
