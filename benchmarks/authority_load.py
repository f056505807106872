"""How much an authority answers while it measures: receipts checked, registry read.

    python benchmarks/authority_load.py --json OUT

Starts ``nsmark serve`` in a temporary folder, files keys, and lets a process of low priority use up
every processor, as the measurement of a dispute does. Then it asks: as fast as answers come, for
each kind by itself; and both kinds together at a steady pace, where the time of an answer counts
from the moment at which it was to be asked. ``--idle``: without the processes of low priority.
``--database URL``: on PostgreSQL. The server listens on 127.0.0.1 alone and ends with the script.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Benchmarks are scripts, not a package; the server and the owners are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from authority_server import RunningAuthority, file_key, running_authority
from authority_world import KeyOwner, small_key
from nsmark import __version__
from nsmark_authority.giving_way import give_way
from provenance import measured

STEADY = {"receipts": 200.0, "registry": 50.0}
"""Requests a second that must be answered together, 99 of 100 within the time below."""

MAX_P99_MS = 200.0


@dataclass
class Load:
    """Requests of one kind, taken in turn."""

    name: str
    requests: Sequence[bytes]
    is_good: Callable[[bytes], bool]


@dataclass
class Tally:
    """What came back."""

    seconds: float
    milliseconds: list[float] = field(default_factory=list)
    failures: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        ordered = sorted(self.milliseconds)
        return {
            "per_second": round(len(ordered) / self.seconds, 1),
            "answers": len(ordered),
            "failures": self.failures,
            "p50_ms": round(_quantile(ordered, 0.50), 1),
            "p99_ms": round(_quantile(ordered, 0.99), 1),
            "max_ms": round(ordered[-1], 1) if ordered else None,
        }


class Connection:
    """One connection that asks again and again; no more of HTTP than our server speaks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect."""
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        (length,) = (int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def as_fast_as_possible(url: str, load: Load, clients: int, seconds: float) -> Tally:
    """Let clients ask, each as soon as it has its last answer."""
    tally = Tally(seconds)
    end = time.perf_counter() + seconds

    async def work(number: int) -> None:
        connection = await Connection.open(url)
        turn = number
        while (begin := time.perf_counter()) < end:
            status, body = await connection.ask(load.requests[turn % len(load.requests)])
            turn += clients
            _count(tally, load, status, body, begin)
        connection.close()

    await asyncio.gather(*(work(number) for number in range(clients)))
    return tally


async def at_a_pace(
    url: str, loads: Sequence[tuple[Load, float]], clients: int, seconds: float
) -> dict[str, Tally]:
    """Ask at fixed moments, whether or not the last answer is there."""
    tallies = {load.name: Tally(seconds) for load, _ in loads}
    queue: asyncio.Queue[tuple[Load, bytes, float] | None] = asyncio.Queue()

    async def ask() -> None:
        connection = await Connection.open(url)
        while (item := await queue.get()) is not None:
            load, request, due = item
            status, body = await connection.ask(request)
            _count(tallies[load.name], load, status, body, due)
        connection.close()

    async def tick(load: Load, rate: float, begin: float) -> None:
        for number in range(round(rate * seconds)):
            due = begin + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            queue.put_nowait((load, load.requests[number % len(load.requests)], due))

    askers = [asyncio.create_task(ask()) for _ in range(clients)]
    begin = time.perf_counter() + 0.1
    await asyncio.gather(*(tick(load, rate, begin) for load, rate in loads))
    for _ in askers:
        queue.put_nowait(None)
    await asyncio.gather(*askers)
    for tally in tallies.values():
        # Answers that came after the end were not given at the wished pace.
        tally.seconds = time.perf_counter() - begin
    return tallies


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a document."""
    options = _parse(argv)
    with (
        tempfile.TemporaryDirectory() as folder,
        _running(Path(folder), options.database) as server,
        contextlib.nullcontext() if options.idle else _busy(os.cpu_count() or 1),
    ):
        loads = _prepare(server, options.filings)
        document = {
            "nsmark": __version__,
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "database": "postgresql" if options.database else "sqlite",
            "low_priority_processes": 0 if options.idle else os.cpu_count(),
            "filings": options.filings,
            "seconds": options.seconds,
            "clients": options.clients,
            "as_fast_as_possible": {},
            "steady": {},
        }
        for load in loads:
            asyncio.run(as_fast_as_possible(server.url, load, options.clients, 1.0))  # warm
            before = _processor_seconds(server.process.pid)
            tally = asyncio.run(
                as_fast_as_possible(server.url, load, options.clients, options.seconds)
            )
            used = _processor_seconds(server.process.pid) - before
            document["as_fast_as_possible"][load.name] = tally.to_json() | {
                "processor_ms": round(1000 * used / max(1, len(tally.milliseconds)), 2)
            }
        paced = [(load, STEADY[load.name]) for load in loads]
        tallies = asyncio.run(at_a_pace(server.url, paced, 4 * options.clients, options.seconds))
        document["steady"] = {name: tally.to_json() for name, tally in tallies.items()}
        document["resident_megabytes"] = round(server.resident_bytes() / 2**20)
    steady = document["steady"].values()
    document["is_met"] = all(
        each["failures"] == 0 and each["p99_ms"] < MAX_P99_MS for each in steady
    )
    text = json.dumps({"measured": measured(), **document}, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n")
    print(text)
    return 0 if document["is_met"] else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the document here, too")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=8, help="connections")
    parser.add_argument("--filings", type=int, default=200, help="keys in the registry")
    parser.add_argument("--idle", action="store_true", help="nothing else runs")
    parser.add_argument("--database", help="postgresql://…")
    return parser.parse_args(argv)


def _running(
    folder: Path, database: str | None
) -> contextlib.AbstractContextManager[RunningAuthority]:
    return running_authority(folder, *(() if database is None else ("--database", database)))


def _prepare(server: RunningAuthority, count: int) -> list[Load]:
    """File keys; return what is asked afterwards."""
    owner = KeyOwner(1, server.name)
    receipts, entries = [], []
    with server.client(server.register(owner)) as client:
        for number in range(count):
            answer = file_key(client, *owner.filing(number))
            assert answer.status_code == 201, answer.text
            receipts.append(answer.content)
            entries.append(json.loads(answer.content))
        listed = client.get("/v1/filings", params={"limit": 100}).json()["items"]
    ids = [each["entry_id"] for each in listed]
    keys = [small_key(number).key_id for number in range(count)]
    paths = [f"/v1/filings/{entry}" for entry in ids]
    paths += [f"/v1/keys/{key}" for key in keys[:100]]
    paths += [f"/v1/filings?key={key[:8]}" for key in keys[:50]]
    paths += ["/v1/filings?text=handmade&limit=20", "/v1/filings?owner=owner%201&limit=20"] * 25
    return [
        Load(
            "receipts",
            [_request("POST", "/v1/receipts/check", receipt) for receipt in receipts],
            lambda body: b'"valid":true' in body,
        ),
        Load(
            "registry",
            [_request("GET", path) for path in _mixed(paths)],
            lambda body: b'"entry_id"' in body,
        ),
    ]


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: authority\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode("ascii") + b"\r\n" + body


def _mixed(paths: Sequence[str]) -> list[str]:
    """Put the kinds of requests among each other, always in the same way."""
    step = 7
    while len(paths) % step == 0:
        step += 2
    return [paths[(number * step) % len(paths)] for number in range(len(paths))]


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Use up processors at the priority of a worker."""
    processes = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _processor_seconds(pid: int) -> float:
    """Return the time that a server and the processes it started used so far."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid, *(int(child) for each in children for child in each.read_text().split())]
    ticks = 0
    for each in pids:
        members = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(members[11]) + int(members[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _burn() -> None:
    # As a worker's children: a group of their own in the server's session.
    os.setpgid(0, 0)
    give_way()
    number = 0
    while True:
        number = (number * 3 + 1) % 1_000_003


def _count(tally: Tally, load: Load, status: int, body: bytes, begin: float) -> None:
    tally.milliseconds.append(1000 * (time.perf_counter() - begin))
    if status != 200 or not load.is_good(body):
        tally.failures += 1


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


if __name__ == "__main__":
    sys.exit(main())
