"""Style sheet, scripts and icon: a few files that are known by name."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Path, Response

from nsmark_authority.errors import NotFoundError

router = APIRouter(include_in_schema=False)
_MEDIA_TYPES = {
    "authority.css": "text/css",
    "receipt.js": "text/javascript",
    "progress.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
# The address holds the content's digest: a new version has a new address.
_KEEP = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages use."""

    content: bytes
    media_type: str
    version: str


@router.get("/static/{version}/{name}")
def asset(
    version: Annotated[str, Path(max_length=64)], name: Annotated[str, Path(max_length=64)]
) -> Response:
    """Return a file."""
    if name not in _MEDIA_TYPES or version != find_asset(name).version:
        raise NotFoundError("there is no such file", "load the page again")
    found = find_asset(name)
    return Response(found.content, headers={"Cache-Control": _KEEP}, media_type=found.media_type)


def asset_url(name: str) -> str:
    """Return the address of a file."""
    return f"/static/{find_asset(name).version}/{name}"


@functools.cache
def find_asset(name: str) -> Asset:
    """Return a file of ours, read once."""
    content = resources.files("nsmark_authority.web").joinpath("static", name).read_bytes()
    return Asset(content, _MEDIA_TYPES[name], hashlib.sha256(content).hexdigest()[:16])
