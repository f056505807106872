"""What a child that was taken over may try; each says what it got, or how it was refused."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsmark_authority.sandbox import available

_PTRACE_ATTACH = 16


def try_all(request: Mapping[str, Any], files: Sequence[bytes], tell: Any) -> dict[str, Any]:
    """Do what is named, each with an argument, and return what came of each."""
    return {
        "tried": [[name, *_outcome(ATTEMPTS[name], argument)] for name, argument in request["try"]]
    }


def _outcome(attempt: Callable[[Any], Any], argument: Any) -> tuple[bool, Any]:
    try:
        return True, attempt(argument)
    except OSError as error:
        return False, errno.errorcode.get(error.errno or 0, "unknown")


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def names_in(path: str) -> list[str]:
    return sorted(os.listdir(path))


def write(path: str) -> int:
    return Path(path).write_text("taken over")


def remove(path: str) -> None:
    Path(path).unlink()


def connect(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        pass


def listen(_: None) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()


def send_datagram(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"secret", ("127.0.0.1", port))


def connect_locally(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def fork(_: None) -> int:
    child = os.fork()
    if child == 0:
        os.setsid()  # where no group is killed with it
        time.sleep(3600)
        os._exit(0)
    return child


def run_program(_: None) -> str:
    return subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout


def leave_behind(_: None) -> int:
    """Start what outlives this process, in its own group."""
    return subprocess.Popen(["sleep", "3600"]).pid


def trace(pid: int) -> None:
    if ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_ATTACH, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def send_signal(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def begin_thread(_: None) -> int:
    found: list[int] = []
    thread = threading.Thread(target=found.append, args=(threading.get_native_id(),))
    thread.start()
    thread.join()
    return len(found)


def use_temporary_file(_: None) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        file.flush()
        return file.name


def state_of_this_process(_: None) -> dict[str, Any]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        **dict(line.split(":\t", 1) for line in lines if ":\t" in line),
        "leads_group": os.getpgid(0) == os.getpid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "file_bytes": resource.getrlimit(resource.RLIMIT_FSIZE),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    }


def what_is_available(_: None) -> dict[str, bool]:
    return available()


ATTEMPTS: dict[str, Callable[[Any], Any]] = {
    "read": read,
    "names": names_in,
    "write": write,
    "remove": remove,
    "truncate": lambda path: os.truncate(path, 0),
    "chmod": lambda path: os.chmod(path, 0o644),
    "link": lambda paths: os.link(*paths),
    "connect": connect,
    "listen": listen,
    "datagram": send_datagram,
    "connect locally": connect_locally,
    "fork": fork,
    "run": run_program,
    "leave behind": leave_behind,
    "trace": trace,
    "signal": send_signal,
    "thread": begin_thread,
    "temporary": use_temporary_file,
    "state": state_of_this_process,
    "available": what_is_available,
}
