from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from authority_world import KeyOwner, make_authority
from handmade_keys import make_identity
from nsmark.errors import InputError
from nsmark_authority.client import monitor as monitor_module
from nsmark_authority.client.monitor import Monitor, Watch, expected_entries
from nsmark_authority.client.trust import require_same_time
from nsmark_authority.errors import AuthorityError
from nsmark_authority.statements import entry_id_of
from nsmark_authority.transparency import open_checkpoint
from watched_log import MemoryLog, deposit_entry, registration_entry, trusted

PROPERTY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def watching(log: MemoryLog, state: Path, watch: Watch | None = None) -> Monitor:
    return Monitor(log, trusted(), state, watch)


def kinds(look) -> list[str]:
    return [alert.kind for alert in look.alerts]


def deposits(numbers) -> list[bytes]:
    return [deposit_entry(number) for number in numbers]


class AskedAuthority:
    """Answers what a monitor asks besides the log."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.shown = trusted()

    def require_unchanged(self) -> None:
        require_same_time(trusted(), roots=self.shown.roots, local_time=self.shown.local_time)

    def registered_name(self, fingerprint: str) -> str:
        if self.name is None:
            raise AuthorityError("the authority cannot be asked", "try again")
        return self.name


# --- A log that only grows. ---


@PROPERTY
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 4))
def test_any_growth_is_accepted(tmp_path_factory, steps, page):
    log = MemoryLog([], page)
    state = tmp_path_factory.mktemp("state") / "monitor.json"
    for step in steps:
        begin = len(log.history)
        log.history += deposits(range(begin, begin + step))
        # A new process at every look: all that counts is in the file.
        look = watching(log, state).look()
        assert (look.size, look.num_new, look.alerts) == (begin + step, step, ())


@PROPERTY
@given(st.data())
def test_any_rewriting_of_what_was_seen_is_noticed(tmp_path_factory, data):
    size = data.draw(st.integers(1, 9), "size")
    growth = data.draw(st.integers(0, 5), "growth")
    how = data.draw(st.sampled_from(["replace", "swap", "drop", "insert"]), "how")
    place = data.draw(st.integers(0, size - 1), "place")
    state = tmp_path_factory.mktemp("state") / "monitor.json"
    log = MemoryLog(deposits(range(size)))
    assert watching(log, state).look().alerts == ()

    changed = list(log.history)
    if how == "replace":
        changed[place] = deposit_entry(1000)
    elif how == "swap":
        other = (
            data.draw(st.integers(0, size - 1).filter(lambda n: n != place), "other")
            if (size > 1)
            else place
        )
        changed[place], changed[other] = changed[other], changed[place]
        if changed == log.history:
            changed[place] = deposit_entry(1001)
    elif how == "drop":
        del changed[place]
    else:
        changed.insert(place, deposit_entry(1002))
    log.history = changed + deposits(range(2000, 2000 + growth))
    before = state.read_bytes()

    for _ in range(2):  # and it is told again, until somebody looks into it
        assert kinds(watching(log, state).look()) == ["rewritten"]
    assert state.read_bytes() == before


def test_a_shortened_log_and_a_fork_are_shown_with_both_notes(tmp_path):
    state = tmp_path / "monitor.json"
    log = MemoryLog(deposits(range(5)))
    first = log.checkpoint_note()
    watching(log, state).look()

    log.shown_size = 3
    (alert,) = watching(log, state).look().alerts
    assert "ROLLED BACK" in alert.message

    log.shown_size = None
    log.history[4] = deposit_entry(77)
    (alert,) = watching(log, state).look().alerts
    assert "FORKED" in alert.message
    assert alert.earlier == first.decode()
    # The two notes convict the log before anybody who knows its key.
    notes = [
        open_checkpoint(each.encode(), trusted().note_key) for each in (alert.earlier, alert.later)
    ]
    assert notes[0].size == notes[1].size
    assert notes[0].root != notes[1].root


def test_entries_that_are_not_those_of_the_signed_root_are_noticed(tmp_path):
    log = MemoryLog(deposits(range(4)))
    honest_note = log.checkpoint_note()
    log.checkpoint_note = lambda: honest_note
    log.history[2] = deposit_entry(50)

    look = watching(log, tmp_path / "monitor.json").look()

    assert kinds(look) == ["rewritten"]
    assert "not the 4 that it signed" in look.alerts[0].message


def test_a_checkpoint_of_another_key_is_no_checkpoint(tmp_path):
    log = MemoryLog(deposits(range(2)))
    look = Monitor(log, trusted(seed=5), tmp_path / "monitor.json").look()

    assert kinds(look) == ["forged"]


# --- Entries. ---


def test_an_entry_that_its_maker_did_not_sign_is_noticed(tmp_path):
    forged = json.loads(deposit_entry(3))
    forged["signatures"][0]["sig"] = json.loads(deposit_entry(4))["signatures"][0]["sig"]
    log = MemoryLog([deposit_entry(0), json.dumps(forged, separators=(",", ":")).encode()])

    look = watching(log, tmp_path / "monitor.json").look()

    assert kinds(look) == ["forged"]
    assert look.alerts[0].index == 1


def test_an_entry_served_as_another_kind_is_noticed(tmp_path):
    log = MemoryLog([deposit_entry(0)])
    log.kind = lambda index: "ruling"

    (alert,) = watching(log, tmp_path / "monitor.json").look().alerts

    assert "a deposit, served as 'ruling'" in alert.message


def test_somebody_elses_key_under_ones_name_is_noticed_once(tmp_path):
    mine, thief = (
        registration_entry("Example Lab", 1),
        registration_entry("\u0415\u0425AMPLE L\u00e4b", 2),
    )
    log = MemoryLog([mine, registration_entry("Another Lab", 3), thief])
    watch = Watch(
        owners=("example lab",),
        public_keys=(KeyOwner(1).identity.public_key,),
        expected=frozenset({entry_id_of(mine)}),
    )
    state = tmp_path / "monitor.json"

    (alert,) = watching(log, state, watch).look().alerts

    assert (alert.kind, alert.index, alert.entry_id) == ("name", 2, entry_id_of(thief))
    assert KeyOwner(2).fingerprint in alert.message
    assert watching(log, state, watch).look().alerts == ()


def test_an_unexpected_entry_under_ones_key_is_noticed(tmp_path):
    log = MemoryLog([deposit_entry(0, 1), deposit_entry(1, 1), deposit_entry(0, 2)])
    watch = Watch(
        public_keys=(make_identity(1).public_key,),
        expected=frozenset({entry_id_of(deposit_entry(0, 1))}),
    )

    look = watching(log, tmp_path / "monitor.json", watch).look()

    assert [(alert.kind, alert.index) for alert in look.alerts] == [("key", 1)]


def test_a_filing_is_shown_with_both_names_of_its_owner(tmp_path):
    filing, _ = KeyOwner(2).filing()  # its claim is that of Owner 2
    log = MemoryLog([filing])

    for name, words in (("Mallory", "registered as 'Mallory'"), ("Owner 2", "under the key")):
        authority = AskedAuthority(name)
        watch = Watch(owners=("Owner 2",))
        state = tmp_path / f"{name}.json"
        (alert,) = Monitor(log, trusted(), state, watch, authority).look().alerts
        assert (alert.owner, alert.registered_owner) == ("Owner 2", name)
        assert words in alert.message
        assert ("registered as" in alert.message) is (name == "Mallory")


def test_a_name_that_cannot_be_asked_for_silences_no_alert(tmp_path):
    log = MemoryLog([KeyOwner(2).filing()[0]])
    watch = Watch(owners=("Owner 2",))

    look = Monitor(log, trusted(), tmp_path / "m.json", watch, AskedAuthority(None)).look()

    assert kinds(look) == ["name"]
    assert "cannot be read" in look.alerts[0].message


def test_a_changed_authority_is_told_at_every_look_beside_what_the_log_has(tmp_path):
    log = MemoryLog([registration_entry("Example Lab", 2)])
    authority = AskedAuthority("Example Lab")
    watch = Watch(owners=("Example Lab",))
    authority.shown = replace(trusted(), local_time=False)
    found = [
        kinds(Monitor(log, trusted(), tmp_path / "m.json", watch, authority).look())
        for _ in range(2)
    ]
    assert found == [["authority", "name"], ["authority"]]

    log.history[0] = deposit_entry(8)
    look = Monitor(log, trusted(), tmp_path / "m.json", watch, authority).look()
    assert kinds(look) == ["authority", "rewritten"]
    authority.shown = trusted()
    assert kinds(Monitor(log, trusted(), tmp_path / "m.json", watch, authority).look()) == [
        "rewritten"
    ]


# --- What survives. ---


class PulledPlugError(Exception):
    pass


@PROPERTY
@given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 4))
def test_an_interrupted_look_goes_on_and_loses_no_alert(tmp_path_factory, size, stop, growth):
    folder = tmp_path_factory.mktemp("state")
    thief = registration_entry("Example Lab", 2)
    log = MemoryLog([thief, *deposits(range(size))], page=2)
    watch = Watch(owners=("Example Lab",))
    saved = monitor_module._SAVE_EVERY_PAGES
    monitor_module._SAVE_EVERY_PAGES = 1
    try:

        def interrupt(read, total):
            if read >= min(stop, total):
                raise PulledPlugError(read)

        with pytest.raises(PulledPlugError) as stopped:
            watching(log, folder / "m.json", watch).look(on_progress=interrupt)
        log.reads = 0
        log.history += deposits(range(100, 100 + growth))
        look = watching(log, folder / "m.json", watch).look()
    finally:
        monitor_module._SAVE_EVERY_PAGES = saved
    assert kinds(look) == ["name"]
    assert look.size == look.num_new == len(log.history)
    # Pages that were read before are not read again.
    assert log.reads == -(-(len(log.history) - stopped.value.args[0]) // log.page)


def test_a_checkpoint_seen_before_an_interruption_binds_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(monitor_module, "_SAVE_EVERY_PAGES", 1)
    log = MemoryLog(deposits(range(8)), page=2)

    def interrupt(read, total):
        if read == 4:
            raise PulledPlugError

    with pytest.raises(PulledPlugError):
        watching(log, tmp_path / "m.json").look(on_progress=interrupt)
    log.history[1] = deposit_entry(60)  # rewritten before all entries were read

    for growth in range(3):
        assert kinds(watching(log, tmp_path / "m.json").look()) == ["rewritten"]
        log.history.append(deposit_entry(70 + growth))


def test_alerts_are_told_before_they_are_marked_as_told(tmp_path):
    log = MemoryLog([registration_entry("Example Lab", 2)])
    watch = Watch(owners=("Example Lab",))

    def die(look):
        raise PulledPlugError

    with pytest.raises(PulledPlugError):
        watching(log, tmp_path / "m.json", watch).look(tell=die)

    assert kinds(watching(log, tmp_path / "m.json", watch).look()) == ["name"]


def test_a_log_that_keeps_entries_back_is_an_error_until_it_gives_them(tmp_path):
    log = MemoryLog(deposits(range(3)))
    watching(log, tmp_path / "m.json").look()
    log.history += deposits([7])
    honest = log.entries

    def nothing(start, end):
        raise AuthorityError("the log does not give out its entries", "try again")

    log.entries = nothing
    for _ in range(2):
        with pytest.raises(AuthorityError):
            watching(log, tmp_path / "m.json").look()
    log.entries = honest
    assert watching(log, tmp_path / "m.json").look().num_new == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d | {"format": "nsmark/monitor/9"},
        lambda d: d | {"extra": 1},
        lambda d: d | {"verified": d["verified"] | {"size": 2}},
        lambda d: d | {"checkpoint": None},
        lambda d: d | {"authority": "another.example"},
        lambda d: d | {"reading": {"size": 0, "peaks": []}},
    ],
)
def test_a_state_that_somebody_changed_is_refused(tmp_path, change):
    state = tmp_path / "m.json"
    watching(MemoryLog(deposits(range(3))), state).look()
    state.write_text(json.dumps(change(json.loads(state.read_text()))))

    with pytest.raises(InputError) as refused:
        watching(MemoryLog(deposits(range(3))), state)
    assert refused.value.hint


def test_receipts_of_others_are_not_ones_own(tmp_path):
    """Whoever lays his receipt into one's folder must not silence the alert on it."""
    authority = make_authority(tmp_path / "authority")
    for number in (1, 2):
        owner = KeyOwner(number)
        receipt = owner.register(authority).receipt
        (tmp_path / f"{number}.receipt").write_bytes(receipt.to_json())
    authority.close()
    both = expected_entries([tmp_path])
    own = expected_entries([tmp_path], [KeyOwner(1).identity.public_key])
    assert len(both) == 2
    assert own == expected_entries([tmp_path / "1.receipt"])
