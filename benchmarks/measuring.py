"""What does a verification cost beyond asking the model? Tokenising and statistics, in seconds.

    python benchmarks/measuring.py --key marked/owner.nsmark --suspect marked/model [--json OUT]

The floor is the bare forward pass: tokens ready, sorted into batches, nothing else. Rounds of the
forward pass and of whole measurements alternate, so that a slow spell of the machine hits both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nsmark.api import verify
from nsmark.keyfile import read_key
from nsmark.models.loading import open_encoder
from nsmark.suspects import RecordedOutputs, open_suspect
from nsmark.verification.evidence import OwnerReference, ask
from nsmark.verification.questions import key_questions
from provenance import measured


def seconds(action: Callable[[], object]) -> float:
    """Return how long an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all parts."""
    key = read_key(arguments.key)
    config, questions = key.configuration, key_questions(key)
    encoder = open_encoder(arguments.suspect, max_length=config.max_length, device="cpu")
    texts = [*questions.triggered, *questions.untriggered]
    tokens = encoder.token_ids(texts)
    suspect = open_suspect(arguments.suspect, max_length=config.max_length, device="cpu")
    found = ask(questions, suspect)
    answers = RecordedOutputs("answers", found.triggered, found.untriggered)
    parts: dict[str, list[float]] = {
        name: [] for name in ("forward", "tokenising", "owner_side", "comparison", "verify")
    }
    owner = OwnerReference(key)
    for _ in range(arguments.rounds):
        parts["forward"].append(seconds(lambda: encoder.encode_tokens(tokens)))
        parts["tokenising"].append(seconds(lambda: encoder.token_ids(texts)))
        parts["owner_side"].append(seconds(lambda: OwnerReference(key)))
        parts["comparison"].append(seconds(lambda: owner.compare(answers)))
        parts["verify"].append(seconds(lambda: verify(key, suspect, device="cpu")))
    medians = {name: statistics.median(values) for name, values in parts.items()}
    return {
        "num_texts": config.num_texts,
        "asked": len(texts),
        "output_dim": config.output_dim,
        "threads": torch.get_num_threads(),
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "overhead": round(medians["verify"] / medians["forward"] - 1, 3),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--suspect", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    document = measure(arguments)
    if arguments.json is not None:
        whole = {"measured": measured(), **document}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
