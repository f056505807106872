"""``nsmark serve``: one command, two processes, both gone when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the authority extra")

from authority_server import file_key, running_authority
from authority_world import KeyOwner
from nsmark.cli.main import main
from nsmark.identity import PublicKey
from nsmark_authority.statements import entry_id_of
from postgres_server import running_postgres
from processes import command_of, running, wait_for


def test_what_it_prints_and_how_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    options = ["--folder", str(folder), "--name", "log.example", "--port", "0", "--no-worker"]
    lines = []
    with running(
        [sys.executable, "-m", "nsmark", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("stop"):
                break
        process.send_signal(signal.SIGINT)
        status = process.wait()

    said = {line.split(None, 1)[0]: line.split(None, 1)[1] for line in lines}
    fingerprint = PublicKey.load(folder / "signing.pub").fingerprint
    assert status == 0
    assert said["authority"] == "log.example"
    assert said["address"].startswith("http://127.0.0.1:")
    assert said["public"] == f"key  {fingerprint}  ({folder / 'signing.pub'})"
    assert "proves no time to strangers" in said["time"]
    assert "--control" in said["controls"]


def test_what_was_filed_is_there_after_a_restart(tmp_path: Path) -> None:
    with running_authority(tmp_path) as server:
        owner = KeyOwner(1, server.name)
        token = server.register(owner)
        with server.client(token) as client:
            filing = owner.filing(1)
            receipt = file_key(client, *filing).content
            size = client.get("/v1/health").json()["log_size"]
        server.kill()
    with running_authority(tmp_path) as server, server.client(token) as client:
        again = file_key(client, *filing)
        assert (again.status_code, again.content) == (200, receipt)
        assert client.get("/v1/health").json()["log_size"] == size
        assert (tmp_path / "admin-token").stat().st_mode & 0o777 == 0o600


def workers_of(pid: int) -> list[int]:
    """Return the worker processes that a server started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # any thread may have started it
    children = [int(child) for each in lists for child in each.read_text().split()]
    return [child for child in children if is_worker(child)]


def is_worker(pid: int) -> bool:
    """Return whether this process runs, and is a worker; what is dead has no command line."""
    try:
        return b"nsmark_authority.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_the_worker_is_started_again_and_ends_with_the_server(tmp_path: Path) -> None:
    with running_authority(tmp_path, worker=True) as server:
        (worker,) = workers_of(server.process.pid)
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: workers_of(server.process.pid) not in ([], [worker]), "another worker")
        (second,) = workers_of(server.process.pid)
        with server.client() as client:
            assert client.get("/v1/authority").json()["has_worker"] is True
        wait_for(lambda: "works for" in server.log, "the worker to begin")
        assert "--niceness 0" in command_of(second)
        assert server.stop() == 0
        wait_for(lambda: not is_worker(second), "the worker to end")
        assert "the worker ended (-9) and is started again" in server.log


def test_the_worker_does_not_outlive_a_server_that_was_killed(tmp_path: Path) -> None:
    with running_authority(tmp_path, worker=True) as server:
        (worker,) = workers_of(server.process.pid)
        wait_for(lambda: "works for" in server.log, "the worker to begin")
        server.kill()
        wait_for(lambda: not is_worker(worker), "the worker to end")


def umask_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)


def test_what_both_processes_write_is_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)  # inherited by the server, which must not leave it so
    try:
        with running_authority(tmp_path, worker=True) as server:
            (worker,) = workers_of(server.process.pid)
            assert umask_of(server.process.pid) == umask_of(worker) == 0o077
            server.register(KeyOwner(1, server.name))
            open_ones = [
                path.name
                for path in (server.folder, *server.folder.rglob("*"))
                if path.stat().st_mode & 0o077
            ]
            # Public by purpose, in a folder into which nobody else can look.
            assert set(open_ones) <= {"signing.pub", "root.pem"}
            assert "warning" not in server.log
        server.folder.chmod(0o755)
        with running_authority(tmp_path) as server:
            assert f"warning: other users of this machine can look into {server.folder}" in (
                server.log
            )
    finally:
        os.umask(before)


def test_both_processes_work_on_postgresql(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        url = postgres.new_database()
        with running_authority(tmp_path, "--database", url, worker=True) as server:
            owner = KeyOwner(1, server.name)
            document, content = owner.filing(1)
            with server.client(server.register(owner)) as client:
                assert file_key(client, document, content).status_code == 201
                (worker,) = workers_of(server.process.pid)
                assert url.encode() not in Path(f"/proc/{worker}/cmdline").read_bytes()
                path = f"/v1/filings/{entry_id_of(document)}"
                wait_for(lambda: client.get(path).json()["state"] != "waiting", "a decision")
                decision = client.get(path).json()["decision"]
                assert decision["reasons"] == ["the key has 24 texts, 32 are needed"]
            assert server.stop() == 0
        assert not (tmp_path / "authority" / "authority.db").exists()


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_authority(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        status = main(["serve", "--folder", str(tmp_path / "other"), "--port", port])

    assert status == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--name", "two words"], "name"),
        (["--timestamp-url", "http://tsa.example"], "timestamp_roots"),
        (["--database", "mysql://me:hunter2@here/x"], "database"),
        (["--queue", "amqp://me:hunter2@here"], "queue"),
        (["--host", "no.such.host.invalid"], "cannot listen"),
        (["--answer-days", "-1"], "answer-days"),
    ],
)
def test_wrong_options_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], reason: str
) -> None:
    status = main(["serve", "--folder", str(tmp_path / "a"), "--port", "0", *options])

    said = capsys.readouterr()
    assert status == 2
    assert reason in said.err
    assert "hint: " in said.err
    assert "hunter2" not in said.err + said.out


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Example:" in said
    assert "--trusted-proxy" in said
