"""Keys as files, and made-up suspects: numbers from seeds, files and a server, no inner parts."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from safetensors import safe_open

from endpoint_server import EndpointServer
from golden import where
from golden.compare import DATA
from many_keys import WordModel
from nsmark import Identity
from nsmark.core import pair_table

Rows = NDArray[np.float64]

_V1 = DATA.parent.parent / "data" / "keys" / "v1"
_FILES = {
    "v1.nsmark": _V1 / "tiny.nsmark",  # made when the format was; no pair code
    "encrypted.nsmark": _V1 / "tiny-encrypted.nsmark",
    **{f"v1-{how}": _V1 / f"{how}.safetensors" for how in ("marked", "mapped", "untouched")},
    "paired.nsmark": DATA / "paired.nsmark",  # 10 × 10 pairs, two texts each, and the null basis
    "second.nsmark": DATA / "second.nsmark",  # another owner's: 10 × 10 pairs, one text each
}
KEYS = {name: Path(f"{name}.nsmark") for name in ("v1", "paired", "second")}
PASSPHRASE = "correct horse battery staple"


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """An empty folder with the keys, to work in: so no path is in what is frozen."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, file in _FILES.items():
            shutil.copyfile(file, name)
        yield


def make_identity(seed: int) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def run(*arguments: object) -> tuple[int, str]:
    """Run a command line; return exit status and standard output."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        status = where.main([str(each) for each in arguments])
    return status, out.getvalue()


def run_json(*arguments: object) -> dict[str, Any]:
    """Run a command with --json; return its document without times, versions and addresses."""
    status, out = run(*arguments, "--json")
    document = json.loads(out)
    for name in ("seconds", "versions", "asked", "suspect"):
        document.pop(name, None)
    return {"exit status": status, **document}


class KeyFile:
    """What a key file says, read as the safetensors file it is."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "numpy") as file:
            self.document: dict[str, Any] = json.loads(file.metadata()["nsmark"])
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.signature = bytes.fromhex(self.document["signature"])
        self.pairs: dict[str, Any] | None = self.document.get("pairs")

    def code(self) -> Any:
        """Words of the pair code, and the table's sign of each pair, row by row."""
        assert self.pairs is not None
        signs = pair_table(self.signature, self.pairs["size"]).reshape(-1)
        return SimpleNamespace(words=self.pairs["words"], signs=signs)


def recorded(name: str, how: str) -> dict[str, Rows]:
    """Answers of a made-up suspect to a key's questions."""
    key = KeyFile(KEYS[name])
    rng = np.random.default_rng([len(how), *how.encode()])
    own = [
        key.tensors[f"owner_outputs.{part}"].astype(float) for part in ("triggered", "untriggered")
    ]
    dim = own[0].shape[1]
    pairs = None
    if key.pairs is not None:
        count = key.pairs["repeats"] * key.pairs["size"] ** 2
        signs = np.resize(key.code().signs, count)
        direction = rng.standard_normal(dim)
        moved = {"innocent": 0.0, "wide": 0.0, "half": 1.0}.get(how, 2.0)
        heard = np.arange(count) % 2 == 0 if how == "half" else np.ones(count)
        pairs = rng.standard_normal((count, dim))
        pairs += moved * np.outer(heard * signs, direction / np.linalg.norm(direction))
    width = dim + 5 if how == "wide" else dim
    if how in ("innocent", "wide", "innocent-2", "innocent-3"):
        own = [rng.standard_normal((len(own[0]), width)) for _ in own]
        pairs = None if pairs is None else rng.standard_normal((len(pairs), width))
    parts = [*own, *([] if pairs is None else [pairs])]
    matrix = rng.standard_normal((dim, dim)) + 3 * np.eye(dim)
    changes = {
        "mapped": lambda x: x @ matrix,
        "noised": lambda x: x + 0.05 * rng.standard_normal(x.shape),
        "scaled": lambda x: (
            x * (rng.choice([-1, 1], len(x)) * rng.uniform(0.5, 2, len(x)))[:, None]
        ),
        "cut": lambda x: x[:, : dim // 4],
        "constant": np.ones_like,
        "short": lambda x: x[:-1],
        "not-a-number": lambda x: x * np.where(np.arange(len(x)) == 3, np.nan, 1.0)[:, None],
    }
    parts = [changes[how](part) for part in parts] if how in changes else parts
    if how == "without-pairs":
        parts = parts[:2]
    if how == "130-pairs":
        parts[2] = parts[2][:130]
    return dict(zip(("triggered", "untriggered", "pair_texts"), parts, strict=False))


def record(name: str, how: str) -> str:
    """Write such answers; return their address."""
    path = Path(f"{name}-{how}")
    if not path.exists():
        with path.open("wb") as file:
            np.savez(file, **recorded(name, how))
    return f"recorded:{path}"


@contextlib.contextmanager
def served(marks: Sequence[str], output_dim: int = 48) -> Iterator[tuple[str, Any]]:
    """Serve a made-up model with some keys' marks; yield its address and its server."""
    model = WordModel([KeyFile(KEYS[name]).code() for name in marks], output_dim)
    with EndpointServer(model.outputs) as server:
        yield f"openai:{server.url}#words", server
