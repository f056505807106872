"""Owners and small keys for tests of the authority: made in milliseconds, without torch."""

from __future__ import annotations

import datetime
import functools
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handmade_keys import make_identity, make_key, reseal
from nsmark.identity import Identity
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import encode_key
from nsmark_authority.receipt import Receipt
from nsmark_authority.service import Authority, Registered, open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.statements import (
    Defence,
    Deposit,
    Dispute,
    Filing,
    OwnerStatement,
    Registration,
    Ruling,
    Suspect,
    sign_statement,
)

NAME = "authority.example"
RELEASED = "2026-01-01T00:00:00Z"
ENDPOINT = Suspect(
    kind="endpoint",
    interface="embeddings",
    url="https://models.example/v1",
    model="encoder",
)


def make_authority(folder: Path, database_url: str | None = None, **others: object) -> Authority:
    settings = AuthoritySettings(
        folder=folder / "authority", name=NAME, database_url=database_url, **others
    )
    return open_authority(settings)


@functools.cache
def _base_key(seed: int) -> WatermarkKey:
    return make_key(identity_seed=seed, owner=f"Owner {seed}", num_texts=24, output_dim=8)


@functools.cache
def small_key(number: int = 0, seed: int = 1) -> WatermarkKey:
    """A sealed key of 9 kB; every number gives another one, under the same claim."""
    return reseal(_base_key(seed), seed, library_version=f"0.1.{number}")


@dataclass(frozen=True)
class KeyOwner:
    """Somebody with an identity who talks to one authority."""

    seed: int = 1
    authority: str = NAME

    @property
    def identity(self) -> Identity:
        return make_identity(self.seed)

    @property
    def name(self) -> str:
        return f"Owner {self.seed}"

    @property
    def pem(self) -> str:
        return self.identity.public_key.to_pem()

    @property
    def fingerprint(self) -> str:
        return self.identity.public_key.fingerprint

    def sign(self, statement: OwnerStatement) -> bytes:
        return sign_statement(statement, self.identity).to_json()

    def registration(self, nonce: str, name: str | None = None) -> bytes:
        return self.sign(
            Registration(
                authority=self.authority, public_key=self.pem, owner=name or self.name, nonce=nonce
            )
        )

    def filing(self, number: int = 0, succeeds: str | None = None) -> tuple[bytes, bytes]:
        """A signed filing, and the key file that belongs to it."""
        key = small_key(number, self.seed)
        content = encode_key(key)
        filing = Filing.of(
            key.signed_claim,
            authority=self.authority,
            key_id=key.key_id,
            content=content,
            succeeds=succeeds,
        )
        return self.sign(filing), content

    def dispute(self, number: int = 0, suspect: Suspect = ENDPOINT, words: str = "mine") -> bytes:
        return self.sign(
            Dispute(
                authority=self.authority,
                public_key=self.pem,
                key_id=small_key(number, self.seed).key_id,
                suspect=suspect,
                released=RELEASED,
                statement=words,
            )
        )

    def recorded(self, content: bytes, **others: Any) -> bytes:
        """A signed deposit of recorded outputs."""
        return self.sign(
            Deposit(
                authority=self.authority,
                public_key=self.pem,
                what="recorded",
                content_sha256=hashlib.sha256(content).hexdigest(),
                content_bytes=len(content),
                **others,
            )
        )

    def answer(self, dispute: str, evidence: str | None = None, **others: Any) -> bytes:
        """A signed answer to a dispute."""
        said = {"statement": "I had it before"} | others
        return self.sign(
            Defence(
                authority=self.authority,
                public_key=self.pem,
                dispute=dispute,
                evidence=evidence,
                **said,
            )
        )

    def register(self, authority: Authority) -> Registered:
        return authority.register(self.registration(authority.challenge().nonce))

    def file(self, authority: Authority, number: int = 0, succeeds: str | None = None) -> Receipt:
        document, content = self.filing(number, succeeds)
        return authority.file_key(document, io.BytesIO(content))


def admit(authority: Authority, filing: str, admitted: bool = True) -> Receipt:
    return authority.record_admission(
        filing,
        admitted=admitted,
        reasons=() if admitted else ("it accepts a control",),
        control_set=None,
        versions={"nsmark": "0.1.0"},
    )


def rule(authority: Authority, dispute: str, outcome: str) -> None:
    found = authority.registry.dispute(dispute)
    authority.record_ruling(
        Ruling(
            authority=NAME,
            dispute=dispute,
            key_id=found.key_id,
            outcome=outcome,  # type: ignore[arg-type]
            verdict="owned",
            reasons=("so it is",),
            evidence={},
            report_sha256=None,
            randomness=None,
            defence=None,
            other_claims=(),
            opened=found.time,
            measured=found.time,
            versions={},
        )
    )


class StoppedClock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now

    def pass_seconds(self, seconds: int) -> None:
        self.now += datetime.timedelta(seconds=seconds)
