"""What the sandbox says about itself, and how it tells hidden folders from the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nsmark_authority.sandbox import (
    available,
    explain,
    landlock,
    seccomp,
    with_link_targets,
    without,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def test_it_says_what_is_stopped_and_what_is_not() -> None:
    found = available()
    everything = explain(dict.fromkeys(found, True))
    nothing = explain(dict.fromkeys(found, False))
    assert everything.startswith("children are kept from files")
    assert "does not keep" not in everything
    assert nothing.startswith("this system does not keep children from files")
    assert "Landlock" in nothing
    mixed = explain({**dict.fromkeys(found, True), "files": False})
    assert "kept from the network" in mixed
    assert "does not keep children from files that the work does not need:" in mixed


@LINUX
def test_it_believes_the_kernel() -> None:
    assert available()["files"] == (landlock.version() >= 1)
    assert available()["processes"] == seccomp.is_available()
    status = Path("/proc/self/status")
    before = re.findall(r"Seccomp\w*:.*", status.read_text())
    available()
    assert re.findall(r"Seccomp\w*:.*", status.read_text()) == before  # asking restricts nobody


@LINUX
def test_a_hardened_process_is_closed_to_others_of_its_user() -> None:
    code = (
        "import ctypes, resource\n"
        "from nsmark_authority.sandbox import harden_process\n"
        "harden_process(); harden_process()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "0 (0, 0)"


def test_paths_without_hidden_folders(tmp_path: Path) -> None:
    for name in ("a/b/keys", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "b" / "keys")
    hidden = [tmp_path / "a" / "b" / "keys"]
    assert set(without(tmp_path, hidden)) == {
        tmp_path / "a" / "c",
        tmp_path / "a" / "file",
        tmp_path / "d",
    }
    assert list(without(tmp_path / "d", hidden)) == [tmp_path / "d"]
    assert list(without(hidden[0], hidden)) == []
    inside = hidden[0] / "given"
    assert list(without(inside, hidden)) == [inside]


def test_a_model_of_links_comes_with_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_text("weights")
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "1_Pooling" / "model.safetensors").symlink_to("../../blobs/1")
    assert with_link_targets(model) == [model, tmp_path / "blobs" / "1"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("families", [(), (2, 10, 16), (2, 10, 16, 1)])
def test_no_step_of_a_filter_leads_out_of_it(machine: str, families: tuple[int, ...]) -> None:
    steps = list(seccomp._program(machine, families))
    assert len(steps) < 4096
    for place, step in enumerate(steps):
        code, if_so, if_not = int.from_bytes(step[:2], "little"), step[2], step[3]
        assert len(step) == 8
        if code & 0x07 == 0x05:
            assert place + 1 + max(if_so, if_not) < len(steps)
    assert steps[-1] == seccomp._step(0x06, 0x7FFF0000)


_AS_OF_VERSION = """
import socket, sys
from pathlib import Path
from nsmark_authority.sandbox import landlock
from nsmark_authority.sandbox.kernel import PR_SET_NO_NEW_PRIVS, prctl
version, given, secret = int(sys.argv[1]), *map(Path, sys.argv[2:])
landlock.version = lambda: version
prctl(PR_SET_NO_NEW_PRIVS, 1)
rules = [(given, landlock.WRITE), (given / "none", landlock.READ)]
landlock.restrict(rules, tcp=False)
(given / "file").write_text("x")
try:
    secret.read_text()
except PermissionError:
    print("no file")
try:
    socket.create_server(("127.0.0.1", 0)).close()
except PermissionError:
    print("no socket")
"""


@LINUX
@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_of_landlock_is_asked_for_what_it_knows(version: int, tmp_path: Path) -> None:
    if landlock.version() < version:
        pytest.skip(f"this kernel has version {landlock.version()} of Landlock")
    (tmp_path / "given").mkdir()
    (tmp_path / "secret").write_text("x")
    arguments = [str(version), str(tmp_path / "given"), str(tmp_path / "secret")]
    program = [sys.executable, "-c", _AS_OF_VERSION, *arguments]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["no file", *(["no socket"] if version >= 4 else [])]
