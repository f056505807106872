"""What a command says of its progress, on a terminal and in a log."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys

from nsmark.cli.progress import Progress

WORK = """
import sys, time
from nsmark.cli import progress
progress._TERMINAL_SECONDS = progress._LOG_SECONDS = 0.05
with progress.progress_bar("opening", quiet="--quiet" in sys.argv) as update:
    time.sleep(0.3)  # says nothing
    update.stage("asking")
    for done in range(0, 3001, 100):
        update(done, 3000, "texts")
        time.sleep(0.02)
    time.sleep(0.3)
print("found", flush=True)
"""


def lines_of_a_log(*words: str) -> list[str]:
    command = [sys.executable, "-c", WORK, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "found\n"
    return done.stderr.splitlines()


def test_a_log_gets_lines_also_while_nothing_is_said():
    lines = lines_of_a_log()
    assert len([line for line in lines if re.fullmatch(r"opening  \d+ s", line)]) >= 2
    asking = [line for line in lines if line.startswith("asking  ")]
    assert any(re.search(r"[\d,]+ of 3,000 texts  about \d+ s left$", line) for line in asking)
    assert re.fullmatch(r"asking  3,000 of 3,000 texts  \d+ s", lines[-1])
    assert not any("None" in line or "\r" in line for line in lines)


def test_quiet_says_nothing():
    assert lines_of_a_log("--quiet") == []


def test_a_terminal_gets_one_line_that_is_gone_in_the_end():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", WORK])  # noqa: S606 - no shell
    written = b""
    with contextlib.suppress(OSError):  # the other side has ended
        while part := os.read(terminal, 65536):
            written += part
    assert os.waitpid(pid, 0)[1] == 0
    shown = written.decode()
    assert shown.endswith("\r\x1b[Kfound\r\n")
    assert shown.count("\n") == 1
    assert re.search(r"asking  █+░+  [\d,]+ of 3,000 texts  about", shown)


def test_time_left_is_told_once_there_is_a_pace():
    progress = Progress("training")
    progress(10, 100)
    assert re.fullmatch(r"training  10 of 100  \d+ s", progress.line())
    progress(20, 100, "steps")
    assert re.fullmatch(r"training  20 of 100 steps  about \d+ s left", progress.line())
    progress(100, 100, "steps")
    assert "left" not in progress.line()
