"""Asking a time-stamp authority on the network (RFC 3161 over HTTP)."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import httpx

from nsmark.errors import ConfigError, UsageError
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.timestamp_messages import (
    MAX_TOKEN_BYTES,
    TimestampRequest,
    extract_token,
)

_EXCERPT = 160
_MAX_SECONDS = 600.0
_HEADERS = {
    "Accept": "application/timestamp-reply",
    "Content-Type": "application/timestamp-query",
    # What is not packed cannot unpack to gigabytes.
    "Accept-Encoding": "identity",
}


def fetch_token(
    url: str,
    request: TimestampRequest,
    *,
    timeout_seconds: float = 30.0,
    max_bytes: int = MAX_TOKEN_BYTES,
) -> bytes:
    """Post a request and return the token, which still has to be checked.

    Plain http is allowed, and usual: only the digest is sent, and the token is signed.

    Args:
        url: Where the authority listens.
        request: From :func:`~nsmark_authority.transparency.timestamp.build_request`.
        timeout_seconds: For the whole answer.
        max_bytes: A longer answer is refused before it is read.

    Raises:
        TransparencyError: The authority did not answer, or not with a token.
        UsageError: The URL or a limit makes no sense.
    """
    _check_url(url)
    if not 0 < timeout_seconds <= _MAX_SECONDS:
        raise ConfigError("timeout_seconds", timeout_seconds, "must be above 0, at most 600")
    try:
        content = _post(url, request.der, timeout_seconds, max_bytes)
    except httpx.TimeoutException as error:
        raise _too_slow(url, timeout_seconds) from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        reason = _one_line(str(error) or type(error).__name__)
        raise TransparencyError(
            f"{url} cannot be asked: {reason}", "check the URL, and whether it can be reached"
        ) from error
    try:
        return extract_token(content)
    except TransparencyError as error:
        raise TransparencyError(f"{url}: {error}", error.hint) from error


def _post(url: str, content: bytes, timeout_seconds: float, max_bytes: int) -> bytes:
    # httpx limits each read; an authority that drips bytes must end, too.
    deadline = time.monotonic() + timeout_seconds
    # A redirect is not followed: the request goes where the user said, or nowhere.
    with (
        httpx.Client(headers=_HEADERS, timeout=timeout_seconds, follow_redirects=False) as client,
        client.stream("POST", url, content=content) as response,
    ):
        if response.status_code != 200:
            raise _wrong_status(url, response)
        answer = bytearray()
        # Raw: an answer that is packed all the same is no answer.
        for chunk in response.iter_raw():
            answer += chunk
            if len(answer) > max_bytes:
                raise TransparencyError(
                    f"{url} answered with more than {max_bytes:,} bytes",
                    "this is no time-stamp answer; check the URL",
                )
            if time.monotonic() > deadline:
                raise _too_slow(url, timeout_seconds)
        return bytes(answer)


def _check_url(url: str) -> None:
    example = "write it like http://timestamp.example.com/tsr"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise UsageError("the authority's URL cannot be read", example) from error
    if "@" in parts.netloc:
        # Refused without showing it: a name and password stand there.
        raise UsageError("the authority's URL holds a user name or password", example)
    readable = all(c.isprintable() and c != " " for c in url)
    if parts.scheme not in ("http", "https") or not host or port == 0 or not readable:
        raise UsageError(f"{url[:80]!r} is no http or https URL", example)


def _wrong_status(url: str, response: httpx.Response) -> TransparencyError:
    if response.is_redirect:
        target = urlsplit(response.headers.get("location", ""))
        place = f"{target.scheme}://{target.netloc}{target.path}" if target.netloc else "elsewhere"
        return TransparencyError(
            f"{url} redirects to {_one_line(place)}",
            "redirects are not followed; if you trust it, give that address",
        )
    return TransparencyError(
        f"{url} answered {response.status_code}",
        "see whether it runs, and whether this is the URL for time stamps",
    )


def _too_slow(url: str, timeout_seconds: float) -> TransparencyError:
    return TransparencyError(
        f"{url} gave no whole answer within {timeout_seconds:g} s",
        "try again later, or ask another authority",
    )


def _one_line(text: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
