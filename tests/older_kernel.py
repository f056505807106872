"""A worker on a kernel without Landlock and without filters of calls, as far as it can tell.

It is a program of its own: what is done to it is never undone. It prints what a child could do.
"""

from __future__ import annotations

import ctypes
import errno
import json
import struct
import sys
from pathlib import Path

import escaping_tasks
from nsmark_authority.confinement import Confinement, Workshop
from nsmark_authority.sandbox.kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

_PRCTL = {"x86_64": 157, "aarch64": 167}
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def forget_what_newer_kernels_know(machine: str) -> None:
    """Let the kernel answer as an old one does."""
    steps = [
        (0x20, 0, 0, 0),  # the call
        (0x35, 0, 2, 444),  # landlock_create_ruleset ...
        (0x35, 1, 0, 447),  # ... to landlock_restrict_self
        (0x06, 0, 0, _FAIL | errno.ENOSYS),
        (0x15, 0, 3, _PRCTL[machine]),
        (0x20, 0, 0, 16),  # its first argument
        (0x15, 0, 1, PR_SET_SECCOMP),
        (0x06, 0, 0, _FAIL | errno.EINVAL),
        (0x06, 0, 0, _ALLOW),
    ]
    packed = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("@HP", len(steps), ctypes.addressof(program))
    given = ctypes.create_string_buffer(header, len(header))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(given))


if __name__ == "__main__":
    machine, folder = sys.argv[1:]
    forget_what_newer_kernels_know(machine)
    attempts = [["available", None], ["read", str(Path(folder) / "secret")], ["state", None]]
    attempts += [["thread", None], ["temporary", None], ["leave behind", None]]
    found = Workshop(Confinement(seconds=30), ()).run(
        escaping_tasks.try_all,
        {"try": attempts},
        readable=[],
        network=False,
    )
    sys.stdout.write(json.dumps(found["tried"]))
