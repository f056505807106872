"""The web process knows nothing of models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from processes import PATIENCE

PROGRAM = """
import asyncio, sys
from pathlib import Path
import httpx
from nsmark_authority.packaged_texts import publish_packaged_texts
from nsmark_authority.queueing import open_queue
from nsmark_authority.service import open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.web.app import create_app
from nsmark_authority.web.server import WebServer
import nsmark_authority.cli.serve

settings = AuthoritySettings(folder=Path(sys.argv[1]))
authority = open_authority(settings)
publish_packaged_texts(authority)
app = create_app(authority, queue=open_queue(settings))
WebServer(app)

async def ask():
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        for path in ("/v1/authority", "/v1/openapi.json", "/v1/filings", "/v1/publications"):
            assert (await client.get(path)).status_code == 200

asyncio.run(ask())
heavy = {"torch", "transformers", "tokenizers", "onnxruntime", "sentence_transformers", "datasets"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_the_web_process_imports_no_torch(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "authority")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.stdout.strip() == "[]", ran.stderr[-2000:]
