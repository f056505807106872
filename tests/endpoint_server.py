"""A real HTTP server on this machine that answers as OpenAI's embeddings and completions do.

It can be told to misbehave: each entry of ``faults`` is used up by one request, and either answers
in its own way or returns False to let the usual answer follow.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

Fault = Callable[["Handler", dict[str, Any]], bool]
Embed = Callable[[Sequence[str]], np.ndarray]


class EndpointServer(ThreadingHTTPServer):
    """Serves ``/v1/embeddings`` from ``embed`` and ``/v1/completions`` from ``complete``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, embed: Embed | None = None, complete: Any = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.embed = embed
        self.complete = complete
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.lock = threading.Lock()
        self.model_lock = threading.Lock()
        self.under_way = self.most_under_way = 0
        self.encodings = ("float", "base64")
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> EndpointServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def batches(self) -> list[list[str]]:
        """The texts of each request, refused ones too."""
        return [payload.get("input", payload.get("prompt")) for _, payload in self.requests]

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: EndpointServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            server.requests.append((dict(self.headers), payload))
            fault = server.faults.popleft() if server.faults else None
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        try:
            if fault is None or not fault(self, payload):
                self.answer(payload)
        finally:
            with server.lock:
                server.under_way -= 1

    def answer(self, payload: dict[str, Any]) -> None:
        if self.path == "/v1/embeddings" and self.server.embed is not None:
            self.embeddings(payload)
        elif self.path == "/v1/completions" and self.server.complete is not None:
            with self.server.model_lock:
                status, document = self.server.complete(payload)
            self.send_json(document, status)
        else:
            self.send_json({"error": {"message": f"no such path: {self.path}"}}, 404)

    def embeddings(self, payload: dict[str, Any]) -> None:
        encoding = payload.get("encoding_format")
        if encoding is not None and encoding not in self.server.encodings:
            self.send_json({"error": {"message": "unknown field encoding_format"}}, 400)
            return
        self.send_json(embeddings_document(self.vectors(payload), encoding or "float"))

    def vectors(self, payload: dict[str, Any]) -> np.ndarray:
        with self.server.model_lock:
            return self.server.embed(payload["input"])

    def send_json(self, document: object, status: int = 200, **headers: str) -> None:
        self.send_content(json.dumps(document).encode(), "application/json", status, **headers)

    def send_content(
        self, content: bytes, kind: str = "application/json", status: int = 200, **headers: str
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)


def embeddings_document(vectors: np.ndarray, encoding: str = "float") -> dict[str, Any]:
    def encoded(vector: np.ndarray) -> object:
        if encoding == "float":
            return [float(value) for value in vector]
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")

    data = [
        {"object": "embedding", "index": index, "embedding": encoded(vector)}
        for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": "served", "usage": {"total_tokens": 1}}


def simple_vectors(texts: Sequence[str], dim: int = 5) -> np.ndarray:
    """Vectors that depend on nothing but their text."""
    import hashlib

    digests = [
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[: 2 * dim] for text in texts
    ]
    return np.array([np.frombuffer(digest, dtype="<i2") for digest in digests]) / 1024.0


class CausalModel:
    """A real causal language model that completes as vLLM does, one token with log-probabilities.

    Args:
        folder: A model folder with its language-model head.
        max_logprobs: More are refused.
        knows_numbers: Whether it takes vLLM's fields; otherwise they are refused as unknown.
        honours_token_ids: An older server takes the field and ignores it.
    """

    def __init__(
        self,
        folder: Any,
        *,
        max_logprobs: int = 10**6,
        knows_numbers: bool = True,
        honours_token_ids: bool = True,
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        # The tiny model has a few more logits than tokens.
        numbers = range(self.model.config.vocab_size)
        self.spellings = [each or "" for each in self.tokenizer.convert_ids_to_tokens(numbers)]
        self.max_logprobs = max_logprobs
        self.knows_numbers = knows_numbers
        self.honours_token_ids = honours_token_ids

    def __call__(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        extras = {"return_tokens_as_token_ids", "logprob_token_ids"} & set(payload)
        if extras and not self.knows_numbers:
            return 400, {"error": {"message": f"unrecognized argument: {sorted(extras)[0]}"}}
        count = payload["logprobs"]
        if count > self.max_logprobs:
            return 400, {"error": {"message": f"Requested sample logprobs of {count}"}}
        choices = [
            {"index": index, "text": "…", "logprobs": self.logprobs(text, payload)}
            for index, text in enumerate(payload["prompt"])
        ]
        return 200, {"object": "text_completion", "choices": choices[::-1]}

    def logprobs(self, text: str, payload: dict[str, Any]) -> dict[str, Any]:
        import torch

        ids = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=128)
        with torch.inference_mode():
            logits = self.model(input_ids=ids["input_ids"]).logits[0, -1]
        values = logits.double().log_softmax(-1).float()
        exact = values.tolist()
        sampled = int(torch.multinomial(values.exp(), 1))
        if payload.get("logprob_token_ids") and self.honours_token_ids:
            chosen = [sampled, *payload["logprob_token_ids"]]
        else:
            size = len(values) if payload["logprobs"] == -1 else payload["logprobs"]
            chosen = [sampled, *values.topk(min(size, len(values))).indices.tolist()]
        by_number = payload.get("return_tokens_as_token_ids")
        top = {
            f"token_id:{number}" if by_number else self.spellings[number]: exact[number]
            for number in chosen
        }
        name = next(iter(top))
        return {"tokens": [name], "token_logprobs": [top[name]], "top_logprobs": [top]}
