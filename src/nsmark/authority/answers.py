"""What answers hold against a claim: which of it is measured, in which order, and what is not.

Anybody may answer, under as many names as he likes. So nobody's evidence may be drowned by what
others name: what has the same content is measured once, parties take turns, and what is left over
is not forgotten but keeps the claim from being upheld.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nsmark.authority.contents import Contents
from nsmark.authority.fields import parse_time
from nsmark.authority.priority import Moment
from nsmark.authority.records import DepositedThing, FiledKey, GivenDefence
from nsmark.authority.registry import Registry
from nsmark.errors import NotFoundError

MAX_EXHIBITS_OF_ONE = 8
"""That one party may have measured in a dispute: the first that it names."""

_ADMITTED = ("admitted", "revealed", "succeeded")
_MAX_NOTES = 8


@dataclass(frozen=True, slots=True)
class NamedDeposit:
    """Something older than the key, and the answer that names it."""

    deposit: DepositedThing
    defence: str
    """Entry id."""

    @property
    def moment(self) -> Moment:
        """Since when its owner has it, by proof."""
        return moment_of(self.deposit)


@dataclass(slots=True)
class Heard:
    """What the answers to a dispute come to."""

    exhibits: list[NamedDeposit] = field(default_factory=list)
    """To be measured, in this order."""

    unheard: list[NamedDeposit] = field(default_factory=list)
    """As good, but too many."""

    keys: list[FiledKey] = field(default_factory=list)
    """Admitted keys of those who answered."""

    contested: list[tuple[str, str]] = field(default_factory=list)
    """Answers that say since when the suspect is public, and what they say."""

    notes: list[str] = field(default_factory=list)


def hear(
    answers: Iterable[GivenDefence],
    filing: FiledKey,
    registry: Registry,
    contents: Contents,
    *,
    max_exhibits: int,
) -> Heard:
    """Sort out what answers name.

    Args:
        answers: The oldest first.
        filing: Of the key whose claim they are held against.
        registry: What was filed and deposited.
        contents: What was handed over.
        max_exhibits: How many are measured.
    """
    heard, notes = Heard(), _Notes()
    of_party: dict[str, list[NamedDeposit]] = {}
    known: set[str] = set()
    for answer in answers:
        if answer.released is not None and len(heard.contested) < _MAX_NOTES:
            heard.contested.append((answer.entry_id, answer.released))
        if answer.evidence is None or answer.evidence in known:
            continue
        known.add(answer.evidence)
        try:
            deposit = registry.deposit(answer.evidence)
        except NotFoundError:
            _hear_key(registry.filing(answer.evidence), heard, notes)
            continue
        named = NamedDeposit(deposit, answer.entry_id)
        mine = of_party.setdefault(deposit.fingerprint, [])
        if not named.moment < moment_of(filing):
            notes.add(f"{name_of(deposit)} came after the key, and was not measured", "after")
        elif contents.handed_over(deposit.entry_id) is None:
            notes.add(
                f"{name_of(deposit)} could not be measured: its content was not handed over",
                "empty",
            )
        elif len(mine) == MAX_EXHIBITS_OF_ONE:
            notes.add(
                f"{name_of(deposit)} was not measured: {MAX_EXHIBITS_OF_ONE} others of the same "
                "party were named before",
                "many",
            )
        else:
            mine.append(named)
    ordered = list(_without_copies(_in_turns(list(of_party.values()))))
    heard.exhibits, heard.unheard = ordered[:max_exhibits], ordered[max_exhibits:]
    if heard.unheard:
        notes.add(
            f"of {len(ordered)} deposits that are older than the key {max_exhibits} were measured",
            "unheard",
        )
    heard.notes = notes.texts()
    return heard


def moment_of(entry: FiledKey | DepositedThing) -> Moment:
    """Return since when something is proven to have been there."""
    proven = entry.proven if isinstance(entry, DepositedThing) else None
    return Moment(parse_time(min(entry.time, proven or entry.time)), entry.index)


def name_of(deposit: DepositedThing) -> str:
    """Return how rulings call it."""
    return f"the deposit {deposit.entry_id[:12]}"


def _hear_key(filed: FiledKey, heard: Heard, notes: _Notes) -> None:
    if filed.state in _ADMITTED:
        heard.keys.append(filed)
    else:
        notes.add(
            f"the key {filed.key_id[:12]} was named in an answer, but is not admitted: its filing "
            f"is {filed.state!r}",
            "keys",
        )


def _in_turns(parties: list[list[NamedDeposit]]) -> Iterator[NamedDeposit]:
    """Yield every party's first, then every party's second; of one turn the oldest first."""
    for number in range(MAX_EXHIBITS_OF_ONE):
        turn = [named[number] for named in parties if len(named) > number]
        yield from sorted(turn, key=lambda each: each.moment)


def _without_copies(ordered: Iterator[NamedDeposit]) -> Iterator[NamedDeposit]:
    """Leave out what has the same content as something that is measured already.

    The oldest of them counts: that a copy of it was named first changes nothing.
    """
    found: dict[tuple[str, str], NamedDeposit] = {}
    for named in ordered:
        content = (named.deposit.what, named.deposit.content_sha256)
        if content not in found or named.moment < found[content].moment:
            found[content] = named
    return iter(found.values())


class _Notes:
    """Sentences for the ruling, of each kind not too many."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._left_out: dict[str, int] = {}

    def add(self, text: str, kind: str) -> None:
        texts = self._texts.setdefault(kind, [])
        if len(texts) < _MAX_NOTES:
            texts.append(text)
        else:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def texts(self) -> list[str]:
        told = []
        for kind, texts in self._texts.items():
            told += texts
            if kind in self._left_out:
                told.append(f"and {self._left_out[kind]} more of this kind")
        return told
