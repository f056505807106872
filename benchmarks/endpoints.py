"""What is measured through real servers: the command line asks them, marked model and unmarked.

    python benchmarks/endpoints.py --model DIR --json OUT --markdown OUT

Marks the encoder in DIR and serves it by infinity-emb, marks a small causal model and serves its
log-probabilities, and runs ``nsmark verify`` against each in a process of its own; beside them, the
same folders without a server. ``--marked DIR --key FILE``: the encoder was marked before.
``--causal DIR``: a causal model of yours; by default a tiny GPT-2 with random weights.
``--tiny``: tiny models and short settings, to try it out. ``--work DIR`` keeps the marked models,
and goes on from there the next time. Servers listen on 127.0.0.1 alone and end with the script.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

# Benchmarks are scripts, not a package; the servers and tiny models are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from choices import some_of
from endpoints_table.asking import without_paths
from endpoints_table.page import markdown
from endpoints_table.servers import (
    SUSPECTS,
    Pair,
    completion_rows,
    embedding_rows,
    infinity_versions,
)
from nsmark.api import embed
from nsmark.embedding.config import EmbeddingConfig, Mark, preset_config
from nsmark.identity import Identity, OwnershipClaim
from nsmark.payload import PayloadConfig
from nsmark.report.versions import library_versions
from provenance import measured
from tiny_models import build_family, build_sentence_transformer

MARKS: tuple[Mark, ...] = ("paper", "derived")
TINY_PAYLOAD = PayloadConfig(num_bits=16, spread_factor=3)
TINY_TEXTS = 96


def tiny_config(config: EmbeddingConfig) -> EmbeddingConfig:
    """Return settings under which random weights of 32 dimensions learn a mark in seconds."""
    return replace(
        config,
        batch_size=16,
        max_steps=400,
        model_learning_rate=2e-3,
        extractor_learning_rate=2e-3,
        cooldown_steps=20,
        hidden_sizes=(48, 32),
        num_heldout_texts=32,
    )


def mark(
    model: Path,
    out: Path,
    config: EmbeddingConfig,
    payload: PayloadConfig | None = None,
    num_texts: int | None = None,
) -> Pair:
    """Mark a model, unless that was done before."""
    pair = Pair(out / "owner.nsmark", out / "model", model)
    if not pair.key.exists():
        print(f"marking {out.name}", file=sys.stderr)
        identity = Identity.generate()
        claim = identity.sign(OwnershipClaim.make("Example Lab", "this model is ours"))
        embed(
            *(model, identity, claim, out),
            num_texts=num_texts,
            payload_config=payload,
            config=config,
            device="cpu",
        )
    return pair


def encoder_pair(arguments: argparse.Namespace, work: Path) -> Pair:
    """Return the encoder that embeddings are asked of."""
    if arguments.marked is not None:
        return Pair(arguments.key, arguments.marked, arguments.model)
    config, model = preset_config("fast", MARKS), arguments.model
    if not arguments.tiny:
        return mark(model, work / "encoder", config)
    if model is None:
        model = work / "tiny-encoder"
        if not model.exists():
            build_sentence_transformer(model)
    return mark(model, work / "encoder", tiny_config(config), TINY_PAYLOAD, TINY_TEXTS)


def causal_pair(arguments: argparse.Namespace, work: Path) -> Pair:
    """Return the causal model that log-probabilities are asked of."""
    config, model = preset_config("fast", MARKS), arguments.causal
    if model is not None and not arguments.tiny:
        return mark(model, work / "causal", config)
    if model is None:
        model = work / "tiny-causal"
        if not model.exists():
            build_family(model, "gpt2")
    # Random weights have no language to keep: hardly any weight on its loss, as in the tests.
    config = replace(tiny_config(config), language_weight=0.02)
    num_texts = TINY_TEXTS if arguments.tiny else None
    return mark(model, work / "causal", config, TINY_PAYLOAD, num_texts)


def about(pair: Pair, name: str) -> dict[str, Any]:
    """Say what was served and how it was marked, as far as its report is there."""
    config = json.loads((pair.marked / "config.json").read_text(encoding="utf-8"))
    report_file = pair.key.parent / "report.json"
    report = json.loads(report_file.read_text(encoding="utf-8")) if report_file.exists() else {}
    training, configuration = report.get("training", {}), report.get("configuration", {})
    return {
        "model": name,
        "model_type": config["model_type"],
        "output_dim": configuration.get("output_dim"),
        "num_texts": configuration.get("num_texts"),
        "num_bits": configuration.get("num_bits"),
        "marks": training.get("settings", {}).get("marks"),
        "steps": training.get("steps"),
        "seconds_to_mark": report.get("seconds"),
    }


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count what became of the rows."""
    measured = [row for row in rows if row["status"] == "measured"]
    marked = [row for row in measured if row["suspect"] == "marked"]
    unmarked = [row for row in measured if row["suspect"] == "unmarked"]
    return {
        "marked": len(marked),
        "marked_owned": sum(row["verdict"] == "owned" for row in marked),
        "unmarked": len(unmarked),
        "unmarked_owned": sum(row["verdict"] == "owned" for row in unmarked),
        "not_measured": sum(row["status"] == "not measured" for row in rows),
        "not_run": sum(row["status"] == "not run" for row in rows),
    }


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Mark, serve and ask."""
    encoder, causal = encoder_pair(arguments, work), causal_pair(arguments, work)
    random_causal = "GPT-2 of 2 layers and 32 dimensions, random weights"
    tiny_encoder = "BERT of 2 layers and 32 dimensions, random weights"
    parts = {
        "embeddings": {
            **about(encoder, tiny_encoder if arguments.model is None else arguments.model.name),
            "rows": list(embedding_rows(encoder, work, arguments.suspects)),
        },
        "completions": {
            **about(causal, random_causal if arguments.causal is None else arguments.causal.name),
            "rows": list(completion_rows(causal, arguments.suspects)),
        },
    }
    places = [(work, "WORK"), (Path(__file__).parents[1], "REPOSITORY"), (Path.home(), "HOME")]
    places += [
        (folder, name.upper())
        for pair in (encoder, causal)
        for name, folder in (*pair.folders().items(), ("key", pair.key))
    ]
    # The longest first: one folder may lie in another.
    places.sort(key=lambda place: -len(str(place[0].resolve())))
    document: dict[str, Any] = without_paths(parts, places)
    return document


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of the unmarked encoder")
    parser.add_argument("--marked", type=Path, help="folder of the marked encoder, if there is one")
    parser.add_argument("--key", type=Path, help="the key file of --marked")
    parser.add_argument("--causal", type=Path, help="folder of an unmarked causal model")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try it out")
    parser.add_argument(
        "--suspects", type=some_of(SUSPECTS, "suspect"), default=SUSPECTS, help=",".join(SUSPECTS)
    )
    parser.add_argument("--work", type=Path, help="keep what takes long to make here")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args(words)
    if (arguments.marked is None) != (arguments.key is None):
        parser.error("--marked and --key belong together")
    if arguments.model is None and (arguments.marked is not None or not arguments.tiny):
        parser.error("--model is needed, unless --tiny makes one")
    return arguments


def command_line(arguments: argparse.Namespace) -> str:
    """Return the command that made a document, with words for the folders."""
    words = ["python benchmarks/endpoints.py"]
    words += ["--model DIR"] if arguments.model is not None else []
    words += ["--marked DIR --key FILE"] if arguments.marked is not None else []
    words += ["--causal DIR"] if arguments.causal is not None else []
    words += ["--tiny"] if arguments.tiny else []
    if list(arguments.suspects) != list(SUSPECTS):
        words.append(f"--suspects {','.join(arguments.suspects)}")
    return " ".join([*words, "--json OUT --markdown OUT"])


def stop(number: int, frame: FrameType | None) -> None:
    """End by an exception, so that every server is stopped on the way."""
    raise SystemExit(128 + number)


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write."""
    arguments = parse_arguments(words)
    signal.signal(signal.SIGTERM, stop)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="nsmark-endpoints-") as folder:
        work = arguments.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        parts = measure(arguments, work)
    document = {
        "measured": measured(
            ["fast"] if arguments.marked is None else None, rule=True, device="cpu"
        ),
        "command": command_line(arguments),
        "environment": {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "threads": os.environ.get("OMP_NUM_THREADS"),
            **library_versions(),
        },
        "infinity": infinity_versions(),
        "summary": summarise([row for part in parts.values() for row in part["rows"]]),
        "seconds": round(time.perf_counter() - started, 1),
        **parts,
    }
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(document), encoding="utf-8")
    print(json.dumps(document["summary"] | {"seconds": document["seconds"]}))


if __name__ == "__main__":
    main()
