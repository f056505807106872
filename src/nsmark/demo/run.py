"""The demonstration: identity, claim, embedding, verification, attack, verification."""

from __future__ import annotations

import json
import resource
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nsmark.attacks.recipes.ll_lfea import read_head, write_head
from nsmark.corpus import TOPICS, labelled_texts
from nsmark.demo.head import softmax, train_head
from nsmark.demo.minilm import find_minilm
from nsmark.demo.stranger import steal_key
from nsmark.errors import EmbeddingError
from nsmark.files import ensure_new_folder, write_json
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.keys import Identity
from nsmark.keyfile.store import read_key, write_key
from nsmark.report.versions import library_versions

CommandRunner = Callable[[list[str]], tuple[int, str]]
"""Runs ``nsmark ARGUMENTS`` and returns exit status and standard output."""

_NUM_TASK_TEXTS = 600
_MAX_PREDICTION_CHANGE = 1e-4

EXPECTED = {"watermarked": 0, "untouched": 1, "wrong key": 1, "linear attack": 0}
"""Exit status of each verification: 0 owned, 1 not shown."""


@dataclass(slots=True)
class Demonstration:
    """What was run and what it showed."""

    commands: list[str] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    fidelity: dict[str, float] = field(default_factory=dict)
    task: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_gib: float = 0.0


def run_demo(
    out: Path, command: CommandRunner, say: Callable[[str], None], max_steps: int | None = None
) -> Demonstration:
    """Run the whole line into a new folder.

    Args:
        out: New folder for everything that is made.
        command: Runs one nsmark command.
        say: Shows a line to the user.
        max_steps: Budget of the embedding; by default the preset's.

    Raises:
        EmbeddingError: Something did not come out as it must.
    """
    started = time.perf_counter()
    ensure_new_folder(out)
    demo = Demonstration()
    model = find_minilm()
    say(f"real model: all-MiniLM-L6-v2, weights checked ({model.name}/model.safetensors)")

    def run(*arguments: str | Path, expect: int = 0) -> str:
        words = ["nsmark", *map(str, arguments)]
        shown = shlex.join(words).replace(str(model), "MINILM")
        demo.commands.append(shown)
        say(f"\n$ {shown}")
        status, output = command(words[1:])
        if status != expect:
            raise EmbeddingError(
                f"`{shown}` ended with status {status}, expected {expect}",
                "see the messages above; the folder is kept",
            )
        return output

    owner, claim = out / "owner", out / "claim.json"
    run("identity", "new", "--out", owner)
    run(
        "identity",
        "sign",
        "--identity",
        f"{owner}.pem",
        "--owner",
        "Example Lab",
        "--message",
        "this encoder was trained by Example Lab",
        "--created",
        "2026-01-31T12:00:00Z",
        "--out",
        claim,
    )
    run("identity", "check", claim, "--public", f"{owner}.pub")
    marked = out / "marked"
    budget = [] if max_steps is None else ["--max-steps", str(max_steps)]
    embedded = json.loads(
        run(
            "embed",
            model,
            "--identity",
            f"{owner}.pem",
            "--claim",
            claim,
            "--out",
            marked,
            *budget,
            "--json",
        )
    )
    key_file = marked / "owner.nsmark"
    run("inspect", key_file)
    wrong_key = _make_wrong_key(key_file, out)
    say("\n(a downstream head is trained on the marked model: which topic is a sentence about?)")
    head_file, texts, labels = _train_task_head(marked / "model", out)
    stolen = out / "stolen"
    run("attack", "run", "ll-lfea", marked / "model", "--out", stolen, "--set", f"head={head_file}")
    demo.task = _compare_task(marked / "model", head_file, stolen, texts, labels)
    say(
        f"(task accuracy {demo.task['accuracy']:.3f} before, {demo.task['attacked_accuracy']:.3f} "
        f"after; predictions moved by at most {demo.task['max_prediction_change']:.1e})"
    )
    for name, key, suspect in (
        ("watermarked", key_file, marked / "model"),
        ("untouched", key_file, model),
        ("wrong key", wrong_key, marked / "model"),
        ("linear attack", key_file, stolen),
    ):
        output = run("verify", key, suspect, "--json", expect=EXPECTED[name])
        demo.rows[name] = json.loads(output)
    if demo.task["max_prediction_change"] > _MAX_PREDICTION_CHANGE:
        raise EmbeddingError("the attack changed the task's predictions", "see the numbers above")
    report = json.loads((marked / "report.json").read_text(encoding="utf-8"))
    demo.fidelity = {"clean_cosine": report["training"]["held_out"]["clean_cosine"]}
    demo.seconds = time.perf_counter() - started
    # Linux reports kibibytes, macOS bytes.
    unit = 2**30 if sys.platform == "darwin" else 2**20
    demo.peak_memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    write_json(
        out / "demo.json",
        {
            "commands": demo.commands,
            "verifications": demo.rows,
            "task": demo.task,
            "fidelity": demo.fidelity,
            "embedding": {k: embedded[k] for k in ("watermarked", "reference", "thresholds")},
            "seconds": round(demo.seconds, 1),
            "peak_memory_gib": round(demo.peak_memory_gib, 2),
            "versions": library_versions(),
        },
    )
    return demo


def summary(demo: Demonstration, out: Path) -> str:
    """Return the closing table and the commands that led to it."""
    lines = [
        "",
        f"{'suspect':16}{'verdict':>11}{'extraction':>12}{'derived':>9}{'overlap':>9}"
        f"{'matching degree':>17}",
    ]
    for name, row in demo.rows.items():
        lines.append(
            f"{name:16}{row['verdict']:>11}{row['extraction_rate']:>12.3f}"
            f"{row['derived_extraction_rate']:>9.3f}{row['aligned_subspace_overlap']:>9.3f}"
            f"{row['invariant_matching_degree']:>17.3g}"
        )
    limits = next(iter(demo.rows.values()))["thresholds"]
    lowest = [f"> {limits[n]:.3f}" for n in ("extraction_rate", "aligned_subspace_overlap")]
    lines += [
        f"{'owned if':27}{lowest[0]:>12}{'or':>9}{lowest[1]:>9}",
        "",
        f"clean outputs keep a cosine of {demo.fidelity['clean_cosine']:.4f} to the untouched "
        "model's; the attack changed no task prediction by more than "
        f"{demo.task['max_prediction_change']:.1e}",
        f"{demo.seconds:.0f} s, {demo.peak_memory_gib:.1f} GiB of memory",
        "",
        "the commands that did it:",
        *(f"  {command}" for command in demo.commands),
        "",
        f"everything is in {out}: marked/model, marked/owner.nsmark, stolen, demo.json",
    ]
    return "\n".join(lines)


def _make_wrong_key(key_file: Path, out: Path) -> Path:
    stranger = Identity.generate()
    stranger.save(out / "stranger")
    claim = OwnershipClaim.make("Stranger", "I trained this encoder")
    path = out / "wrong-key.nsmark"
    write_key(steal_key(read_key(key_file), stranger, claim), path)
    return path


def _train_task_head(model: Path, out: Path) -> tuple[Path, list[str], np.ndarray]:
    from nsmark.models.loading import open_encoder

    texts, labels = labelled_texts(2 * _NUM_TASK_TEXTS)
    outputs = open_encoder(model).encode(texts[:_NUM_TASK_TEXTS])
    head = train_head(outputs, np.array(labels[:_NUM_TASK_TEXTS]), len(TOPICS))
    path = out / "head.safetensors"
    write_head(head, path)
    return path, list(texts[_NUM_TASK_TEXTS:]), np.array(labels[_NUM_TASK_TEXTS:])


def _compare_task(
    marked: Path, head_file: Path, stolen: Path, texts: list[str], labels: np.ndarray
) -> dict[str, float]:
    """Compare predictions of model + head with attacked model + compensated head."""
    from nsmark.models.loading import open_encoder

    before = softmax(read_head(head_file).logits(open_encoder(marked).encode(texts)))
    attacked_head = read_head(stolen / "head.safetensors")
    after = softmax(attacked_head.logits(open_encoder(stolen).encode(texts)))
    return {
        "accuracy": float(np.mean(before.argmax(axis=1) == labels)),
        "attacked_accuracy": float(np.mean(after.argmax(axis=1) == labels)),
        "max_prediction_change": float(np.abs(before - after).max()),
        "num_texts": float(len(texts)),
    }
