"""Shared fixtures: a deterministic owner, tiny model folders, and one marked tiny model."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))
# Started in the background, a shell's jobs ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings

from left_behind import Watch
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.config import EmbeddingConfig
from nsmark.identity import Identity, OwnershipClaim, SignedClaim
from nsmark.keyfile import read_key
from nsmark.payload import PairConfig, PayloadConfig, derive_payload, published_word_list
from nsmark.payload.payload import WatermarkPayload
from whole import mark_whole

# How long an example takes says nothing on a busy machine.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

TINY_NUM_TEXTS = 96
TINY_CORPUS = training_texts()[:400]
TINY_PAYLOAD = PayloadConfig(num_bits=16, spread_factor=3)
TINY_TRAINING = EmbeddingConfig(
    batch_size=16,
    max_steps=400,
    model_learning_rate=2e-3,
    extractor_learning_rate=2e-3,
    cooldown_steps=20,
    hidden_sizes=(48, 32),
    num_heldout_texts=32,
)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watch())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_whole(items)


@functools.cache
def tiny_payload(with_pairs: bool) -> WatermarkPayload:
    """What every process of a training derives by itself."""
    return derive_payload(
        b"signature",
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
        pair_config=PairConfig(size=4, repeats=2) if with_pairs else None,
    )


def make_identity(seed: int) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


@pytest.fixture(scope="session")
def identity() -> Identity:
    return make_identity(1)


@pytest.fixture(scope="session")
def signed_claim(identity: Identity) -> SignedClaim:
    return identity.sign(
        OwnershipClaim.make("Example Lab", "tiny-encoder is ours", "2026-01-31T12:00:00Z")
    )


@pytest.fixture(scope="session")
def tiny_st(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentence-transformers folder (mean pooling, unit length)."""
    pytest.importorskip("torch", reason="needs the torch extra")
    from tiny_models import build_sentence_transformer

    return build_sentence_transformer(tmp_path_factory.mktemp("models") / "tiny-st")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny transformers folder without a language-model head."""
    pytest.importorskip("torch", reason="needs the torch extra")
    from tiny_models import build_bert

    return build_bert(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def tiny_mlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny transformers folder with a masked-language-model head."""
    pytest.importorskip("torch", reason="needs the torch extra")
    from tiny_models import build_bert

    return build_bert(tmp_path_factory.mktemp("models") / "tiny-mlm", with_lm_head=True)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that one of the test processes fills with ``make``, for all of them."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once" / name
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not lock.read():
            make(folder)
            lock.write("made")
    return folder


@pytest.fixture(scope="session")
def tiny_marked(
    tiny_st: Path,
    identity: Identity,
    signed_claim: SignedClaim,
    tmp_path_factory: pytest.TempPathFactory,
):
    """The tiny sentence-transformers model, watermarked: an EmbedResult."""
    from nsmark.api import EmbedResult, embed

    def make(folder: Path) -> None:
        embed(
            tiny_st,
            identity,
            signed_claim,
            folder / "out",
            corpus=TINY_CORPUS,
            num_texts=TINY_NUM_TEXTS,
            config=TINY_TRAINING,
            payload_config=TINY_PAYLOAD,
            device="cpu",
        )

    out = made_once(tmp_path_factory, "marked", make) / "out"
    return EmbedResult(
        model_folder=out / "model",
        key_file=out / "owner.nsmark",
        report_file=out / "report.json",
        key=read_key(out / "owner.nsmark"),
        report=json.loads((out / "report.json").read_bytes()),
    )
