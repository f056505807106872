"""What is held against a claim: which of it is measured, in which order, and what is not.

Anybody may answer, under as many names as he likes. So nobody's evidence may be drowned by what
others name: what has the same content is measured once, parties take turns, and what is left over
is not forgotten but keeps the claim from being upheld. What one party names beyond its share is its
own choice, and only noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsmark_authority.contents import Contents
from nsmark_authority.errors import NotFoundError
from nsmark_authority.fields import parse_time
from nsmark_authority.priority import Moment
from nsmark_authority.records import ADMITTED, DepositedThing, FiledKey, GivenDefence
from nsmark_authority.registry import Registry

MAX_OF_ONE_PARTY = 8
"""Deposits, or keys, that one party may have measured in a dispute: the first that it names."""

_MAX_NOTES = 8
_Thing = TypeVar("_Thing")


@dataclass(frozen=True, slots=True)
class NamedDeposit:
    """Something older than the key, and the answer that names it."""

    deposit: DepositedThing
    defence: str | None
    """Entry id; none for what nobody had to name."""

    @property
    def moment(self) -> Moment:
        """Since when its owner has it, by proof."""
        return moment_of(self.deposit)


@dataclass(slots=True)
class Heard:
    """What the answers come to."""

    exhibits: list[NamedDeposit] = field(default_factory=list)
    """To be measured, in this order."""

    unheard: list[NamedDeposit] = field(default_factory=list)
    """As good, but too many."""

    keys: list[FiledKey] = field(default_factory=list)
    """Keys of those who answered this dispute, which stand."""

    contested: list[tuple[str, str]] = field(default_factory=list)
    """Answers that say since when the suspect is public, and what they say; the earliest first."""

    notes: list[str] = field(default_factory=list)


def hear(
    answers: Iterable[GivenDefence],
    filing: FiledKey,
    registry: Registry,
    contents: Contents,
    *,
    max_exhibits: int,
    dispute: str | None = None,
    unnamed: Iterable[DepositedThing] = (),
) -> Heard:
    """Sort out what is held against a claim.

    Args:
        answers: To every dispute under the key, the oldest first: something older speaks against
            the key, whatever the suspect, and need not be brought up again each time.
        filing: Of the key whose claim they are held against.
        registry: What was filed and deposited.
        contents: What was handed over.
        max_exhibits: How many are measured.
        dispute: The one whose answers also count for the suspect: other keys on it, and its date.
        unnamed: Deposits that count although no answer names them.
    """
    hearing = _Hearing(filing, registry, contents)
    for answer in answers:
        hearing.add(answer, is_here=answer.dispute == dispute)
    for deposit in unnamed:
        hearing.add_deposit(NamedDeposit(deposit, None))
    return hearing.close(max_exhibits)


def moment_of(entry: FiledKey | DepositedThing) -> Moment:
    """Return since when something is proven to have been there."""
    proven = entry.proven if isinstance(entry, DepositedThing) else None
    if proven is None or proven >= entry.time:
        return Moment(parse_time(entry.time), entry.index)
    return Moment(parse_time(proven), entry.index, is_outside=True)


def name_of(deposit: DepositedThing) -> str:
    """Return how rulings call it."""
    return f"the deposit {deposit.entry_id[:12]}"


def in_turns(filings: Iterable[FiledKey]) -> list[FiledKey]:
    """Return keys so that their owners take turns, of one owner not too many."""
    parties: _Parties[FiledKey] = _Parties()
    for filing in filings:
        parties.add(filing.fingerprint, filing)
    return list(parties.in_turns(moment_of))


class _Hearing:
    """Answers being read."""

    def __init__(self, filing: FiledKey, registry: Registry, contents: Contents) -> None:
        self._filing, self._registry, self._contents = filing, registry, contents
        self._known: set[str] = set()
        self._deposits: _Parties[NamedDeposit] = _Parties()
        self._keys: _Parties[FiledKey] = _Parties()
        self._contested: dict[str, tuple[str, str]] = {}
        self._notes = _Notes()

    def add(self, answer: GivenDefence, *, is_here: bool) -> None:
        """Read an answer, to this dispute or to another under the same key."""
        if is_here and answer.released is not None:
            said = self._contested.get(answer.fingerprint)
            if said is None or answer.released < said[1]:
                self._contested[answer.fingerprint] = (answer.entry_id, answer.released)
        if answer.evidence is None:
            return
        try:
            deposit = self._registry.deposit(answer.evidence)
        except NotFoundError:
            if is_here:
                self._add_key(self._registry.filing(answer.evidence))
        else:
            self.add_deposit(NamedDeposit(deposit, answer.entry_id))

    def add_deposit(self, named: NamedDeposit) -> None:
        """Look at a deposit, once."""
        deposit, name = named.deposit, name_of(named.deposit)
        if deposit.entry_id in self._known:
            return
        self._known.add(deposit.entry_id)
        if not named.moment < moment_of(self._filing):
            self._notes.add(f"{name} came after the key, and was not measured", "after")
        elif self._contents.handed_over(deposit.entry_id) is None:
            self._notes.add(
                f"{name} could not be measured: its content was not handed over", "empty"
            )
        elif not self._deposits.add(deposit.fingerprint, named):
            self._notes.add(
                f"{name} was not measured: {MAX_OF_ONE_PARTY} others of the same party were "
                "named before",
                "many",
            )

    def _add_key(self, filed: FiledKey) -> None:
        if filed.entry_id in self._known:
            return
        self._known.add(filed.entry_id)
        name = f"the key {filed.key_id[:12]} was named in an answer, but"
        if filed.state not in ADMITTED:
            self._notes.add(f"{name} is not admitted: its filing is {filed.state!r}", "keys")
        elif self._registry.fallen(filed) is not None:
            self._notes.add(f"{name} its claim fell in an earlier dispute", "keys")
        elif not self._keys.add(filed.fingerprint, filed):
            self._notes.add(
                f"{name} {MAX_OF_ONE_PARTY} others of the same party were named before", "keys"
            )

    def close(self, max_exhibits: int) -> Heard:
        """Return what it all comes to."""
        ordered = _without_copies(self._deposits.in_turns(lambda each: each.moment))
        if len(ordered) > max_exhibits:
            self._notes.add(
                f"of {len(ordered)} deposits that are older than the key {max_exhibits} were "
                "measured",
                "unheard",
            )
        contested = sorted(self._contested.values(), key=lambda each: each[1])
        if len(contested) > _MAX_NOTES:
            self._notes.add(f"{len(contested)} parties contest the day of the release", "dates")
        return Heard(
            exhibits=ordered[:max_exhibits],
            unheard=ordered[max_exhibits:],
            keys=list(self._keys.in_turns(moment_of)),
            contested=contested[:_MAX_NOTES],
            notes=self._notes.texts(),
        )


class _Parties(Generic[_Thing]):
    """What each party has, as much as it may."""

    def __init__(self) -> None:
        self._of: dict[str, list[_Thing]] = {}

    def add(self, fingerprint: str, thing: _Thing) -> bool:
        """Add something of a party's; return False if it has had its share."""
        mine = self._of.setdefault(fingerprint, [])
        if len(mine) == MAX_OF_ONE_PARTY:
            return False
        mine.append(thing)
        return True

    def in_turns(self, moment: Callable[[_Thing], Moment]) -> Iterator[_Thing]:
        """Yield every party's first, then every party's second; of one turn the oldest first."""
        for number in range(MAX_OF_ONE_PARTY):
            turn = [things[number] for things in self._of.values() if len(things) > number]
            yield from sorted(turn, key=moment)


def _without_copies(ordered: Iterable[NamedDeposit]) -> list[NamedDeposit]:
    """Leave out what has the same content as something that is measured already.

    The oldest of them counts: that a copy of it was named first changes nothing.
    """
    found: dict[tuple[str, str], NamedDeposit] = {}
    for named in ordered:
        content = (named.deposit.what, named.deposit.content_sha256)
        if content not in found or named.moment < found[content].moment:
            found[content] = named
    return list(found.values())


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
