"""Low-rank adapters (LoRA): a large model is marked by training a small part beside it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nsmark.errors import EmbeddingError, MissingExtraError
from nsmark.models.encoder import Encoder

_NAME = "default"


class Adapters:
    """The adapters of one model: trained, switched off, and merged into its weights."""

    def __init__(self, encoder: Encoder, rank: int, seed: int, without: Sequence[str] = ()) -> None:
        """Put adapters beside every linear layer, in place; all other weights are frozen.

        Args:
            encoder: The model.
            rank: Of the adapters.
            seed: Of their first values.
            without: Modules of the transformer that get none.
        """
        try:
            from peft import LoraConfig
            from peft.tuners.lora import LoraLayer, LoraModel
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "lora") from error
        encoder.requires_grad_(False)
        # Scale 2, as is usual; the second factor starts at zero, so nothing changes at first.
        config = LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            target_modules="all-linear",
            exclude_modules=list(without) or None,
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # GPT-2's layers are transposed, which peft notices and tells the user.
            warnings.simplefilter("ignore", UserWarning)
            torch.manual_seed(seed)
            try:
                self._tuner: Any = LoraModel(encoder.network, config, _NAME)
            except ValueError as error:
                raise EmbeddingError(
                    f"adapters do not fit this model: {str(error).splitlines()[0][:200]}",
                    "use --method full",
                ) from error
        self._encoder = encoder
        self._beside = {
            id(module.base_layer.weight): module
            for module in encoder.network.modules()
            if isinstance(module, LoraLayer)
        }
        # Whatever they stand beside: half precision would lose small updates.
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()

    @contextlib.contextmanager
    def switched_off(self) -> Iterator[None]:
        """Let the model be the reference for a while."""
        self._tuner.disable_adapter_layers()
        try:
            yield
        finally:
            self._tuner.enable_adapter_layers()

    @torch.no_grad()
    def added_to(self, weight: Tensor) -> Tensor | None:
        """Return what merging would add to one of the model's weights; None without an adapter."""
        module = self._beside.get(id(weight))
        if module is None:
            return None
        with torch.autocast(weight.device.type, enabled=False):
            added: Tensor = module.get_delta_weight(_NAME)
        return added

    def merge(self) -> None:
        """Add the adapters to the weights they stand beside: the model is an ordinary one again."""
        self._encoder.network = self._tuner.merge_and_unload()
        self._encoder.requires_grad_(True)
