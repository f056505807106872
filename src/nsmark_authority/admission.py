"""Admission: is a filed key one that could ever prove anything, and does it accuse nobody innocent?

A key comes as the bytes of a file that anybody may have made. What follows from its signature is
recomputed from lists and pools that the authority published; what it says of itself is recomputed
from its outputs; then every control model of the authority's is measured under it. A key that
accepts a control is refused. Every refusal has its reason, and no file can cause anything else.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from nsmark.api.opening import Opening, basis_on
from nsmark.core import expected_matching_degree
from nsmark.errors import EvidenceError, InputError
from nsmark.keyfile import WatermarkKey, is_encrypted
from nsmark.keyfile.codec import decode_key
from nsmark.payload import WordList
from nsmark.suspects import RecordedOutputs
from nsmark.transforms.outputs import linear_map
from nsmark.verification import Evidence, Verdict, check_derivations, judge
from nsmark.verification.controls import CHANGED, Control, Controls, owner_controls
from nsmark.verification.derivations import pair_doubt
from nsmark.verification.evidence import OwnerReference, ask
from nsmark_authority.control_models import ControlSource

ProgressCallback = Callable[[str, int, int], None]
"""Told what is done, how many steps of it, and of how many."""

MIN_CONTROL_MODELS = 2
"""A control is judged by the lines that the others draw: alone it has none."""

_LEAST_TEXTS_PER_DIMENSION = 1.5
_NOT_ORTHONORMAL = 1e-6


class State(StrEnum):
    """What becomes of a filed key."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    WAITING = "waiting"
    """Nothing speaks against it, and nobody could judge it: there are no control models."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What became of a key, and why."""

    state: State
    reasons: tuple[str, ...]
    """In sentences; none where the key is admitted."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Sizes, and what each control measured: a JSON document without any secret of the key's."""

    @property
    def admitted(self) -> bool:
        """Whether the key may be used in a dispute."""
        return self.state is State.ADMITTED


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How large a key may be: what a worker can measure in its memory."""

    max_bytes: int = 256 << 20
    max_header_bytes: int = 8 << 20
    """All texts of a key stand there: some fifty thousand."""
    min_texts: int = 32
    """Among fewer, chance brings every model close."""
    max_texts: int = 8192
    """The null space of so many takes half a gigabyte, and there are several of them."""
    max_pair_texts: int = 8192
    max_dimensions: int = 8192


@dataclass(frozen=True, slots=True)
class Published:
    """What the authority published for owners to make their keys with, by digest."""

    word_lists: Mapping[str, WordList]
    pools: Mapping[str, Sequence[str]]
    """Texts in normal form."""


class _RefusedError(Exception):
    """A reason to refuse a key."""


def examine(
    content: bytes,
    *,
    published: Published,
    controls: ControlSource,
    limits: AdmissionLimits | None = None,
    device: str = "auto",
    on_progress: ProgressCallback | None = None,
) -> Examination:
    """Examine the bytes of a key file.

    Args:
        content: As filed.
        published: Word lists and pools; a key that names others is refused.
        controls: The authority's innocent models.
        limits: How large a key may be.
        device: Where arithmetic is done.
        on_progress: Told before each control.

    Raises:
        NsmarkError: A control model cannot be opened: the authority's own trouble, which says
            nothing about the key.
    """
    details: dict[str, Any] = {}
    try:
        key = _read(content, limits or AdmissionLimits())
        details |= _sizes(key)
        _check_derivations(key, published)
        owner = _check_itself(key, device, details)
    except _RefusedError as refusal:
        return Examination(State.REFUSED, (str(refusal),), details)
    models = list(controls(key))
    if len(models) < MIN_CONTROL_MODELS:
        reason = (
            f"the authority has {len(models)} control models and needs {MIN_CONTROL_MODELS}: "
            "the key waits until it has"
        )
        return Examination(State.WAITING, (reason,), details)
    opening = Opening(key, device)
    plain: list[Evidence] = []
    mapped: list[Evidence] = []
    left_out: list[str] = []
    for number, model in enumerate(models):
        if on_progress is not None:
            on_progress("control models", number, len(models))
        answers = ask(owner.questions, opening.open(model))
        try:
            found = [owner.compare(each) for each in (answers, _mapped(answers))]
        except EvidenceError as error:
            left_out.append(f"{answers.name}: {error}")
        else:
            plain.append(found[0])
            mapped.append(found[1])
    if on_progress is not None:
        on_progress("control models", len(models), len(models))
    details["controls"] = [_shown(evidence) for evidence in (*plain, *mapped)]
    details["controls_not_measured"] = left_out
    reasons = _accepted_controls(owner, plain, mapped)
    if not reasons and len(plain) < MIN_CONTROL_MODELS:
        reasons = ["hardly any control model can be measured under the key", *left_out[:3]]
    return Examination(State.REFUSED if reasons else State.ADMITTED, tuple(reasons), details)


def _read(content: bytes, limits: AdmissionLimits) -> WatermarkKey:
    """Return the key: sealed, signed by a key of large order, and of a size that can be measured.

    Raises:
        _RefusedError: Not so.
    """
    if is_encrypted(content):
        raise _RefusedError("the key file is encrypted: file it as it is, it is encrypted here")
    if len(content) > limits.max_bytes:
        raise _RefusedError(f"the key file is larger than {limits.max_bytes:,} bytes")
    # Before it is parsed: a small text can be a large document.
    if int.from_bytes(content[:8], "little") > limits.max_header_bytes:
        raise _RefusedError(
            f"its header is larger than {limits.max_header_bytes:,} bytes, or damaged"
        )
    try:
        key = decode_key(io.BytesIO(content), len(content))
    except InputError as error:
        raise _RefusedError(str(error)) from error
    config = key.configuration
    if config.num_texts < limits.min_texts:
        raise _RefusedError(f"the key has {config.num_texts} texts, {limits.min_texts} are needed")
    for what, size, most in (
        ("texts", config.num_texts, limits.max_texts),
        ("texts of its pair code", len(key.pairs.texts) if key.pairs else 0, limits.max_pair_texts),
        ("output dimensions", config.output_dim, limits.max_dimensions),
    ):
        if size > most:
            raise _RefusedError(f"the key has {size:,} {what}, {most:,} can be measured")
    return key


def _check_derivations(key: WatermarkKey, published: Published) -> None:
    """Refuse a key of which something could have been chosen.

    Raises:
        _RefusedError: It names what was not published, or holds what does not follow from its
            signature.
    """
    words = published.word_lists.get(key.word_list_digest)
    pool = published.pools.get(key.pool_digest)
    for what, found, digest in (
        ("a word list", words, key.word_list_digest),
        ("a pool", pool, key.pool_digest),
    ):
        if found is None:
            raise _RefusedError(f"the key names {what} that was not published here: {digest}")
    assert words is not None and pool is not None  # noqa: S101, PT018 - as just seen
    pair_words = None
    if key.pairs is not None:
        pair_words = published.word_lists.get(key.pairs.word_list_digest)
        if pair_words is None:
            raise _RefusedError(
                "its pair code names a word list that was not published here: "
                f"{key.pairs.word_list_digest}"
            )
    try:
        unchecked = check_derivations(key, pool=pool, word_list=words)
        doubt = pair_doubt(
            key, pool=pool, pool_is_published=True, is_fresh=False, word_list=pair_words
        )
    except InputError as error:
        raise _RefusedError(str(error)) from error
    if unchecked or doubt is not None:
        raise _RefusedError("; ".join([*unchecked, *([] if doubt is None else [doubt])]))


def _check_itself(key: WatermarkKey, device: str, details: dict[str, Any]) -> OwnerReference:
    """Recompute what a key says of itself: null space, marks, and what no key can hold.

    Raises:
        _RefusedError: It contradicts itself.
    """
    try:
        owner_controls(key)
        owner = OwnerReference(key, basis_on(device))
        flaw = owner.flaw
    except (InputError, EvidenceError) as error:
        raise _RefusedError(str(error)) from error
    if flaw is not None:
        raise _RefusedError(f"the key contradicts itself: {flaw}")
    config, lines = key.configuration, key.thresholds
    most = expected_matching_degree(config.num_texts, config.num_texts)
    if key.null_basis is not None:
        raise _RefusedError("the key holds a null basis: it is recomputed, and none is filed")
    if not (0 <= lines.min_extraction_rate <= 1 and 0 <= lines.max_matching_degree <= most):
        raise _RefusedError("the key holds thresholds that no key can have")
    side = owner.triggered
    details |= {"null_dim": int(side.basis.shape[1]), "rank": side.rank}
    if config.num_texts < _LEAST_TEXTS_PER_DIMENSION * side.rank:
        raise _RefusedError(
            f"{config.num_texts} texts are too few for outputs of rank {side.rank}: chance brings "
            "every model close"
        )
    for each in (side, owner.untriggered):
        gap = float(np.abs(each.basis.T @ each.basis - np.eye(each.basis.shape[1])).max())
        if not gap <= _NOT_ORTHONORMAL:
            raise _RefusedError("its outputs have no null space that can be computed")
    return owner


def _mapped(answers: RecordedOutputs) -> RecordedOutputs:
    """Return a control behind the paper's linear map, which every innocent may apply."""
    change = linear_map(answers.triggered, np.random.default_rng(0))
    return answers.changed(f"{answers.name}{CHANGED}linear map", change)


def _accepted_controls(
    owner: OwnerReference, plain: Sequence[Evidence], mapped: Sequence[Evidence]
) -> list[str]:
    """Return what speaks against the key: each control it accepts, or reads its marks from."""
    controls = [Control.of(evidence) for evidence in plain]
    reasons = []
    for evidence in (*plain, *mapped):
        control = Control.of(evidence)
        decision = judge(owner, evidence, Controls(controls, judged=control.model)).decision
        if decision.verdict is Verdict.OWNED:
            passed = ", ".join(decision.passed)
            reasons.append(f"the key accepts the innocent model {control.name!r} ({passed})")
        elif CHANGED not in control.name and decision.refuses_key:
            # Behind a map an extractor may read something by accident, from all texts alike: no
            # reason to refuse the key.
            reasons.append(decision.reasons[0])
    return list(dict.fromkeys(reasons))


def _sizes(key: WatermarkKey) -> dict[str, Any]:
    config = key.configuration
    return {
        "key_id": key.key_id,
        "num_texts": config.num_texts,
        "output_dim": config.output_dim,
        "num_bits": config.num_bits,
        "marks": list(config.marks),
    }


def _shown(evidence: Evidence) -> dict[str, Any]:
    return {
        "name": evidence.suspect,
        "rank": evidence.rank,
        "extraction_rate": evidence.triggered.extraction_rate,
        "predictability": evidence.triggered.predictability,
        "pair_code_p_value": evidence.triggered.pair_code_p_value,
        "pair_wager_p_value": evidence.triggered.pair_wager_p_value,
    }
