"""What all parts share: arguments, texts, the marked model with its key, and what was kept."""

from __future__ import annotations

import copy
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from made_up_owners import CREATED, make_identity
from nsmark.api import embed
from nsmark.api.marking import EmbedResult
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import WatermarkKey, read_key
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder, resolve_device
from nsmark.payload import PairConfig, WordList, ordinary_word_list, published_word_list
from nsmark.verification.questions import PairQuestions, pair_questions
from pair_table.material import Material, read_material
from pair_table.reading import Readers, Table
from pair_table.scales import Scale

MARKS = ("paper", "derived", "pairs")
OWNER = "owner"
OTHERS = ("second", "third")
"""Owners who mark the marked model."""


@dataclass
class Run:
    """One run of the benchmark; what is slow to open is opened when it is first needed."""

    model: Path
    data: Path | None
    work: Path
    config: EmbeddingConfig
    """Of the owner's mark."""
    pairs: PairConfig
    scale: Scale
    keys: int
    kind_changes: dict[str, Any]
    """Settings of the stand-ins' marks."""
    device: str
    readers: Readers
    started: float = field(default_factory=time.perf_counter)

    # --- what is opened when it is needed ------------------------------------------------------

    @cached_property
    def material(self) -> Material:
        """Texts and tasks."""
        return read_material(self.data, self.scale.task_rows)

    @cached_property
    def reference(self) -> Encoder:
        """The unmarked model."""
        return open_encoder(self.model, device=self.device)

    @cached_property
    def marked(self) -> Encoder:
        """The owner's marked model."""
        return self.marked_by(OWNER)

    @cached_property
    def key(self) -> WatermarkKey:
        """The owner's key."""
        key = self.key_of(OWNER)
        if key.pairs is None or key.pairs.config != self.pairs:
            raise SystemExit("the marked model has another table: run with --again mark")
        return key

    @cached_property
    def questions(self) -> PairQuestions:
        """The owner's pair texts."""
        return questions_of(self.key)

    @cached_property
    def table(self) -> Table:
        """What readers must know of the owner's key."""
        return Table.of(self.questions)

    @property
    def pair_words(self) -> WordList:
        """The published list that words of pair codes are drawn from."""
        return published_word_list() if self.scale.rare_words else ordinary_word_list()

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What numbers are made with here."""
        device = self.torch_device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        return {
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": name,
            "cores": os.cpu_count(),
        }

    @property
    def torch_device(self) -> torch.device:
        """Where models run."""
        return resolve_device(self.device)

    # --- marking ---------------------------------------------------------------------------------

    def folder_of(self, owner: str) -> Path:
        """Return where an owner's model and key are."""
        return self.work / owner

    @property
    def has_mark(self) -> bool:
        """Whether the owner's model is there."""
        return (self.folder_of(OWNER) / "owner.nsmark").exists()

    def key_of(self, owner: str) -> WatermarkKey:
        """Read an owner's key."""
        return read_key(self.folder_of(owner) / "owner.nsmark")

    def marked_by(self, owner: str) -> Encoder:
        """Open the model that an owner marked."""
        folder = self.folder_of(owner) / "model"
        if not folder.exists():
            raise SystemExit(f"there is no marked model in {folder}: run the part 'mark' first")
        return open_encoder(folder, device=self.device)

    def mark(self, model: Path, owner: str, config: EmbeddingConfig) -> EmbedResult | None:
        """Mark a model for an owner, or go on where a run was cut off; None if it is there."""
        out = self.folder_of(owner)
        if (out / "owner.nsmark").exists():
            return None
        if owner == OWNER:  # what others made of an earlier model goes with it
            self._remove(*OTHERS)
        if out.exists():
            shutil.rmtree(out)
        identity = make_identity(owner)
        return embed(
            model,
            identity,
            identity.sign(OwnershipClaim.make(owner, "this model is mine", CREATED)),
            out,
            corpus=self.material.corpus,
            num_texts=self.scale.num_texts,
            config=config,
            payload_config=self.scale.payload,
            pair_config=self._pairs_of(owner) if "pairs" in config.marks else None,
            pair_word_list=self.pair_words if "pairs" in config.marks else None,
            device=self.device,
            resume=CheckpointFolder(out).newest_step() is not None,
        )

    def _pairs_of(self, owner: str) -> PairConfig:
        return self.pairs if owner == OWNER else self.scale.other_pairs

    def quick_config(self, *marks: Any) -> EmbeddingConfig:
        """Return how others mark: quickly, all marks at once in all weights."""
        method = "full" if "pairs" in marks else None
        return replace(preset_config("fast", marks, method), **self.scale.training)

    # --- kept results ----------------------------------------------------------------------------

    def kept_file(self, part: str, name: str, *, of_mark: bool = True) -> Path:
        """Return the file of a kept result; results about another marked model are others."""
        slug = re.sub(r"[^a-z0-9.]+", "-", name.lower())
        about = f"{self.key.model_digest[:12]}-" if of_mark else ""
        return self.kept_folder(part) / f"{about}{slug}.json"

    def kept_folder(self, part: str) -> Path:
        """Return where a part keeps what it has so far."""
        return self.work / "kept" / part

    def forget(self, part: str) -> None:
        """Remove what was marked for a part."""
        self._remove(*((OWNER, *OTHERS) if part == "mark" else OTHERS))
        for name in ("key", "questions", "table", "marked"):  # what was opened of it
            self.__dict__.pop(name, None)

    def _remove(self, *owners: str) -> None:
        for owner in owners:
            folder = self.folder_of(owner)
            for path in (folder, CheckpointFolder(folder).path):
                shutil.rmtree(path, ignore_errors=True)

    def say(self, line: str) -> None:
        """Tell how far it is."""
        seconds = time.perf_counter() - self.started
        print(f"{seconds:.0f} s: {line}", file=sys.stderr, flush=True)


def questions_of(key: WatermarkKey) -> PairQuestions:
    """Return a key's pair texts; the key must have some."""
    questions = pair_questions(key)
    if questions is None:
        raise SystemExit("the key has no pair code: mark with the mark 'pairs'")
    return questions


def copied(encoder: Encoder, *changes: Callable[[Encoder], None]) -> Encoder:
    """Return a changed copy of a model."""
    model = copy.deepcopy(encoder)
    for change in changes:
        change(model)
    return model.eval()
