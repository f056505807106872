"""The client needs no more than nsmark itself; only time stamps need the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from authority_world import KeyOwner
from nsmark_authority.client.offline import keep_receipt
from nsmark_authority.service import Authority

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)
        return None

sys.meta_path.insert(0, Blocker())
"""
SERVICE = ("sqlalchemy", "fastapi", "starlette", "alembic", "uvicorn", "huey", "jinja2", "limits")
STAMPS = ("rfc3161_client", "asn1crypto")
MODELS = ("torch", "transformers", "tokenizers", "sentence_transformers")


def run(folder: Path, blocked: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(BLOCKER.format(blocked=set(blocked)))
    environment = os.environ | {"PYTHONPATH": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-W", "error", *words],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_the_client_is_imported_without_any_extra(tmp_path):
    program = "from nsmark_authority.client import AuthorityClient, Monitor, TrustStore; print(1)"

    done = run(tmp_path, (*SERVICE, *STAMPS, *MODELS), "-c", program)

    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize(
    ("blocked", "status"), [((*SERVICE, *MODELS), 0), ((*SERVICE, *STAMPS, *MODELS), 3)]
)
def test_checking_a_receipt_needs_the_package_for_time_stamps_alone(
    authority: Authority, owner: KeyOwner, tmp_path: Path, blocked, status
):
    keep_receipt(tmp_path / "r.receipt", owner.file(authority))
    (tmp_path / "authority.pub").write_text(authority.public_key.to_pem())

    done = run(
        tmp_path,
        blocked,
        *("-m", "nsmark", "client", "check-receipt", str(tmp_path / "r.receipt")),
        *("--authority", str(tmp_path / "authority.pub")),
    )

    assert done.returncode == status, done.stderr
    assert ("'.[authority]'" in done.stderr) == (status == 3)
