"""Parties to disputes, keys made from a tiny model, and a worker as operators run it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from authority_world import KeyOwner
from forgeries.keys import file_key, trained_extractor
from handmade_keys import make_key
from nsmark.corpus import pool_texts
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import encode_key
from nsmark.models.folder import model_digest
from nsmark.payload.word_list import ordinary_word_list, published_word_list
from nsmark.suspects import RecordedOutputs
from nsmark_authority.fields import format_time
from nsmark_authority.jobs import utc_now
from nsmark_authority.manifest import Manifest
from nsmark_authority.queueing import open_queue
from nsmark_authority.records import FiledKey, Job
from nsmark_authority.service import Authority
from nsmark_authority.statements import (
    Deposit,
    Dispute,
    Filing,
    Ruling,
    Suspect,
    Withdrawal,
    parse_statement,
)
from nsmark_authority.transparency import Envelope
from nsmark_authority.uploads import wanted_files
from processes import PATIENCE, descendants_of, end, wait_for

LONG_AGO = "2020-01-01T00:00:00Z"


def publish_texts(authority: Authority) -> None:
    """Publish what keys are made from: the package's own."""
    for name, words in (("rare", published_word_list()), ("ordinary", ordinary_word_list())):
        authority.publish("word_list", name, "\n".join(words.words).encode())
    authority.publish("pool", "pool", "\n".join(pool_texts()).encode())


def uploaded(source: Path, target: Path) -> Path:
    """Copy of a model folder what an authority takes."""
    for name in wanted_files(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    return target


def key_after_the_fact(model: Path, seed: int) -> WatermarkKey:
    """What anybody can make from a model that he has: its dates are all that is wrong with it."""
    from nsmark.api.opening import Opening

    key = make_key(identity_seed=seed, owner=f"Owner {seed}", num_texts=96, output_dim=32)
    encoder = Opening(key, "cpu").open(model)
    assert not isinstance(encoder, RecordedOutputs)
    payload = key.payload()
    triggered = encoder.outputs(payload.triggered_texts()).astype(np.float64)
    untriggered = encoder.outputs(list(payload.verification_texts)).astype(np.float64)
    answers = RecordedOutputs("its outputs", triggered, untriggered)
    return file_key(
        key,
        seed,
        configuration=key.configuration.model_copy(update={"marks": ("paper",)}),
        owner_triggered=triggered,
        owner_untriggered=untriggered,
        extractor=trained_extractor(key, answers),
    )


def now() -> str:
    return format_time(utc_now())


def a_second_later() -> str:
    """Let the clock of time stamps go on, and return the time."""
    before = now()
    return wait_for(lambda: now() != before and now(), "the next second")


@dataclass(frozen=True)
class Party(KeyOwner):
    """Somebody who files real keys, deposits models, disputes and answers."""

    def file_key(self, authority: Authority, key: WatermarkKey, succeeds: str | None = None) -> str:
        content = encode_key(key)
        filing = Filing.of(
            key.signed_claim,
            authority=self.authority,
            key_id=key.key_id,
            content=content,
            succeeds=succeeds,
        )
        return authority.file_key(self.sign(filing), io.BytesIO(content)).entry_id

    def deposit(
        self, authority: Authority, model: Path, *, with_content: bool = True, **others: Any
    ) -> str:
        manifest = Manifest.of_folder(model)
        deposit = Deposit(
            authority=self.authority,
            public_key=self.pem,
            what="model",
            content_sha256=manifest.digest,
            content_bytes=manifest.total_bytes,
            model_digest=model_digest(model),
            **others,
        )
        with opened_files(model) as files:
            content = files if with_content else None
            return authority.deposit(self.sign(deposit), content).entry_id

    def accuse(
        self, authority: Authority, key_id: str, suspect: Suspect | Path, released: str
    ) -> str:
        folder = suspect if isinstance(suspect, Path) else None
        dispute = Dispute(
            authority=self.authority,
            public_key=self.pem,
            key_id=key_id,
            suspect=uploaded_suspect(suspect) if isinstance(suspect, Path) else suspect,
            released=released,
            statement="it is ours",
        )
        with opened_files(folder) as files:
            return authority.open_dispute(self.sign(dispute), files).entry_id

    def answer(
        self, authority: Authority, dispute: str, evidence: str | None, **others: Any
    ) -> str:
        document = super().answer(dispute, evidence, **others)
        return authority.answer_dispute(document).entry_id

    def take_back(self, authority: Authority, subject: str) -> None:
        withdrawal = Withdrawal(
            authority=self.authority, public_key=self.pem, subject=subject, reason="settled"
        )
        authority.withdraw(self.sign(withdrawal))


def uploaded_suspect(folder: Path) -> Suspect:
    manifest = Manifest.of_folder(folder)
    return Suspect(kind="model", content_sha256=manifest.digest, content_bytes=manifest.total_bytes)


def endpoint_suspect(url: str, model: str = "encoder") -> Suspect:
    return Suspect(kind="endpoint", interface="embeddings", url=url, model=model)


@contextlib.contextmanager
def opened_files(folder: Path | None) -> Iterator[list[tuple[str, Any]] | None]:
    if folder is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        yield [
            (file.name, stack.enter_context((folder / file.name).open("rb")))
            for file in Manifest.of_folder(folder).files
        ]


class WorkerProcess:
    """A worker as operators run it."""

    def __init__(
        self,
        authority: Authority,
        log: Path,
        *arguments: str,
        controls: tuple[Path, ...] = (),
        stale_seconds: int = 2,
    ) -> None:
        self.log = log
        command = [sys.executable, "-m", "nsmark_authority.worker", "--device", "cpu", "--no-kin"]
        command += ["--niceness", "0"]  # tests wait for it, beside others
        command += ["--folder", str(authority.settings.folder), "--threads", "1"]
        command += ["--stale-seconds", str(stale_seconds)]
        for control in controls:
            command += ["--control", str(control)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        if authority.settings.database_url is not None:
            environment["NSMARK_DATABASE"] = authority.settings.database_url
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stderr=stderr,
                env=environment,
            )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE)
        end(self.process)

    def kill(self) -> None:
        """Kill it alone; its children are to notice by themselves."""
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text()

    def descendants(self) -> list[int]:
        """Process ids of the fork server and the children."""
        return descendants_of(self.process.pid)


def job_of(authority: Authority, subject: str) -> Job:
    (job,) = authority.jobs.of_subject(subject)
    return job


def wake_worker(authority: Authority, subject: str) -> None:
    """Do what the web process does when it has logged something."""
    queue = open_queue(authority.settings)
    try:
        queue.wake(job_of(authority, subject).job_id)
    finally:
        queue.close()


def wait_admission(authority: Authority, filing: str) -> FiledKey:
    wait_for(lambda: authority.registry.filing(filing).admission, "an admission")
    return authority.registry.filing(filing)


def wait_ruling(authority: Authority, dispute: str) -> Ruling:
    wake_worker(authority, dispute)
    entry_id = wait_for(lambda: authority.registry.dispute(dispute).ruling, "a ruling")
    found = said_in(authority, entry_id)
    assert isinstance(found, Ruling)
    return found


def said_in(authority: Authority, entry_id: str) -> Any:
    envelope = Envelope.parse(authority.log.entry(entry_id).entry)
    return parse_statement(envelope.payload_type, envelope.payload)


def count_entries(authority: Authority, kind: str) -> int:
    return len(authority.log.entries(0, 1000, kind))
