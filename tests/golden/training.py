"""What embedding gives: of tiny seeded models, in a process of its own with fixed arithmetic.

Another processor rounds differently, and rounding grows: what follows from the arithmetic is
compared only where a small computation gives the very bits that it gave when the golden was made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

import nsmark
from golden import where
from golden.cases import page_lines
from golden.compare import digest, outline, plain
from golden.suspects import KeyFile, make_identity, run, run_json

# The same instructions wherever they are had, so that as many machines as possible agree.
_FIXED = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
_SIZES = "--num-texts 96 --hidden-sizes 48,32 --num-bits 16 --batch-size 16 --device cpu --quiet"
_WORDS = re.compile(r"(?!reference, |marked, ).*[A-Za-z]{3}")  # no ticks, not every model's name
_CALIBRATION = "--tasks 1 --steps 2 --device cpu --quiet --out new.nsmark --report new.html"
_FILES = "--identity owner.pem --claim claim.json --out out"
_RATES = "--model-learning-rate 2e-3 --extractor-learning-rate 2e-3 --preset fast"


def run_apart() -> Any:
    """Return what a process with fixed arithmetic finds."""
    places = [str(Path(__file__).parents[1]), str(Path(nsmark.__file__).parents[1])]
    environment = os.environ | _FIXED | {"PYTHONPATH": os.pathsep.join(places)}
    subprocess.run([sys.executable, "-m", "golden.training"], env=environment, check=True)
    return json.loads(Path("training.json").read_text())


def arithmetic() -> dict[str, str]:
    """Versions, and what a small computation gives, to the last bit."""
    import torch
    import transformers

    generator = torch.Generator().manual_seed(0)
    rows, weight, long = (
        torch.randn(shape, generator=generator) for shape in ((64, 32), (48, 32), (32, 700))
    )
    for each in (rows, weight):
        each.requires_grad_()
    hidden = torch.nn.functional.gelu(torch.nn.functional.linear(rows, weight))
    attention = torch.softmax(hidden @ hidden.T / 7, dim=-1) @ torch.layer_norm(rows, (32,))
    loss = (attention @ long).tanh().mean() + torch.nn.functional.normalize(attention).std()
    torch.autograd.backward(loss)
    parts = [each.detach().numpy() for each in (loss, rows.grad, weight.grad)]
    matrix = np.random.default_rng(0).standard_normal((32, 96))
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "nsmark": nsmark.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch's bits": digest(parts),
        "numpy's bits": digest(
            list(np.linalg.svd(matrix)) + list(np.linalg.eigh(matrix @ matrix.T))
        ),
    }


def findings() -> dict[str, Any]:
    """Embed, verify, calibrate and attack; ``anywhere``: what no processor may change."""
    from tiny_models import build_sentence_transformer

    build_sentence_transformer(Path("model"))
    identity = make_identity(1)
    Path("owner.pem").write_bytes(identity.to_pem())
    Path("owner.pem").chmod(0o600)
    claim = nsmark.OwnershipClaim.make("Example Lab", "ours", "2026-01-31T12:00:00Z")
    Path("claim.json").write_text(json.dumps(identity.sign(claim).to_mapping()))
    found: dict[str, Any] = {"arithmetic": arithmetic(), "anywhere": {}, "here": {}}
    anywhere, here = found["anywhere"], found["here"]
    for part in (embedded, presets, checked, attacked, drawn):
        anywhere[part.__name__], here[part.__name__] = part()
    return found


def embedded() -> tuple[Any, Any]:
    """Embed in two parts: the first ends at its first checkpoint."""
    usual = ["embed", "model", *f"{_FILES} {_SIZES} {_RATES}".split()]
    stopped, _ = run(*usual, "--max-seconds", "0.001")
    checkpoint, shapes = kept(Path("out.checkpoint"))
    state = checkpoint["content"]["state"]
    resumed, _ = run(*usual, "--resume")
    key, report = KeyFile(Path("out/owner.nsmark")), json.loads(Path("out/report.json").read_text())
    names = ("claim", "public_key", "signature", "configuration", "trigger", "skipped_words")
    digests = ("verification_texts", "word_list_sha256", "pool_sha256")
    return {
        "exit": [stopped, resumed],
        "files": sorted(str(each) for each in Path("out").rglob("*")),
        "checkpoint": {
            "format": checkpoint["format"],
            "names": outline(checkpoint),
            "fingerprint": checkpoint["content"]["fingerprint"],
            "tensors": digest(shapes),
            "some tensors": dict(list(shapes.items())[::9]),
        },
        "key": {name: key.document[name] for name in names}
        | {name: digest(key.document[name]) for name in digests}
        | {
            "names": outline(key.document),
            "tensors": {n: list(t.shape) for n, t in key.tensors.items()},
        },
        "report": {
            "names": outline(report),
            "claim": report["claim"],
            "configuration": report["configuration"],
            "settings": report["training"]["settings"],
        },
    }, {
        "key id": nsmark.read_key("out/owner.nsmark").key_id,
        "tensors": {name: digest(tensor) for name, tensor in key.tensors.items()},
        "model": key.document["model_sha256"],
        "first losses": state["recent"],
        "steps": report["training"]["steps"],
        "history": report["training"]["history"][::4],
        "measured": {n: report[n] for n in ("watermarked", "reference", "thresholds")},
    }


def kept(folder: Path) -> tuple[Any, dict[str, list[int]]]:
    """A checkpoint's document, without what differs among machines, and its tensors' shapes."""
    document = json.loads((folder / "step-1" / "state.json").read_text())
    content = document["content"]
    content["state"] |= {"watch": {}, "seconds": 0.0}
    content["fingerprint"] = {
        name: value
        for name, value in content["fingerprint"].items()
        if name != "model" and not name.endswith("version")
    }
    with safe_open(folder / "step-1" / "tensors.safetensors", "numpy") as file:
        return document, {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}


def presets() -> tuple[Any, Any]:
    """What the presets ask for, and all that follows from claim and seed, as checkpoints say it."""
    anywhere, here = {}, {}
    for preset in ("fast", "strong", "paper"):
        usual = f"{_FILES}-{preset} --num-texts 96 --device cpu --quiet --preset {preset}".split()
        run("embed", "model", *usual, "--max-seconds", "0.001")
        checkpoint, _ = kept(Path(f"out-{preset}.checkpoint"))
        anywhere[preset] = checkpoint["content"]["fingerprint"]
        here[preset] = checkpoint["content"]["state"]["recent"]
    return anywhere, here


def checked() -> tuple[Any, Any]:
    """Verify and calibrate with the key just made."""
    models = ("--identity", "owner.pem", "--reference", "model", "--owner-model", "out/model")
    for seed in range(1, 6):  # an untrained extractor may read something from noise: another seed
        calibrated = run_json(
            "calibrate", "out/owner.nsmark", *models, *_CALIBRATION.split(), "--seed", seed
        )
        if calibrated["exit status"] == 0:
            break
    assert calibrated["exit status"] == 0, calibrated
    documents = {
        name: run_json("verify", key, *rest, "--device", "cpu", "--quiet")
        for name, key, rest in (
            ("marked", "out/owner.nsmark", ["out/model"]),
            ("unmarked", "out/owner.nsmark", ["model"]),
            ("marked, calibrated", "new.nsmark", ["out/model"]),
            (
                "fresh",
                "out/owner.nsmark",
                ["out/model", "--owner-model", "out/model", "--fresh", "5a" * 16],
            ),
        )
    }
    for name in ("marked", "unmarked"):  # like those of "verdicts"
        documents[name] = {"verdict": documents[name]["verdict"]}
    page = [line for line in page_lines(Path("new.html")) if _WORDS.match(line)]
    names = {
        group: [each["name"] for each in calibrated[group]] for group in ("controls", "thefts")
    }
    judged = [[each[name] for name in ("verdict", "passed")] for each in calibrated["thefts"]]
    for group in names:  # of more than a hundred, some
        calibrated[group] = calibrated[group][::20]
    for each in calibrated["separation"]:
        each["roc"] = digest(plain(each["roc"]))
    return {
        "calibration": outline(calibrated),
        **names,
        "verdicts": {name: each["verdict"] for name, each in documents.items()},
        "headings": [line for line in page if line[:1].isdigit() and line[1:2].isupper()],
    }, {"calibration": calibrated, "thefts": judged, "documents": documents, "page": page}


def attacked() -> tuple[Any, Any]:
    """Rows of the attack suite."""
    trials = ("--try", "signs", "--try", "ll-lfea", "--try", "pruning + whitening")
    options = ("--out", "tried", "--device", "cpu", "--quiet")
    suite = run_json("attack", "suite", "out/owner.nsmark", "out/model", *trials, *options)
    rows = {}
    for file in Path("tried/rows").iterdir():
        row = json.loads(file.read_text())
        assert row["digest"] == file.stem
        for part in (row, *row["steps"]):
            for name in [name for name in part if name.startswith("seconds")]:
                part[name] = 0.0
        rows[row["attack"]] = row
    rows = dict(sorted(rows.items()))
    return {
        "document": outline(suite),
        "files": sorted(each.name for each in Path("tried").iterdir()),
        "rows": {name: outline(row) for name, row in rows.items()},
    }, rows


def drawn() -> tuple[Any, Any]:
    """The first steps of every stage of every preset: what is drawn, and what it comes to."""
    from tiny_models import build_bert

    build_bert(Path("masked"), with_lm_head=True)
    signature, found, exact, begins = bytes(range(64)), {}, {}, {}
    for preset in ("fast", "strong", "paper"):
        for stage in where.stage_names(preset):
            name = f"{preset}, {stage}"
            seen = where.watch_stage(Path("masked"), signature, preset, stage, steps=3)
            losses = seen.pop("losses")
            for each in ("extractor", "adapters"):  # a random number's last bit may differ, too
                exact[f"{name}, {each}"] = digest(seen[each])
                seen[each] = [array.reshape(-1)[:2].tolist() for array in seen[each]][:8]
            for each in ("held out", "held-out pairs"):
                seen[each] = digest(seen[each]) if seen.get(each) else None
            for step in seen["steps"]:
                step["first of each kind"] = [
                    step["texts"][place]
                    for place, count in zip(
                        np.cumsum([0, *step["kinds"][:-1]]), step["kinds"], strict=True
                    )
                    if count
                ]
                for each in ("texts", "pair signs", "hidden tokens"):
                    step[each] = digest(step[each])
            for later in seen["steps"][1:]:
                del later["first of each kind"]
            found[name], exact[f"{name}, losses"] = seen, losses
            begins[name] = [{n: float(f"{v:.3g}") for n, v in each.items()} for each in losses]
    return {"streams": found, "losses": begins}, exact


if __name__ == "__main__":
    import conftest  # noqa: F401 - the same environment as in tests

    Path("training.json").write_text(json.dumps(plain(findings())))
