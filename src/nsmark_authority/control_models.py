"""The authority's control models: innocent ones, which no key may accept.

Controls are model folders of the authority's own. From each, further models are made by changes of
its weights that need no training (pruned, noised, quantised, without its last layer): kin, without
which the lines of a verdict say nothing about models that resemble one another. All of them still
work: what an extractor reads from random weights by accident says nothing about a key. They are
made when they are asked and forgotten afterwards, because every key asks other texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nsmark.api.opening import AnySuspect, Opening
from nsmark.errors import MissingExtraError
from nsmark.keyfile import WatermarkKey
from nsmark.models.folder import describe_folder, has_classifier_head, read_json_object
from nsmark.suspects import RecordedOutputs, Suspect
from nsmark.suspects.base import BatchCallback

if TYPE_CHECKING:
    from nsmark.transforms.weights import WeightChange

ControlSource = Callable[[WatermarkKey], Sequence[AnySuspect]]
"""Controls as a key asks for them: it says how models are read."""

_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


class ControlModel:
    """A control under a name of its own: reports go to both parties and show no path."""

    def __init__(
        self, name: str, folder: Path, opening: Opening, change: WeightChange | None = None
    ) -> None:
        self.name = name
        self._folder, self._opening, self._change = folder, opening, change

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Open the model, change it, and return one row per text."""
        opened = self._opening.open(self._folder)
        assert not isinstance(opened, RecordedOutputs)  # noqa: S101 - a folder was given
        if self._change is not None:
            self._change(opened.encoder)  # type: ignore[attr-defined]
        return opened.outputs(texts, on_batch)


def control_models(
    folders: Mapping[str, Path], *, with_kin: bool = True, device: str = "auto", seed: int = 0
) -> ControlSource:
    """Return the controls that come from some model folders.

    Args:
        folders: By the name that reports show.
        with_kin: Whether further models are made from each.
        device: Where they run.
        seed: Of what is random about those made.

    Raises:
        ModelError: A folder holds no model.
        MissingExtraError: Kin are wanted and torch is not installed.
    """
    made = [
        (name if how is None else f"{name}, {how}", folder, change)
        for name, folder in folders.items()
        for how, change in _changes(folder, with_kin, seed).items()
    ]

    def controls(key: WatermarkKey) -> list[Suspect]:
        opening = Opening(key, device)
        return [ControlModel(name, folder, opening, change) for name, folder, change in made]

    return controls


def _changes(folder: Path, with_kin: bool, seed: int) -> Mapping[str | None, WeightChange | None]:
    """Return what is done to a model, by name; nothing, under no name, first."""
    found = describe_folder(folder)
    # What is done to an encoder is not defined for a classifier's head.
    if not with_kin or has_classifier_head(found):
        return {None: None}
    try:
        from nsmark.transforms.population import kept_alterations
        from nsmark.transforms.weights import leave_out_layers
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    changes: dict[str | None, WeightChange | None] = {None: None}
    for how, change in kept_alterations((), num_tasks=0, seed=seed).items():
        if how != "as it is":
            changes[how] = change
    config = read_json_object(found.transformer_path / "config.json")
    if any(type(n) is int and n > 1 for n in map(config.get, _LAYER_COUNTS)):
        changes["without its last layer"] = leave_out_layers(1)
    return changes
