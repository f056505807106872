"""Which evidence is measured: nobody's is drowned by what others name."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from authority_world import KeyOwner, admit, make_authority, rule, small_key
from nsmark_authority.answers import MAX_OF_ONE_PARTY, Heard, hear, moment_of
from nsmark_authority.records import FiledKey, GivenDefence
from nsmark_authority.service import Authority

CLAIMANT = KeyOwner(1)


class Scene:
    """Parties who deposit and answer; the claimant's key comes when it is asked for."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        CLAIMANT.register(authority)
        self._filing: FiledKey | None = None
        self._dispute = ""
        self._known: set[int] = set()

    def deposit(self, seed: int, content: bytes, *, with_content: bool = True) -> str:
        party = KeyOwner(seed)
        if seed not in self._known:
            party.register(self.authority)
            self._known.add(seed)
        document = party.recorded(content)
        given = io.BytesIO(content) if with_content else None
        return self.authority.deposit(document, given).entry_id

    @property
    def filing(self) -> FiledKey:
        if self._filing is None:
            receipt = CLAIMANT.file(self.authority)
            admit(self.authority, receipt.entry_id)
            self._filing = self.authority.registry.filing(receipt.entry_id)
            self._dispute = self.authority.open_dispute(CLAIMANT.dispute()).entry_id
        return self._filing

    def answer(self, seed: int, evidence: str | None, **others: object) -> str:
        assert self.filing
        document = KeyOwner(seed).answer(self._dispute, evidence, **others)
        return self.authority.answer_dispute(document).entry_id

    def answers(self) -> list[GivenDefence]:
        return self.authority.registry.defences(self._dispute)

    def heard(self, max_exhibits: int = 64) -> Heard:
        registry, contents = self.authority.registry, self.authority.contents
        return hear(
            self.answers(),
            self.filing,
            registry,
            contents,
            max_exhibits=max_exhibits,
            dispute=self._dispute,
        )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    authority = make_authority(tmp_path, answer_seconds=3600)
    yield Scene(authority)
    authority.close()


def ids(exhibits: list[object]) -> list[str]:
    return [each.deposit.entry_id for each in exhibits]  # type: ignore[attr-defined]


def test_what_is_older_and_was_handed_over_is_measured(scene: Scene) -> None:
    older = scene.deposit(2, b"older")
    empty = scene.deposit(2, b"never seen", with_content=False)
    assert scene.filing
    younger = scene.deposit(2, b"younger")
    answers = [scene.answer(2, each) for each in (younger, empty, older)]
    scene.answer(2, None)

    heard = scene.heard()

    assert [(each.deposit.entry_id, each.defence) for each in heard.exhibits] == [
        (older, answers[2])
    ]
    assert heard.unheard == []
    assert any(younger[:12] in note and "after the key" in note for note in heard.notes)
    assert any(empty[:12] in note and "not handed over" in note for note in heard.notes)


def test_a_copied_digest_is_nobody_s_evidence(scene: Scene) -> None:
    scene.deposit(2, b"what party 2 has")
    copied = scene.deposit(3, b"what party 2 has", with_content=False)
    scene.answer(3, copied)

    assert scene.heard().exhibits == []


def test_accomplices_do_not_drown_the_evidence_of_another(scene: Scene) -> None:
    """Parties 4 to 9 have deposited a lot, earlier than the one who has something to say."""
    noise = {
        seed: [scene.deposit(seed, b"%d %d" % (seed, number)) for number in range(3)]
        for seed in range(4, 10)
    }
    real = scene.deposit(2, b"real evidence")
    for seed, deposits in noise.items():
        for each in deposits:
            scene.answer(seed, each)
    scene.answer(2, real)

    heard = scene.heard(max_exhibits=7)

    assert real in ids(heard.exhibits)
    assert len(heard.exhibits) == 7
    assert len(heard.unheard) == 12
    assert any("of 19 deposits" in note for note in heard.notes)


def test_one_party_is_heard_with_so_much_and_no_more(scene: Scene) -> None:
    deposits = [scene.deposit(2, b"%d" % number) for number in range(MAX_OF_ONE_PARTY + 10)]
    for each in reversed(deposits):
        scene.answer(2, each)

    heard = scene.heard()

    assert ids(heard.exhibits) == deposits[:9:-1]  # as the party chose: the first it named
    assert heard.unheard == []
    assert heard.notes[-1] == "and 2 more of this kind"
    assert len(heard.notes) == 9


def test_what_is_the_same_is_measured_once_and_the_oldest_counts(scene: Scene) -> None:
    oldest, younger = scene.deposit(2, b"the same"), scene.deposit(3, b"the same")
    other = scene.deposit(3, b"other")
    for seed, each in ((3, other), (3, younger), (2, oldest), (2, oldest)):
        scene.answer(seed, each)

    assert sorted(ids(scene.heard().exhibits)) == sorted([oldest, other])


def test_contested_dates_are_told(scene: Scene) -> None:
    scene.deposit(2, b"x")
    answer = scene.answer(2, None, released="2020-01-01T00:00:00Z")

    assert scene.heard().contested == [(answer, "2020-01-01T00:00:00Z")]


def test_contested_dates_are_not_drowned_either(scene: Scene) -> None:
    for seed in range(3, 13):
        scene.deposit(seed, b"%d" % seed)
        for day in (1, 2):
            scene.answer(seed, None, released=f"2025-01-0{day}T00:00:00Z")
    scene.deposit(2, b"x")
    real = scene.answer(2, None, released="2020-01-01T00:00:00Z")

    heard = scene.heard()

    assert heard.contested[0] == (real, "2020-01-01T00:00:00Z")
    assert [day for _, day in heard.contested[1:]] == ["2025-01-01T00:00:00Z"] * 7
    assert "11 parties contest the day of the release" in heard.notes


def test_what_was_said_in_another_dispute_speaks_against_the_key_alone(scene: Scene) -> None:
    """Who withdraws and disputes again does not get rid of the evidence; other suspects' keys and
    days are another matter."""
    older = scene.deposit(2, b"older")
    key = KeyOwner(2).file(scene.authority, 5).entry_id
    admit(scene.authority, key)
    scene.answer(2, older, released="2020-01-01T00:00:00Z")
    scene.answer(2, key)
    registry, contents = scene.authority.registry, scene.authority.contents

    heard = hear(
        scene.answers(), scene.filing, registry, contents, max_exhibits=9, dispute="another"
    )

    assert ids(heard.exhibits) == [older]
    assert heard.keys == heard.contested == []


def test_a_key_whose_claim_fell_is_named_in_vain(scene: Scene) -> None:
    scene.deposit(2, b"x")
    party = KeyOwner(2)
    admit(scene.authority, party.file(scene.authority, 5).entry_id)
    fallen = scene.authority.registry.filing_of_key(small_key(5, 2).key_id)
    rule(scene.authority, scene.authority.open_dispute(party.dispute(5)).entry_id, "fell")
    scene.answer(2, fallen.entry_id)

    heard = scene.heard()

    assert heard.keys == []
    assert any("fell in an earlier dispute" in note for note in heard.notes)


def test_the_claimant_s_own_deposits_count_against_another_s_key(scene: Scene) -> None:
    mine, other = scene.deposit(2, b"mine"), scene.deposit(3, b"another's")
    registry, contents = scene.authority.registry, scene.authority.contents
    found = [registry.deposit(each) for each in (mine, other)]

    heard = hear([], scene.filing, registry, contents, max_exhibits=9, unnamed=found)

    assert ids(heard.exhibits) == [mine, other]
    assert [each.defence for each in heard.exhibits] == [None, None]


def test_keys_of_those_who_answer(scene: Scene) -> None:
    scene.deposit(2, b"x")
    party = KeyOwner(2)
    waiting, admitted = (party.file(scene.authority, number).entry_id for number in (1, 2))
    admit(scene.authority, admitted)
    for each in (waiting, admitted):
        scene.answer(2, each)

    heard = scene.heard()

    assert [each.entry_id for each in heard.keys] == [admitted]
    assert any("'waiting'" in note for note in heard.notes)


def test_an_outside_time_counts_if_it_is_the_earlier_one(scene: Scene) -> None:
    deposit = scene.authority.registry.deposit(scene.deposit(2, b"x"))
    dated = replace(deposit, proven="2020-01-01T00:00:00Z")

    assert moment_of(dated) < moment_of(deposit)
    assert moment_of(replace(deposit, proven="2999-01-01T00:00:00Z")) == moment_of(deposit)
