"""A filter of system calls: no new processes, no looking into others, no sockets.

It is a list of what is forbidden, for what Landlock does not know or older kernels lack; it is not
a list of what a computation needs. Calls that are forbidden fail as if the user lacked the right.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Iterator, Sequence

from nsmark_authority.sandbox.kernel import PR_SET_SECCOMP, prctl

_MODE_FILTER = 2
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # where they stand in what a filter sees
_CLONE_THREAD = 0x00010000
_OTHER_ABI = 0x40000000  # x32: the same calls under other numbers

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

_CALLS = {
    # For each machine: its number for filters, those of clone and socket, and the forbidden ones.
    "x86_64": (
        0xC000003E,
        56,
        41,
        (
            (57, 58),  # fork, vfork
            (101, 310, 311, 438),  # ptrace, process_vm_readv, process_vm_writev, pidfd_getfd
            (76, 90, 92, 94, 260, 268, 452),  # truncate, chmod, [l]chown, fchownat, fchmodat[2]
            (272, 308, 321, 298, 323),  # unshare, setns, bpf, perf_event_open, userfaultfd
            (248, 249, 250, 425),  # add_key, request_key, keyctl, io_uring_setup
        ),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        198,
        (
            (117, 270, 271, 438),  # ptrace, process_vm_readv, process_vm_writev, pidfd_getfd
            (45, 53, 54, 452),  # truncate, fchmodat, fchownat, fchmodat2
            (97, 268, 280, 241, 282),  # unshare, setns, bpf, perf_event_open, userfaultfd
            (217, 218, 219, 425),  # add_key, request_key, keyctl, io_uring_setup
        ),
    ),
}
_CLONE3 = 435  # on all machines


def is_available() -> bool:
    """Return whether calls can be filtered here."""
    if platform.machine() not in _CALLS or sys.maxsize < 1 << 32:
        return False
    try:
        prctl(PR_SET_SECCOMP, _MODE_FILTER, 0)
    except OSError as error:
        return error.errno == errno.EFAULT  # it would have read the filter
    return False


def restrict(*, network: bool, local_sockets: bool) -> None:
    """Restrict this thread, and every thread that it begins, where that can be done.

    Args:
        network: Whether there may be sockets of the internet.
        local_sockets: Whether there may be Unix sockets.

    Raises:
        OSError: The kernel refuses what it offers; ``no_new_privs`` must be set before.
    """
    if not is_available():
        return
    families = [
        *([_INET, _INET6, _NETLINK] if network else []),
        *([_UNIX] if local_sockets else []),
    ]
    steps = b"".join(_program(platform.machine(), families))
    program = ctypes.create_string_buffer(steps, len(steps))
    # The length is followed by a gap, as C has it.
    header = struct.pack("@HP", len(steps) // 8, ctypes.addressof(program))
    given = ctypes.create_string_buffer(header, len(header))
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(given))


def _program(machine: str, families: Sequence[int]) -> Iterator[bytes]:
    """Yield the filter's steps."""
    number, clone, socket, forbidden = _CALLS[machine]
    yield _step(_LOAD, _MACHINE)
    yield _step(_IF_EQUAL, number, 1, 0)
    yield _step(_RETURN, _KILL)  # a call of another machine's, such as one of 32 bits
    yield _step(_LOAD, _CALL)
    yield _step(_IF_AT_LEAST, _OTHER_ABI, 0, 1)
    yield _step(_RETURN, _FAIL | errno.ENOSYS)
    for call in (call for group in forbidden for call in group):
        yield _step(_IF_EQUAL, call, 0, 1)
        yield _step(_RETURN, _FAIL | errno.EPERM)
    # What it is told lies in memory, where a filter cannot look: libraries then call clone.
    yield _step(_IF_EQUAL, _CLONE3, 0, 1)
    yield _step(_RETURN, _FAIL | errno.ENOSYS)
    yield _step(_IF_EQUAL, clone, 0, 4)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield _step(_IF_BITS, _CLONE_THREAD, 1, 0)
    yield _step(_RETURN, _FAIL | errno.EPERM)
    yield _step(_RETURN, _ALLOW)
    yield _step(_IF_EQUAL, socket, 0, 2 + len(families))
    yield _step(_LOAD, _FIRST_ARGUMENT)
    for place, family in enumerate(families):
        yield _step(_IF_EQUAL, family, len(families) - place, 0)
    yield _step(_RETURN, _FAIL | errno.EACCES)
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)
