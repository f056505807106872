"""An authority with something on every page, and owners who try to break out of theirs."""

from __future__ import annotations

import functools
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path

from authority_server import RunningAuthority
from authority_world import RELEASED, KeyOwner, admit, small_key
from handmade_keys import CREATED, reseal
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import encode_key
from nsmark_authority.service import Authority, open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.statements import (
    Defence,
    Dispute,
    Filing,
    OtherClaim,
    Ruling,
    Suspect,
    Withdrawal,
)

REPORT = b"<!DOCTYPE html><html><head><title>r</title></head><body><p>The report.</p></body></html>"
MODEL = {"config.json": b"{}"}
FIELDS = (
    "owner-name",
    "claim-message",
    "dispute-statement",
    "suspect-url",
    "suspect-model",
    "defence-statement",
    "deposit-note",
    "withdrawal-reason",
    "publication-name",
    "publication-note",
    "ruling-reason",
    "figure-name",
    "figure-value",
    "version-name",
    "job-message",
    "other-owner",
    "admission-reason",
)


def hostile(field: str) -> str:
    """Markup, quotes, and a word without end."""
    return (
        f"{field}\"'><img src=x onerror=window.hit=1></title></script>"
        f"<script>window.hit=1</script>{{{{7*7}}}}&lt;" + "W" * 90
    )


@functools.cache
def claimed_key(owner_name: str, message: str, seed: int, number: int = 0) -> WatermarkKey:
    claim = OwnershipClaim.make(owner_name, message, CREATED)
    signed = KeyOwner(seed).identity.sign(claim)
    return reseal(
        small_key(number, seed), seed, signed_claim=signed, library_version=f"0.2.{number}"
    )


def open_there(running: RunningAuthority) -> Authority:
    """Open the folder of a running server from another process: this one."""
    return open_authority(AuthoritySettings(folder=running.folder, answer_seconds=0))


@dataclass
class World:
    """Ids of what is there."""

    authority: Authority
    name: str
    ids: dict[str, str] = field(default_factory=dict)

    def owner(self, seed: int) -> KeyOwner:
        return KeyOwner(seed, self.name)

    def register(self, seed: int, name: str) -> None:
        owner = self.owner(seed)
        nonce = self.authority.challenge().nonce
        self.authority.register(owner.registration(nonce, name))

    def file(self, seed: int, key: WatermarkKey, succeeds: str | None = None) -> str:
        content = encode_key(key)
        filing = Filing.of(
            key.signed_claim,
            authority=self.name,
            key_id=key.key_id,
            content=content,
            succeeds=succeeds,
        )
        document = self.owner(seed).sign(filing)
        return self.authority.file_key(document, io.BytesIO(content)).entry_id

    def dispute(self, seed: int, key: WatermarkKey, suspect: Suspect, words: str) -> str:
        owner = self.owner(seed)
        document = owner.sign(
            Dispute(
                authority=self.name,
                public_key=owner.pem,
                key_id=key.key_id,
                suspect=suspect,
                released=RELEASED,
                statement=words,
            )
        )
        return self.authority.open_dispute(document).entry_id

    def answer(self, seed: int, dispute: str, words: str, evidence: str | None) -> str:
        owner = self.owner(seed)
        document = owner.sign(
            Defence(
                authority=self.name,
                public_key=owner.pem,
                dispute=dispute,
                evidence=evidence,
                statement=words,
            )
        )
        return self.authority.answer_dispute(document).entry_id

    def deposit(self, seed: int, note: str) -> str:
        owner, content = self.owner(seed), f"recorded outputs: {note}".encode()
        return self.authority.deposit(owner.recorded(content, note=note)).entry_id

    def withdraw(self, seed: int, subject: str, reason: str) -> str:
        owner = self.owner(seed)
        document = owner.sign(
            Withdrawal(authority=self.name, public_key=owner.pem, subject=subject, reason=reason)
        )
        return self.authority.withdraw(document).entry_id

    def rule(
        self, dispute: str, outcome: str = "upheld", report: bytes | None = REPORT, **others: object
    ) -> str:
        found = self.authority.registry.dispute(dispute)
        members: dict[str, object] = {
            "verdict": "owned",
            "reasons": ("the signature was read in 24 of 24 texts",),
            "evidence": {"extraction_rate": 1.0, "texts": 24, "independent": True},
            "defence": None,
            "other_claims": (),
            "randomness": "cd" * 32,
            "versions": {"nsmark": "0.1.0"},
        }
        ruling = Ruling(
            authority=self.name,
            dispute=dispute,
            key_id=found.key_id,
            outcome=outcome,
            report_sha256=None if report is None else hashlib.sha256(report).hexdigest(),
            opened=found.time,
            measured=found.time,
            **(members | others),
        )
        return self.authority.record_ruling(ruling, report).entry_id


def build_world(running: RunningAuthority) -> World:
    """Fill a running authority."""
    world = World(open_there(running), running.name)
    build_plain(world)
    build_hostile(world)
    return world


def build_plain(world: World) -> None:
    """Two owners, three keys, a dispute that was answered and ruled, one that is open."""
    ids, authority = world.ids, world.authority
    world.register(1, "Example Lab")
    world.register(2, "Second Works")
    first = claimed_key("Example Lab", "encoder-v2 is ours\n\nMarked before its release.", 1)
    second = claimed_key("Example Lab", "encoder-v2 is ours, second key", 1, 1)
    rival = claimed_key("Second Works", "a sentence encoder of ours", 2)
    ids["list"] = authority.publish("word_list", "rare", b"alpha\nbeta\ngamma").entry_id
    ids["admitted"] = world.file(1, first)
    ids["admission"] = admit(authority, ids["admitted"]).entry_id
    ids["successor"] = world.file(1, second, succeeds=first.key_id)
    admit(authority, ids["successor"])
    ids["waiting"] = world.file(2, rival)
    ids["refused"] = world.file(2, claimed_key("Second Works", "another encoder", 2, 1))
    admit(authority, ids["refused"], admitted=False)
    ids["deposit"] = world.deposit(2, "outputs of our first release")
    suspect = Suspect(
        kind="endpoint",
        interface="embeddings",
        url="https://models.example/v1",
        model="encoder",
    )
    ids["ruled"] = world.dispute(1, first, suspect, "It answers our trigger.\nWe sell it not.")
    ids["defence"] = world.answer(2, ids["ruled"], "We trained it ourselves.", ids["deposit"])
    ids["ruling"] = world.rule(
        ids["ruled"],
        other_claims=(
            OtherClaim(
                filing=ids["waiting"],
                key_id=rival.key_id,
                owner="Second Works",
                time=authority.registry.filing(ids["waiting"]).time,
            ),
        ),
    )
    other = Suspect(
        kind="endpoint", interface="completions", url="https://other.example/v1", model="chat"
    )
    ids["open"] = world.dispute(1, second, other, "The same again.")


def build_hostile(world: World) -> None:
    """An owner who writes markup wherever he may."""
    ids, authority = world.ids, world.authority
    name = hostile("owner-name")[:256]
    world.register(5, name)
    ids["hostile-owner"] = world.owner(5).fingerprint
    key = claimed_key(name, hostile("claim-message"), 5)
    ids["hostile-filing"] = world.file(5, key)
    authority.record_admission(
        ids["hostile-filing"],
        admitted=True,
        reasons=(hostile("admission-reason"),),
        control_set=None,
        versions={"nsmark": "0.1.0"},
    )
    ids["hostile-deposit"] = world.deposit(5, hostile("deposit-note"))
    authority.publish(
        "pool", hostile("publication-name")[:256], b"one\ntwo", note=hostile("publication-note")
    )
    suspect = Suspect(
        kind="endpoint",
        interface="embeddings",
        url=f"javascript:{hostile('suspect-url')}"[:256],
        model=hostile("suspect-model")[:256],
    )
    ids["hostile-ruled"] = world.dispute(5, key, suspect, hostile("dispute-statement"))
    world.answer(2, ids["hostile-ruled"], hostile("defence-statement"), None)
    world.rule(
        ids["hostile-ruled"],
        "not_shown",
        reasons=(hostile("ruling-reason"),),
        evidence={hostile("figure-name")[:256]: hostile("figure-value")[:256]},
        versions={hostile("version-name")[:256]: "1"},
        other_claims=(
            OtherClaim(
                filing=ids["waiting"],
                key_id="ab" * 32,
                owner=hostile("other-owner")[:256],
                time=RELEASED,
            ),
        ),
    )
    ids["hostile-open"] = world.dispute(5, key, suspect, hostile("dispute-statement") + "again")
    job = next(
        job for job in authority.jobs.of_subject(ids["hostile-open"]) if job.kind == "dispute"
    )
    taken = authority.jobs.claim_one(job.job_id, "hostile worker")
    assert taken is not None
    authority.jobs.heartbeat(job.job_id, "hostile worker", 0.5, hostile("job-message"))
    withdrawn = claimed_key(name, hostile("claim-message"), 5, 1)
    ids["hostile-withdrawn"] = world.file(5, withdrawn)
    world.withdraw(5, ids["hostile-withdrawn"], hostile("withdrawal-reason"))


def page_paths(world: World) -> dict[str, str]:
    """Every page there is, by name."""
    ids = world.ids
    paths = {
        "home": "/",
        "claims": "/claims",
        "search": "/claims?text=encoder",
        "disputes": "/disputes",
        "log": "/log",
        "log-begin": "/log?start=0",
        "publications": "/publications",
        "check": "/check",
        "owner": f"/owners/{world.owner(1).fingerprint}",
        "second-owner": f"/owners/{world.owner(2).fingerprint}",
        "hostile-owner": f"/owners/{ids['hostile-owner']}",
    }
    for name in ("admitted", "successor", "waiting", "refused"):
        paths[f"claim-{name}"] = f"/claims/{ids[name]}"
    for name in ("hostile-filing", "hostile-withdrawn"):
        paths[name] = f"/claims/{ids[name]}"
    for name in ("ruled", "open", "hostile-ruled", "hostile-open"):
        paths[f"dispute-{name}"] = f"/disputes/{ids[name]}"
    for index in range(world.authority.log.size()):
        paths[f"entry-{index}"] = f"/log/{index}"
    return paths


def receipt_file(world: World, folder: Path, entry: str = "admitted") -> Path:
    path = folder / "owner.nsmark.receipt"
    path.write_bytes(world.authority.log.receipt(world.ids[entry]).to_json())
    return path
