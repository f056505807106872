"""A model folder on this machine (needs torch)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import MissingExtraError, ModelError
from nsmark.models.folder import describe_folder, has_classifier_head
from nsmark.models.hub import find_folder
from nsmark.models.tokenizer import require_known_words
from nsmark.suspects.base import BatchCallback
from nsmark.transforms.serving import read_serving


class LocalModel:
    """A transformers or sentence-transformers folder, as it is served; of a classifier, logits."""

    def __init__(
        self,
        model: str,
        *,
        kind: str | None = None,
        pooling: str | None = None,
        normalise: bool | None = None,
        max_length: int = 128,
        device: str = "auto",
    ) -> None:
        # Looked at before torch is loaded: a wrong path should not take seconds to be refused.
        folder = describe_folder(find_folder(model), ignore_modules=kind == "hf")
        try:
            from nsmark.models.classifier import Classifier, open_classifier
            from nsmark.models.encoder import Encoder
            from nsmark.models.loading import open_encoder
        except ModuleNotFoundError as error:
            raise MissingExtraError(str(error.name), "torch") from error
        if kind == "st" and folder.kind != "st":
            raise ModelError(
                f"{model} is no sentence-transformers folder: there is no modules.json",
                "open it as hf:DIR",
            )
        # A folder that says itself how it is read is read so; only a bare transformer takes the
        # key's way of reading.
        own_way = folder.kind == "st"
        self.encoder: Encoder | Classifier
        if has_classifier_head(folder):
            # What its users see are the logits; they are neither pooled nor scaled.
            self.encoder = open_classifier(folder.path, max_length=max_length, device=device)
        else:
            self.encoder = open_encoder(
                folder.path,
                pooling=None if own_way else pooling,
                normalise=None if own_way else normalise,
                max_length=max_length,
                device=device,
                ignore_modules=kind == "hf",
            )
        self.serving = read_serving(folder.path, self.encoder.output_dim)
        self._name = f"{'st' if own_way else 'hf'}:{model}"

    @property
    def name(self) -> str:
        """How reports call it."""
        return self._name

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return one row per text, in their order."""
        require_known_words(texts, self.encoder.is_representable)
        found = self.encoder.encode(self.serving.texts(texts), on_batch)
        return self.serving.outputs(found).astype(np.float32)
