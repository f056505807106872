"""What a process gives up before it touches what strangers handed in: files, network, others.

Whoever takes over such a process by a fault in a library is the user that the authority runs as,
and should have no more for it than the work needs. All of it is Linux's; what the kernel at hand
does not offer is left out, and ``available`` says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nsmark
import nsmark_authority
from nsmark_authority.sandbox import landlock, seccomp
from nsmark_authority.sandbox.kernel import (
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    drop_capabilities,
    prctl,
)

if sys.platform != "win32":
    import resource

_LIBRARIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Single files of /etc: the folder is where operators keep passwords.
_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone",
    "mime.types", "passwd", "group", "nsswitch.conf", "resolv.conf", "hosts", "host.conf",
    "gai.conf", "services", "protocols", "ssl/openssl.cnf", "ssl/certs", "ssl/cert.pem",
    "pki/tls/certs", "pki/ca-trust", "ca-certificates", "crypto-policies", "OpenCL",
)  # fmt: skip
# What runs elsewhere, and how it was called, is nobody's business.
_FACTS = (
    "/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/fs/cgroup", "/sys/kernel/mm",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems",
    "/proc/version", "/proc/loadavg", "/proc/devices", "/proc/modules", "/proc/driver",
    "/proc/sys/kernel", "/proc/sys/vm",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPUS = ("nvidia*", "nvidia-caps/*", "kfd", "dri/*")

_HELD_BACK = {
    "files": "files that the work does not need",
    "network": "the network, where the work needs none",
    "processes": "starting other processes",
    "tracing": "the memory of other processes",
    "signals": "signals to other processes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What a process keeps, besides the system's libraries, Python and this package."""

    readable: tuple[Path, ...] | None = None
    """Files, or folders with all that lies in them. None: files are not restricted at all."""

    writable: tuple[Path, ...] = ()
    """The same, for reading and writing; they must be there already."""

    hidden: tuple[Path, ...] = ()
    """Folders of which nothing is kept, but what is named in itself and lies inside."""

    network: bool = True


def available() -> dict[str, bool]:
    """Return what this system keeps such a process from.

    ``files``: opening what it was not given. ``network``: all but what it was given. ``processes``:
    starting any. ``tracing``: looking into others. ``signals``: sending them to others.
    """
    if sys.platform != "linux":
        return dict.fromkeys(_HELD_BACK, False)
    version, filters = landlock.version(), seccomp.is_available()
    return {
        "files": version >= landlock.FILES_VERSION,
        "network": filters,
        "processes": filters,
        "tracing": version >= landlock.FILES_VERSION,
        "signals": version >= landlock.SIGNALS_VERSION,
    }


def explain(found: dict[str, bool]) -> str:
    """Say in a sentence or two what ``available`` found."""
    stopped = [_HELD_BACK[name] for name, is_there in found.items() if is_there]
    open_ways = [_HELD_BACK[name] for name, is_there in found.items() if not is_there]
    said = []
    if stopped:
        said.append(f"children are kept from {'; '.join(stopped)}.")
    if open_ways:
        said.append(
            f"this system does not keep children from {'; '.join(open_ways)}: a Linux kernel with "
            "Landlock (6.12 has all of it) and seccomp would."
        )
    return " ".join(said)


def harden_process() -> None:
    """Keep others of the same user out of this process's memory, and memory out of core files.

    For processes that hold keys; it can be called more than once.
    """
    if sys.platform == "win32":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1)


def enter(rights: Rights) -> None:
    """Give up everything else, for ever; before there is a second thread.

    Raises:
        OSError: The system refuses what it offers.
    """
    harden_process()
    if sys.platform != "linux":
        return
    gpus = [gpu for pattern in _GPUS for gpu in Path("/dev").glob(pattern)]
    rules = None if rights.readable is None else [*_rules(rights, gpus)]
    landlock.restrict(rules, tcp=rights.network)
    drop_capabilities()
    # CUDA's library makes sockets of its own.
    has_cuda = Path("/dev/nvidiactl") in gpus
    seccomp.restrict(network=rights.network, local_sockets=has_cuda)


def with_link_targets(folder: Path) -> list[Path]:
    """Return a folder, and what links in it lead to: for a model in a cache that is full of links.

    Only for folders that no stranger filled.
    """
    return [folder, *(each.resolve() for each in folder.rglob("*") if each.is_symlink())]


def without(path: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield what lies beneath a path, less the hidden folders: itself, if there are none in it."""
    if path in hidden:
        return
    if not any(folder.is_relative_to(path) for folder in hidden):
        yield path
        return
    for inside in path.iterdir():
        if not inside.is_symlink():
            yield from without(inside, hidden)


def _rules(rights: Rights, gpus: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    hidden = [path.resolve() for path in rights.hidden]
    for kept, access in (
        ([*_system(), *(rights.readable or ())], landlock.READ),
        (rights.writable, landlock.WRITE),
    ):
        for path in kept:
            for part in without(path.resolve(), hidden):
                yield part, access
    for device in (*map(Path, _DEVICES), *gpus):
        yield device, landlock.USE


def _system() -> Iterator[Path]:
    yield from map(Path, _LIBRARIES)
    yield from (Path("/etc") / name for name in _SETTINGS)
    yield from map(Path, _FACTS)
    yield from map(Path, (sys.prefix, sys.base_prefix))
    yield from map(Path, (*nsmark.__path__, *nsmark_authority.__path__))
    # Where a program is started from stands in sys.path too, and may be somebody's home.
    started_in = Path.cwd()
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for entry in (*sys.path, *libraries):
        if entry and Path(entry).resolve() != started_in:
            yield Path(entry)
