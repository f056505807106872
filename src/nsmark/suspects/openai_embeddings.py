"""``openai:URL#model``: any endpoint with the interface of OpenAI's ``/v1/embeddings``."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.suspects.answers import Answer, finite, malformed, number_list, ordered_entries
from nsmark.suspects.remote import RemoteSuspect


class EmbeddingsEndpoint(RemoteSuspect):
    """An embeddings endpoint: a text's output is its vector."""

    scheme = "openai"
    operation = "embeddings"
    bytes_per_text = 1 << 20  # 40,000 dimensions with 25 characters each

    def _request_variants(self) -> list[dict[str, Any]]:
        # Base64 is exact and a third of the size; a server that does not know the field gets none.
        return [{"encoding_format": "base64"}, {}]

    def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self.endpoint.model, "input": list(texts)}

    def _read_answers(self, document: Any, count: int) -> list[Answer]:
        url = self.endpoint.url
        answers = [
            Answer(_vector(entry.get("embedding"), url))
            for entry in ordered_entries(document, "data", count, url)
        ]
        self._same_dimension(answers)
        return answers

    def _combine(self, answers: Sequence[Sequence[Answer]]) -> NDArray[np.float64]:
        self._same_dimension([answer for several in answers for answer in several])
        return np.stack(
            [np.mean([answer.values for answer in several], axis=0) for several in answers]
        )

    def _same_dimension(self, answers: Sequence[Answer]) -> None:
        sizes = sorted({len(answer.values) for answer in answers})
        if len(sizes) > 1:
            raise malformed(
                self.endpoint.url, f"vectors of different dimensions: {sizes[0]} and {sizes[-1]}"
            )


def _vector(embedding: Any, url: str) -> NDArray[np.float64]:
    if isinstance(embedding, list):
        return number_list(embedding, url)
    if not isinstance(embedding, str):
        raise malformed(url, "an entry without a list or base64 text 'embedding'")
    try:
        content = base64.b64decode(embedding, validate=True)
        values = np.frombuffer(content, dtype="<f4")
    except ValueError as error:
        raise malformed(url, "base64 that does not hold float32 numbers") from error
    return finite(values.astype(np.float64), url)
