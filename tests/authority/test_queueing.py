"""The queue wakes workers; it is never the truth, and nothing in it is trusted."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("huey", reason="needs the authority extra")

from huey import RedisHuey, SqliteHuey

from nsmark.errors import ConfigError, MissingExtraError
from nsmark_authority.errors import AuthorityError
from nsmark_authority.queueing import QUEUE_FILE, WorkQueue, make_huey, open_queue
from nsmark_authority.settings import AuthoritySettings
from processes import PATIENCE, free_port, running, wait_for

JOB, OTHER = "ab" * 16, "cd" * 16
NEVER = threading.Event()


@pytest.fixture
def queue(tmp_path: Path) -> WorkQueue:
    return open_queue(AuthoritySettings(folder=tmp_path))


def test_messages_reach_another_process_s_queue_in_order(tmp_path: Path, queue: WorkQueue) -> None:
    worker = open_queue(AuthoritySettings(folder=tmp_path))
    queue.wake(JOB)
    queue.wake(OTHER)
    assert [worker.wait(PATIENCE, NEVER) for _ in range(2)] == [JOB, OTHER]
    assert worker.wait(0, NEVER) is None
    worker.close()
    queue.close()


def test_waiting_ends_when_somebody_calls_or_says_stop(queue: WorkQueue) -> None:
    began = time.monotonic()
    threading.Timer(0.3, queue.wake, [JOB]).start()
    assert queue.wait(PATIENCE, NEVER) == JOB
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert queue.wait(PATIENCE, stop) is None
    assert time.monotonic() - began < PATIENCE


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    "message",
    [pickle.dumps(_Evil()), b"", b"ab" * 17, b"AB" * 16, b"\xff" * 32, b"ab" * 15 + b"\n"],
)
def test_what_nobody_of_ours_wrote_is_dropped(
    tmp_path: Path, queue: WorkQueue, message: bytes
) -> None:
    make_huey(None, tmp_path).storage.enqueue(message)
    queue.wake(JOB)
    assert queue.wait(PATIENCE, NEVER) == JOB


def test_messages_are_nothing_but_the_id(tmp_path: Path, queue: WorkQueue) -> None:
    queue.wake(JOB)
    assert make_huey(None, tmp_path).storage.enqueued_items() == [JOB.encode()]


def test_a_queue_that_is_gone_is_an_error_for_callers_and_none_for_workers(
    tmp_path: Path, queue: WorkQueue
) -> None:
    queue.close()
    for file in tmp_path.glob(f"{QUEUE_FILE}*"):
        file.unlink()
    (tmp_path / QUEUE_FILE).mkdir()
    with pytest.raises(AuthorityError, match="queue"):
        queue.wake(JOB)
    assert queue.wait(0.1, NEVER) is None


def test_without_a_url_it_is_a_file_in_the_folder(tmp_path: Path) -> None:
    assert isinstance(make_huey(None, tmp_path), SqliteHuey)
    assert (tmp_path / QUEUE_FILE).is_file()


@pytest.mark.parametrize("url", ["http://u:secret@a.example", "", "memory", "redis"])
def test_urls_that_are_none_are_refused_without_showing_them(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_huey(url, tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "rediss://:secret@a.example/1"])
def test_with_a_redis_url_it_is_redis(tmp_path: Path, url: str) -> None:
    if find_spec("redis") is None:
        with pytest.raises(MissingExtraError, match="redis"):
            make_huey(url, tmp_path)
    else:
        assert isinstance(make_huey(url, tmp_path), RedisHuey)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis server of this test's own, on a free port of this machine."""
    program = shutil.which("redis-server")
    if program is None or find_spec("redis") is None:
        pytest.skip("no redis-server here; `make database` installs it as root")
    for _ in range(9):  # somebody else may take the port before it does
        port = free_port()
        options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
        log = tmp_path / "redis.log"
        command = [program, *options, "--logfile", str(log)]
        with running(command, stdout=subprocess.DEVNULL) as server:

            def began(process: subprocess.Popen[bytes] = server, log: Path = log) -> bool:
                said = log.read_text() if log.exists() else ""
                return process.poll() is not None or "Ready to accept" in said

            wait_for(began, "Redis to begin")
            if server.poll() is None:
                yield f"redis://127.0.0.1:{port}/0"
                return
        log.unlink(missing_ok=True)
    pytest.fail("Redis did not begin")


def test_ids_travel_through_a_real_redis(tmp_path: Path, redis_url: str) -> None:
    ours, theirs = (WorkQueue(make_huey(redis_url, tmp_path)) for _ in range(2))
    ids = [f"{number:032x}" for number in range(3)]
    for job_id in ids:
        ours.wake(job_id)
    assert [theirs.wait(PATIENCE, NEVER) for _ in ids] == ids
    assert theirs.wait(0, NEVER) is None
    # What somebody else puts there is no job, and does no harm.
    ours._huey.storage.enqueue(b"cos\nsystem\n(S'true'\ntR.")
    assert theirs.wait(0, NEVER) is None
    ours.wake(ids[0])
    assert theirs.wait(PATIENCE, NEVER) == ids[0]
    ours.close()
    theirs.close()


def test_neither_the_queue_nor_the_worker_imports_torch() -> None:
    modules = "queueing, worker, workbench, admitting, settling"
    code = f"import sys; from nsmark_authority import {modules}; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert found.stdout.strip() == "False"
