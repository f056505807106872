"""Calls of the kernel that Python has no functions for. Linux only."""

from __future__ import annotations

import ctypes
import os
import struct

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION = 0x20080522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # DAC_OVERRIDE, DAC_READ_SEARCH: whose files it may open


def prctl(option: int, *arguments: int) -> int:
    """Change something about this process or thread.

    Raises:
        OSError: The kernel does not do it.
    """
    return _called("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def syscall(number: int, *arguments: int) -> int:
    """Call the kernel by number; pointers are given as addresses.

    Raises:
        OSError: The kernel does not do it.
    """
    return _called("syscall", number, *arguments)


def drop_capabilities() -> None:
    """Keep nothing of what root may do, but opening files.

    Raises:
        OSError: The kernel does not do it.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0), 8)
    data = ctypes.create_string_buffer(24)
    _called("capget", ctypes.addressof(header), ctypes.addressof(data))
    effective, permitted, *_ = struct.unpack("=6I", data.raw)
    kept = (effective & _KEPT_CAPABILITIES, permitted & _KEPT_CAPABILITIES)
    data.raw = struct.pack("=6I", *kept, 0, 0, 0, 0)
    _called("capset", ctypes.addressof(header), ctypes.addressof(data))


def _called(name: str, *arguments: int) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    # All of full width: the kernel looks at whole registers.
    result: int = function(*map(ctypes.c_ulong, arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
