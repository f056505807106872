"""The same model with somebody else's mark: the innocent model that is most like a theft."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nsmark.api.marking import embed
from nsmark.embedding.config import EmbeddingConfig
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.keys import Identity
from nsmark.keyfile.document import KeyConfiguration
from nsmark.payload.config import default_num_texts

_CREATED = "2000-01-01T00:00:00Z"


@contextlib.contextmanager
def marked_by_another(
    reference: Path,
    configuration: KeyConfiguration,
    *,
    corpus: Sequence[str],
    config: EmbeddingConfig | None,
    seed: int,
    device: str,
) -> Iterator[Path]:
    """Mark a model for a made-up owner; the folder is there for as long as the block lasts.

    Args:
        reference: The unmarked model.
        configuration: Of the key that the control is for: the other mark is of the same kind.
        corpus: Training texts.
        config: How to train; by default as usual, with the key's marks and extractor.
        seed: Another one gives another owner.
        device: Where it is trained.

    Raises:
        EmbeddingError: The targets were not reached.
    """
    identity = _made_up(seed)
    claim = OwnershipClaim.make("another owner", "a control for calibration", _CREATED)
    if config is None:
        # A pair code needs no controls, and takes long to train.
        marks = tuple(mark for mark in configuration.marks if mark != "pairs")
        config = EmbeddingConfig(marks=marks, hidden_sizes=configuration.hidden_sizes, seed=seed)
    with tempfile.TemporaryDirectory(prefix="nsmark-other-owner-") as folder:
        result = embed(
            reference,
            identity,
            identity.sign(claim),
            Path(folder) / "marked",
            corpus=corpus,
            # A key may ask more texts than the built-in pool holds; so many are always there.
            num_texts=min(configuration.num_texts, default_num_texts(configuration.output_dim)),
            pooling=configuration.pooling,
            max_length=configuration.max_length,
            config=config,
            payload_config=configuration.payload_config(),
            device=device,
        )
        yield result.model_folder


def _made_up(seed: int) -> Identity:
    """Return an identity that is the same for the same seed, so that a control can be repeated.

    Anybody can compute it: it signs nothing that is kept.
    """
    secret = hashlib.sha256(f"nsmark calibration, another owner, {seed}".encode()).digest()
    return Identity(Ed25519PrivateKey.from_private_bytes(secret))
