"""What children do: examine a key, measure a suspect. They see contents and folders, no database.

A request and its answer are records, written as JSON: an answer comes from a process that worked
on what a stranger handed in, and is read as strictly as if the stranger had written it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from nsmark.core.texts import decode_lines
from nsmark.errors import InputError, NsmarkError, TextPoolError
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import decode_key
from nsmark.payload import WordList
from nsmark.payload.word_list import MIN_PAIR_WORDS
from nsmark_authority.confinement import TellProgress
from nsmark_authority.fields import Count, Digest, Line, Number, Record

if TYPE_CHECKING:
    from nsmark_authority.admission import Published

PRELOAD = (
    "nsmark_authority.admission",
    "nsmark_authority.measuring",
    "nsmark_authority.confined_tasks",
    "nsmark.transforms.population",
    "nsmark.models.classifier",
    "nsmark.models.loading",
    "nsmark.suspects.local",
    "sklearn.manifold",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert_fast",
)
"""What children would import each for itself; what is not installed is left out."""

MAX_REASONS = 40
MAX_REASON_CHARACTERS = 1000
_MAX_HTML_CHARACTERS = 16 << 20

_Texts = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)], ...],
    Field(max_length=MAX_REASONS, strict=False),
]
_Names = Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]


class Request(Record):
    """What both tasks need; the first file is the key, the others are publications."""

    controls: _Names
    """Names and folders of the control models."""

    with_kin: bool
    device: str
    published: _Names
    """What each further file is (``pool``, ``words`` or ``pair_words``), and its digest."""


class MeasureRequest(Request):
    """A suspect, and how it is asked."""

    suspect: Literal["endpoint", "recorded", "model"]
    name: str
    """Of an upload, in reports."""

    path: str | None
    """Of an upload."""

    interface: Literal["openai", "completions"] | None
    url: str | None
    model: str | None
    owner_model: str | None
    """Folder of the marked model, if it was deposited."""

    randomness: Digest
    allowed: Annotated[tuple[str, ...], Field(strict=False)]
    """Hosts and ports that the operator vouches for."""

    cache: str | None
    seconds: float
    """For asking the suspect."""


class Examined(Record):
    """What came of an examination."""

    state: Literal["admitted", "refused", "waiting"]
    reasons: _Texts


class Measured(Record):
    """What came of a measurement."""

    verdict: Literal["owned", "not_shown", "could_not_measure"]
    reasons: _Texts
    notes: _Texts
    figures: Annotated[dict[Line, Number | Count | bool | Line | None], Field(max_length=64)]
    html: Annotated[str, Field(max_length=_MAX_HTML_CHARACTERS)]


def examine_key(
    members: Mapping[str, Any], files: Sequence[bytes], tell: TellProgress
) -> dict[str, Any]:
    """Examine a filed key.

    Raises:
        NsmarkError: A control model cannot be opened.
    """
    from nsmark_authority.admission import examine
    from nsmark_authority.control_models import control_models

    request = Request.from_members(dict(members), "request")
    found = examine(
        files[0],
        published=_published(request, files[1:]),
        controls=control_models(
            _folders(request), with_kin=request.with_kin, device=request.device
        ),
        device=request.device,
        on_progress=tell,
    )
    # Reasons are public, and the key is not: what of it stands in them is blotted out.
    reasons = _bounded(without_secrets(found.reasons, _key_or_none(files[0])))
    return Examined(state=found.state.value, reasons=reasons).to_members()


def measure_suspect(
    members: Mapping[str, Any], files: Sequence[bytes], tell: TellProgress
) -> dict[str, Any]:
    """Measure a suspect under an admitted key.

    Raises:
        NsmarkError: A control model cannot be opened.
    """
    from nsmark_authority.control_models import control_models
    from nsmark_authority.measuring import (
        EndpointSuspect,
        FolderSuspect,
        Measurement,
        MeasuringLimits,
        NamedSuspect,
        RecordedSuspect,
        measure,
    )
    from nsmark_authority.outgoing import OutgoingPolicy

    request = MeasureRequest.from_members(dict(members), "request")
    suspect: NamedSuspect
    if request.suspect == "endpoint":
        assert request.interface and request.url and request.model  # noqa: S101, PT018 - as made
        suspect = EndpointSuspect(request.interface, request.url, request.model)
    else:
        assert request.path is not None  # noqa: S101 - as made
        kind = FolderSuspect if request.suspect == "model" else RecordedSuspect
        suspect = kind(request.name, Path(request.path))
    published = _published(request, files[1:])
    controls = control_models(_folders(request), with_kin=request.with_kin, device=request.device)

    def measured(owner_model: Path | None) -> Measurement:
        return measure(
            decode_key(io.BytesIO(files[0]), len(files[0])),
            suspect,
            controls=controls,
            published=published,
            randomness=bytes.fromhex(request.randomness),
            owner_model=owner_model,
            policy=OutgoingPolicy(frozenset(request.allowed)),
            limits=MeasuringLimits(seconds=request.seconds),
            cache=None if request.cache is None else Path(request.cache),
            device=request.device,
            on_progress=tell,
        )

    doubts = []
    try:
        found = measured(None if request.owner_model is None else Path(request.owner_model))
    except NsmarkError:
        # Without it, the same once more: what is our own trouble comes again.
        if request.owner_model is None:
            raise
        doubts.append(
            "the model that the owner deposited is not the one of his key, or cannot be opened"
        )
        found = measured(None)
    report = found.to_mapping()
    return Measured(
        verdict=found.verdict.value,
        reasons=_bounded(report["reasons"]),
        notes=_bounded([*doubts, *found.notes]),
        figures=_figures(report),
        html=found.html,
    ).to_members()


def without_secrets(reasons: Sequence[str], key: WatermarkKey | None) -> list[str]:
    """Blot out what must stay sealed, should a reason ever quote it: texts, trigger, signature."""
    if key is None:
        return list(reasons)
    texts = [*key.verification_texts, *(key.pairs.texts if key.pairs else ()), key.signature.hex()]
    words = re.compile(
        r"\b(?:" + "|".join(map(re.escape, key.trigger.split())) + r")\b", re.IGNORECASE
    )
    told = []
    for reason in reasons:
        for text in texts:
            if text and text in reason:
                reason = reason.replace(text, "…")
        told.append(words.sub("…", reason))
    return told


def _key_or_none(content: bytes) -> WatermarkKey | None:
    try:
        return decode_key(io.BytesIO(content), len(content))
    except InputError:
        return None


def _folders(request: Request) -> dict[str, Path]:
    return {name: Path(folder) for name, folder in request.controls}


def _published(request: Request, files: Sequence[bytes]) -> Published:
    """Return the lists and pools that came along; a list that is too short is none."""
    from nsmark_authority.admission import Published

    lists: dict[str, WordList] = {}
    pools: dict[str, Sequence[str]] = {}
    for (what, digest), content in zip(request.published, files, strict=True):
        lines = tuple(decode_lines(content))
        if what == "pool":
            pools[digest] = lines
            continue
        with contextlib.suppress(TextPoolError):
            is_for_pairs = what == "pair_words"
            lists[digest] = (
                WordList(lines, min_words=MIN_PAIR_WORDS) if is_for_pairs else WordList(lines)
            )
    return Published(lists, pools)


def _bounded(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(text[:MAX_REASON_CHARACTERS] for text in texts[:MAX_REASONS])


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report says in plain numbers and words."""
    left_out = ("verdict", "key_id", "suspect", "seconds")
    return {
        name: value
        for name, value in report.items()
        if name not in left_out and (value is None or isinstance(value, bool | int | float | str))
    }
