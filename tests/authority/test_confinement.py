"""A child that was taken over reaches no keys, no network, no other process, and leaves none.

Every attempt is a real one, in a real child; what the kernel at hand does not offer is skipped, and
``older_kernel`` takes everything away to see that work goes on without.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import escaping_tasks
import older_kernel
from nsmark_authority.confinement import Confinement, Workshop, end_group
from nsmark_authority.sandbox import available
from processes import is_running, run, running, wait_for

ROOMY = Confinement(seconds=30, memory_bytes=1 << 30)
HERE = available()
HAS_CUDA = Path("/dev/nvidiactl").exists()


def needs(*names: str) -> Any:
    missing = [name for name in names if not HERE[name]]
    return pytest.mark.skipif(
        bool(missing), reason=f"this kernel cannot keep a child from {missing}"
    )


def tried(*attempts: tuple[str, Any], **rights: Any) -> list[tuple[bool, Any]]:
    """Let a child try things; return whether each was done, and what came of it."""
    found = Workshop(ROOMY, ()).run(escaping_tasks.try_all, {"try": attempts}, **rights)
    assert [name for name, *_ in found["tried"]] == [name for name, _ in attempts]
    return [(done, result) for _, done, result in found["tried"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority's folder: keys, and inside it folders that a child is given."""
    folder = tmp_path / "authority"
    for name in ("work/1", "work/2", "cache"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    (folder / "secret").write_text("the signing key")
    (folder / "secret").chmod(0o600)
    return folder


# --- Files. ---


@needs("files")
def test_a_child_reads_what_it_was_given_and_not_the_keys_beside_it(folder: Path) -> None:
    given = folder / "work" / "1"
    found = tried(
        ("read", str(given / "file")),
        ("names", str(given)),
        ("read", str(folder / "secret")),
        ("names", str(folder)),
        ("read", str(folder / "work" / "2" / "file")),
        ("read", f"{given}/../../secret"),
        ("read", "/etc/shadow"),
        ("read", f"/proc/{os.getpid()}/cmdline"),
        ("read", f"/proc/{os.getpid()}/environ"),
        readable=[given],
    )
    assert found[:2] == [(True, "work/1"), (True, ["file"])]
    assert found[2:] == [(False, "EACCES")] * 7


@needs("files")
def test_links_lead_to_no_keys(folder: Path) -> None:
    given = folder / "work" / "1"
    (given / "link").symlink_to(folder / "secret")
    found = tried(
        ("read", str(given / "link")),
        ("link", [str(folder / "secret"), str(folder / "cache" / "mine")]),
        readable=[given],
        writable=[folder / "cache"],
    )
    assert found[0] == (False, "EACCES")
    assert found[1][0] is False
    assert not (folder / "cache" / "mine").exists()


@needs("files", "processes")
def test_a_child_changes_only_what_it_was_given_to_change(folder: Path) -> None:
    given, cache = folder / "work" / "1", folder / "cache"
    found = tried(
        ("write", str(cache / "file")),
        ("write", str(cache / "new")),
        ("truncate", str(cache / "new")),
        ("remove", str(cache / "file")),
        readable=[given],
        writable=[cache],
    )
    # A path is never truncated, whoever's it is: a file that is open can be.
    assert [done for done, _ in found] == [True, True, False, True]
    assert (cache / "new").read_text() == "taken over"
    found = tried(
        ("write", str(given / "file")),
        ("write", str(given / "new")),
        ("remove", str(given / "file")),
        ("truncate", str(folder / "secret")),
        ("chmod", str(folder / "secret")),
        ("write", str(folder / "secret")),
        readable=[given],
    )
    assert [done for done, _ in found] == [False] * 6
    assert (given / "file").read_text() == "work/1"
    assert (folder / "secret").read_text() == "the signing key"
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600


@needs("files")
def test_what_is_hidden_stays_hidden_even_beneath_what_programs_need(folder: Path) -> None:
    """As if Python, or a control model, lay in a folder that holds the authority's, too."""
    above, given = folder.parent, folder / "work" / "1"
    (above / "library").write_text("import")
    attempts = [
        ("read", str(above / "library")),
        ("read", str(given / "file")),
        ("read", str(folder / "secret")),
        ("read", str(folder / "work" / "2" / "file")),
    ]
    found = tried(*attempts, readable=[above, given], hidden=[folder])
    assert [done for done, _ in found] == [True, True, False, False]
    assert [done for done, _ in tried(*attempts, readable=[above])] == [True] * 4


def test_a_child_has_a_folder_for_temporary_files_and_it_is_gone_afterwards() -> None:
    ((done, path),) = tried(("temporary", None), readable=[])
    assert done
    assert Path(path).parent.name.startswith("nsmark-")
    assert not Path(path).parent.exists()


def test_without_a_list_of_files_a_child_opens_what_the_user_may(folder: Path) -> None:
    assert tried(("read", str(folder / "secret"))) == [(True, "the signing key")]


# --- Network. ---


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[list[tuple[str, Any]]]:
    """Somebody listens by TCP, by UDP and at a path; return how each is reached."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(str(tmp_path / "socket"))
            local.listen()
            yield [
                ("connect", tcp.getsockname()[1]),
                ("listen", None),
                ("datagram", udp.getsockname()[1]),
                ("connect locally", str(tmp_path / "socket")),
            ]


@needs("network")
@pytest.mark.parametrize("readable", [None, []])
def test_without_the_network_nothing_is_reached(
    listeners: list[tuple[str, Any]], readable: list[Path] | None
) -> None:
    found = tried(*listeners[:3], readable=readable, network=False)
    assert found == [(False, "EACCES")] * 3


@needs("network")
@pytest.mark.skipif(HAS_CUDA, reason="CUDA's library needs sockets of this machine")
def test_services_of_this_machine_are_not_reached_by_their_sockets(
    listeners: list[tuple[str, Any]],
) -> None:
    """A database believes who asks at its socket to be the user that he is."""
    assert tried(listeners[3], readable=[], network=True) == [(False, "EACCES")]
    assert tried(listeners[3], readable=[], network=False) == [(False, "EACCES")]


def test_with_the_network_endpoints_are_reached(listeners: list[tuple[str, Any]]) -> None:
    assert [done for done, _ in tried(*listeners[:3], readable=[])] == [True] * 3


# --- Other processes. ---


@needs("processes")
def test_a_child_starts_no_process_and_threads_all_the_same() -> None:
    found = tried(("fork", None), ("run", None), ("leave behind", None), ("thread", None))
    assert found == [(False, "EPERM")] * 3 + [(True, 1)]


@needs("tracing")
def test_a_child_looks_into_no_other_process() -> None:
    found = tried(("trace", os.getpid()), ("read", f"/proc/{os.getpid()}/environ"), readable=[])
    assert [done for done, _ in found] == [False, False]


@needs("signals")
def test_a_child_sends_no_signals_to_others() -> None:
    assert tried(("signal", os.getpid()), readable=[]) == [(False, "EPERM")]


def test_what_a_group_s_leader_leaves_behind_is_ended_with_it() -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '3600']).pid, flush=True)"
    command = [sys.executable, "-c", program]
    with running(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as leader:
        assert leader.stdout is not None
        left_behind = int(leader.stdout.readline())
        leader.wait()
    assert is_running(left_behind)
    end_group(leader.pid)
    wait_for(lambda: not is_running(left_behind), "the end of it")
    end_group(leader.pid)  # nobody is there any more


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells so")
def test_a_child_has_no_rights_to_gain_and_narrow_limits() -> None:
    ((_, state),) = tried(("state", None), readable=[], network=False)
    assert state["NoNewPrivs"] == "1"
    assert int(state["CapEff"], 16) & ~0b110 == 0
    assert int(state["CapPrm"], 16) & ~0b110 == 0
    assert state["leads_group"] is True
    assert state["dumpable"] == 0
    assert state["core"] == [0, 0]
    assert state["file_bytes"] == [8 << 30] * 2
    assert state["open_files"][0] == state["open_files"][1] <= 4096
    if HERE["processes"]:
        assert state["Seccomp"] == "2"


# --- Where the system offers nothing of it. ---


@pytest.mark.skipif(
    not HERE["processes"] or platform.machine() not in ("x86_64", "aarch64"),
    reason="needs a kernel that can be made to look older",
)
def test_on_an_older_kernel_the_work_is_done_and_it_is_said_what_is_missing(folder: Path) -> None:
    program = [sys.executable, older_kernel.__file__, platform.machine(), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(older_kernel.__file__).parent)}
    ran = run(program, env=environment)
    assert ran.returncode == 0, ran.stderr
    found = {name: (done, result) for name, done, result in json.loads(ran.stdout)}
    assert found["available"] == (True, dict.fromkeys(HERE, False))
    assert found["read"] == (True, "the signing key")  # honestly: nothing stops it here
    assert found["thread"] == (True, 1)
    assert found["temporary"][0]
    # The rest holds on every kernel.
    assert found["state"][1]["NoNewPrivs"] == "1"
    assert found["state"][1]["dumpable"] == 0
    done, left_behind = found["leave behind"]
    assert done
    wait_for(lambda: not is_running(left_behind), "the end of what was left behind", 10)
