"""``nsmark embed``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsmark.cli.identity import load_identity, signed_claim
from nsmark.cli.output import (
    device_option,
    echo_json,
    find_passphrase,
    identity_passphrase_option,
    json_option,
    key_passphrase_option,
    progress_bar,
    quiet_option,
)

if TYPE_CHECKING:
    from nsmark.api import EmbedResult
    from nsmark.embedding.trainer import Progress

_file = click.Path(dir_okay=False, path_type=Path)


@click.command("embed")
@click.argument("model")
@click.option("--identity", "identity_file", required=True, type=_file, help="Your .pem file.")
@click.option("--owner", help="Who claims.")
@click.option("--message", help="What is claimed, in words.")
@click.option("--claim", "claim_file", type=_file, help="A claim file instead of the two above.")
@click.option("--corpus", type=_file, help="Training texts, one per line; default: built in.")
@click.option("--pool", type=_file, help="Published candidate texts; default: built in.")
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
    type=click.Choice(["fast", "paper"]),
    default="fast",
    show_default=True,
    help="fast stops when the targets hold; paper trains as published.",
)
@click.option("--marks", help="Witnesses to embed: paper,derived (default of the preset).")
@click.option("--hidden-sizes", help="Hidden layers of the extractor, such as 2048,1024.")
@click.option("--num-bits", type=int, default=256, show_default=True, help="Signature bits.")
@click.option("--spread-factor", type=int, default=3, show_default=True, help="Copies of a bit.")
@click.option("--batch-size", type=click.IntRange(1), help="Clean texts in a step.")
@click.option("--max-steps", type=click.IntRange(1), help="Budget of training steps.")
@click.option("--model-learning-rate", type=float, help="Step size of the model.")
@click.option("--extractor-learning-rate", type=float, help="Step size of the extractor.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all randomness."
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
    corpus: Path | None,
    pool: Path | None,
    num_texts: int | None,
    pooling: str | None,
    placement: str,
    max_length: int,
    preset: str,
    marks: str | None,
    hidden_sizes: str | None,
    num_bits: int,
    spread_factor: int,
    batch_size: int | None,
    max_steps: int | None,
    model_learning_rate: float | None,
    extractor_learning_rate: float | None,
    seed: int,
    device: str,
    out: Path,
    encrypt_key: bool,
    passphrase_file: Path | None,
    key_passphrase_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Watermark MODEL (a folder) and write the marked model, its key and a report.

    The same claim, seed and machine give the same result.

    \b
    Example:
      nsmark embed my-model --identity alice.pem --owner "Alice" --message "mine" --out marked
    """
    from nsmark.embedding.config import parse_marks, preset_config
    from nsmark.errors import ConfigError
    from nsmark.files import ensure_new_folder
    from nsmark.payload import PayloadConfig, read_texts

    changes: dict[str, Any] = {"seed": seed}
    if marks is not None:
        changes["marks"] = parse_marks(marks)
    if hidden_sizes is not None:
        try:
            changes["hidden_sizes"] = tuple(int(size) for size in hidden_sizes.split(","))
        except ValueError as error:
            raise ConfigError("hidden_sizes", hidden_sizes, "must be numbers, 2048,1024") from error
    changes |= {
        name: value
        for name, value in (
            ("batch_size", batch_size),
            ("max_steps", max_steps),
            ("model_learning_rate", model_learning_rate),
            ("extractor_learning_rate", extractor_learning_rate),
        )
        if value is not None
    }
    config = replace(preset_config(preset), **changes)
    payload_config = PayloadConfig(
        num_bits=num_bits,
        spread_factor=spread_factor,
        placement=placement,  # type: ignore[arg-type]
    )
    identity = load_identity(identity_file, passphrase_file)
    claim = signed_claim(identity, owner, message, claim_file)
    ensure_new_folder(out)
    corpus_texts = read_texts(corpus) if corpus else None
    pool_texts = read_texts(pool) if pool else None
    passphrase = None
    if encrypt_key or key_passphrase_file is not None:
        passphrase = find_passphrase(
            key_passphrase_file, "NSMARK_KEY_PASSPHRASE", "new key file", confirm=True
        )
    from nsmark.api import embed

    with progress_bar("training", quiet) as update:
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
            device=device,
            passphrase=passphrase,
            on_progress=lambda p: update(p.step, p.planned_steps, _describe(p)),
            on_stage=None if quiet else lambda stage: click.echo(f"{stage} …", err=True),
        )
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


def _describe(progress: Progress) -> str:
    """Say in a few words: both losses, and bits read from held-out texts with/without trigger."""
    text = f"match {progress.losses['match']:.3f} keep {progress.losses['original']:.3f}"
    if progress.heldout is not None:
        heldout = progress.heldout
        text += f" bits {heldout.triggered:.2f}/{heldout.untriggered:.2f}"
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
        f"{training['steps']} steps in {training['seconds']:.0f} s, cosine of clean outputs to "
        f"the reference {training['held_out']['clean_cosine']:.4f}"
    )
