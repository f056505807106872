"""Classifiers and reward models: texts in, logits out.

A head on a stolen model answers with a few linear functions of its hidden states, so its logits
lie in the row space of the owner's outputs. Decoders' heads are exactly linear; BERT and its kin
put a tanh before theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nsmark.errors import ConfigError, ModelError
from nsmark.models.batching import equal_length_batches, length_batches
from nsmark.models.encoder import TOKENS_PER_BATCH, BatchCallback, Encoder
from nsmark.models.families import FAMILIES, UNKNOWN_FAMILY
from nsmark.models.folder import describe_folder
from nsmark.models.loading import check_shards, num_positions, resolve_device
from nsmark.models.quiet import quiet_transformers
from nsmark.models.tokenizer import first_line, load_tokenizer
from nsmark.models.tokens import pad_tokens

_NO_TOKEN = -1


class Classifier:
    """A transformer with a trained head over whole texts. Use :func:`open_classifier`."""

    def __init__(self, network: Any, encoder: Encoder) -> None:
        self._network = network
        # It tokenises as for any model of the family; its own outputs are not read.
        self._encoder = encoder
        # Decoders' heads are read at the last token that is not padding. One that was trained
        # without a padding token takes texts of one length only, and no token is padding.
        config = network.config.get_text_config()
        self._pad_id = config.pad_token_id
        if self._pad_id is None:
            config.pad_token_id = _NO_TOKEN
        config.use_cache = False  # no further tokens will come

    @property
    def output_dim(self) -> int:
        """Number of classes; 1 for a reward model."""
        return int(self._network.config.num_labels)

    def is_representable(self, word: str) -> bool:
        """Return whether the tokenizer can spell a word without its unknown token."""
        return self._encoder.is_representable(word)

    @torch.no_grad()
    def encode(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return the logits of texts, in their order, shape (num_texts, number of classes)."""
        sequences = self._encoder.token_ids(texts)
        outputs = np.empty((len(sequences), self.output_dim), dtype=np.float32)
        # With the head's own padding token, whatever the tokenizer would take.
        pad_id, side = self._pad_id or 0, self._encoder.family.padding_side
        batches = equal_length_batches if self._pad_id is None else length_batches
        budget, done = TOKENS_PER_BATCH.get(self._encoder.device.type, 2048), 0
        for rows in batches([len(sequence) for sequence in sequences], budget):
            tokens = pad_tokens([sequences[row] for row in rows], pad_id, side)
            tokens = tokens.to(self._encoder.device)
            logits = self._network(
                input_ids=tokens.input_ids, attention_mask=tokens.attention_mask
            ).logits
            outputs[rows] = logits.float().cpu().numpy()
            done += len(rows)
            if on_batch is not None:
                on_batch(done, len(sequences))
        return outputs


def open_classifier(path: Path, *, max_length: int = 128, device: str = "auto") -> Classifier:
    """Open the folder of an ``…ForSequenceClassification`` checkpoint.

    Raises:
        ModelError: Damaged, or its head was never trained.
    """
    from transformers import AutoModelForSequenceClassification

    if max_length < 1:
        raise ConfigError("max_length", max_length, "must be at least 1")
    folder = describe_folder(path, ignore_modules=True)
    check_shards(path)
    with quiet_transformers():
        tokenizer = load_tokenizer(path)
        try:
            network, info = AutoModelForSequenceClassification.from_pretrained(
                path,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except Exception as error:  # transformers raises many kinds, all meaning the same here
            raise ModelError(
                f"the classifier in {path} cannot be opened", first_line(error)
            ) from error
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(
            f"the classifier in {path} lacks {len(missing)} weights, such as {missing[0]}",
            "its head was not trained, or the folder is incomplete",
        )
    family = FAMILIES.get(folder.model_type, UNKNOWN_FAMILY)
    limits = [max_length, num_positions(network)]
    encoder = Encoder(
        network,
        tokenizer,
        folder,
        pooling=family.pooling,
        normalise=False,
        max_length=min(limit for limit in limits if limit),
        has_lm_head=False,
    )
    encoder.to(resolve_device(device)).eval()
    return Classifier(network, encoder)
