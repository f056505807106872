"""Interrupted embeddings, by the commands a user would type."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from nsmark.cli.main import main
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.keyfile.codec import encode_key
from nsmark.keyfile.store import read_key
from nsmark.models.folder import model_digest
from processes import running


def words(model: Path, embedded, out: Path, *more: str) -> list[str]:
    start = ["embed", str(model), "--identity", str(embedded.identity), "--out", str(out)]
    return [*start, *embedded.settings, *more]


def claimed(embedded) -> list[str]:
    return ["--claim", str(embedded.claim)]


def assert_same(out: Path, embedded) -> None:
    assert model_digest(out / "model") == model_digest(embedded.out / "model")
    whole = read_key(embedded.out / "owner.nsmark", embedded.secret.read_bytes().strip())
    assert (out / "owner.nsmark").read_bytes() == encode_key(whole)
    assert [entry.name for entry in out.parent.iterdir()] == [out.name]


def kill_after_first_checkpoint(arguments: list[str], folder: Path) -> None:
    """Run until a checkpoint is there and an arbitrary while longer, then kill -9."""
    command = [sys.executable, "-m", "nsmark", *arguments]
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not list(folder.glob("step-*")):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.5))  # noqa: S311 - any moment will do
    assert process.returncode == -signal.SIGKILL


def test_killed_then_out_of_time_then_resumed_it_gives_the_same_bytes(
    tiny_st, embedded, tmp_path, capsys
):
    out = tmp_path / "out"
    arguments = words(tiny_st, embedded, out, *claimed(embedded), "--quiet")
    folder = tmp_path / "out.checkpoint"
    kill_after_first_checkpoint([*arguments, "--checkpoint-every", "10"], folder)
    assert not out.exists()
    assert main(arguments) == 3  # not lost silently
    assert "resume with --resume, or remove" in capsys.readouterr().err
    before = CheckpointFolder(out).require()
    assert main([*arguments, "--resume", "--max-seconds", "0.5", "--json"]) == 3
    captured = capsys.readouterr()
    assert "the time is over" in json.loads(captured.out)["error"]
    assert "--resume" in captured.err.splitlines()[-1]
    assert CheckpointFolder(out).require() > before
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]
    assert main([*arguments, "--resume"]) == 0
    assert_same(out, embedded)


def stop_after(monkeypatch, steps: int) -> None:
    def describe(progress) -> str:
        if progress.step == steps:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr("nsmark.cli.embed._describe", describe)


def test_an_interruption_says_how_to_resume_if_there_is_a_checkpoint(
    tiny_st, embedded, tmp_path, capsys, monkeypatch
):
    more = [*claimed(embedded), "--json", "--checkpoint-every", "2"]
    for steps, hint in ((1, "nothing unfinished"), (5, "step 4 is kept: continue with")):
        stop_after(monkeypatch, steps)
        assert main(words(tiny_st, embedded, tmp_path / "out", *more)) == 130
        captured = capsys.readouterr()
        assert json.loads(captured.out)["exit_code"] == 130
        assert captured.err.splitlines()[-2] == "error: interrupted"
        assert hint in captured.err.splitlines()[-1]
    assert "--resume" in captured.err.splitlines()[-1]


def test_a_claim_made_on_the_spot_is_the_same_claim_when_resumed(
    tiny_st, embedded, tmp_path, capsys, monkeypatch
):
    limited = words(tiny_st, embedded, tmp_path / "out", "--quiet", "--max-seconds", "1e-9")
    monkeypatch.setattr("nsmark.identity.claim.utc_now", lambda: "2026-01-01T00:00:00Z")
    assert main([*limited, "--owner", "Alice", "--message", "mine"]) == 3
    monkeypatch.setattr("nsmark.identity.claim.utc_now", lambda: "2026-01-02T00:00:00Z")
    # Neither of these is refused as a checkpoint of another claim: each gets one step further.
    for step, again in ((2, ["--owner", "Alice", "--message", "mine"]), (3, [])):
        assert main([*limited, *again, "--resume"]) == 3
        assert f"at step {step} of" in capsys.readouterr().err
    assert main([*limited, "--owner", "Bob", "--resume"]) == 3
    assert "belongs to another run: it differs in signature, trigger" in capsys.readouterr().err


def test_a_checkpoint_that_is_missing_damaged_or_foreign_is_refused(
    tiny_st, tiny_bert, embedded, tmp_path, capsys
):
    arguments = words(tiny_st, embedded, tmp_path / "out", *claimed(embedded), "--quiet")
    assert main([*arguments, "--resume"]) == 3
    assert "there is no checkpoint" in capsys.readouterr().err
    assert main([*arguments, "--max-seconds", "1e-9"]) == 3
    capsys.readouterr()
    folder = tmp_path / "out.checkpoint"
    shutil.copytree(folder, tmp_path / "other.checkpoint")

    foreign = words(
        tiny_bert, embedded, tmp_path / "out", *claimed(embedded), "--quiet", "--resume"
    )
    assert main(foreign) == 3
    error = capsys.readouterr().err
    assert "another run" in error
    assert "pooling" in error
    for name in ("tensors.safetensors", "state.json"):
        path = folder / "step-1" / name
        path.write_bytes(path.read_bytes()[:-100])
        assert main([*arguments, "--resume"]) == 3
        assert "damaged" in capsys.readouterr().err
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "other.checkpoint", folder)
    assert not (tmp_path / "out").exists()


def test_an_absurd_learning_rate_stops_with_advice(tiny_st, embedded, tmp_path, capsys):
    absurd = ["--model-learning-rate", "9.9", "--extractor-learning-rate", "9.9", "--quiet"]
    out = tmp_path / "out"
    assert main(words(tiny_st, embedded, out, *claimed(embedded), *absurd)) == 3
    error = capsys.readouterr().err
    assert "diverged" in error or "non-finite" in error
    assert "lower --model-learning-rate" in error.splitlines()[-1]
    assert not out.exists()
