"""Setting up: settings in range, one winner when two start at once, and other people's clocks."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from authority_world import KeyOwner, make_authority
from nsmark.errors import ConfigError, FileAccessError
from nsmark_authority.errors import AuthorityError, TransparencyError
from nsmark_authority.folder import is_open_to_others
from nsmark_authority.receipt import check_receipt
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.transparency import local_authority
from nsmark_authority.transparency.local_authority import LocalAuthority
from processes import PATIENCE, running

OPEN = """
import sys
from pathlib import Path
from nsmark_authority.service import open_authority
from nsmark_authority.settings import AuthoritySettings
url = sys.argv[2] if len(sys.argv) > 2 else None
authority = open_authority(AuthoritySettings(folder=Path(sys.argv[1]), database_url=url))
authority.challenge()
print(authority.public_key.fingerprint)
assert "torch" not in sys.modules
"""


def test_two_that_start_at_once_make_one_authority(
    tmp_path: Path, database_url: str | None
) -> None:
    arguments = [str(tmp_path / "new"), *([database_url] if database_url else [])]
    command = [sys.executable, "-c", OPEN, *arguments]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(running(command, stdout=subprocess.PIPE)) for _ in range(3)
        ]
        said = {process.communicate()[0] for process in processes}

    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(said) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "two words"},
        {"name": "a+b"},
        {"name": ""},
        {"max_key_bytes": 0},
        {"answer_seconds": -1},
        {"token_seconds": 0},
        {"timestamp_url": "http://tsa.example"},
    ],
)
def test_settings_are_in_range(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        AuthoritySettings(folder=tmp_path, **changes)


def test_settings_do_not_show_passwords(tmp_path: Path) -> None:
    settings = AuthoritySettings(
        folder=tmp_path,
        database_url="postgresql://u:secret@h/n",
        queue_url="redis://:secret@h/0",
    )

    assert "secret" not in repr(settings)


def test_a_file_in_the_folder_s_place(tmp_path: Path) -> None:
    (tmp_path / "authority").write_text("no folder")

    with pytest.raises(FileAccessError):
        make_authority(tmp_path)


def test_a_new_authority_is_its_owners_alone(tmp_path: Path) -> None:
    existing = tmp_path / "authority"
    existing.mkdir(mode=0o755)
    existing.chmod(0o755)
    before = os.umask(0)
    try:
        make_authority(tmp_path).close()
        make_authority(tmp_path / "new").close()
    finally:
        os.umask(before)

    for folder in (existing, tmp_path / "new" / "authority"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not is_open_to_others(folder)
    existing.chmod(0o750)
    assert is_open_to_others(existing)
    make_authority(tmp_path).close()
    assert stat.S_IMODE(existing.stat().st_mode) == 0o750  # made long ago: its owner's decision


class TimeServer(HTTPServer):
    """A time-stamp authority on this machine that is not the authority's own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), TimeHandler)
        self.authority = LocalAuthority.create(folder)
        self.is_broken = False


class TimeHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, TimeServer)
        request = self.rfile.read(int(self.headers["Content-Length"]))
        answer = server.authority.answer(request)
        self.send_response(503 if server.is_broken else 200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def time_server(tmp_path: Path) -> Iterator[TimeServer]:
    server = TimeServer(tmp_path / "tsa")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


def test_an_independent_clock(
    tmp_path: Path, time_server: TimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(time_server.authority.root.public_bytes(Encoding.PEM))
    url = f"http://127.0.0.1:{time_server.server_address[1]}/tsr"
    owner = KeyOwner(1)
    authority = make_authority(tmp_path)
    own_roots = authority.roots
    early = owner.register(authority).receipt  # still with the local clock
    authority.close()
    authority = make_authority(tmp_path, timestamp_url=url, timestamp_roots=roots)
    # From here on tokens must not say that they are a local authority's.
    monkeypatch.setattr(local_authority, "LOCAL_POLICY", "1.3.6.1.4.1.99999.1")

    receipt = owner.file(authority)

    assert not authority.is_local_time
    checked = check_receipt(receipt, authority.public_key, [time_server.authority.root])
    assert not checked.is_local_time
    with pytest.raises(TransparencyError, match="chain of certificates"):
        check_receipt(receipt, authority.public_key, own_roots)
    # Receipts of before keep the roots they were made with.
    assert authority.log.receipt(early.entry_id, 1) == early
    assert check_receipt(early, authority.public_key, own_roots).is_local_time
    time_server.is_broken = True
    with pytest.raises(AuthorityError, match=r"no time stamp is to be had.*503"):
        owner.file(authority, 1)
    assert authority.log.size() == 2
    assert authority.contents.remove_unreferenced() == 0
    authority.close()
