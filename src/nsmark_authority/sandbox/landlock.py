"""Landlock: a process says which files it will ever open; nobody can take that back.

What is not allowed is forbidden, to root as well, and to all processes that come from this one;
processes outside cannot be traced any more. Numbers are those of ``linux/landlock.h``.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from nsmark_authority.sandbox.kernel import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_OF_NETWORK = 1 << 0 | 1 << 1  # bind and connect, TCP
_SCOPES = 1 << 0 | 1 << 1  # abstract sockets and signals

READ = _EXECUTE | _READ_FILE | _READ_DIR
"""Also what is mapped as a library, or run."""

WRITE = (
    _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _REFER
    | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG
)  # fmt: skip
"""Reading too; no links, pipes, sockets or devices are made."""

USE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
"""Devices."""

FILES_VERSION = 1
TCP_VERSION = 4
SIGNALS_VERSION = 6


def version() -> int:
    """Return what the kernel knows of Landlock; 0 if nothing, or if it is switched off."""
    try:
        return syscall(_CREATE_RULESET, 0, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[Path, int]] | None, *, tcp: bool) -> None:
    """Restrict this thread, and every thread and process that it begins.

    As much is restricted as the kernel knows; nothing where it knows nothing.

    Args:
        rules: What may be done with a file, or with all that lies beneath a folder; paths that are
            not there, or cannot be reached, are left out. None: files are not restricted.
        tcp: Whether connections may be made.

    Raises:
        OSError: The kernel refuses what it offers; ``no_new_privs`` must be set before.
    """
    known = version()
    of_files = 0 if rules is None else _known_rights(known)
    of_network = 0 if tcp or known < TCP_VERSION else _OF_NETWORK
    scopes = _SCOPES if known >= SIGNALS_VERSION else 0
    if not (of_files or of_network or scopes):
        return
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", of_files, of_network, scopes), 24)
    ruleset = syscall(_CREATE_RULESET, ctypes.addressof(attributes), 24, 0)
    try:
        for path, rights in rules or ():
            _allow(ruleset, path, rights & of_files)
        syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _known_rights(known: int) -> int:
    """Return all rights over files that a version knows: asking for more is an error."""
    if known < FILES_VERSION:
        return 0
    first = (1 << 13) - 1
    later = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return first | sum(right for since, right in later if known >= since)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, handle), 12)
        if rights:
            syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(handle)
