"""Options of commands that ask an endpoint."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nsmark.errors import ConfigError

if TYPE_CHECKING:
    from nsmark.suspects.options import QueryOptions, QueryPlan

F = TypeVar("F", bound=Callable[..., Any])

# The defaults of QueryOptions, repeated so that --help need not load it; a test compares them.
_OPTIONS = (
    click.option(
        "--repeat",
        "repeats",
        type=int,
        default=1,
        show_default=True,
        help="Answers asked of each text of an endpoint; their average is measured.",
    ),
    click.option(
        "--max-queries",
        type=int,
        help="Send no more texts than this, repeats and decoys counted.",
    ),
    click.option(
        "--price",
        "price_per_million_tokens",
        type=float,
        help="What the endpoint charges for a million tokens, to estimate the price beforehand.",
    ),
    click.option(
        "--batch-size", type=int, default=32, show_default=True, help="Texts in one request."
    ),
    click.option(
        "--concurrency",
        type=int,
        default=4,
        show_default=True,
        help="Requests under way at once.",
    ),
    click.option(
        "--timeout",
        "timeout_seconds",
        type=float,
        default=60.0,
        show_default=True,
        help="Seconds one attempt of a request may take.",
    ),
    click.option(
        "--retries",
        type=int,
        default=5,
        show_default=True,
        help="Further attempts after a failed connection, a 429 or a 5xx.",
    ),
    click.option(
        "--cache",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder that keeps an endpoint's answers: the same command then goes on from there.",
    ),
    click.option(
        "--decoys",
        type=float,
        default=0.1,
        show_default=True,
        help="Further texts, as a share of those asked, that hide the test among others.",
    ),
    click.option(
        "--api-key-env",
        "api_key_variable",
        metavar="NAME",
        help="Environment variable with the endpoint's key (else OPENAI_API_KEY, which is sent "
        "only to openai.com and to this machine).",
    ),
    click.option(
        "--top-logprobs",
        type=int,
        default=1000,
        show_default=True,
        help="Log-probabilities asked of a completions endpoint; -1: the whole vocabulary.",
    ),
    click.option(
        "--token-ids",
        metavar="LIST",
        help="Tokens whose log-probabilities are asked by number, such as 0-511,1024.",
    ),
)
_NAMES = (
    "repeats",
    "max_queries",
    "price_per_million_tokens",
    "batch_size",
    "concurrency",
    "timeout_seconds",
    "retries",
    "cache",
    "decoys",
    "api_key_variable",
    "top_logprobs",
    "token_ids",
)


def asking_options(function: F) -> F:
    """Add the options; the command gets one argument ``queries``, a QueryOptions.

    What is going to be asked is told on standard error before the first request, unless the
    command has an option ``--quiet`` and it was given.
    """

    @functools.wraps(function)
    def collected(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in _NAMES}
        queries = make_query_options(quiet=bool(kwargs.get("quiet")), **values)
        return function(*args, queries=queries, **kwargs)

    decorated: Any = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def make_query_options(*, quiet: bool = False, **values: Any) -> QueryOptions:
    """Make QueryOptions from the values of the command line.

    Raises:
        ConfigError: One of them is out of its range.
    """
    from nsmark.suspects.options import QueryOptions

    values["token_ids"] = parse_token_ids(values.get("token_ids"))
    return QueryOptions(on_plan=None if quiet else show_plan, **values)


def show_plan(plan: QueryPlan) -> None:
    """Say on standard error what is going to be asked."""
    if plan.num_queries:
        click.echo(f"asking {plan.to_text()}", err=True)
    else:
        click.echo(f"asking nothing: {plan.num_cached} answers are in the cache", err=True)


def parse_token_ids(text: str | None) -> tuple[int, ...]:
    """Read numbers and ranges, such as ``0-511,1024``.

    Raises:
        ConfigError: Not written so.
    """
    if text is None:
        return ()
    numbers: list[int] = []
    for part in text.split(","):
        first, is_range, last = part.strip().partition("-")
        valid = (
            first.isascii()
            and first.isdigit()
            and len(first) < 10
            and (not is_range or (last.isascii() and last.isdigit() and len(last) < 10))
        )
        # A range longer than any list we accept would only fill the memory.
        if not valid or (is_range and not 0 <= int(last) - int(first) < 100_000):
            raise ConfigError("token_ids", part[:40], "must be numbers and ranges: 0-511,1024")
        numbers += range(int(first), int(last) + 1) if is_range else [int(first)]
    return tuple(numbers)
