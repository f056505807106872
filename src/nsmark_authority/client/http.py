"""Talking to an authority that may be slow, broken or hostile: every answer is bounded.

Redirects are never followed. A token, a key or a model goes out over TLS only, unless the authority
runs on this machine or the caller allows plain http. Proxies of the environment are used for https,
where they see nothing but the host's name, and never for plain http.
"""

from __future__ import annotations

import ipaddress
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from nsmark.errors import ConfigError, InputError, NsmarkError, UsageError
from nsmark.identity import parse_json_object
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError

MAX_JSON_BYTES = 8 << 20
_MAX_PROBLEM_BYTES = 64 << 10
_EXCERPT = 400
_MAX_SECONDS = 3600.0
_MAX_PAUSE_SECONDS = 30.0
_SLOWEST_BYTES_PER_SECOND = 64 << 10
_BUSY = (429, 503)
_TOKEN = re.compile(r"[\x21-\x7e]{8,512}")
_EXAMPLE = "write it like https://authority.example"
_ERRORS: dict[int, type[NsmarkError]] = {
    400: InputError,
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    413: InputError,
    415: InputError,
    422: InputError,
}
_HINTS = {
    401: "get a token with `nsmark client register`",
    403: "get a token with `nsmark client register`",
    404: "check the id, and that the URL is that of an authority",
    413: "the authority takes no larger ones",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole."""

    status: int
    content: bytes

    def to_json(self, what: str) -> dict[str, Any]:
        """Return the JSON object it is.

        Raises:
            AuthorityError: It is none.
        """
        try:
            return parse_json_object(self.content.decode("utf-8"), what)
        except (InputError, UnicodeError) as error:
            raise AuthorityError(
                f"the authority's {what} is no JSON object",
                "check that the URL is that of an authority",
            ) from error


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: made anew for every attempt."""

    content_type: str
    num_bytes: int
    chunks: Callable[[], Iterator[bytes]]

    @classmethod
    def of(cls, content: bytes, content_type: str = "application/json") -> Body:
        """Return the body that is these bytes."""
        return cls(content_type, len(content), lambda: iter((content,)))


class AuthorityConnection:
    """One authority, by its URL."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        retries: int = 2,
        allow_plain_http: bool = False,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            url: Where the authority listens, with or without a path before ``/v1``.
            token: Sent with what needs one.
            timeout_seconds: For an answer, counted from the last byte that was sent.
            retries: Further attempts to read something after a failure or while it is busy.
            allow_plain_http: Send tokens and content over http to other machines, too.

        Raises:
            UsageError: The URL, the token or a limit makes no sense.
        """
        if not 0 < timeout_seconds <= _MAX_SECONDS:
            raise ConfigError("timeout_seconds", timeout_seconds, "must be above 0, at most 3600")
        self.url = normalise_url(url)
        if token is not None and not _TOKEN.fullmatch(token):
            # Not shown: it may be a secret of another kind.
            raise UsageError("the token is not one line of printable ASCII", "see the token file")
        self._token = token
        self._timeout = timeout_seconds
        self._retries = retries
        self._may_send = allow_plain_http or is_private_channel(self.url)
        self._client: httpx.Client | None = None

    def __enter__(self) -> AuthorityConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def set_token(self, token: str) -> None:
        """Send this token from now on.

        Raises:
            AuthorityError: It is none.
        """
        self._token = require_token(token)

    def get(
        self,
        path: str,
        query: Mapping[str, str | int | None] | None = None,
        *,
        max_bytes: int = MAX_JSON_BYTES,
        with_token: bool = False,
    ) -> Answer:
        """Read something.

        Raises:
            AuthorityError: No answer, not the wished one, or one that is too long or too slow.
            InputError: The authority calls the request malformed.
        """
        attempt = 0
        while True:
            try:
                return self._ask("GET", path, query, None, max_bytes, with_token)
            except _BusyError as busy:
                if attempt >= self._retries or busy.seconds > _MAX_PAUSE_SECONDS:
                    raise busy.error from busy
                time.sleep(max(busy.seconds, 0.25 * 2**attempt))
                attempt += 1

    def send(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        with_token: bool = True,
        max_bytes: int = MAX_JSON_BYTES,
    ) -> Answer:
        """Change something; tried once.

        Raises:
            UsageError: There is no token, or the way to the authority can be listened to.
            AuthorityError: No answer, a refusal, or an answer that is too long or too slow.
            InputError: The authority calls what was sent malformed.
        """
        try:
            return self._ask(method, path, None, body, max_bytes, with_token)
        except _BusyError as busy:
            raise busy.error from busy

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None,
        body: Body | None,
        max_bytes: int,
        with_token: bool,
    ) -> Answer:
        if (with_token or body is not None) and not self._may_send:
            raise UsageError(
                f"{self.url} is not https, so others can read what is sent",
                "use https; --plain-http sends it all the same",
            )
        headers: dict[str, str] = {}
        if with_token:
            if self._token is None:
                raise AccessDeniedError(
                    "there is no token for this authority",
                    "get one with `nsmark client register`, or set NSMARK_AUTHORITY_TOKEN",
                )
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = body.content_type
            headers["Content-Length"] = str(body.num_bytes)
        params = {name: value for name, value in (query or {}).items() if value is not None}
        watch = _Watch(self._timeout, self._cut)
        client = self._open()
        try:
            with (
                watch,
                client.stream(
                    method,
                    self.url + path,
                    params=params or None,
                    headers=headers,
                    content=None if body is None else _watched(body, watch),
                ) as response,
            ):
                status = response.status_code
                good = 200 <= status < 300
                most = max_bytes if good else _MAX_PROBLEM_BYTES
                content = self._read(response, most, good, watch)
        except NsmarkError:
            raise
        except httpx.TimeoutException as error:
            raise self._too_slow() from error
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            if watch.has_cut:
                raise self._too_slow() from error
            raise self._unreachable(error, is_read=body is None) from error
        except RuntimeError as error:  # what httpx says of a client that was closed
            if watch.has_cut:
                raise self._too_slow() from error
            raise
        if watch.has_cut:
            raise self._too_slow()
        if good:
            return Answer(status, content)
        raise self._failure(response, content)

    def _open(self) -> httpx.Client:
        if self._client is None or self._client.is_closed:
            self._client = httpx.Client(
                headers={
                    "Accept": "application/json, */*;q=0.1",
                    # What is not packed cannot unpack to gigabytes.
                    "Accept-Encoding": "identity",
                },
                timeout=self._timeout,
                follow_redirects=False,
                trust_env=self.url.startswith("https:"),
            )
        return self._client

    def _cut(self) -> None:
        """End a request from outside: httpx limits each read, not the whole answer."""
        if self._client is not None:
            self._client.close()

    def _read(
        self, response: httpx.Response, max_bytes: int, is_good: bool, watch: _Watch
    ) -> bytes:
        content = bytearray()
        # Raw: an answer that is packed all the same is no answer.
        for chunk in response.iter_raw():
            content += chunk
            # A large answer over a slow line may take its time; one that drips gains nothing.
            watch.extend(len(chunk) / _SLOWEST_BYTES_PER_SECOND)
            if len(content) > max_bytes:
                if not is_good:
                    break
                raise AuthorityError(
                    f"{self.url} answered with more than {max_bytes:,} bytes",
                    "this is no answer of an authority; check the URL",
                )
        return bytes(content[:max_bytes])

    def _too_slow(self) -> AuthorityError:
        return AuthorityError(
            f"{self.url} gave no whole answer within {self._timeout:g} s",
            "see whether it runs, and try again",
        )

    def _unreachable(self, error: Exception, *, is_read: bool) -> NsmarkError | _BusyError:
        reason = self._clean(str(error) or type(error).__name__)
        if "certificate" in reason.lower():
            return AuthorityError(
                f"{self.url} shows no certificate we can trust: {reason}",
                "check the URL; for a certificate of your own set SSL_CERT_FILE",
            )
        failed = AuthorityError(
            f"{self.url} cannot be asked: {reason}", "check the URL, and whether it runs"
        )
        return _BusyError(failed, 0.0) if is_read else failed

    def _failure(self, response: httpx.Response, content: bytes) -> NsmarkError | _BusyError:
        status = response.status_code
        if response.is_redirect:
            target = urlsplit(response.headers.get("location", ""))
            place = self._clean(f"{target.scheme}://{target.netloc}{target.path}")
            return AuthorityError(
                f"{self.url} redirects to {place if target.netloc else 'another path'}",
                "redirects are not followed; if you trust it, give that address",
            )
        detail, hint = self._problem(content)
        kind = _ERRORS.get(status, AuthorityError)
        said = detail or f"{self.url} answered {status}"
        if status in _BUSY:
            seconds = _retry_after(response.headers.get("retry-after"))
            error = AuthorityError(
                said if detail else f"{self.url} is busy ({status})",
                f"try again in {max(1, math.ceil(seconds))} s",
            )
            return _BusyError(error, seconds)
        return kind(said, hint or _HINTS.get(status, "see what it says, and try again"))

    def _problem(self, content: bytes) -> tuple[str, str]:
        """Return what a problem document (RFC 9457) says, as two single lines."""
        try:
            document = parse_json_object(content.decode("utf-8"), "problem")
        except (InputError, UnicodeError):
            return "", ""
        said = document.get("detail") or document.get("title")
        hint = document.get("hint")
        return (
            self._clean(said) if isinstance(said, str) else "",
            self._clean(hint) if isinstance(hint, str) else "",
        )

    def _clean(self, text: str) -> str:
        """Shorten to one printable line, without the token: an answer may repeat it."""
        if self._token is not None:
            text = text.replace(self._token, "[token]")
        text = " ".join(text.split())
        text = "".join(c if c.isprintable() else "?" for c in text)
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


class _BusyError(Exception):
    """Worth another attempt, if it is one to read."""

    def __init__(self, error: AuthorityError, seconds: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds


class _Watch:
    """Calls ``cut`` when an answer took too long, counted from the last byte sent."""

    def __init__(self, seconds: float, cut: Callable[[], None]) -> None:
        self._seconds = seconds
        self._cut = cut
        self._end = math.inf
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.has_cut = False

    def restart(self) -> None:
        self._end = time.monotonic() + self._seconds

    def extend(self, seconds: float) -> None:
        self._end += seconds

    def __enter__(self) -> _Watch:
        self.restart()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            if self._over.wait(left):
                return
        self.has_cut = True
        self._cut()


def _watched(body: Body, watch: _Watch) -> Iterator[bytes]:
    for chunk in body.chunks():
        watch.restart()
        yield chunk
    watch.restart()


def normalise_url(url: str) -> str:
    """Return an authority's URL in the one form under which it is remembered.

    Raises:
        UsageError: No http or https URL, or more than one.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise UsageError("the authority's URL cannot be read", _EXAMPLE) from error
    if "@" in parts.netloc:
        # Refused without showing it: a name and password stand there.
        raise UsageError("the authority's URL holds a user name or password", _EXAMPLE)
    readable = url.isascii() and all(c.isprintable() and c not in " \\" for c in url.strip())
    if parts.scheme not in ("http", "https") or not host or port == 0 or not readable:
        raise UsageError(f"{url[:80]!r} is no http or https URL", _EXAMPLE)
    if parts.query or parts.fragment:
        raise UsageError("the authority's URL has a question mark or a # in it", _EXAMPLE)
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != {"http": 80, "https": 443}[parts.scheme]:
        shown += f":{port}"
    return f"{parts.scheme}://{shown}{parts.path.rstrip('/').removesuffix('/v1')}"


def is_private_channel(url: str) -> bool:
    """Return whether nobody else can read what is sent there: https, or this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return parts.scheme == "https" or is_here


def require_token(token: str) -> str:
    """Return a token that an authority gave, if a header can carry it.

    Raises:
        AuthorityError: It cannot.
    """
    if not _TOKEN.fullmatch(token):
        raise AuthorityError("the authority gave something that is no token", "tell the authority")
    return token


def path_part(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="")


def _retry_after(value: str | None) -> float:
    """Read seconds; what is no number counts as one second."""
    try:
        seconds = float(value or "")
    except ValueError:
        return 1.0
    return min(max(seconds, 0.0), 86_400.0) if math.isfinite(seconds) else 1.0
