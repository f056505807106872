"""What is served, and by what: every row of one kind of endpoint, marked model and unmarked."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from endpoint_server import CausalModel, EndpointServer
from endpoints_table.asking import Row, largest_difference, verify
from infinity_server import PROGRAM, READY, VENV, VERSION, NotStartedError, Served

INFINITY = f"infinity-emb {VERSION}"
BASE64 = f"{INFINITY}, base64"
FLOAT = f"{INFINITY}, float"
COMPLETIONS = "completions server"
SUSPECTS = ("marked", "unmarked")
FEW_LOGPROBS = 20
"""What vLLM allows unless it is started with more."""

_MANY_TOKENS = 8192
"""A larger vocabulary is not asked for whole: gigabytes of JSON."""
_ANSWERED = '"POST /v1/embeddings HTTP/1.1" 200'


@dataclass(frozen=True)
class Pair:
    """A model before and after it was marked, and the key."""

    key: Path
    marked: Path
    unmarked: Path

    def folders(self) -> dict[str, Path]:
        """Return each folder by its name."""
        return {"marked": self.marked, "unmarked": self.unmarked}


def missing_infinity() -> str | None:
    """Say why the embeddings server cannot be asked; None if it can."""
    if READY.exists() and PROGRAM.exists():
        return None
    return (
        f"{INFINITY} is not installed (.venv-infinity is absent or incomplete); "
        "pytest -m slow tests/suspects/test_infinity.py installs it"
    )


def infinity_versions() -> dict[str, str]:
    """Return the versions of what the embeddings server computes with; empty if it is missing."""
    places = [str(place) for place in VENV.glob("lib/python*/site-packages")]
    # A name may be written with either sign.
    found = {
        each.name.replace("_", "-"): each.version for each in metadata.distributions(path=places)
    }
    names = ("infinity-emb", "torch", "transformers")
    return {name: found[name] for name in names if name in found}


def told(row: Row, suspect: str, through: str) -> Row:
    """Return a row with its name, and say on standard error that it is there."""
    named = {"suspect": suspect, "through": through, **row}
    outcome = named.get("verdict") or named.get("error")
    print(f"{suspect}, {through}: {outcome}, {named.get('seconds')} s", file=sys.stderr)
    return named


def not_run(reason: str) -> Row:
    """Return what stands for a row that was not measured."""
    return {"status": "not run", "verdict": None, "exit_code": None, "error": reason}


def embedding_rows(pair: Pair, work: Path, suspects: Sequence[str] = SUSPECTS) -> Iterator[Row]:
    """Measure an encoder as a folder, and behind infinity-emb in both encodings."""
    reason = missing_infinity()
    for name in suspects:
        folder = pair.folders()[name]
        kind = "st" if (folder / "modules.json").exists() else "hf"
        recorded = {
            way: work / f"{name}-{way}.safetensors" for way in ("folder", "base64", "float")
        }
        row = verify(pair.key, f"{kind}:{folder}", record=recorded["folder"])
        yield told(row, name, f"folder, {kind}:")
        if reason is not None:
            yield from (told(not_run(reason), name, through) for through in (BASE64, FLOAT))
            continue
        log = work / f"{name}-infinity.log"
        try:
            with Served(folder, log) as url:
                before = count_answered(log)
                row = verify(pair.key, f"openai:{url}#served", record=recorded["base64"])
                row["requests_answered"] = count_answered(log) - before
                row["difference"] = largest_difference(recorded["folder"], recorded["base64"])
                yield told(row, name, BASE64)
                row = through_gateway(pair.key, url, recorded["float"])
                row["difference"] = largest_difference(recorded["folder"], recorded["float"])
                yield told(row, name, FLOAT)
        except NotStartedError as error:
            yield from (told(not_run(str(error)), name, through) for through in (BASE64, FLOAT))


def count_answered(log: Path) -> int:
    """Return how many requests infinity-emb says it has answered."""
    return log.read_text(encoding="utf-8", errors="replace").count(_ANSWERED)


def through_gateway(key: Path, url: str, record: Path) -> Row:
    """Measure behind a gateway that refuses ``encoding_format``, as older servers do.

    The command line always asks for base64 first. Refused, it asks for plain numbers, and these
    the gateway takes from the server as they are.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def embed(texts: Sequence[str]) -> np.ndarray:
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{url}/embeddings",
            json.dumps({"model": "served", "input": list(texts)}).encode(),
            {"content-type": "application/json"},
        )
        with opener.open(request, timeout=120) as answer:
            data = json.load(answer)["data"]
        return np.array([e["embedding"] for e in sorted(data, key=lambda e: e["index"])])

    with EndpointServer(embed=embed) as gateway:
        gateway.encodings = ()  # type: ignore[assignment]  # it knows none
        row = verify(key, f"openai:{gateway.url}#served", record=record)
        refused = sum("encoding_format" in payload for _, payload in gateway.requests)
        return row | {
            "requests_refused": refused,
            "requests_answered": len(gateway.requests) - refused,
        }


def completion_rows(pair: Pair, suspects: Sequence[str] = SUSPECTS) -> Iterator[Row]:
    """Measure a causal model as a folder, and by log-probabilities given in three ways."""
    for name in suspects:
        folder = pair.folders()[name]
        yield told(verify(pair.key, f"hf:{folder}"), name, "folder, hf:")
        model = CausalModel(folder)
        for through, options, most in ways(model):
            model.max_logprobs = most
            with EndpointServer(complete=model) as server:
                row = verify(pair.key, f"completions:{server.url}#served", *options)
            # Where fewer are allowed than it asks for, it finds out by a refusal.
            refused = sum(payload["logprobs"] > most for _, payload in server.requests)
            row["requests_refused"] = refused
            row["requests_answered"] = len(server.requests) - refused
            yield told(row, name, f"{COMPLETIONS}, {through}")


def ways(model: Any) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Give each way to ask for log-probabilities: its name, options, and how many are allowed."""
    config = model.model.config
    size, dim = int(config.vocab_size), int(config.hidden_size)
    if size <= _MANY_TOKENS:
        yield "whole vocabulary", ("--top-logprobs", "-1"), 10**6
    # More tokens than dimensions see all of the outputs.
    count = min(max(128, 2 * dim), size - 100, _MANY_TOKENS)
    yield f"{count} tokens by number", ("--token-ids", f"100-{99 + count}"), 10**6
    yield f"the {FEW_LOGPROBS} likeliest tokens", (), FEW_LOGPROBS
