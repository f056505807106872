"""A server that others wrote: infinity-emb serves the watermarked model, and the mark is found.

It needs older packages than nsmark, so it lives in a virtual environment of its own, which the
test makes beside the repository's (a minute, once) and finds again later.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from infinity_server import READY, ROOT, VENV, VERSION, Served
from nsmark.api import verify
from nsmark.suspects import QueryOptions, open_suspect
from nsmark.suspects.local import LocalModel

REQUIREMENTS = [f"infinity-emb[server,torch]=={VERSION}", "transformers<5"]
NO_NETWORK = ("from versions: none", "Connection", "timed out", "Temporary failure")


@pytest.fixture(scope="module")
def infinity() -> None:
    """The server's program, installed when it is first needed."""
    if READY.exists():
        return
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    done = subprocess.run(
        [
            *(str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            # The build of torch that the repository holds, and no gigabytes for an accelerator.
            *("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")),
            *REQUIREMENTS,
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode and any(sign in done.stderr for sign in NO_NETWORK):
        pytest.skip(f"infinity-emb cannot be installed here: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    READY.write_text(f"{time.monotonic() - started:.0f} seconds\n", encoding="utf-8")


@pytest.mark.usefixtures("infinity")
def test_real_server_serves_the_mark(tiny_marked, tiny_st, tmp_path):
    key = tiny_marked.key
    for folder, verdict in ((tiny_marked.model_folder, "owned"), (tiny_st, "not_shown")):
        with Served(folder, tmp_path / f"{verdict}.log") as url:
            queries = QueryOptions(batch_size=16, cache=tmp_path / "cache" / verdict)
            suspect = open_suspect(f"openai:{url}#served", queries=queries)
            local = LocalModel(str(folder), device="cpu")
            texts = list(key.payload().verification_texts)

            outputs = suspect.outputs(texts)
            report = verify(key, suspect, rule="paper")

        assert report.verdict == verdict
        np.testing.assert_allclose(outputs, local.outputs(texts), atol=1e-5)
        expected = verify(key, local, rule="paper").evidence.triggered
        found = report.evidence.triggered
        assert found.extraction_rate == pytest.approx(expected.extraction_rate, abs=0.02)
        assert found.invariant_matching_degree == pytest.approx(
            expected.invariant_matching_degree, rel=1e-2, abs=0.05
        )


@pytest.mark.usefixtures("infinity")
def test_base64_of_a_real_server_is_read_as_its_floats_are(tiny_st, tmp_path):
    texts = ["one text", "another text", "語"]
    with Served(tiny_st, tmp_path / "log") as url:
        suspect = open_suspect(f"openai:{url}#served", queries=QueryOptions(decoys=0))
        packed = suspect.outputs(texts)
        suspect._variants = [{}]
        plain = suspect.outputs(texts)

    np.testing.assert_allclose(packed, plain, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(packed, axis=1), 1, atol=1e-5)
