"""The model in training: its arithmetic, its frozen reference and its optimiser."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nsmark.embedding.adapters import Adapters
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.parallel import Group
from nsmark.errors import ConfigError
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder
from nsmark.models.language import LanguageInputs
from nsmark.models.layers import recomputing
from nsmark.models.positions import HeldPositions, Passed, usual_sizes
from nsmark.models.tokens import Tokens
from nsmark.transforms.weights import last_weights, linear_weights, modules_of_last_weights


class ModelPlayer:
    """Trains the weights of ``model``.

    How depends on the settings. In float32 the model itself computes. In bfloat16 a copy of half
    the size does, and the optimiser moves the model's own float32 weights, in which small updates
    do not get lost. With adapters the model computes, and only they move; switched off, they leave
    the reference. With ``fsdp`` every layer is divided among the processes.
    """

    def __init__(
        self,
        model: Encoder,
        config: EmbeddingConfig,
        group: Group,
        device: torch.device,
        reference: Encoder | None = None,
    ) -> None:
        self.model, self.group, self.device = model, group, device
        self.precision = _precision(config.precision, device)
        self.adapters: Adapters | None = None
        self.reference: Encoder | None = None
        """The frozen model; None where it is ``model`` with its adapters switched off."""
        self._working: Encoder = model
        self._whole: Encoder | None = None
        """Undivided and on the CPU, in the first of several processes that share a model."""
        self._autocasts = False
        half = self.precision == torch.bfloat16
        if config.method == "lora":
            if group.shards:
                raise ConfigError("method", "lora", "does not go together with --parallel fsdp")
            if reference is not None:
                raise ConfigError("method", "lora", "has the model itself as its reference")
            # What is to stand without most of a matrix must not be learned in it.
            without: list[str] = []
            if config.prunes and config.pruned_feed_forward:
                without = modules_of_last_weights(model)
            self.adapters = Adapters(model, config.lora_rank, config.seed, without)
            self._autocasts = half
        elif group.shards:
            self.reference = (reference or copy.deepcopy(model)).requires_grad_(False)
            self._whole = copy.deepcopy(model).cpu() if group.is_first else None
            self._shard()
        elif half and model.family.half_weights:
            self.reference = _half(reference or model).requires_grad_(False)
            self._working = _half(model)
        else:
            self.reference = (reference or copy.deepcopy(model)).requires_grad_(False)
            self._autocasts = half
        self._called: Any = self._working
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._pairs = (
            [(p, w) for p, w in zip(model.parameters(), self._working.parameters(), strict=True)]
            if self._working is not model
            else []
        )
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=config.model_learning_rate, weight_decay=0.0, fused=True
        )

    def share_gradients(self, tokens: Tokens, language: LanguageInputs | None) -> None:
        """Add gradients up over the processes from now on, where each holds the whole model.

        Args:
            tokens: An example of what is trained on: it shows whether all weights are reached.
            language: The same, for the model's own loss.
        """
        if self.group.size == 1 or self.group.shards:
            return
        passed = self.outputs(tokens, language)
        torch.autograd.backward([part.sum() for part in passed if part.requires_grad])
        trained = [p for p in self._working.parameters() if p.requires_grad]
        self._called = nn.parallel.DistributedDataParallel(
            self._working,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=any(p.grad is None for p in trained),
        )
        self.clear_gradients()

    def _shard(self) -> None:
        from nsmark.embedding.sharding import shard

        for encoder in filter(None, (self.model, self.reference)):
            shard(encoder, self.device, self.group.size, self.precision)

    def compile(self) -> None:
        """Compile the transformers, model and reference."""
        for encoder in filter(None, (self._working, self.reference)):
            encoder.compile_layers()

    # --- forward -----------------------------------------------------------------------------

    def outputs(
        self,
        tokens: Tokens,
        language: LanguageInputs | None = None,
        recompute: bool = False,
        held: HeldPositions | None = None,
    ) -> Passed:
        """Return the model's outputs and, where they are asked for, its two other losses."""
        with self._arithmetic(), recomputing(self._working.network, recompute):
            if language is None and held is None:
                outputs = self._called(tokens)
                return Passed(outputs, outputs.new_zeros(()), outputs.new_zeros(()))
            passed: Passed = self._called(tokens, language, held)
            return passed

    @torch.no_grad()
    def position_scales(self, tokens: Tokens) -> Tensor:
        """Return the usual size of the frozen model's hidden states, shape (layers, width)."""
        with self._arithmetic(), self._as_reference() as reference:
            scales = usual_sizes(reference.layer_states(tokens), tokens.attention_mask)
        self.settle()
        return scales

    @torch.no_grad()
    def held_positions(self, tokens: Tokens, scales: Tensor) -> HeldPositions:
        """Return the frozen model's hidden states."""
        with self._arithmetic(), self._as_reference() as reference:
            return HeldPositions(reference.layer_states(tokens), scales)

    @contextlib.contextmanager
    def pruned(self, share: float, *, last_of_layer: bool = False) -> Iterator[None]:
        """Compute without the smallest weights of matrices; a pass made before stays valid.

        Args:
            share: How many weights of a matrix are left out.
            last_of_layer: Of the last matrix of every layer alone, not of all.
        """
        # Behind autograd's back, which would refuse to go back through a pass made before.
        kept: list[tuple[Tensor, Tensor]] = []
        try:
            for whole in (last_weights if last_of_layer else linear_weights)(self._working):
                weight = self._own_part(whole.data)
                kept.append((weight, weight.clone()))
                # A thief prunes the sum: what an adapter adds to a pruned entry is taken off here.
                added = None if self.adapters is None else self.adapters.added_to(whole)
                if added is not None:
                    weight.add_(added)
                weight.mul_(weight.abs() > _size_below_which(self._put_together(whole.data), share))
                if added is not None:
                    weight.sub_(added)
            yield
        finally:
            torch._foreach_copy_([weight for weight, _ in kept], [before for _, before in kept])

    def _put_together(self, weight: Tensor) -> Tensor:
        if not self.group.shards:
            return weight
        from nsmark.embedding.sharding import whole

        return whole(weight)

    def _own_part(self, weight: Tensor) -> Tensor:
        if not self.group.shards:
            return weight
        from nsmark.embedding.sharding import own_part

        return own_part(weight)

    @torch.no_grad()
    def reference_outputs(self, tokens: Tokens) -> Tensor:
        """Return the frozen model's outputs."""
        with self._arithmetic(), self._as_reference() as reference:
            outputs: Tensor = reference(tokens)
            return outputs

    @torch.no_grad()
    def encode(self, sequences: Sequence[TokenIds], *, as_reference: bool = False) -> Tensor:
        """Return the outputs of tokenised texts, by the model or by the frozen one."""
        role = self._as_reference() if as_reference else contextlib.nullcontext(self._working)
        with self._arithmetic(), role as encoder:
            outputs = encoder.encode_tokens(sequences)
        self.settle()
        return outputs

    def settle(self) -> None:
        """Make the model show the weights that are trained, after a pass without a way back."""
        if self.group.shards:
            from nsmark.embedding.sharding import divide_again

            divide_again(self.model)

    @contextlib.contextmanager
    def _as_reference(self) -> Iterator[Encoder]:
        if self.adapters is None:
            assert self.reference is not None  # noqa: S101 - by construction
            yield self.reference
        else:
            with self.adapters.switched_off():
                yield self.model

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        # cuDNN's attention is planned anew for every shape, and shapes change from step to step.
        attention = (
            sdpa_kernel(
                [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
            )
            if self.device.type == "cuda"
            else contextlib.nullcontext()
        )
        with torch.autocast(self.device.type, self.precision, enabled=self._autocasts), attention:
            yield

    # --- backward ----------------------------------------------------------------------------

    def clear_gradients(self) -> None:
        """Forget all gradients."""
        self.optimiser.zero_grad(set_to_none=True)
        for _, working in self._pairs:
            working.grad = None

    def backward(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Send gradients of outputs and losses through the model, adding to its own."""
        # Gradients are averaged over processes, while every process holds its part of one sum.
        tensors = [tensor for tensor, _ in parts]
        gradients = [gradient * self.group.size for _, gradient in parts]
        torch.autograd.backward(tensors, gradients)

    def accumulating(self, last: bool) -> Any:
        """Return the context of a piece's two passes: only the last one's gradients are shared."""
        if last or not isinstance(self._called, nn.parallel.DistributedDataParallel):
            return contextlib.nullcontext()
        return self._called.no_sync()

    def update(self) -> None:
        """Move the weights along their gradients."""
        moved = [(own, working.grad) for own, working in self._pairs if working.grad is not None]
        for own, _ in moved:
            own.grad = torch.empty_like(own)
        if moved:
            own_gradients = [own.grad for own, _ in moved if own.grad is not None]
            torch._foreach_copy_(own_gradients, [given for _, given in moved])
        self.optimiser.step()
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Bring the computing copy up to the weights."""
        if self._pairs:
            torch._foreach_copy_([w for _, w in self._pairs], [p for p, _ in self._pairs])

    # --- afterwards --------------------------------------------------------------------------

    def finished(self) -> Encoder:
        """Return the marked model as an ordinary one; every process must ask."""
        if self.adapters is not None:
            self.adapters.merge()
            self.adapters = None
        if not self.group.shards:
            return self.model
        from nsmark.embedding.sharding import whole

        self.settle()
        weights = {name: whole(p).cpu() for name, p in self.model.named_parameters()}
        if self._whole is None:
            return self.model  # the first process saves it
        with torch.no_grad():
            for name, parameter in self._whole.named_parameters():
                parameter.copy_(weights[name])
        return self._whole


_ENOUGH_ENTRIES = 1 << 16
"""Tell a share to about a tenth of a percent: sorting millions in every step would be waste."""


def _size_below_which(weight: Tensor, share: float) -> Tensor:
    """Return the size that a share of the entries do not exceed; less than any for none.

    Of a large matrix every so many-th entry is looked at, in all of its columns alike.
    """
    stride = max(1, weight.numel() // _ENOUGH_ENTRIES)
    while math.gcd(stride, weight.shape[-1]) > 1:
        stride += 1
    sizes = weight.flatten()[::stride].abs()
    count = int(share * len(sizes))
    if not count:
        return sizes.new_full((), -1.0)
    # A GPU sorts with all its cores; the k-th value of one long vector it finds with one of them.
    return sizes.sort().values[count - 1] if sizes.is_cuda else sizes.float().kthvalue(count).values


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def _half(model: Encoder) -> Encoder:
    """Return a copy with bfloat16 weights; buffers such as positions stay as exact as they are."""
    half = copy.deepcopy(model)
    for parameter in half.parameters():
        parameter.data = parameter.data.bfloat16()
    return half
