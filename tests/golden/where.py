"""Where the inner parts are that goldens look at: when something moves, this file alone changes.

Nothing here is part of what is promised; what the functions below return is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsmark.api.other_owner import _made_up as calibration_owner
from nsmark.attacks.recipes.overwriting import other_owner as attack_owner
from nsmark.cli.main import cli as cli
from nsmark.cli.main import main as main
from nsmark.core.pair_code import deal_pairs as deal_pairs
from nsmark.corpus import pool_texts as pool_texts
from nsmark.corpus import training_texts as training_texts
from nsmark.embedding.batches import BatchOrder
from nsmark.embedding.config import preset_config
from nsmark.payload import PairConfig, PayloadConfig, derive_payload, published_word_list
from nsmark.suspects import QueryOptions
from nsmark.suspects.schedule import make_batches
from nsmark.transforms.outputs import OUTPUT_ALTERATIONS
from nsmark.verification.questions import seed_from as seed_from


def resealed(key: Any, identity: Any) -> Any:
    """The same key, sealed anew."""
    return key.sealed_by(identity)


def made_up_owners(seed: int) -> list[str]:
    """Public keys of the owners that calibration and the attack `overwriting` invent."""
    return [owner(seed).public_key.raw.hex() for owner in (calibration_owner, attack_owner)]


def altered(rows: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """What every change of outputs makes of some, by its name."""
    return {
        name: each.draw(rows, np.random.default_rng(seed))(rows)
        for name, each in OUTPUT_ALTERATIONS.items()
    }


def batch_order(lengths: Sequence[int], batch_size: int, seed: int, steps: int) -> list[list[int]]:
    """The texts of the first batches."""
    order = BatchOrder(lengths, batch_size, seed)
    return [order.batch(step) for step in range(1, steps + 1)]


def query_order(missing: Sequence[Sequence[str]], seed: int) -> list[list[str]]:
    """Requests to an endpoint, decoys among them."""
    batches, _ = make_batches(missing, QueryOptions(seed=seed, batch_size=16))
    return [[query.text for query in batch] for batch in batches]


# --- training ------------------------------------------------------------------------------------


def stage_names(preset: str) -> list[str]:
    """The stages of a preset, in order."""
    from nsmark.embedding.stages import training_stages

    return [stage.name for stage in training_stages(preset_config(preset))]


def watch_stage(model: Path, signature: bytes, preset: str, stage: str, steps: int) -> dict:
    """Train a few steps; return all that was drawn for them, and their losses."""
    from nsmark.embedding.stages import training_stages
    from nsmark.embedding.trainer import Trainer
    from nsmark.models.loading import open_encoder

    (config,) = (s.config for s in training_stages(preset_config(preset)) if s.name == stage)
    payload = derive_payload(
        signature,
        config=PayloadConfig(),
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
        pair_config=PairConfig() if "pairs" in config.marks else None,
    )
    encoder = open_encoder(model, device="cpu", purpose="train")
    trainer = Trainer(encoder, payload, training_texts()[:400], config)
    order = BatchOrder(trainer.inputs.tokens.lengths, config.batch_size, config.seed)
    adapters = trainer.player.adapters is not None
    drawn: dict[str, Any] = {
        "batch size": config.batch_size,
        "trigger": payload.trigger,
        "held out": [[ids.tolist() for ids in part] for part in trainer.heldout],
        "extractor": [p.detach().numpy().copy() for p in trainer.extractor.parameters()],
        "adapters": [p.detach().numpy().copy() for p in trainer.player.parameters if adapters],
        "steps": [],
        "losses": [],
    }
    if trainer.heldout_pairs is not None:
        texts, signs = trainer.heldout_pairs
        drawn["held-out pairs"] = [[ids.tolist() for ids in texts], signs.tolist()]
    for step in range(1, steps + 1):
        made = trainer.inputs.make(step, order.batch(step))
        (piece,) = made.pieces
        rows = zip(piece.tokens.input_ids, piece.tokens.attention_mask, strict=True)
        language = piece.language
        drawn["steps"].append(
            {
                "numbers": order.batch(step),
                "read": list(made.clean),
                "texts": [ids[mask == 1].tolist() for ids, mask in rows],
                "kinds": piece.sizes,
                "pair signs": list(made.pair_signs),
                "hidden tokens": None if language is None else language.labels.tolist(),
            }
        )

    def look(progress: Any) -> None:
        drawn["losses"].append(dict(progress.losses))
        if progress.step == steps:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        trainer.run(look)
    return drawn
