"""How an endpoint is asked, and what that will amount to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nsmark.errors import ConfigError

if TYPE_CHECKING:
    import httpx

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"

MAX_TOKEN_IDS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """What is going to be asked, known before the first request."""

    num_texts: int
    """Different texts whose answers are wanted."""

    repeats: int
    """Answers wanted of each."""

    num_cached: int
    """Answers that are in the cache already."""

    num_decoys: int
    """Texts sent only to hide the others among them, repetitions counted."""

    num_queries: int
    """Texts to send: what the budget limits. Attempts repeated after a failure are not in it."""

    num_requests: int
    """Requests these texts make."""

    estimated_tokens: int
    """Tokens of these texts, estimated from their bytes: what they cost is the endpoint's word."""

    estimated_price: float | None
    """In the currency of the price given; None without one."""

    def to_text(self) -> str:
        """Return the plan as one line for people."""
        parts = [f"{self.num_queries} texts in {self.num_requests} requests"]
        if self.num_decoys:
            parts.append(f"{self.num_decoys} of them decoys")
        if self.num_cached:
            parts.append(f"{self.num_cached} answers from the cache")
        parts.append(f"about {self.estimated_tokens} tokens")
        if self.estimated_price is not None:
            parts.append(f"price about {self.estimated_price:.4g}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """How a model behind an API is asked."""

    batch_size: int = 32
    """Texts in one request."""

    concurrency: int = 4
    """Requests under way at once."""

    timeout_seconds: float = 60.0
    """How long one attempt of a request may take."""

    retries: int = 5
    """Further attempts after a failed connection, a 429 or a 5xx."""

    backoff_seconds: float = 0.5
    """Pause before the first further attempt; it doubles each time, give or take a half."""

    max_wait_seconds: float = 60.0
    """The longest pause, also where the endpoint asks for more with ``Retry-After``."""

    max_queries: int | None = None
    """Texts that may be sent in all, repetitions and decoys counted; None: as many as it takes."""

    price_per_million_tokens: float | None = None
    """What the endpoint charges, to estimate the price beforehand."""

    cache: Path | None = None
    """Folder that keeps every answer and when it came, so that an interrupted measurement goes on
    where it was and a finished one can be audited; None: nothing is kept."""

    repeats: int = 1
    """Answers asked of each text; their average is measured, which quietens a noisy API."""

    decoys: float = 0.1
    """Further texts, as a share of those asked, that hide the test among others."""

    seed: int | None = None
    """Of the order of the texts and the choice of decoys; None: fresh randomness, as it should be
    outside of tests."""

    api_key_variable: str | None = None
    """Environment variable with the API key. None: ``OPENAI_API_KEY``, sent only to openai.com and
    to this machine, for a suspect must not be given a key that is not meant for it."""

    top_logprobs: int = 1000
    """Log-probabilities asked per text of a completions endpoint; fewer are asked where so many
    are refused; -1: the whole vocabulary, where the server allows it."""

    token_ids: tuple[int, ...] = ()
    """Tokens whose log-probabilities are asked by name instead (``logprob_token_ids`` of vLLM)."""

    on_plan: Callable[[QueryPlan], None] | None = field(default=None, compare=False, repr=False)
    """Told what is going to be asked before the first request; an exception stops it."""

    connect: Callable[[str], httpx.BaseTransport] | None = field(
        default=None, compare=False, repr=False
    )
    """Makes the way to an endpoint from its URL, where not every way is allowed; None: a direct
    connection, or the proxy that the environment names."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("batch_size", 1, 2048),
            ("concurrency", 1, 64),
            ("timeout_seconds", 0.1, 3600),
            ("retries", 0, 100),
            ("backoff_seconds", 0, 3600),
            ("max_wait_seconds", 0, 3600),
            ("max_queries", 1, 10**9),
            ("price_per_million_tokens", 0, 10**9),
            ("repeats", 1, 1000),
            ("decoys", 0, 10),
            ("seed", 0, 2**64 - 1),
        ):
            value = getattr(self, name)
            # Written so that NaN fails too.
            if value is not None and not lowest <= value <= highest:
                raise ConfigError(name, value, f"must lie between {lowest} and {highest}")
        if self.top_logprobs != -1 and not 2 <= self.top_logprobs <= 1_000_000:
            raise ConfigError(
                "top_logprobs", self.top_logprobs, "must be -1 (all) or between 2 and 1000000"
            )
        if self.api_key_variable is not None and not self.api_key_variable.isidentifier():
            # The value is not shown: it may be the key itself, given by mistake.
            raise ConfigError("api_key_variable", "…", "must be the name of a variable, not a key")
        self._check_token_ids()

    def _check_token_ids(self) -> None:
        if not self.token_ids:
            return
        if not 3 <= len(self.token_ids) <= MAX_TOKEN_IDS:
            rule = f"must name between 3 and {MAX_TOKEN_IDS} tokens"
            raise ConfigError("token_ids", f"{len(self.token_ids)} tokens", rule)
        if min(self.token_ids) < 0 or len(set(self.token_ids)) < len(self.token_ids):
            raise ConfigError("token_ids", self.token_ids[:8], "must be different, none negative")
