"""What a test leaves running is found, named and ended."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from processes import is_running, run

CONFTEST = """
from left_behind import Watch

def pytest_configure(config):
    config.pluginmanager.register(Watch(seconds=0.2))
"""
TESTS = """
import subprocess
import pytest
from processes import is_running, running

@pytest.fixture(scope="session")
def long():
    with running(["sleep", "3600"]) as process:
        yield process

@pytest.fixture(scope="module")
def forgotten():
    return subprocess.Popen(["sleep", "3601"])

def test_a(long, forgotten):
    pass

def test_b():
    orphaned = "sleep 3602 >/dev/null 2>&1 & echo $!"
    print("orphan", subprocess.run(["sh", "-c", orphaned], capture_output=True, text=True).stdout)

def test_c(long, forgotten):
    assert is_running(long.pid)
    assert is_running(forgotten.pid)
"""
MORE = """
def test_d(long):
    pass
"""


def test_what_is_left_behind_is_named_and_ended(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text("from test_one import long\n" + MORE)
    options = ["-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told = re.findall(r"^\S*?(\w+) left processes behind:\n\d+: (.*)", done.stdout, re.MULTILINE)
    assert told == [("test_b", "sleep 3602"), ("test_c", "sleep 3601")], done.stdout
    assert "4 passed, 2 errors" in done.stdout
    orphan = re.search(r"orphan (\d+)", done.stdout)
    assert orphan is not None
    assert not is_running(int(orphan[1]))
