"""One measurement for a dispute: a key on something that a stranger named, in a child."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from nsmark.errors import UsageError
from nsmark.keyfile import WatermarkKey
from nsmark.suspects.endpoint import parse_endpoint
from nsmark_authority.confined_tasks import Measured, MeasureRequest, measure_suspect
from nsmark_authority.confinement import EndedError
from nsmark_authority.draws import Draw, Finding
from nsmark_authority.errors import AuthorityError
from nsmark_authority.records import DepositedThing, FiledKey, OpenedDispute
from nsmark_authority.registry import MAX_ROWS, every_row
from nsmark_authority.statements import Suspect
from nsmark_authority.workbench import JobWatch, Workbench, key_of

_INTERFACES: dict[str | None, Literal["openai", "completions"]] = {
    "embeddings": "openai",
    "completions": "completions",
}


@dataclass(frozen=True, slots=True)
class Accused:
    """Something that a key is measured on: a suspect, or a deposit."""

    suspect: Suspect
    name: str
    """Of an upload, in reports."""

    @classmethod
    def of_dispute(cls, dispute: OpenedDispute) -> Accused:
        """Return what a dispute is about."""
        what = "recorded outputs" if dispute.suspect.kind == "recorded" else "uploaded model"
        content = dispute.suspect.content_sha256 or ""
        return cls(dispute.suspect, f"{what} {content[:12]}".strip())

    @classmethod
    def of_deposit(cls, deposit: DepositedThing) -> Accused:
        """Return something that was deposited."""
        suspect = Suspect(
            kind=deposit.what,
            content_sha256=deposit.content_sha256,
            content_bytes=deposit.content_bytes,
        )
        return cls(suspect, f"the deposit {deposit.entry_id[:12]}")


class Examiner:
    """Measures whatever must be measured for one dispute."""

    def __init__(
        self, bench: Workbench, dispute: OpenedDispute, watch: JobWatch, draw: Draw
    ) -> None:
        self._bench, self._dispute, self._watch, self._draw = bench, dispute, watch, draw
        self._seed = draw.seed(bench.authority.log.entry(dispute.entry_id).entry)
        self._control_set = bench.control_set()
        self._steps, self._num_steps = 0, 0
        self._owner_models: dict[str, DepositedThing | None] = {}
        self._opened: tuple[str, bytes, WatermarkKey] | None = None

    @property
    def seed(self) -> str:
        """What texts are drawn with: the dispute's entry and the authority's random bytes."""
        return self._seed

    @property
    def control_set(self) -> str | None:
        """Digest of the published control set."""
        return self._control_set

    def expect(self, count: int) -> None:
        """Say that so many more measurements follow, for the progress that people see."""
        self._num_steps += count

    def measure(self, filing: FiledKey, accused: Accused, label: str) -> Finding:
        """Measure in a child; one that takes too much, or breaks down, could not measure.

        Raises:
            NsmarkError: The authority's own trouble.
        """
        self._num_steps = max(self._num_steps, self._steps + 1)
        start = self._steps / self._num_steps
        self._steps += 1
        on_tick = self._watch.between(start, self._steps / self._num_steps, f"measuring {label}")
        model = self.owner_model(filing)
        given = None if model is None else model.content_sha256
        limits = str(self._bench.workshop.confinement)  # with others it may come to an end
        identity = suspect_identity(accused.suspect)
        of = [filing.key_id, self._control_set, given, limits, *identity]
        if (known := self._draw.kept(of)) is not None:
            return known
        content, key = self._open(filing)
        common, files = self._bench.request(key)
        with self._bench.work_folder() as folder:
            request = self._request(common.to_members(), accused, model, folder)
            try:
                finding = Finding(
                    measured=self._bench.run(
                        measure_suspect, request, [content, *files], on_tick, Measured
                    )
                )
            except EndedError as error:
                ended = _unmeasured(f"the measurement was ended: {error}")
                finding = Finding(measured=ended, is_ended=True)
        self._draw.keep(of, finding)
        return finding

    def owner_model(self, filing: FiledKey) -> DepositedThing | None:
        """Return the deposit of the marked model: the first that was there before the dispute.

        What comes later could be chosen with the suspect's answers in view.
        """
        if filing.key_id not in self._owner_models:
            _, key = self._open(filing)
            found = None
            for deposit in self._deposits(filing.fingerprint, key.model_digest):
                given = self._bench.authority.contents.handed_over(deposit.entry_id)
                is_before = deposit.index < self._dispute.index
                if is_before and given is not None and given <= self._dispute.time:
                    found = deposit
            self._owner_models[filing.key_id] = found
        return self._owner_models[filing.key_id]

    def deposits_of(self, filing: FiledKey) -> list[DepositedThing]:
        """Return what a key's owner deposited, his marked model first, then the oldest."""
        _, key = self._open(filing)
        found = self._deposits(filing.fingerprint, None)
        return sorted(found, key=lambda each: (each.model_digest != key.model_digest, each.index))

    def _open(self, filing: FiledKey) -> tuple[bytes, WatermarkKey]:
        """Return a key and its file; the last one is remembered, since it is asked for in turn."""
        if self._opened is None or self._opened[0] != filing.key_id:
            content = self._bench.key_file(filing)
            self._opened = (filing.key_id, content, _sound_key(content, filing))
        return self._opened[1:]

    def _deposits(self, fingerprint: str, model_digest: str | None) -> Iterator[DepositedThing]:
        """Return an owner's deposits, perhaps only those of a model, newest first."""
        deposits = self._bench.authority.registry.deposits
        return every_row(
            lambda before: deposits(
                fingerprint=fingerprint, model_digest=model_digest, before=before, limit=MAX_ROWS
            )
        )

    def _request(
        self,
        common: dict[str, Any],
        accused: Accused,
        model: DepositedThing | None,
        folder: Path,
    ) -> MeasureRequest:
        """Unseal what is to be looked at, and return what the child is told."""
        suspect = accused.suspect
        path = self._unseal(suspect, folder / "suspect")
        owner_model = None
        if model is not None:
            owner_model = self._unseal(Accused.of_deposit(model).suspect, folder / "owner")
        return MeasureRequest(
            **common,
            suspect=suspect.kind,
            name=accused.name,
            path=None if path is None else str(path),
            interface=_INTERFACES.get(suspect.interface),
            url=suspect.url,
            model=suspect.model,
            owner_model=None if owner_model is None else str(owner_model),
            randomness=self._seed,
            allowed=self._bench.settings.allowed,
            cache=str(self._draw.answers) if suspect.kind == "endpoint" else None,
            seconds=self._bench.settings.suspect_seconds,
        )

    def _unseal(self, suspect: Suspect, path: Path) -> Path | None:
        if suspect.content_sha256 is None:
            return None
        contents = self._bench.authority.contents
        if suspect.kind == "model":
            contents.copy_folder(suspect.content_sha256, path)
        else:
            path.mkdir(mode=0o700)
            path = path / "recorded.safetensors"
            contents.copy_file(suspect.content_sha256, path)
        return path


def suspect_identity(suspect: Suspect) -> tuple[str, ...]:
    """Return what is the same for two disputes about the same suspect."""
    if suspect.content_sha256 is not None:
        return (suspect.kind, suspect.content_sha256)
    operation = suspect.interface or ""
    try:
        endpoint = parse_endpoint(f"{suspect.url}#{suspect.model}", operation)
    except UsageError:
        return ("endpoint", suspect.url or "", suspect.model or "")
    parts = urlsplit(endpoint.url)
    is_usual = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    # The scheme and the interface are only ways to the same model.
    return (
        "endpoint",
        (parts.hostname or "").rstrip("."),
        "" if is_usual else str(parts.port),
        parts.path.removesuffix(f"/{operation}").rstrip("/"),
        endpoint.model,
    )


def _sound_key(content: bytes, filing: FiledKey) -> WatermarkKey:
    key = key_of(content)
    if key is None:
        raise AuthorityError(
            f"the filed key {filing.key_id[:12]} cannot be read any more",
            "restore the authority's content from a backup",
        )
    return key


def _unmeasured(reason: str) -> Measured:
    return Measured(verdict="could_not_measure", reasons=(reason,), notes=(), figures={}, html="")
