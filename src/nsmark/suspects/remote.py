"""A model behind an API: budget, cache, order and threads, whatever it answers with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nsmark.errors import EvidenceError, SuspectError, UsageError
from nsmark.suspects.answer_cache import AnswerCache, AnswerKey, text_digest
from nsmark.suspects.answers import Answer
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.endpoint import find_api_key, parse_endpoint
from nsmark.suspects.http_client import JsonClient, RefusedError
from nsmark.suspects.options import QueryOptions, QueryPlan
from nsmark.suspects.parallel import in_parallel
from nsmark.suspects.schedule import Query, make_batches, make_plan

_MAX_ANSWER_BYTES = 512 << 20


class RemoteSuspect(ABC):
    """A model at ``URL#model``; subclasses know one kind of endpoint."""

    scheme: ClassVar[str]
    operation: ClassVar[str]
    bytes_per_text: ClassVar[int]
    """More than an honest answer to one text takes."""

    def __init__(self, address: str, options: QueryOptions | None = None) -> None:
        self.options = options or QueryOptions()
        self.endpoint = parse_endpoint(address, self.operation)
        self._api_key = find_api_key(self.endpoint, self.options)
        # Requests in the order of our liking; an endpoint that refuses one is sent the next.
        self._variants = self._request_variants()
        self._variant = 0
        self._num_sent = 0

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.scheme}:{self.endpoint.address}"

    def plan(self, texts: Sequence[str]) -> QueryPlan:
        """Say what :meth:`outputs` would send, without sending anything."""
        unique = list(dict.fromkeys(texts))
        with self._open_cache(unique) as cache:
            return self._prepare(unique, cache)[1]

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        """Return one row per text, in their order: the average of its repetitions.

        Raises:
            UsageError: More would be sent than ``max_queries`` allows; nothing was.
            SuspectError: The endpoint did not answer as it should.
        """
        if not texts:
            raise EvidenceError("there is no text to ask", "give at least one")
        unique = list(dict.fromkeys(texts))
        with self._open_cache(unique) as cache:
            batches, plan = self._prepare(unique, cache)
            self._check_budget(plan)
            if self.options.on_plan is not None:
                self.options.on_plan(plan)
            self._ask_all(batches, cache, len(unique) * self.options.repeats, on_batch)
            answers = [[cache.answers[key] for key in self._keys(text)] for text in unique]
        rows = dict(zip(unique, self._combine(answers), strict=True))
        return np.stack([rows[text] for text in texts]).astype(np.float32)

    @abstractmethod
    def _request_variants(self) -> list[dict[str, Any]]:
        """Return what a request holds beside model and texts, best first."""

    @abstractmethod
    def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return model and texts of a request."""

    @abstractmethod
    def _read_answers(self, document: Any, count: int) -> list[Answer]:
        """Check an answer and return its parts, one for each text in order."""

    @abstractmethod
    def _combine(self, answers: Sequence[Sequence[Answer]]) -> NDArray[np.float64]:
        """Return one row for each text from the answers to it."""

    def _notice(self, answers: Sequence[Answer]) -> None:  # noqa: B027 - few have a reason to
        """Look at answers as they come; raise where no further ones could be of use."""

    def _subject(self) -> dict[str, Any]:
        """Say whose answers these are, for the cache; never the key."""
        return {
            "kind": self.operation,
            "endpoint": self.endpoint.url,
            "model": self.endpoint.model,
        }

    def _keys(self, text: str) -> list[AnswerKey]:
        digest = text_digest(text)
        return [AnswerKey(digest, number) for number in range(self.options.repeats)]

    def _open_cache(self, unique: Sequence[str]) -> AnswerCache:
        wanted = [key for text in unique for key in self._keys(text)]
        return AnswerCache(self.options.cache, self._subject(), wanted)

    def _prepare(
        self, unique: Sequence[str], cache: AnswerCache
    ) -> tuple[list[list[Query]], QueryPlan]:
        missing: list[list[str]] = [[] for _ in range(self.options.repeats)]
        for text in unique:
            for key in self._keys(text):
                if key not in cache.answers:
                    missing[key.repetition].append(text)
        batches, num_decoys = make_batches(missing, self.options)
        plan = make_plan(
            batches,
            num_decoys,
            num_texts=len(unique),
            num_cached=len(unique) * self.options.repeats - sum(map(len, missing)),
            options=self.options,
        )
        return batches, plan

    def _check_budget(self, plan: QueryPlan) -> None:
        """Refuse what exceeds the budget, and count what does not: it is for all calls together."""
        limit, total = self.options.max_queries, self._num_sent + plan.num_queries
        if limit is not None and total > limit:
            raise UsageError(
                f"{total} texts would be sent, the limit is {limit}",
                "allow more, or ask for fewer repeats or decoys; none of these was sent",
            )
        self._num_sent = total

    def _ask_all(
        self,
        batches: Sequence[list[Query]],
        cache: AnswerCache,
        total: int,
        on_batch: BatchCallback | None,
    ) -> None:
        """Send the requests and keep the answers as they come."""
        done = total - sum(not query.is_decoy for batch in batches for query in batch)
        if on_batch is not None and done:
            on_batch(done, total)
        if not batches:
            return
        try:
            with JsonClient(self.endpoint, self.options, self._api_key) as client:
                for batch, answers in in_parallel(
                    batches,
                    lambda batch: self._ask(client, [query.text for query in batch]),
                    self.options.concurrency,
                    client.give_up,
                ):
                    # What a decoy is answered is nobody's business.
                    kept = [
                        (AnswerKey(text_digest(query.text), query.repetition), answer)
                        for query, answer in zip(batch, answers, strict=True)
                        if not query.is_decoy
                    ]
                    cache.add(kept)
                    done += len(kept)
                    self._notice([answer for _, answer in kept])
                    if on_batch is not None and kept:
                        on_batch(done, total)
        except SuspectError as error:
            if self.options.cache is None or not done:
                raise
            raise SuspectError(
                str(error),
                f"{error.hint}; {done} of {total} answers are in the cache and not asked again",
            ) from error

    def _ask(self, client: JsonClient, texts: list[str]) -> list[Answer]:
        """Ask one request, in the best way the endpoint accepts."""
        limit = min((1 << 20) + self.bytes_per_text * len(texts), _MAX_ANSWER_BYTES)
        while True:
            variant = self._variant
            payload = self._request(texts) | self._variants[variant]
            try:
                document = client.post(payload, limit)
            except RefusedError:
                if variant + 1 >= len(self._variants):
                    raise
                # Another thread may have gone further in the meantime.
                self._variant = max(self._variant, variant + 1)
            else:
                return self._read_answers(document, len(texts))
