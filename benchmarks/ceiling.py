"""What could a GPU do at best, and how many floating-point operations does a training step need?

    python benchmarks/ceiling.py [--device cuda] [--json FILE]

The ceiling is measured, not read off a data sheet. The counts are of useful work only: tokens of
the texts without padding, and the language-model head where a token is predicted. So the share of
the ceiling that a training loop reaches falls with every padded token it computes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

SIZE = 8192
INPUT_SETS = 4

# --- counting --------------------------------------------------------------------------------


def linear_flops(inputs: int, outputs: int, rows: int) -> int:
    """Return the operations of a linear layer: one multiplication and one addition per weight."""
    return 2 * inputs * outputs * rows


def attention_flops(width: int, length: int, tokens: int) -> int:
    """Return the operations of one layer's attention, without its linear layers.

    Each token is compared with ``length`` tokens and takes the weighted mean of as many values;
    how the width is divided into heads does not matter.
    """
    scores = 2 * length * width
    values = 2 * length * width
    return (scores + values) * tokens


def encoder_flops(layers: int, width: int, ffn: int, length: int, tokens: int) -> int:
    """Return the operations of one forward pass through the layers of a BERT-shaped encoder.

    Args:
        layers: Number of layers.
        width: Entries of a hidden state.
        ffn: Entries inside a feed-forward block.
        length: Tokens that each token attends to.
        tokens: Useful tokens in the batch, padding not counted.
    """
    projections = 4 * linear_flops(width, width, tokens)  # query, key, value, output
    feed_forward = linear_flops(width, ffn, tokens) + linear_flops(ffn, width, tokens)
    return layers * (projections + feed_forward + attention_flops(width, length, tokens))


def head_flops(width: int, vocabulary: int, predicted: int) -> int:
    """Return the operations of BERT's language-model head on the predicted tokens alone."""
    return linear_flops(width, width, predicted) + linear_flops(width, vocabulary, predicted)


def backward_flops(forward: int) -> int:
    """Return the operations of the backward pass: a gradient by inputs and one by weights."""
    return 2 * forward


def transformer_flops(
    layers: int,
    width: int,
    ffn: int,
    length: int,
    tokens: int | None = None,
    *,
    vocabulary: int = 0,
    predicted: int = 0,
    with_backward: bool = False,
) -> int:
    """Return the operations of one pass of a BERT-shaped model.

    Matrix products only; embeddings, norms and activations are left out. For texts of several
    lengths, add up one call per text.

    Args:
        layers: Number of layers.
        width: Entries of a hidden state.
        ffn: Entries inside a feed-forward block.
        length: Tokens of a text, which all attend to each other.
        tokens: Useful tokens in all; by default one text's ``length``.
        vocabulary: Entries of the language-model head's answer.
        predicted: Tokens the head is asked about; 0 where it is not used.
        with_backward: Whether the pass is trained through.
    """
    forward = encoder_flops(layers, width, ffn, length, length if tokens is None else tokens)
    forward += head_flops(width, vocabulary, predicted)
    return forward + backward_flops(forward) if with_backward else forward


# --- measuring -------------------------------------------------------------------------------


def bf16_ceiling(
    device: str = "cuda",
    *,
    bursts: int = 8,
    products: int = 12,
    warmup: int = 3,
    rest_seconds: float = 0.5,
    size: int = SIZE,
) -> float:
    """Return the rate of square bf16 matrix products on a GPU, in TFLOP/s.

    The median over single products, each between two events on the device. Several input sets
    keep the cache from helping; random entries, since products of zeros run faster.

    Short bursts with rests between: after some 20 such products in a row an H200 slows down, from
    about 800 to 680 TFLOP/s, most likely at its power limit. A training step, with other work
    between its products, need not; so the higher rate is the one to be measured against.

    Args:
        device: A CUDA device.
        bursts: Rounds of products.
        products: Products that are timed in each.
        warmup: Products before them that are not.
        rest_seconds: Pause before each round.
        size: Rows and columns of each matrix.
    """
    import torch

    if torch.device(device).type != "cuda":
        raise ValueError(f"{device!r}: the ceiling is timed with CUDA events")
    generator = torch.Generator(device).manual_seed(0)
    options = {"generator": generator, "device": device, "dtype": torch.bfloat16}
    inputs = [
        (torch.randn(size, size, **options), torch.randn(size, size, **options))
        for _ in range(INPUT_SETS)
    ]
    result = torch.empty_like(inputs[0][0])
    milliseconds: list[float] = []
    with torch.cuda.device(device):
        for _ in range(bursts):
            torch.cuda.synchronize()
            time.sleep(rest_seconds)
            events = []
            for number in range(warmup + products):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                torch.mm(*inputs[number % INPUT_SETS], out=result)
                end.record()
                events.append((start, end))
            torch.cuda.synchronize()
            milliseconds += [start.elapsed_time(end) for start, end in events[warmup:]]
    return linear_flops(size, size, size) / (statistics.median(milliseconds) * 1e-3) / 1e12


def bf16_sustained(device: str = "cuda") -> float:
    """Return the same rate under lasting full load."""
    return bf16_ceiling(device, bursts=1, products=400, warmup=200, rest_seconds=0.0)


def main() -> None:
    """Measure the ceiling, in bursts and under full load."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if torch.device(arguments.device).type != "cuda":
        parser.error(f"{arguments.device}: the ceiling is that of a CUDA device")
    result = {
        "device": torch.cuda.get_device_name(arguments.device),
        "size": SIZE,
        "bf16_tflops": bf16_ceiling(arguments.device),
        "bf16_sustained_tflops": bf16_sustained(arguments.device),
    }
    print(
        f"{result['device']}: bf16 {SIZE}³ products at {result['bf16_tflops']:.1f} TFLOP/s, "
        f"under full load {result['bf16_sustained_tflops']:.1f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
