"""Made the files in v1/, once. They are never made again: every later version must read them.

PYTHONPATH=tests python tests/data/keys/make_v1.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from conftest import TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING, make_identity
from nsmark.api import embed
from nsmark.attacks.recipes.ll_lfea import output_transform
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import write_key
from nsmark.suspects import open_suspect, save_recorded
from tiny_models import build_sentence_transformer

HERE = Path(__file__).parent / "v1"
PASSPHRASE = b"correct horse battery staple"


def main() -> None:
    identity = make_identity(1)
    claim = identity.sign(
        OwnershipClaim.make("Example Lab", "tiny-encoder is ours", "2026-01-31T12:00:00Z")
    )
    with tempfile.TemporaryDirectory() as scratch:
        model = build_sentence_transformer(Path(scratch) / "tiny")
        result = embed(
            model,
            identity,
            claim,
            Path(scratch) / "out",
            num_texts=TINY_NUM_TEXTS,
            config=TINY_TRAINING,
            payload_config=TINY_PAYLOAD,
            device="cpu",
        )
        write_key(result.key, HERE / "tiny.nsmark")
        write_key(result.key, HERE / "tiny-encrypted.nsmark", PASSPHRASE)
        payload = result.key.payload()
        answers = {
            name: [
                open_suspect(folder).outputs(texts)
                for texts in (payload.triggered_texts(), list(payload.verification_texts))
            ]
            for name, folder in (("marked", result.model_folder), ("untouched", model))
        }
        transform = output_transform("uniform", 32, seed=0).astype(np.float32)
        answers["mapped"] = [outputs @ transform.T for outputs in answers["marked"]]
        for name, (triggered, untriggered) in answers.items():
            save_recorded(HERE / f"{name}.safetensors", triggered, untriggered)


if __name__ == "__main__":
    main()
