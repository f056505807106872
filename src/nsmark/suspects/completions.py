"""``completions:URL#model``: an endpoint that returns log-probabilities of the next token.

Logits are linear in the last hidden state, so they have the null space of the model's outputs. A
log-probability is a logit less a number that is the same for all tokens of a text; differences
between tokens do not have it. So a text's output is made of differences over a set of tokens,
the same for all texts: those that every answer names, or those we ask for by number.

How many log-probabilities a server gives is its own decision: OpenAI 5, vLLM 20 unless started
with ``--max-logprobs``. Few are seldom common to all texts; vLLM answers for any tokens by number
(``logprob_token_ids``).
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import SuspectError
from nsmark.suspects.answers import Answer, malformed, ordered_entries
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.options import MAX_TOKEN_IDS
from nsmark.suspects.remote import RemoteSuspect

MIN_DIFFERENCES = 2
"""With one difference every model on earth has nearly the same null space."""

MAX_KEPT_TOKENS = MAX_TOKEN_IDS
"""More tokens of an answer are not kept: no model has so many dimensions."""

_FEWER = (1000, 100, 20, 5)
_NO_PROBABILITY = -9000.0
"""Servers write minus infinity as -9999 or the like, because JSON has no word for it. Nor is any
logit, which some servers report instead, as large as that."""


class CompletionsEndpoint(RemoteSuspect):
    """A completions endpoint: a text's output is differences of log-probabilities."""

    scheme = "completions"
    operation = "completions"
    bytes_per_text = 32 << 20  # a vocabulary of 262,144 tokens with 120 characters each

    def _request_variants(self) -> list[dict[str, Any]]:
        by_number = {"return_tokens_as_token_ids": True}
        ids = list(self.options.token_ids)
        if ids:
            named = {"logprob_token_ids": ids, **by_number}
            return [{"logprobs": len(ids), **named}, {"logprobs": 1, **named}]
        most = self.options.top_logprobs
        counts = [most, *(fewer for fewer in _FEWER if most == -1 or fewer < most)]
        # Two tokens may be spelt alike, numbers are unique; not every server knows the field.
        return [{"logprobs": count, **field} for field in (by_number, {}) for count in counts]

    def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        # Temperature 1 leaves probabilities as they are, also where a server reports them after
        # its sampling settings; 0 would not.
        fixed = {"max_tokens": 1, "temperature": 1, "n": 1, "stream": False}
        return {"model": self.endpoint.model, "prompt": list(texts), **fixed}

    def _subject(self) -> dict[str, Any]:
        return {
            **super()._subject(),
            "top_logprobs": self.options.top_logprobs,
            "token_ids": list(self.options.token_ids),
        }

    def _read_answers(self, document: Any, count: int) -> list[Answer]:
        choices = ordered_entries(document, "choices", count, self.endpoint.url)
        return [self._answer(choice) for choice in choices]

    def _answer(self, choice: Mapping[str, Any]) -> Answer:
        logprobs = choice.get("logprobs")
        top = logprobs.get("top_logprobs") if isinstance(logprobs, dict) else None
        if not isinstance(top, list) or not top or not isinstance(top[0], dict):
            raise malformed(self.endpoint.url, "no log-probabilities ('logprobs.top_logprobs')")
        values = {
            token: float(value) for token, value in top[0].items() if self._is_usable(token, value)
        }
        if self.options.token_ids:
            values = self._asked_for(values)
        elif len(values) > MAX_KEPT_TOKENS:
            # The same choice in every answer, whatever the order in which it names the tokens.
            kept = heapq.nsmallest(MAX_KEPT_TOKENS, values, key=_rank)
            values = {token: values[token] for token in kept}
        if not values:
            raise malformed(self.endpoint.url, "no log-probability that could be used")
        names = tuple(sys.intern(token) for token in sorted(values))
        return Answer(np.array([values[token] for token in names]), names)

    def _is_usable(self, token: str, value: Any) -> bool:
        """Tell whether an entry says something; refuse one that is no number at all."""
        if type(value) not in (int, float) or value != value:
            raise malformed(self.endpoint.url, "a log-probability that is no number")
        # Half a character, or nothing: many tokens are spelt so.
        is_ambiguous = not token or "\N{REPLACEMENT CHARACTER}" in token
        return _NO_PROBABILITY < value < -_NO_PROBABILITY and not is_ambiguous

    def _asked_for(self, values: Mapping[str, float]) -> dict[str, float]:
        wanted = [f"token_id:{number}" for number in self.options.token_ids]
        missing = [token for token in wanted if token not in values]
        if missing:
            raise SuspectError(
                f"{self.endpoint.url} did not answer for {len(missing)} of {len(wanted)} tokens "
                f"asked for, such as {missing[0]}",
                "it may not know 'logprob_token_ids' or these tokens; ask without token numbers",
            )
        return {token: values[token] for token in wanted}

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return one row per text; stop asking as soon as the answers have too little in common.

        Raises:
            UsageError: More would be sent than ``max_queries`` allows; nothing was.
            SuspectError: The endpoint did not answer as it should, or with too few tokens.
        """
        self._so_far: set[str] | None = None
        return super().outputs(texts, on_batch)

    def _notice(self, answers: Sequence[Answer]) -> None:
        if answers:
            self._so_far = self._shared(answers, self._so_far)

    def _shared(self, answers: Sequence[Answer], so_far: set[str] | None = None) -> set[str]:
        """Return the tokens that all answers name.

        Raises:
            SuspectError: They are too few to tell anything.
        """
        shared = set(answers[0].names or ()) if so_far is None else so_far
        for names in {answer.names or () for answer in answers}:
            shared.intersection_update(names)
        if len(shared) - 1 < MIN_DIFFERENCES:
            fewest = min(len(answer.values) for answer in answers)
            raise SuspectError(
                f"the answers of {self.endpoint.url} have {len(shared)} tokens in common; "
                f"some name only {fewest}",
                "ask for more log-probabilities per text, or for fixed tokens by their numbers",
            )
        return shared

    def _combine(self, answers: Sequence[Sequence[Answer]]) -> NDArray[np.float64]:
        common = sorted(self._shared([answer for several in answers for answer in several]))
        places: dict[tuple[str, ...], NDArray[np.intp]] = {}
        rows = []
        for several in answers:
            row = np.mean([_pick(answer, common, places) for answer in several], axis=0)
            # The differences to their mean add up to zero: the last says nothing new.
            rows.append((row - row.mean())[:-1])
        return np.stack(rows)


def _pick(
    answer: Answer, common: Sequence[str], places: dict[tuple[str, ...], NDArray[np.intp]]
) -> NDArray[np.float64]:
    """Return the values of the common tokens; most answers name the same ones."""
    names = answer.names or ()
    if names not in places:
        numbers = {token: number for number, token in enumerate(names)}
        places[names] = np.array([numbers[token] for token in common], dtype=np.intp)
    return answer.values[places[names]]


@lru_cache(maxsize=1 << 19)
def _rank(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()[:8]
