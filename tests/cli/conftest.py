"""One whole embedding by the command line, for all tests that look at what it gave."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import TINY_CORPUS, make_identity
from nsmark.cli.main import main

PASSPHRASE = b"open sesame"


@dataclass
class Embedded:
    settings: list[str]
    """What suits the tiny model: words for another such embedding."""
    identity: Path
    claim: Path
    secret: Path
    out: Path
    status: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def embedded(tiny_st, tmp_path_factory) -> Embedded:
    """One whole embedding by the command line, its key encrypted."""
    root = tmp_path_factory.mktemp("cli")
    secret, claim, out = root / "secret", root / "claim.json", root / "marked"
    secret.write_bytes(PASSPHRASE + b"\n")
    (root / "corpus.txt").write_text("\n".join(TINY_CORPUS), encoding="utf-8")
    settings = ["--num-texts", "96", "--num-bits", "16", "--hidden-sizes", "48,32"]
    settings += ["--model-learning-rate", "2e-3", "--extractor-learning-rate", "2e-3"]
    settings += ["--corpus", f"{root}/corpus.txt", "--device", "cpu"]
    make_identity(1).save(root / "alice")
    sign = ["identity", "sign", "--identity", f"{root}/alice.pem", "--owner", "Zoë"]
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*sign, "--message", "mine", "--out", str(claim)]) == 0
    words = ["embed", str(tiny_st), "--identity", f"{root}/alice.pem", "--claim", str(claim)]
    words += [*settings, "--key-passphrase-file", str(secret), "--out", str(out), "--json"]
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = main(words)
    told = stdout.getvalue(), stderr.getvalue()
    return Embedded(settings, root / "alice.pem", claim, secret, out, status, *told)
