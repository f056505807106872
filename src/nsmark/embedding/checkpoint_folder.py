"""The folder of checkpoints beside an output: all or nothing, the newest one only; no torch.

::

    marked.checkpoint/
    ├── step-150/               complete: it got its name after its last byte was on the disk
    │   ├── state.json          format, digest, content
    │   └── tensors.safetensors
    └── .partial-x7k2/          a write that is going on, or was killed; never read

A new checkpoint is complete before the one before it is removed, so that there is a good one at
every moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsmark.errors import FileAccessError, InputError, NsmarkError
from nsmark.files import read_bounded, sync_folder, write_errors, write_json
from nsmark.identity.claim import parse_json_object

CHECKPOINT_FORMAT = "nsmark/checkpoint/1"
_STATE, _TENSORS = "state.json", "tensors.safetensors"
_MAX_STATE_BYTES = 256 * 1024 * 1024
_STEP = re.compile(r"step-([0-9]{1,12})")


class CheckpointFolder:
    """``<out>.checkpoint/``; it exists only while it holds a checkpoint."""

    def __init__(self, out: Path) -> None:
        self.path = Path(f"{out}.checkpoint")

    def newest_step(self) -> int | None:
        """Return the step of the newest complete checkpoint."""
        try:
            if not self.path.exists():
                return None
            names = [entry.name for entry in self.path.iterdir() if entry.is_dir()]
        except OSError as error:
            raise FileAccessError(
                f"cannot look into {self.path}: {error.strerror or error}",
                "choose another name for the output",
            ) from error
        return max((int(m[1]) for m in map(_STEP.fullmatch, names) if m), default=None)

    def refuse_unfinished(self) -> None:
        """Refuse to start anew where an unfinished run could go on."""
        step = self.newest_step()
        if step is not None:
            raise FileAccessError(
                f"{self.path} holds the checkpoint of an unfinished run (step {step})",
                f"resume with --resume, or remove {self.path}",
            )

    def require(self) -> int:
        """Return the newest step, refusing to resume where there is none."""
        step = self.newest_step()
        if step is None:
            raise FileAccessError(
                f"there is no checkpoint in {self.path}",
                "start without --resume, or check --out",
            )
        return step

    def resume_hint(self) -> str:
        """Say how to go on from the newest checkpoint; empty where there is none."""
        step = self.newest_step()
        if step is None:
            return ""
        return f"the checkpoint of step {step} is kept: continue with the same command and --resume"

    def write_hint(self) -> str:
        """Say what to do when something cannot be written."""
        advice = "free some space, or choose a folder you can write to"
        return "; ".join(filter(None, (advice, self.resume_hint())))

    def save(
        self, step: int, content: dict[str, Any], write_tensors: Callable[[Path], None]
    ) -> None:
        """Write a checkpoint, then remove the one before it.

        Args:
            step: Names the checkpoint.
            content: What the JSON file holds.
            write_tensors: Writes the safetensors file to the path it is given.

        Raises:
            FileAccessError: It cannot be written; what was there is still there.
        """
        staging: Path | None = None
        try:
            with write_errors(self.path, self.write_hint()):
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Mode 0700, as mkdtemp makes it: a checkpoint is as secret as the key.
                staging = Path(tempfile.mkdtemp(dir=self.path, prefix=".partial-"))
                write_tensors(staging / _TENSORS)
                digest = _synced_digest(staging / _TENSORS)
                _write_state(staging / _STATE, content | {"tensors_sha256": digest})
                sync_folder(staging)
                staging.rename(self.path / f"step-{step}")
                sync_folder(self.path)
        finally:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)
            self._remove_if_empty()
        self.clean(keep=step)

    def read(self) -> dict[str, Any]:
        """Return the content of the newest checkpoint's JSON file.

        Raises:
            InputError: It is damaged, or of another format.
        """
        folder = self.path / f"step-{self.require()}"
        try:
            octets = read_bounded(folder / _STATE, _MAX_STATE_BYTES, "checkpoint")
            document = parse_json_object(octets, "checkpoint")
        except NsmarkError as error:
            raise self.damaged(str(error)) from error
        if document.get("format") != CHECKPOINT_FORMAT:
            raise self.damaged(f"its format is not {CHECKPOINT_FORMAT}")
        content = document.get("content")
        if not isinstance(content, dict) or document.get("sha256") != _content_digest(content):
            raise self.damaged(f"{_STATE} is not what was written")
        return content

    def tensors_file(self, content: dict[str, Any]) -> Path:
        """Return the newest checkpoint's safetensors file, compared with what ``content`` says.

        Raises:
            InputError: It is damaged.
        """
        path = self.path / f"step-{self.require()}" / _TENSORS
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise self.damaged(f"{_TENSORS} cannot be read") from error
        if digest != content.get("tensors_sha256"):
            raise self.damaged(f"{_TENSORS} is not what was written")
        return path

    def damaged(self, why: str) -> InputError:
        """Return the error for a checkpoint that cannot be used."""
        return InputError(
            f"the checkpoint in {self.path} is damaged: {why}",
            f"remove {self.path} and start without --resume",
        )

    def clean(self, keep: int | None) -> None:
        """Remove what killed runs left, and every checkpoint but one; nothing that is not ours."""
        with contextlib.suppress(OSError):
            for entry in list(self.path.iterdir()):
                match = _STEP.fullmatch(entry.name)
                if entry.name.startswith(".partial-") or (match and int(match[1]) != keep):
                    shutil.rmtree(entry, ignore_errors=True)
        self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()


def _synced_digest(path: Path) -> str:
    """Return a file's SHA-256, after its bytes are on the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_state(path: Path, content: dict[str, Any]) -> None:
    digest = _content_digest(content)
    document = {"format": CHECKPOINT_FORMAT, "content": content, "sha256": digest}
    write_json(path, document, 0o600)


def _content_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
