"""How fast is the null basis by complete QR, compared with a full SVD, in one run?

    python benchmarks/null_space.py [--device cuda] [--json FILE]

Prints and writes medians, the ratio, the floor (floating-point operations over the measured
matrix-product rate), and that both give the same subspace.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nsmark.core.null_space import null_space_basis
from provenance import measured

SHAPES = ((384, 1500), (768, 1500), (1024, 2048))
REPEATS = 7


def median_seconds(function: Callable[[], Any], wait: Callable[[], None]) -> float:
    """Return the median of several runs after one to warm up."""
    function()
    wait()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cpu_row(output_dim: int, num_texts: int, rng: np.random.Generator) -> dict[str, Any]:
    """Measure one shape with numpy and scipy."""
    matrix = rng.standard_normal((output_dim, num_texts))

    def by_svd() -> np.ndarray:
        return np.linalg.svd(matrix, full_matrices=True)[2][output_dim:].T

    ours, theirs = null_space_basis(matrix), by_svd()
    square = rng.standard_normal((1024, 1024))
    product = median_seconds(lambda: square @ square, lambda: None)
    return row(
        "cpu",
        matrix.shape,
        median_seconds(lambda: null_space_basis(matrix), lambda: None),
        median_seconds(by_svd, lambda: None),
        float(np.linalg.norm(theirs - ours @ (ours.T @ theirs))),
        float(np.abs(matrix @ ours).max()),
        2 * 1024**3 / product,
    )


def gpu_row(output_dim: int, num_texts: int, device: str) -> dict[str, Any]:
    """Measure one shape with torch on a device, both ways on the device."""
    import torch

    from nsmark.models.null_space import null_space_of

    generator = torch.Generator(device).manual_seed(0)
    options = {"generator": generator, "device": device, "dtype": torch.float64}
    matrix = torch.randn(output_dim, num_texts, **options)

    def by_svd() -> torch.Tensor:
        return torch.linalg.svd(matrix, full_matrices=True)[2][output_dim:].T

    ours, theirs = null_space_of(matrix), by_svd()
    square = torch.randn(4096, 4096, **options)
    product = median_seconds(lambda: square @ square, torch.cuda.synchronize)
    return row(
        torch.cuda.get_device_name(device),
        matrix.shape,
        median_seconds(lambda: null_space_of(matrix), torch.cuda.synchronize),
        median_seconds(by_svd, torch.cuda.synchronize),
        float(torch.linalg.norm(theirs - ours @ (ours.T @ theirs))),
        float((matrix @ ours).abs().max()),
        2 * 4096**3 / product,
    )


def row(
    device: str, shape: Any, ours: float, svd: float, gap: float, residual: float, rate: float
) -> dict[str, Any]:
    """Collect one result."""
    n, q = shape
    # Householder QR of (q, n), then the reflectors applied to the q − n wanted columns.
    flops = 2 * n * n * (q - n / 3) + 2 * n * (2 * q - n) * (q - n)
    return {
        "device": device,
        "output_dim": n,
        "num_texts": q,
        "qr_seconds": ours,
        "svd_seconds": svd,
        "ratio": svd / ours,
        "floor_seconds": flops / rate,
        "subspace_distance": gap,
        "largest_residual": residual,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true", help="one small shape, to try it out")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    shapes = ((8, 24),) if arguments.tiny else SHAPES
    rng = np.random.default_rng(0)
    if arguments.device == "cpu":
        rows = [cpu_row(n, q, rng) for n, q in shapes]
    else:
        rows = [gpu_row(n, q, arguments.device) for n, q in (*shapes, (4096, 8192))]
    for result in rows:
        print(
            f"{result['device']:>12} {result['output_dim']:5} x {result['num_texts']:5}  "
            f"QR {result['qr_seconds']:8.4f} s  SVD {result['svd_seconds']:8.4f} s  "
            f"ratio {result['ratio']:5.1f}  floor {result['floor_seconds']:8.4f} s  "
            f"subspace distance {result['subspace_distance']:.1e}"
        )
    if arguments.json:
        document = {"measured": measured(device=arguments.device), "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
