"""What a test leaves running is found, named and ended."""

from __future__ import annotations

import subprocess

from left_behind import Watch
from processes import PATIENCE, is_running, running

ORPHAN = ["sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!"]


def test_also_what_a_dead_process_has_left_is_ended() -> None:
    orphan = int(subprocess.run(ORPHAN, capture_output=True, check=True, timeout=PATIENCE).stdout)
    assert is_running(orphan)
    assert Watch().end_what_is_left(seconds=0.1) == [f"{orphan}: sleep 3600"]
    assert not is_running(orphan)


def test_what_a_fixture_started_lasts_as_long_as_the_fixture() -> None:
    watch = Watch()
    with watch.setting_up("function"), running(["sleep", "3600"]):
        pass
    assert watch.end_what_is_left(seconds=0.1) == []
    with running(["sleep", "3601"]) as process:
        with watch.setting_up("module"), running(["sleep", "3602"]):
            pass
        with watch.setting_up("module"):
            lasting = subprocess.Popen(["sleep", "3603"])
        assert watch.end_what_is_left(seconds=0.1) == [f"{process.pid}: sleep 3601"]
    assert is_running(lasting.pid)
    watch.forget("module")
    assert watch.end_what_is_left(seconds=0.1) == [f"{lasting.pid}: sleep 3603"]
    lasting.wait()
