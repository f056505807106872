"""Posting JSON to an endpoint that may be slow, busy, broken or hostile."""

from __future__ import annotations

import json
import math
import random
import re
import threading
import time
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from nsmark.errors import SuspectError
from nsmark.suspects.endpoint import Endpoint
from nsmark.suspects.options import QueryOptions

_MAX_ERROR_BYTES = 16 << 10
_EXCERPT = 160
# No trigger is shorter.
_WORD = re.compile(r"\w{3,}")
_ERROR_WORDS = """
    access account and api are argument authentication authorized bad batch before cannot check
    context could credentials does embedding embeddings endpoint error exceeded exist expected
    exceeds failed for found from have input inputs integer internal invalid key length limit
    loaded long longer many max maximum message method missing model must not occurred only
    overloaded parameter permission please prompt provided quota rate received request requests
    required server service should size string support supported temporarily than that the this
    timeout token tokens too type unavailable unexpected unknown unsupported url was while with
    you your
"""
USUAL_WORDS = frozenset(_ERROR_WORDS.split())
_BUSY = (408, 425, 429)
_REFUSALS = (400, 415, 422)
_HINTS = {
    401: "name the environment variable that holds the key for this endpoint",
    403: "name the environment variable that holds the key for this endpoint",
    404: "check the URL (it usually ends in /v1) and the model's name",
    405: "check the URL (it usually ends in /v1)",
    413: "ask fewer texts per request",
}


class RefusedError(SuspectError):
    """The endpoint understood the request and does not want it as it is (400, 415, 422)."""


class _TemporaryError(Exception):
    """Worth another attempt."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class JsonClient:
    """One connection pool to one endpoint; may be used by many threads."""

    def __init__(self, endpoint: Endpoint, options: QueryOptions, api_key: str | None) -> None:
        self.endpoint = endpoint
        self._options = options
        self._api_key = api_key
        self._given_up = threading.Event()
        self._random = random.SystemRandom()
        # The User-Agent stays that of httpx: our name would tell the endpoint it is being tested.
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            # Vectors hardly shrink, and what is not packed cannot unpack to gigabytes.
            "Accept-Encoding": "identity",
        }
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        # Redirects are never followed: the texts and the key go where the user said, or nowhere.
        self._client = httpx.Client(
            headers=headers,
            timeout=options.timeout_seconds,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=options.concurrency),
            transport=None if options.connect is None else options.connect(endpoint.url),
        )

    def __enter__(self) -> JsonClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_up()
        self._client.close()

    def give_up(self) -> None:
        """Let no thread try again: what is under way may end, failures are final."""
        self._given_up.set()

    def post(self, payload: Mapping[str, Any], max_bytes: int) -> Any:
        """Return the JSON document the endpoint answers with.

        Args:
            payload: The request.
            max_bytes: A longer answer is refused before it is read.

        Raises:
            RefusedError: The endpoint does not want this request.
            SuspectError: It did not answer, or not with JSON.
        """
        # In ASCII, so that every text can be sent, also one that is no valid Unicode.
        content = json.dumps(payload).encode("ascii")
        sent = words_in(payload)
        attempt = 0
        while True:
            try:
                return self._post_once(content, max_bytes, sent)
            except _TemporaryError as error:
                if attempt >= self._options.retries or self._given_up.is_set():
                    raise SuspectError(
                        f"{self.endpoint.url} did not answer, asked {_times(attempt + 1)}: {error}",
                        "see whether it runs; a slower pace (fewer requests at once) may help",
                    ) from error
                self._given_up.wait(self._pause(attempt, error.retry_after))
                attempt += 1

    def _pause(self, attempt: int, retry_after: float | None) -> float:
        """Return how long to wait; the jitter keeps threads from coming back all at once."""
        backoff = math.ldexp(self._options.backoff_seconds, min(attempt, 32))
        backoff *= self._random.uniform(0.5, 1.5)
        return min(max(backoff, retry_after or 0.0), self._options.max_wait_seconds)

    def _post_once(self, request: bytes, max_bytes: int, sent: Set[str]) -> Any:
        # httpx limits each read; an endpoint that drips bytes must end, too.
        deadline = time.monotonic() + self._options.timeout_seconds
        try:
            with self._client.stream("POST", self.endpoint.url, content=request) as response:
                if response.status_code == 200:
                    content = self._read(response, max_bytes, deadline)
                else:
                    content = self._read_start(response, deadline)
        except httpx.TimeoutException as error:
            raise self._too_slow() from error
        except httpx.TransportError as error:
            message = self._clean(str(error) or type(error).__name__)
            if "certificate" in message.lower():
                raise SuspectError(
                    f"{self.endpoint.url} shows no certificate we can trust: {message}",
                    "check the URL; for a certificate of your own set SSL_CERT_FILE",
                ) from error
            raise _TemporaryError(message) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SuspectError(
                f"{self.endpoint.url} cannot be asked: {self._clean(str(error))}", "check the URL"
            ) from error
        if response.status_code != 200:
            raise self._failure(response, self._excerpt(content, sent))
        return self._parse(content, sent)

    def _read(self, response: httpx.Response, max_bytes: int, deadline: float) -> bytes:
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > max_bytes:
                raise SuspectError(
                    f"{self.endpoint.url} answered with more than {max_bytes:,} bytes",
                    "this is no answer to the texts asked; check the URL",
                )
            if time.monotonic() > deadline:
                raise self._too_slow()
        return bytes(content)

    def _read_start(self, response: httpx.Response, deadline: float) -> bytes:
        """Return the beginning of an error page, which is all we quote of it."""
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > _MAX_ERROR_BYTES or time.monotonic() > deadline:
                break
        return bytes(content[:_MAX_ERROR_BYTES])

    def _too_slow(self) -> _TemporaryError:
        return _TemporaryError(f"no whole answer within {self._options.timeout_seconds:g} s")

    def _parse(self, content: bytes, sent: Set[str]) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise SuspectError(
                f"{self.endpoint.url} answered with something that is no JSON: "
                f"{self._excerpt(content, sent)}",
                "check the URL: that of an API usually ends in /v1",
            ) from error

    def _failure(self, response: httpx.Response, excerpt: str) -> Exception:
        """Return the error for an answer whose status is not 200."""
        status = response.status_code
        said = f"{self.endpoint.url} answered {status}: {excerpt}"
        if status in _BUSY or status >= 500:
            return _TemporaryError(
                f"it answered {status}: {excerpt}",
                _retry_after(response.headers.get("retry-after")),
            )
        if status in _REFUSALS:
            return RefusedError(said, "see what it says; check the model's name and the settings")
        if response.is_redirect:
            target = urlsplit(response.headers.get("location", ""))
            place = self._clean(f"{target.scheme}://{target.netloc}{target.path}")
            return SuspectError(
                f"{self.endpoint.url} redirects to {place if target.netloc else 'another path'}",
                "redirects are not followed; if you trust it, give that address",
            )
        return SuspectError(said, _HINTS.get(status, "see what it says"))

    def _excerpt(self, content: bytes, sent: Set[str]) -> str:
        """Quote the beginning of an answer; of a usual error document only its message.

        Never the words it was sent: whoever reads a report must not learn the trigger because an
        endpoint repeated a text.
        """
        text = content.decode("utf-8", "replace")
        try:
            document = json.loads(text)
            error = document.get("error", document)
            message = error.get("message") if isinstance(error, dict) else error
            text = message if isinstance(message, str) else text
        except (ValueError, RecursionError, AttributeError):
            pass
        text = _WORD.sub(lambda word: "…" if word[0].lower() in sent else word[0], text)
        return repr(self._clean(text)) if text.strip() else "nothing"

    def _clean(self, text: str) -> str:
        """Shorten to one line, without the key: an endpoint may repeat what it was sent."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "[API key]")
        text = " ".join(text.split())
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def words_in(payload: Any) -> set[str]:
    """Return the words of a request's texts, but for those that every error message is made of."""
    if isinstance(payload, str):
        return set(_WORD.findall(payload.lower())) - USUAL_WORDS
    if isinstance(payload, Mapping):
        return words_in([payload[name] for name in ("input", "prompt") if name in payload])
    if isinstance(payload, list | tuple):
        return set().union(*map(words_in, payload))
    return set()


def _retry_after(value: str | None) -> float | None:
    """Read seconds or a date; what is neither counts as nothing."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
