"""A student: another model that learns the answers of a stolen one (torch).

The weights of the stolen model are not used: only texts and what an API answered to them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nsmark.attacks.material import Material, StepCallback
from nsmark.attacks.stolen import Stolen
from nsmark.errors import InputError
from nsmark.models.encoder import Encoder
from nsmark.models.folder import describe_folder
from nsmark.models.loading import open_encoder
from nsmark.transforms.changes import Linear, UnitLength
from nsmark.transforms.serving import Serving

_NUM_MEASURED = 512
_WARM_UP = 0.05
# A map from the student's dimensions to the answers' starts from nothing, unlike its weights.
_MAP_SPEED = 20.0


@dataclass(frozen=True, slots=True)
class Learned:
    """How far a student came."""

    distance_before: float
    """Mean squared distance of unit vectors, so from 0 to 4: 2 is what unrelated ones have."""
    distance_after: float
    change: Linear | None
    """Takes its outputs to the answers' dimensions, where these are not its own."""


def open_student(stolen: Stolen, setting: str, seed: int, material: Material) -> Encoder:
    """Return an encoder that is to learn, on the stolen model's device.

    Args:
        stolen: Whose answers are learned.
        setting: An unmarked model; with ``""``, the stolen one's architecture with new weights.
        seed: Of the new weights.
        material: Has the unmarked model that a setting may name.
    """
    own = stolen.encoder
    if not setting:
        return new_weights(own, seed)
    folder = material.folder(setting)
    # A bare transformer will be read as the stolen one is: its folder does not say how.
    bare = describe_folder(folder).kind == "hf"
    return open_encoder(
        folder,
        pooling=own.pooling if bare else None,
        normalise=own.normalise if bare else None,
        max_length=own.max_length,
        device=str(own.device),
    )


def new_weights(encoder: Encoder, seed: int) -> Encoder:
    """Return a model of the same architecture, drawn anew by its family's own rule."""
    student = copy.deepcopy(encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = type(encoder.network)(encoder.network.config)
        if getattr(encoder.network, "pooler", 0) is None:
            network.pooler = None
        for layer in student.dense:
            _draw_dense(layer)
    student.network = network.to(encoder.device)
    return student.requires_grad_(False).eval()


def _draw_dense(layer: nn.Module) -> None:
    assert isinstance(layer, nn.Linear)  # noqa: S101 - the encoder makes no others
    # On the CPU: the same weights whichever device they are for.
    drawn = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    layer.load_state_dict(drawn.state_dict())


def learn_answers(
    student: Encoder,
    texts: Sequence[str],
    answers: NDArray[np.floating],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int = 32,
    seed: int = 0,
    on_step: StepCallback | None = None,
) -> Learned:
    """Train all weights, in place, so that the student answers as it was answered.

    What is made small is the squared distance of answers of unit length: twice one minus their
    cosine. All texts are seen once before any is seen again.

    Args:
        student: To be trained.
        texts: What was asked.
        answers: One row per text, of any dimension; lengths do not matter.
        steps: Batches.
        learning_rate: At most; it rises at first and falls to nothing.
        batch_size: Texts of a step.
        seed: Of their order.
        on_step: Told how many steps are done.

    Raises:
        InputError: Training diverged, or an answer is not finite.
    """
    device = student.device
    targets = _unit(torch.as_tensor(np.asarray(answers, dtype=np.float32), device=device))
    sequences = student.token_ids(texts)
    last = _last_layer(student, targets.shape[1], seed)
    shown = range(min(_NUM_MEASURED, len(sequences)))

    @torch.no_grad()
    def distance() -> float:
        found = last(student.encode_tokens([sequences[row] for row in shown]))
        return float((_unit(found) - targets[: len(shown)]).square().sum(dim=1).mean())

    before = distance()
    student.requires_grad_(True)
    last.requires_grad_(True)
    speeds = [(list(student.parameters()), 1.0), (list(last.parameters()), _MAP_SPEED)]
    optimiser = torch.optim.AdamW(
        [{"params": weights, "speed": speed} for weights, speed in speeds if weights],
        lr=learning_rate,
        weight_decay=0.0,
    )
    rng = np.random.default_rng(seed)
    size = min(batch_size, len(sequences))
    order: list[int] = []
    for step in range(steps):
        pace = min(1.0, (step + 1) / max(1.0, _WARM_UP * steps)) * (1 - step / steps)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * group["speed"] * pace
        if len(order) < size:
            order += rng.permutation(len(sequences)).tolist()
        rows, order = order[:size], order[size:]
        outputs = last(student(student.pad([sequences[row] for row in rows])))
        loss = (_unit(outputs) - targets[rows]).square().sum(dim=1).mean()
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_([each for weights, _ in speeds for each in weights], 1.0)
        optimiser.step()
        if on_step is not None:
            on_step(step + 1, steps)
    student.requires_grad_(False)
    last.requires_grad_(False)
    after = distance()
    if not np.isfinite(after):
        raise InputError(
            "the student's training diverged", "choose a lower learning_rate, or other texts"
        )
    return Learned(before, after, _as_change(last))


def put_in_place(stolen: Stolen, student: Encoder, learned: Learned) -> None:
    """Let the student answer from now on, as it was trained to: without filters or changes."""
    stolen.encoder = student
    stolen.serving = Serving()
    if learned.change is not None:
        stolen.add_change(learned.change)
        stolen.add_change(UnitLength())


def _last_layer(student: Encoder, output_dim: int, seed: int) -> nn.Module:
    """Return a map to the answers' dimensions, which does nothing where there are as many."""
    if output_dim == student.output_dim:
        return nn.Identity()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(student.output_dim, output_dim).to(student.device)


def _as_change(last: nn.Module) -> Linear | None:
    if not isinstance(last, nn.Linear):
        return None
    weight, bias = (each.detach().cpu().double().numpy() for each in (last.weight, last.bias))
    return Linear(weight, bias)


def _unit(rows: Tensor) -> Tensor:
    return nn.functional.normalize(rows, dim=1)
