"""Work in the background really gives way, children and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("huey", reason="needs the authority extra")

SCRIPT = """
import json, os, sys
import burning_tasks
from nsmark.authority.confinement import Confinement, Workshop
from nsmark.authority.giving_way import give_way
if __name__ == "__main__":  # children import this file, too
    give_way(int(sys.argv[1]))
    child = Workshop(Confinement(seconds=30), ()).run(burning_tasks.tell_manners, {})
    print(json.dumps([burning_tasks.tell_manners({}, [], None), child]))
"""


def manners(tmp_path: Path, niceness: int) -> list[dict[str, object]]:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(niceness)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return list(json.loads(run.stdout))


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux knows idle work")
def test_a_worker_and_its_children_take_only_what_nobody_else_wants(tmp_path: Path) -> None:
    # Of one session with whoever started them: between sessions no niceness counts.
    wanted = {"niceness": 19, "policy": os.SCHED_IDLE, "session": os.getsid(0)}

    assert manners(tmp_path, 19) == [wanted, wanted]


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux knows idle work")
def test_who_is_told_to_is_as_important_as_others(tmp_path: Path) -> None:
    usual = {"niceness": os.nice(0), "policy": os.SCHED_OTHER, "session": os.getsid(0)}

    assert manners(tmp_path, 0) == [usual, usual]
