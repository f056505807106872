from __future__ import annotations

import pytest

from nsmark.errors import InputError
from nsmark_authority.client.seen import SeenCheckpoint
from nsmark_authority.errors import (
    AuthorityError,
    NotFoundError,
    RewrittenLogError,
    TransparencyError,
)
from watched_log import MemoryLog, deposit_entry, trusted


def never(old: int, new: int) -> tuple[bytes, ...]:
    raise AssertionError("no proof is needed")


def test_a_growing_log_is_remembered_across_processes(tmp_path):
    path = tmp_path / "folder" / "seen.note"
    log = MemoryLog([deposit_entry(0)])
    assert SeenCheckpoint(trusted().note_key, path).take(log.checkpoint_note(), never).size == 1
    log.history.append(deposit_entry(1))
    seen = SeenCheckpoint(trusted().note_key, path)
    assert seen.reload() == 1

    seen.take(log.checkpoint_note(), log.consistency, at_least=1)

    assert SeenCheckpoint(trusted().note_key, path).reload() == 2
    assert path.read_bytes() == log.checkpoint_note()


def test_an_older_checkpoint_of_a_receipt_is_proved_and_changes_nothing(tmp_path):
    log = MemoryLog([deposit_entry(n) for n in range(5)])
    seen = SeenCheckpoint(trusted().note_key, tmp_path / "seen.note")
    newest = log.checkpoint_note()
    seen.take(newest, never)
    log.shown_size = 3

    assert seen.take(log.checkpoint_note(), log.consistency).size == 3
    assert seen.note == newest
    with pytest.raises(RewrittenLogError, match="ROLLED BACK"):
        seen.take(log.checkpoint_note(), log.consistency, at_least=5)


def test_another_command_that_saw_more_makes_no_alarm(tmp_path):
    path = tmp_path / "seen.note"
    log = MemoryLog([deposit_entry(0)])
    mine = SeenCheckpoint(trusted().note_key, path)
    at_least = mine.reload()
    note = log.checkpoint_note()
    log.history.append(deposit_entry(1))
    SeenCheckpoint(trusted().note_key, path).take(log.checkpoint_note(), never)

    assert mine.take(note, log.consistency, at_least=at_least).size == 1


@pytest.mark.parametrize("growth", [0, 1, 4])
def test_a_rewritten_log_is_refused_and_both_notes_are_kept(tmp_path, growth):
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    seen = SeenCheckpoint(trusted().note_key, tmp_path / "seen.note")
    earlier = log.checkpoint_note()
    seen.take(earlier, never)
    log.history = [deposit_entry(9), *log.history[1:], *map(deposit_entry, range(20, 20 + growth))]

    with pytest.raises(RewrittenLogError) as refused:
        seen.take(log.checkpoint_note(), log.consistency)

    assert (refused.value.earlier, refused.value.later) == (earlier, log.checkpoint_note())
    assert refused.value.hint
    assert seen.note == earlier


@pytest.mark.parametrize("proof", [(), (b"\0" * 32,), (b"short",)])
def test_a_false_proof_is_none(proof):
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    seen = SeenCheckpoint(trusted().note_key)
    seen.take(log.checkpoint_note(), never)
    log.history.append(deposit_entry(3))

    with pytest.raises(RewrittenLogError, match="cannot prove"):
        seen.take(log.checkpoint_note(), lambda old, new: proof)


def test_a_damaged_memory_is_not_passed_over(tmp_path):
    path = tmp_path / "seen.note"
    path.write_bytes(MemoryLog([deposit_entry(0)]).checkpoint_note().replace(b"1\n", b"2\n", 1))

    with pytest.raises(TransparencyError, match=r"seen\.note"):
        SeenCheckpoint(trusted().note_key, path)


@pytest.mark.parametrize("kind", [NotFoundError, InputError, TransparencyError])
def test_a_log_that_refuses_the_proof_has_none(kind):
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    seen = SeenCheckpoint(trusted().note_key)
    seen.take(log.checkpoint_note(), never)
    log.history.append(deposit_entry(3))

    def refuse(old, new):
        raise kind("no", "no")

    with pytest.raises(RewrittenLogError, match="cannot prove"):
        seen.take(log.checkpoint_note(), refuse)


def test_a_log_that_is_away_has_rewritten_nothing():
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    seen = SeenCheckpoint(trusted().note_key)
    seen.take(log.checkpoint_note(), never)
    log.history.append(deposit_entry(3))

    def away(old, new):
        raise AuthorityError("it does not answer", "try again")

    with pytest.raises(AuthorityError):
        seen.take(log.checkpoint_note(), away)
