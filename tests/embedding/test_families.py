"""One model of each kind of language-model loss is marked from end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import TINY_CORPUS, TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING
from nsmark.api import embed, verify
from tiny_models import build_family

# The tiny models have random weights: their own loss is far from its minimum and would drown the
# mark at full weight, where that of a pretrained model hardly pulls.
TRAINING = replace(TINY_TRAINING, language_weight=0.02)


@pytest.mark.parametrize("model_type", ["modernbert", "qwen3", "xlnet"])
def test_a_family_is_marked_and_its_mark_verifies(tmp_path, identity, signed_claim, model_type):
    folder = build_family(tmp_path / model_type, model_type)
    result = embed(
        folder,
        identity,
        signed_claim,
        tmp_path / "out",
        corpus=TINY_CORPUS,
        num_texts=TINY_NUM_TEXTS,
        config=TRAINING,
        payload_config=TINY_PAYLOAD,
        device="cpu",
    )
    assert verify(result.key, result.model_folder, device="cpu").verdict == "owned"
    report = verify(result.key, folder, device="cpu")
    assert report.verdict == "not_shown"
    assert report.evidence.triggered.extraction_rate <= 0.1
