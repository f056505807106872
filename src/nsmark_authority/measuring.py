"""Measuring a dispute: an admitted key on a suspect that a stranger named.

The lines come from the authority's own controls and nothing of the owner's is trusted. Texts are
drawn by the authority's randomness wherever the suspect can be asked and either the owner deposited
the marked model or the key has a pair code; else the key's own texts are asked, and the result says
so. What the respondent holds against a claim is measured by the same function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nsmark import verify
from nsmark.api.fresh import FreshTexts
from nsmark.api.opening import AnySuspect, Opening
from nsmark.errors import EvidenceError, KeyFileError, NsmarkError
from nsmark.keyfile import WatermarkKey
from nsmark.report import Report
from nsmark.report.html import render_html
from nsmark.report.pictures import Pictures
from nsmark.suspects import QueryOptions, RecordedOutputs, Suspect, load_recorded
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.endpoint import parse_endpoint
from nsmark.verification import Verdict
from nsmark_authority.admission import ProgressCallback, Published
from nsmark_authority.control_models import ControlSource
from nsmark_authority.outgoing import GuardedTransport, OutgoingPolicy, find_destination
from nsmark_authority.uploads import check_network, check_safetensors, check_upload

RULE = "calibrated"


@dataclass(frozen=True, slots=True)
class EndpointSuspect:
    """A model behind a public URL."""

    kind: Literal["openai", "completions"]
    url: str
    model: str

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.kind}:{self.url}#{self.model}"


@dataclass(frozen=True, slots=True)
class FolderSuspect:
    """An uploaded model folder."""

    name: str
    """How reports call it: never its path."""
    path: Path


@dataclass(frozen=True, slots=True)
class RecordedSuspect:
    """Outputs to the key's own texts in a safetensors file, whose origin only its filer knows."""

    name: str
    path: Path


NamedSuspect = EndpointSuspect | FolderSuspect | RecordedSuspect


@dataclass(frozen=True, slots=True)
class MeasuringLimits:
    """What one measurement may cost."""

    seconds: float = 3600.0
    """For asking the suspect."""
    max_queries: int = 20_000
    """Texts sent to an endpoint, decoys counted."""
    max_recorded_bytes: int = 4 << 30
    """As numbers in memory: what an authority takes in half precision, and no more."""
    batch_size: int = 16
    concurrency: int = 2
    timeout_seconds: float = 60.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, for the ruling and for people."""

    report: Report
    notes: tuple[str, ...]
    """What the result rests on, in sentences: they belong into the ruling."""
    html: str
    """The report as a page of its own."""

    @property
    def verdict(self) -> Verdict:
        """The outcome of the measurement; dates are another matter."""
        return self.report.verdict

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return self.report.to_mapping() | {"notes": list(self.notes)}


def measure(
    key: WatermarkKey,
    suspect: NamedSuspect,
    *,
    controls: ControlSource,
    published: Published,
    randomness: bytes,
    owner_model: Path | None = None,
    policy: OutgoingPolicy | None = None,
    limits: MeasuringLimits | None = None,
    cache: Path | None = None,
    device: str = "auto",
    on_progress: ProgressCallback | None = None,
) -> Measurement:
    """Measure a suspect under an admitted key.

    Args:
        key: The key.
        suspect: What the claimant names, or what the respondent holds against him.
        controls: The authority's innocent models.
        published: Word lists and pools, by digest.
        randomness: 32 bytes that neither party chose.
        owner_model: The marked model, if the owner deposited it.
        policy: Where requests may go.
        limits: What it may cost.
        cache: Folder that keeps an endpoint's answers, so that an interrupted measurement goes on.
        device: Where models run.
        on_progress: Told what is asked, and how far it is.

    Raises:
        KeyFileError: The key or the deposited model is not what was admitted.
        ModelError: The deposited model cannot be opened.
        MemoryError: There is too little: nothing is said about the suspect.
        NsmarkError: A control model cannot be opened: the authority's own trouble.

    Whatever is wrong with the suspect is no error: the verdict is then ``could_not_measure``.
    """
    limits = limits or MeasuringLimits()
    asking = _Asking(key, device, policy or OutgoingPolicy(), limits, cache, on_progress)
    pool = published.pools.get(key.pool_digest)
    words = published.word_lists.get(key.word_list_digest)
    pair_list = key.word_list_digest if key.pairs is None else key.pairs.word_list_digest
    pair_words = published.word_lists.get(pair_list)
    if pool is None or words is None or pair_words is None:
        raise KeyFileError(
            "the key names a pool or word list that was not published", "it cannot be measured"
        )
    if owner_model is not None:
        check_network(check_upload(owner_model))
    try:
        opened = asking.open(suspect)
    except NsmarkError as error:
        _require_memory(error)
        return _unmeasured(key, suspect.name, error)
    fresh = None
    if not isinstance(opened, RecordedOutputs) and (owner_model is not None or key.pairs):
        fresh = FreshTexts(owner_model, randomness)
    given = list(controls(key))
    report = verify(
        key,
        opened,
        rule=RULE,
        controls=[
            asking.control(control, f"control {number} of {len(given)}")
            for number, control in enumerate(given, 1)
        ],
        independent=True,
        fresh=fresh,
        pool=pool,
        word_list=words,
        pair_word_list=pair_words,
        device=device,
    )
    pictures = None
    if report.answers is not None:
        pictures = Pictures.of(key, report.answers, report.questions)
    return Measurement(report, _notes(key, opened, fresh), render_html(report, pictures))


class _Watched:
    """A suspect under its own name that tells how far it is, and is stopped when time is up."""

    def __init__(
        self,
        name: str,
        open_it: Callable[[], Suspect],
        on_batch: BatchCallback,
        *,
        is_suspect: bool,
    ) -> None:
        self.name = name
        self._open, self._on_batch, self._is_suspect = open_it, on_batch, is_suspect

    def outputs(
        self, texts: Sequence[str], on_batch: BatchCallback | None = None
    ) -> NDArray[np.float32]:
        try:
            return self._open().outputs(texts, self._on_batch)
        except EvidenceError:
            raise
        except NsmarkError as error:
            _require_memory(error)
            if not self._is_suspect:
                raise
            # A suspect that is broken on purpose must not look like an error of ours.
            raise EvidenceError(str(error), error.hint) from error


class _Asking:
    """How suspects and controls of one measurement are opened."""

    def __init__(
        self,
        key: WatermarkKey,
        device: str,
        policy: OutgoingPolicy,
        limits: MeasuringLimits,
        cache: Path | None,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._key, self._device, self._policy = key, device, policy
        self._limits, self._cache, self._on_progress = limits, cache, on_progress

    def open(self, suspect: NamedSuspect) -> Suspect | RecordedOutputs:
        """Check what a stranger named; nothing is asked yet.

        Raises:
            NsmarkError: It cannot be measured.
        """
        if isinstance(suspect, RecordedSuspect):
            return self._recorded(suspect)
        if isinstance(suspect, EndpointSuspect):
            return self._endpoint(suspect)
        # Both look at the same bytes that are opened later: uploads are not changed any more.
        check_network(check_upload(suspect.path))
        opening = Opening(self._key, self._device)
        # However long a model takes that was handed over, it cannot be blamed for stalling.
        return self._watched(suspect.name, lambda: opening.open(suspect.path), timed=False)

    def control(self, control: AnySuspect, stage: str) -> AnySuspect:
        """Let a control tell how far it is."""
        if isinstance(control, str | Path | RecordedOutputs):
            return control
        return _Watched(control.name, lambda: control, self._progress(stage), is_suspect=False)

    def _recorded(self, suspect: RecordedSuspect) -> RecordedOutputs:
        tensors = check_safetensors(suspect.path, suspect.name)
        if 8 * sum(tensors.values()) > self._limits.max_recorded_bytes:
            raise EvidenceError(
                f"{suspect.name} takes more than {self._limits.max_recorded_bytes:,} bytes",
                "record the outputs to the key's texts and nothing else",
            )
        try:
            return replace(load_recorded(suspect.path), name=suspect.name)
        except NsmarkError as error:
            # The message names a path of this machine.
            said = str(error).replace(str(suspect.path), suspect.name)
            raise EvidenceError(said, error.hint) from error

    def _endpoint(self, suspect: EndpointSuspect) -> Suspect:
        limits = self._limits
        operation = {"openai": "embeddings", "completions": "completions"}[suspect.kind]
        endpoint = parse_endpoint(f"{suspect.url}#{suspect.model}", operation)
        # Resolved here, once: whatever is asked later goes to this address.
        destination = find_destination(endpoint.url, self._policy)
        deadline: list[float] = []

        def connect(url: str) -> GuardedTransport:
            deadline[:] = deadline or [time.monotonic() + limits.seconds]
            return GuardedTransport(destination, self._policy, deadline[0])

        queries = QueryOptions(
            batch_size=limits.batch_size,
            concurrency=limits.concurrency,
            timeout_seconds=limits.timeout_seconds,
            retries=limits.retries,
            max_queries=limits.max_queries,
            cache=self._cache,
            connect=connect,
        )
        opening = Opening(self._key, self._device, queries)
        return self._watched(suspect.name, lambda: opening.open(suspect.name), timed=True)

    def _watched(
        self, name: str, open_it: Callable[[], Suspect | RecordedOutputs], *, timed: bool
    ) -> Suspect:
        def opened() -> Suspect:
            found = open_it()
            assert not isinstance(found, RecordedOutputs)  # noqa: S101 - a folder or an endpoint
            return found

        return _Watched(name, opened, self._progress("suspect", timed=timed), is_suspect=True)

    def _progress(self, stage: str, *, timed: bool = False) -> BatchCallback:
        limits, started = self._limits, [0.0]

        def on_batch(done: int, total: int) -> None:
            started[0] = started[0] or time.monotonic()
            if timed and time.monotonic() - started[0] > limits.seconds and done < total:
                raise EvidenceError(
                    f"the suspect was not done answering within {limits.seconds:g} s",
                    "ask for more time, or fewer texts",
                )
            if self._on_progress is not None:
                self._on_progress(stage, done, total)

        return on_batch


def _notes(
    key: WatermarkKey, opened: Suspect | RecordedOutputs, fresh: FreshTexts | None
) -> tuple[str, ...]:
    """Say what a result rests on."""
    if isinstance(opened, RecordedOutputs):
        return (
            "the outputs were recorded and filed by a party: that they are the suspect's is that "
            "party's word",
            "the texts are the key's own: recorded outputs cannot answer others",
        )
    if fresh is None:
        return (
            "the texts are the key's own: the owner did not deposit the marked model and the key "
            "has no pair code",
        )
    drawn = f"drawn with the randomness {fresh.randomness.hex()}"
    if fresh.owner_model is None:
        return (
            f"the texts of the pair code were {drawn}; all others are the key's own, because the "
            "owner did not deposit the marked model",
        )
    return (f"all texts were {drawn}, and the marked model was asked them, too",)


def _require_memory(error: BaseException | None) -> None:
    """Raise MemoryError if that is what an error comes from, however it was told."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise MemoryError("there is too little memory for this") from error
        error = error.__cause__


def _unmeasured(key: WatermarkKey, name: str, error: NsmarkError) -> Measurement:
    report = Report.unmeasured(str(error), error.hint, suspect=name, key=key)
    return Measurement(report, ("the suspect was not asked",), render_html(report, None))
