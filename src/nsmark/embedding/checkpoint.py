"""The state of a training, to and from a checkpoint: safetensors and JSON, never pickle.

No random state is in it: every step draws from a generator of its own, made from the seed and the
step number (see :func:`nsmark.embedding.batches.step_rng`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.fingerprint import Fingerprint, differences
from nsmark.embedding.loop_state import LoopState
from nsmark.embedding.sharding import like, whole
from nsmark.errors import InputError

if TYPE_CHECKING:
    from nsmark.embedding.trainer import Trainer

_OPTIMISER_KEYS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's state of one parameter
_PLAYERS = ("model", "extractor")


_STATE = TypeAdapter(LoopState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Saves and restores one run."""

    folder: CheckpointFolder
    fingerprint: Fingerprint
    claim: dict[str, str]
    """Kept so that a resumed run signs the very same claim, time included."""
    resume: bool = False
    """Whether to go on from the newest checkpoint."""
    stage: str = "marks"
    """Which part of the training it is."""
    follows: bool = False
    """Whether there may be one of the stage before; it stays until this one has its own."""

    def stage_to_resume(self) -> str | None:
        """Return the stage in which a run goes on; None where it begins."""
        return str(self.folder.read().get("stage", self.stage)) if self.resume else None

    def save(self, state: LoopState, trainer: Trainer) -> None:
        """Write a checkpoint; the one before it is removed once this is complete."""
        content = {
            "fingerprint": self.fingerprint,
            "claim": self.claim,
            "stage": self.stage,
            "state": asdict(state),
        }
        tensors = training_tensors(trainer)  # all processes give their parts, the first one writes
        if trainer.group.is_first:
            self.folder.save(state.step, content, lambda path: write_tensors(path, tensors))

    def start(self, trainer: Trainer) -> LoopState:
        """Return where to start: at zero, or at the checkpoint, with its tensors put in place.

        Raises:
            FileAccessError: There is a checkpoint, and it was not asked for; or the reverse.
            InputError: The checkpoint is damaged, or of another run.
        """
        if self.follows:
            return LoopState()
        if not self.resume:
            self.folder.refuse_unfinished()
            if trainer.group.is_first:
                self.folder.clean(keep=None)
            return LoopState()
        content = self.folder.read()
        found = content.get("fingerprint")
        names = differences(found if isinstance(found, dict) else {}, self.fingerprint)
        if names:
            raise InputError(
                f"the checkpoint in {self.folder.path} belongs to another run: it differs in "
                f"{', '.join(names[:6])}{' …' if len(names) > 6 else ''}",
                "repeat model, corpus, claim and settings, or remove the checkpoint and start "
                "without --resume",
            )
        try:
            state = _STATE.validate_python(content.get("state"))
            restore_tensors(trainer, load_file(self.folder.tensors_file(content)))
        except (ValidationError, SafetensorError, LookupError, ValueError) as error:
            raise self.folder.damaged("it does not fit this model") from error
        trainer.group.wait()  # all have read it
        if trainer.group.is_first:
            self.folder.clean(keep=state.step)
        return state


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file."""
    save_file(tensors, path)


def training_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """Return every tensor that training changes, by name; tied weights once."""
    tensors: dict[str, Tensor] = {}
    trainer.player.settle()
    for player, module, optimiser in _players(trainer):
        for name, parameter in _trained(module):
            tensors[f"{player}/{name}"] = whole(parameter.detach()).contiguous()
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{player}-optimiser/{name}/{key}"] = whole(value).contiguous()
    return tensors | {f"kept/{name}": value for name, value in trainer.kept.tensors().items()}


def restore_tensors(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Put tensors back where :func:`training_tensors` found them.

    Raises:
        LookupError: A tensor is missing.
        ValueError: A tensor is unknown, or of another shape or type.
    """
    left = dict(tensors)
    kept = {name: left.pop(f"kept/{name}") for name in ("numbers", "outputs")}
    found: list[tuple[Any, Tensor, Tensor]] = []
    states: list[tuple[torch.optim.Optimizer, dict[int, dict[str, Tensor]]]] = []
    for player, module, optimiser in _players(trainer):
        states.append((optimiser, {}))
        for index, (name, parameter) in enumerate(_trained(module)):
            found.append((name, parameter, left.pop(f"{player}/{name}")))
            prefix = f"{player}-optimiser/{name}/"
            if prefix + "step" not in left:
                continue  # a weight that no loss reaches has no state
            # Copies, not views of the file that was read.
            own = {key: left.pop(prefix + key).clone() for key in _OPTIMISER_KEYS}
            found += [(name, parameter, own[key]) for key in _OPTIMISER_KEYS[1:]]
            moments = {key: like(own[key], parameter) for key in _OPTIMISER_KEYS[1:]}
            states[-1][1][index] = own | moments
    # Everything is looked at before anything is changed.
    wrong = [n for n, p, tensor in found if (tensor.shape, tensor.dtype) != (p.shape, p.dtype)]
    if left or wrong:
        raise ValueError(f"unexpected tensors: {sorted([*left, *wrong])[:3]}")
    trainer.kept.restore(**kept)
    with torch.no_grad():
        for player, module, _ in _players(trainer):
            for name, parameter in _trained(module):
                parameter.copy_(like(tensors[f"{player}/{name}"], parameter))
    trainer.player.publish()
    for optimiser, state in states:
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})


def _players(trainer: Trainer) -> list[tuple[str, nn.Module, torch.optim.Optimizer]]:
    modules = (trainer.model, trainer.extractor)
    return list(zip(_PLAYERS, modules, trainer.optimisers, strict=True))


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]
