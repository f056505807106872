"""Addresses, opened as a key asks for it, and where the arithmetic is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nsmark.core.null_space import null_space_basis
from nsmark.errors import MissingExtraError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.suspects.base import Suspect, open_suspect
from nsmark.suspects.options import QueryOptions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.statistics import BasisFunction

AnySuspect = str | Path | Suspect | RecordedOutputs


@dataclass(frozen=True, slots=True)
class Opening:
    """How addresses are opened for a key."""

    key: WatermarkKey
    device: str = "auto"
    queries: QueryOptions | None = None

    def open(self, suspect: AnySuspect) -> Suspect | RecordedOutputs:
        """Open an address, read as the key's model is; what is open stays as it is."""
        if not isinstance(suspect, str | Path):
            return suspect
        config = self.key.configuration
        return open_suspect(
            suspect,
            pooling=config.pooling,
            normalise=config.normalise,
            max_length=config.max_length,
            device=self.device,
            queries=self.queries,
        )


def basis_on(device: str) -> BasisFunction:
    """Return the null-basis computation for a device; plain ``auto`` and ``cpu`` need no torch."""
    if not device.startswith("cuda"):
        return null_space_basis
    try:
        from nsmark.models.loading import resolve_device
        from nsmark.models.null_space import null_space_basis_on_device
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    resolve_device(device)
    return lambda matrix: null_space_basis_on_device(matrix, device)
