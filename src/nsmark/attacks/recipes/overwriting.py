"""Overwriting: the thief puts a mark of his own on top of the owner's."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nsmark.api.marking import embed
from nsmark.attacks.catalogue import Facts, Recipe
from nsmark.attacks.settings import SEEDS, check_ranges
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.keys import Identity
from nsmark.models.loading import open_encoder
from nsmark.payload.config import PayloadConfig

if TYPE_CHECKING:
    from nsmark.attacks.material import Material
    from nsmark.attacks.stolen import Stolen
    from nsmark.embedding.progress import Progress

KEY_FILE = "other-owner.nsmark"
_CREATED = "2000-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwritingSettings:
    """Settings of the second mark."""

    preset: str = "fast"
    """How it is trained: ``fast``, ``strong`` or ``paper``, as the owner's."""

    learning_rate: float = 0.0
    """Of the model, and at least so much of the extractor; 0 takes the preset's. Small models
    need more: 0.002 in 32 dimensions."""

    max_steps: int = 0
    """Budget; 0 takes the preset's."""

    num_bits: int = 0
    """Bits of the signature that are embedded; 0 takes the usual number, which needs some hundred
    dimensions."""

    num_texts: int = 0
    """Verification texts of the second key; 0 takes as many as usual."""

    extractor_width: int = 0
    """Units in each of the extractor's two hidden layers; 0 takes the preset's."""

    seed: int = 0
    """Seed of the other owner and of the training."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            max_steps=(0, 10**8),
            num_texts=(0, 10**6),
            extractor_width=(0, 65536),
            learning_rate=(0, 1),
            seed=SEEDS,
        )
        # These refuse the rest.
        self.training()
        self.payload()

    def training(self) -> EmbeddingConfig:
        """Return how the second mark is trained."""
        config = replace(preset_config(self.preset), seed=self.seed)
        if self.learning_rate:
            config = replace(
                config,
                model_learning_rate=self.learning_rate,
                extractor_learning_rate=max(config.extractor_learning_rate, self.learning_rate),
            )
        if self.max_steps:
            config = replace(config, max_steps=self.max_steps)
        if self.extractor_width:
            config = replace(config, hidden_sizes=(self.extractor_width,) * 2)
        return config

    def payload(self) -> PayloadConfig:
        """Return what of the other owner's signature is embedded."""
        return PayloadConfig(num_bits=self.num_bits) if self.num_bits else PayloadConfig()


def other_owner(seed: int) -> Identity:
    """Return an identity that is the same for the same seed; anybody can compute it."""
    secret = hashlib.sha256(f"nsmark attack, another owner, {seed}".encode()).digest()
    return Identity(Ed25519PrivateKey.from_private_bytes(secret))


def apply(stolen: Stolen, settings: OverwritingSettings, material: Material) -> Facts:
    """Mark the stolen model for another owner, whose key is kept beside it."""
    identity, encoder = other_owner(settings.seed), stolen.encoder
    claim = OwnershipClaim.make("another owner", "this model is mine", _CREATED)

    def tell(progress: Progress) -> None:
        if material.on_step is not None:
            material.on_step(progress.step, progress.planned_steps)

    with tempfile.TemporaryDirectory(prefix="nsmark-overwriting-") as folder:
        encoder.save(Path(folder) / "stolen")
        result = embed(
            Path(folder) / "stolen",
            identity,
            identity.sign(claim),
            Path(folder) / "marked",
            corpus=material.texts,
            num_texts=settings.num_texts or None,
            pooling=encoder.pooling,
            max_length=encoder.max_length,
            config=settings.training(),
            payload_config=settings.payload(),
            device=str(encoder.device),
            on_progress=tell,
        )
        marked = open_encoder(
            result.model_folder,
            pooling=encoder.pooling,
            max_length=encoder.max_length,
            device=str(encoder.device),
        )
        # Into the encoder at hand, which knows the folder it came from: this one goes away.
        encoder.load_state_dict(marked.state_dict())
        name = key_name(stolen.extras)
        stolen.extras[name] = result.key_file.read_bytes()
    return {
        "key": name,
        "other_owner": identity.public_key.raw.hex(),
        "steps": result.report["training"]["steps"],
    }


def key_name(taken: Collection[str]) -> str:
    """Return a name for the key: a model may be overwritten more than once."""
    name, number = KEY_FILE, 1
    while name in taken:
        number += 1
        name = KEY_FILE.replace(".", f"-{number}.")
    return name


RECIPE = Recipe(
    source="NSmark paper, Tab. ow",
    deviations="The second mark is one of ours, with its own signature, trigger and extractor, "
    "trained on the thief's texts; a language-model head is not trained along.",
    cost="as much as the owner's marking: minutes to hours",
    keeps="nearly all of it: marking is made so",
    settings=OverwritingSettings,
    apply=apply,
    trials=("", "seed=1"),
)
