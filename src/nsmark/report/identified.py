"""What an identification comes to: its plan, and each key's finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nsmark.report.versions import library_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A key, and what was found of it."""

    file: str
    key_id: str | None = None
    owner: str | None = None
    pairs: int | None = None
    """Pairs of its table that were asked."""
    rate: float | None = None
    """Share of them whose sign was read rightly."""
    p_value: float | None = None
    corrected_p_value: float | None = None
    """Times the number of keys tested, at most 1."""
    found: bool = False
    doubt: str | None = None
    """Why the pair code proves nothing by itself; such a key is never found."""
    error: str | None = None
    """Why the key could not be tested."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the values by name; null where not to be had."""
        names = ("file", "key_id", "owner", "rate", "pairs", "p_value", "corrected_p_value")
        return {name: getattr(self, name) for name in (*names, "found", "doubt", "error")}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentificationPlan:
    """What is going to be asked, known before the first text."""

    num_keys: int
    num_pairs: int
    """Different pairs of words, over all keys."""
    num_queries: int
    """Texts to ask; of an endpoint decoys, repetitions and the cache are counted."""
    most_queries: int
    pairs_per_key: int
    """The most that one key is asked."""
    pair_repeats: int
    least_pairs: int
    """With fewer no key can be found, even if all are read rightly."""
    randomness: str
    endpoint: str | None = None
    """What the endpoint is sent, in words."""

    @property
    def is_too_much(self) -> bool:
        """Whether more would be asked than is allowed."""
        return self.num_queries > self.most_queries

    def to_text(self) -> str:
        """Return the plan as lines for people."""
        text = (
            f"{self.num_keys} keys, up to {self.pairs_per_key} pairs of words each, "
            f"{self.num_pairs} different ones, {self.pair_repeats} texts for each: "
            f"{self.num_queries} queries (at most {self.most_queries})"
        )
        return "\n".join([text, *([self.endpoint] if self.endpoint else []), *self.advice()])

    def advice(self) -> list[str]:
        """Say what would lower the number, and what is too low already."""
        lines = []
        if self.pairs_per_key < self.least_pairs:
            lines.append(
                f"too few pairs to find anything: among {self.num_keys} keys one needs "
                f"{self.least_pairs} or more"
            )
        enough = 3 * self.least_pairs // 2
        if self.is_too_much and self.pairs_per_key > enough:
            lines.append(f"fewer pairs of each key: --pairs {enough}")
        if self.is_too_much and self.pair_repeats > 1:
            lines.append(f"fewer texts for each pair: --pair-repeats {self.pair_repeats // 2}")
        if self.is_too_much and self.num_keys > 1:
            lines.append(
                "keys made from one short word list share pairs: k words have k·(k-1)/2, however "
                "many the keys"
            )
        return lines

    def to_mapping(self) -> dict[str, Any]:
        """Return the values by name."""
        names = (
            *("num_keys", "num_pairs", "num_queries", "most_queries", "pairs_per_key"),
            *("pair_repeats", "least_pairs", "randomness", "endpoint", "is_too_much"),
        )
        return {name: getattr(self, name) for name in names} | {"advice": self.advice()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """Which keys' marks a suspect carries."""

    suspect: str
    plan: IdentificationPlan | None
    """None where no key could be tested, so that nothing was asked."""
    keys: tuple[Finding, ...]
    """The smallest p-value first; those that could not be tested last."""
    num_repeated: int
    seconds: float

    @property
    def found(self) -> tuple[Finding, ...]:
        """The keys whose marks were found; a second owner may have added his."""
        return tuple(each for each in self.keys if each.found)

    @property
    def exit_code(self) -> int:
        """What the command line ends with: 0 found, 1 none found, 3 no key could be tested."""
        if self.plan is None:
            return 3
        return 0 if self.found else 1

    def to_mapping(self) -> dict[str, Any]:
        """Return the stable JSON form."""
        plan = self.plan
        return {
            "suspect": self.suspect,
            "randomness": plan.randomness if plan else None,
            "num_keys": plan.num_keys if plan else 0,
            "num_repeated": self.num_repeated,
            "num_queries": plan.num_queries if plan else 0,
            "num_pairs_asked": plan.num_pairs if plan else 0,
            "found": [each.key_id for each in self.found],
            "keys": [each.to_mapping() for each in self.keys],
            "seconds": round(self.seconds, 3),
            "versions": library_versions(),
        }
