"""Which software took part, without importing it."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = ("nsmark", "numpy", "scipy", "cryptography", "torch", "transformers")


def library_versions() -> dict[str, str | None]:
    """Return versions of Python and the packages results depend on; None where not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions
