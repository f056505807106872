"""Addresses of endpoints, and which key may go to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from nsmark.errors import UsageError
from nsmark.suspects.options import DEFAULT_KEY_VARIABLE, QueryOptions

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, and the model they name."""

    address: str
    """As the user gave it, without the scheme of the suspect."""

    url: str
    """The full URL of the operation."""

    host: str
    model: str


def parse_endpoint(address: str, operation: str) -> Endpoint:
    """Read ``URL#model``.

    Args:
        address: What stands behind ``openai:`` or ``completions:``.
        operation: Last part of the path: ``embeddings`` or ``completions``. A URL that ends in
            it is taken as it is; one without a path gets ``/v1`` before it.

    Raises:
        UsageError: Not http(s), no host, no model, or something that has no place in it.
    """
    base, found, model = address.partition("#")
    example = "write it like http://localhost:8000/v1#model"
    try:
        parts = urlsplit(base)
        host, port = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise UsageError("the endpoint's URL cannot be read", example) from error
    if "@" in parts.netloc:
        # Refused without showing it: a name and password stand there.
        raise UsageError(
            "the endpoint's URL holds a user name or password",
            "put the key into an environment variable and name that",
        )
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise UsageError(f"{base[:80]!r} is no http or https URL", example)
    if parts.query or any(not c.isprintable() or c == " " for c in address):
        raise UsageError(
            "the endpoint's URL has a question mark or white space in it",
            "give the bare URL; a key belongs into an environment variable",
        )
    if not found or not model:
        raise UsageError(f"no model is named for {base[:80]}", f"{example}: the model after #")
    path = parts.path.rstrip("/")
    if not path.endswith(f"/{operation}"):
        path = f"{path or '/v1'}/{operation}"
    url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return Endpoint(address=address, url=url, host=host, model=model)


def find_api_key(endpoint: Endpoint, options: QueryOptions) -> str | None:
    """Return the key to send, from the environment.

    Raises:
        UsageError: The variable was named but is not set, or holds what no header can carry.
    """
    variable = options.api_key_variable
    if variable is None:
        # The endpoint may be the thief's: our key for another service is none of his business.
        if not _is_trusted(endpoint.host):
            return None
        variable = DEFAULT_KEY_VARIABLE
        if not os.environ.get(variable):
            return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"the environment variable {variable} is not set", "export the API key")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"the environment variable {variable} holds something that is no API key",
            "it must be one line of printable ASCII",
        )
    return key


def _is_trusted(host: str) -> bool:
    return host in _LOCAL_HOSTS or host == "openai.com" or host.endswith(".openai.com")
