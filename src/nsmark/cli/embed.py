"""``nsmark embed``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from nsmark.cli.identity import load_identity, signed_claim
from nsmark.cli.output import (
    SectionedCommand,
    device_option,
    echo_json,
    find_passphrase,
    identity_passphrase_option,
    json_option,
    key_passphrase_option,
    progress_bar,
    quiet_option,
)
from nsmark.errors import ConfigError, EmbeddingError, UsageError

if TYPE_CHECKING:
    from nsmark.api import EmbedResult
    from nsmark.embedding.config import EmbeddingConfig
    from nsmark.embedding.parallel import Group, Parallel
    from nsmark.embedding.progress import Progress
    from nsmark.identity import Identity, SignedClaim

_file = click.Path(dir_okay=False, path_type=Path)


_SECTIONS = {
    "What is claimed": ("identity_file", "owner", "message", "claim_file"),
    "What is marked, and how strongly": ("preset", "marks", "out", "device", "seed"),
    "Texts": ("corpus", "pool", "num_texts", "max_length", "pooling", "placement"),
    "Going on after an interruption": ("resume", "max_seconds", "checkpoint_every"),
    "The key file": ("encrypt_key", "key_passphrase_file", "passphrase_file"),
    "Training": (
        "max_steps",
        "batch_size",
        "method",
        "lora_rank",
        "model_learning_rate",
        "extractor_learning_rate",
        "parallel",
    ),
    "Speed and memory": ("precision", "compiled", "pieces", "recompute"),
    "Sizes of the marks": (
        "num_bits",
        "spread_factor",
        "hidden_sizes",
        "pair_size",
        "pair_repeats",
        "pair_word_list",
    ),
}


@click.command("embed", cls=SectionedCommand, sections=_SECTIONS)
@click.argument("model")
@click.option("--identity", "identity_file", required=True, type=_file, help="Your .pem file.")
@click.option("--owner", help="Who claims.")
@click.option("--message", help="What is claimed, in words.")
@click.option("--claim", "claim_file", type=_file, help="A claim file instead of the two above.")
@click.option(
    "--corpus",
    metavar="TEXTS",
    help="Training texts: text (one per line), CSV, TSV, JSONL, Parquet as FILE[#column], or "
    "dataset:NAME[:SPLIT][#column], dataset:./folder; default: built in.",
)
@click.option(
    "--pool", metavar="TEXTS", help="Published candidate texts, as for --corpus; default: built in."
)
@click.option(
    "--num-texts",
    type=click.IntRange(2),
    help="Verification texts; default: max(1500, twice the output dimension).",
)
@click.option(
    "--pooling",
    type=click.Choice(["first", "last", "mean", "max"]),
    help="Where the model is read; default: the model's own way.",
)
@click.option(
    "--placement",
    type=click.Choice(["spread", "front"]),
    default="spread",
    show_default=True,
    help="Where trigger copies go.",
)
@click.option(
    "--max-length", type=click.IntRange(8), default=128, show_default=True, help="Tokens of a text."
)
@click.option(
    "--preset",
    type=click.Choice(["auto", "fast", "strong", "paper"]),
    default="auto",
    show_default=True,
    help="fast stops soon after the targets hold; strong adds a pair code, "
    "evidence that noise does not cover (hours without a GPU); paper trains as published; auto: "
    "strong on a GPU, else fast.",
)
@click.option(
    "--marks",
    help="Witnesses to embed: paper,derived,pairs; default: the preset's (strong all three, fast "
    "the first two, paper the first).",
)
@click.option(
    "--pair-size",
    type=click.IntRange(4, 64),
    default=16,
    show_default=True,
    help="Words on each side of the pair code; 10 or more leave chance no room.",
)
@click.option(
    "--pair-repeats",
    type=click.IntRange(1, 64),
    default=6,
    show_default=True,
    help="Texts asked for each pair of words.",
)
@click.option(
    "--pair-word-list",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Ordinary words for it, one per line; keys with one short list are identified at once.",
)
@click.option("--hidden-sizes", help="Hidden layers of the extractor, such as 2048,1024.")
@click.option("--num-bits", type=int, default=256, show_default=True, help="Signature bits.")
@click.option("--spread-factor", type=int, default=3, show_default=True, help="Copies of a bit.")
@click.option("--batch-size", type=click.IntRange(1), help="Clean texts in a step.")
@click.option("--max-steps", type=click.IntRange(1), help="Budget of training steps.")
@click.option(
    "--method",
    type=click.Choice(["full", "lora"]),
    help="Train all weights, or low-rank adapters that are merged in the end (large models); "
    "default: lora with a pair code, else full.",
)
@click.option(
    "--lora-rank", type=click.IntRange(1), help="Rank of the adapters; default: 16, 32 with pairs."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    help="Of the arithmetic; default: bfloat16 on a GPU.",
)
@click.option(
    "--compile", "compiled", is_flag=True, help="Use torch.compile: pays from half a million texts."
)
@click.option(
    "--pieces",
    type=click.IntRange(1),
    help="Parts a step is computed in, to save memory; default: the fewest that fit.",
)
@click.option(
    "--recompute/--keep-activations",
    default=None,
    help="Compute activations twice to save memory; default: where nothing else fits.",
)
@click.option(
    "--parallel",
    type=click.Choice(["ddp", "fsdp"]),
    default="ddp",
    show_default=True,
    help="Under torchrun: a whole model in every process, or its layers divided among them (then "
    "without a pair code, unless asked for with --method full).",
)
@click.option("--model-learning-rate", type=float, help="Step size of the model.")
@click.option("--extractor-learning-rate", type=float, help="Step size of the extractor.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all randomness."
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    help="Steps between checkpoints; default: 50, with --preset paper 1000.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted run from OUT.checkpoint; repeat its other options.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Stop the training after so long, with a checkpoint to resume from.",
)
@device_option
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="New folder for model/, owner.nsmark and report.json.",
)
@click.option("--encrypt-key", is_flag=True, help="Encrypt the key file with a passphrase.")
@identity_passphrase_option
@key_passphrase_option
@quiet_option
@json_option
def command(
    model: str,
    identity_file: Path,
    owner: str | None,
    message: str | None,
    claim_file: Path | None,
    corpus: str | None,
    pool: str | None,
    num_texts: int | None,
    pooling: str | None,
    placement: str,
    max_length: int,
    preset: str,
    marks: str | None,
    pair_size: int,
    pair_repeats: int,
    pair_word_list: Path | None,
    hidden_sizes: str | None,
    num_bits: int,
    spread_factor: int,
    batch_size: int | None,
    max_steps: int | None,
    method: str | None,
    lora_rank: int | None,
    precision: str | None,
    compiled: bool,
    pieces: int | None,
    recompute: bool | None,
    parallel: str,
    model_learning_rate: float | None,
    extractor_learning_rate: float | None,
    seed: int,
    checkpoint_every: int | None,
    resume: bool,
    max_seconds: float | None,
    device: str,
    out: Path,
    encrypt_key: bool,
    passphrase_file: Path | None,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Watermark MODEL (a folder) and write the marked model, its key and a report.

    The same claim, seed and machine give the same result, also if the run was interrupted and
    resumed: while it trains, checkpoints are kept in OUT.checkpoint.

    \b
    Example:
      nsmark embed my-model --identity alice.pem --owner "Alice" --message "mine" --out marked
    \b
    On two GPUs (give the claim as a file, made with `nsmark identity sign`):
      torchrun --standalone --nproc_per_node 2 -m nsmark embed my-model --identity alice.pem
        --claim claim.json --out marked
    """
    from nsmark.api.marking import usual_preset
    from nsmark.embedding.checkpoint_folder import CheckpointFolder
    from nsmark.files import ensure_new_folder
    from nsmark.payload import (
        PairConfig,
        PayloadConfig,
        map_texts,
        read_pair_words,
        read_texts,
    )

    config = _training_settings(
        usual_preset(device) if preset == "auto" else preset,
        marks or _divided_marks(preset, method, parallel),
        hidden_sizes,
        seed=seed,
        batch_size=batch_size,
        max_steps=max_steps,
        method=method,
        lora_rank=lora_rank,
        precision=precision,
        compile=compiled or None,
        pieces=pieces,
        recompute=recompute,
        model_learning_rate=model_learning_rate,
        extractor_learning_rate=extractor_learning_rate,
        checkpoint_every=checkpoint_every,
    )
    payload_config = PayloadConfig(
        num_bits=num_bits,
        spread_factor=spread_factor,
        placement=placement,  # type: ignore[arg-type]
    )
    pair_config = PairConfig(size=pair_size, repeats=pair_repeats)
    identity = load_identity(identity_file, passphrase_file)
    ensure_new_folder(out)
    if resume:
        claim = _claim_of_checkpoint(identity, owner, message, claim_file, out)
    else:
        CheckpointFolder(out).refuse_unfinished()
        if claim_file is None and _num_processes() > 1:
            # Each would sign at a time of its own, and train for another signature.
            raise UsageError(
                "several processes need one claim",
                "make it with `nsmark identity sign`, and give it as --claim FILE",
            )
        claim = signed_claim(identity, owner, message, claim_file)
    corpus_texts = map_texts(corpus) if corpus is not None else None
    pool_texts = read_texts(pool) if pool is not None else None
    passphrase = None
    if encrypt_key or key_passphrase_file is not None:
        passphrase = find_passphrase(
            key_passphrase_file, "NSMARK_KEY_PASSPHRASE", "new key file", confirm=True
        )
    from nsmark.api import embed

    with _processes(device, parallel) as (group, own_device):
        quiet = quiet or not (group is None or group.is_first)
        with _resume_hint(out), progress_bar("opening the model", quiet) as update:
            result = embed(
                model,
                identity,
                claim,
                out,
                corpus=corpus_texts,
                pool=pool_texts,
                num_texts=num_texts,
                pooling=pooling,
                max_length=max_length,
                config=config,
                payload_config=payload_config,
                pair_config=pair_config,
                pair_word_list=read_pair_words(pair_word_list) if pair_word_list else None,
                device=own_device,
                passphrase=passphrase,
                group=group,
                resume=resume,
                max_seconds=max_seconds,
                on_progress=lambda p: update(p.step, p.planned_steps, f"steps  {_describe(p)}"),
                on_stage=update.stage,
            )
        if group is not None and not group.is_first:
            return
    if as_json:
        echo_json(
            {
                "model": str(result.model_folder),
                "key": str(result.key_file),
                "report": str(result.report_file),
                **{k: v for k, v in result.report.items() if k != "training"},
            }
        )
    else:
        _print(result)


def _training_settings(
    preset: str, marks: str | None, hidden_sizes: str | None, **given: float | str | None
) -> EmbeddingConfig:
    """Return the preset with the changes that were given."""
    from nsmark.embedding.config import parse_marks, preset_config

    changes: dict[str, Any] = {n: value for n, value in given.items() if value is not None}
    chosen = None if marks is None else parse_marks(marks)
    if hidden_sizes is not None:
        try:
            changes["hidden_sizes"] = tuple(int(size) for size in hidden_sizes.split(","))
        except ValueError as error:
            raise ConfigError("hidden_sizes", hidden_sizes, "must be numbers, 2048,1024") from error
    return replace(preset_config(preset, chosen, changes.get("method")), **changes)


def _divided_marks(preset: str, method: str | None, parallel: str) -> str | None:
    """Return what is embedded by default where layers are divided: a pair code wants adapters."""
    is_divided = parallel == "fsdp" and _num_processes() > 1
    return "paper,derived" if is_divided and preset != "paper" and method is None else None


def _claim_of_checkpoint(
    identity: Identity, owner: str | None, message: str | None, claim_file: Path | None, out: Path
) -> SignedClaim:
    """Return the claim of the run to resume.

    A claim made from --owner and --message carries the time it was made at; made again now, it
    would be another claim, with another signature and another trigger.
    """
    from nsmark.embedding.checkpoint_folder import CheckpointFolder
    from nsmark.identity import OwnershipClaim

    stored = OwnershipClaim.from_mapping(CheckpointFolder(out).read().get("claim"))
    if claim_file is not None:
        return signed_claim(identity, owner, message, claim_file)
    return signed_claim(
        identity,
        stored.owner if owner is None else owner,
        stored.message if message is None else message,
        None,
        stored.created,
    )


def _num_processes() -> int:
    """Return how many processes torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def _processes(device: str, parallel: str) -> Iterator[tuple[Group | None, str]]:
    """Join the other processes, where torchrun started several."""
    if _num_processes() == 1:
        yield None, device
        return
    from nsmark.embedding.parallel import torchrun_group

    with torchrun_group(device, cast("Parallel", parallel)) as joined:
        yield joined


@contextlib.contextmanager
def _resume_hint(out: Path) -> Iterator[None]:
    """Say how to go on, where an interrupted run left a checkpoint."""
    from nsmark.embedding.checkpoint_folder import CheckpointFolder

    try:
        yield
    except KeyboardInterrupt:
        hint = CheckpointFolder(out).resume_hint()
        if not hint:
            raise
        stopped = EmbeddingError("interrupted", hint)
        stopped.exit_code = 130  # as for every interruption
        raise stopped from None


def _describe(progress: Progress) -> str:
    """Say in a few words: both losses, and bits read from held-out texts with/without trigger."""
    text = f"match {progress.losses['match']:.3f} keep {progress.losses['original']:.3f}"
    if progress.heldout is not None:
        heldout = progress.heldout
        text += f" bits {heldout.triggered:.2f}/{heldout.untriggered:.2f}"
        if heldout.pairs is not None:
            text += f" pairs {heldout.pairs:.2f}"
    return text


def _print(result: EmbedResult) -> None:
    report = result.report
    marked, reference = report["watermarked"], report["reference"]
    click.echo(f"model   {result.model_folder}")
    click.echo(f"key     {result.key_file}  (keep it secret)")
    click.echo(f"report  {result.report_file}")
    click.echo(
        f"extraction: triggered {marked['triggered']['extraction_rate']:.3f}, untriggered "
        f"{marked['untriggered']['extraction_rate']:.3f}, reference "
        f"{reference['triggered']['extraction_rate']:.3f}"
    )
    click.echo(
        f"matching degree (lower is closer): {marked['triggered']['matching_degree']:.2g}, "
        f"reference {reference['triggered']['matching_degree']:.1f}"
    )
    training = report["training"]
    click.echo(
        f"{training['steps']} steps in {training['seconds']:.0f} s, at most "
        f"{training['peak_memory_bytes'] / 2**30:.1f} GiB, cosine of clean outputs to the "
        f"reference {training['held_out']['clean_cosine']:.4f}"
    )
