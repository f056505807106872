"""Work in the background really gives way, children and all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("huey", reason="needs the authority extra")

import burning_tasks
from processes import run

# Nothing more is done with what nobody else wants: beside others that may be nothing at all.
ALONE = """
import json, os, burning_tasks
from nsmark_authority.giving_way import give_way
give_way()
os.write(1, json.dumps(burning_tasks.tell_manners({}, [], None)).encode())
os._exit(0)
"""
WITH_A_CHILD = """
import json, sys
import burning_tasks
from nsmark_authority.confinement import Confinement, Workshop
from nsmark_authority.giving_way import give_way
if __name__ == "__main__":  # children import this file, too
    give_way(int(sys.argv[1]))
    child = Workshop(Confinement(seconds=3600), ()).run(burning_tasks.tell_manners, {})
    print(json.dumps([burning_tasks.tell_manners({}, [], None), child]))
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux knows idle work")


def manners(tmp_path: Path, script: str, *arguments: str) -> object:
    (tmp_path / "script.py").write_text(script)
    tests = str(Path(burning_tasks.__file__).parent)
    done = run(
        [sys.executable, str(tmp_path / "script.py"), *arguments],
        env=os.environ | {"PYTHONPATH": tests},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_work_in_the_background_takes_only_what_nobody_else_wants(tmp_path: Path) -> None:
    # Of one session with whoever started it: between sessions no niceness counts.
    wanted = {"niceness": 19, "policy": os.SCHED_IDLE, "session": os.getsid(0)}

    assert manners(tmp_path, ALONE) == wanted


@pytest.mark.parametrize("niceness", [0, 1])
def test_children_are_as_important_as_who_starts_them(tmp_path: Path, niceness: int) -> None:
    wanted = {
        "niceness": os.nice(0) + niceness,
        "policy": os.SCHED_OTHER,
        "session": os.getsid(0),
    }

    assert manners(tmp_path, WITH_A_CHILD, str(niceness)) == [wanted, wanted]
