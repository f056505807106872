"""Checking signatures, keys and recorded outputs must work where torch is not installed.

Everything runs in a fresh interpreter whose imports of torch and its like are refused by a finder,
which ``sitecustomize`` puts in place before any other code runs.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from handmade_keys import innocent_outputs, make_key, mapped_outputs, owner_outputs
from nsmark.keyfile import write_key
from nsmark.suspects import save_recorded
from processes import PATIENCE

BLOCKER = """
import sys

class Blocker:
    blocked = {"torch", "transformers", "tokenizers", "sentence_transformers", "huggingface_hub"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.blocked:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
        return None

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Run a Python command line in an interpreter without torch and return what came of it."""
    folder = tmp_path_factory.mktemp("blocker")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment.pop("NSMARK_DEBUG", None)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A key and recorded answers of a thief and of an innocent."""
    folder = tmp_path_factory.mktemp("recorded")
    key = make_key()
    write_key(key, folder / "owner.nsmark")
    stolen = mapped_outputs(owner_outputs(key), np.random.default_rng(0).random((16, 16)))
    save_recorded(folder / "stolen.safetensors", stolen.triggered, stolen.untriggered)
    innocent = innocent_outputs(key, 3)
    np.savez(
        folder / "innocent.npz", triggered=innocent.triggered, untriggered=innocent.untriggered
    )
    return folder


def test_blocker_blocks(bare):
    for name in ("torch", "transformers"):
        done = bare("-c", f"import {name}")
        assert done.returncode == 1
        assert "blocked" in done.stderr


IMPORT_ALL = """
from importlib import import_module
for package in ("core", "identity", "payload", "corpus", "keyfile", "suspects", "verification",
                "report", "api"):
    import_module("nsmark." + package)
from nsmark import Identity, embed, verify, WatermarkKey, open_suspect
print(Identity.__module__, WatermarkKey.__module__)
"""


def test_packages_and_public_names_import_without_torch(bare):
    done = bare("-c", IMPORT_ALL)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["nsmark.identity.keys", "nsmark.keyfile.schema"]


VERIFY = """
import json, sys
from nsmark import read_key, verify
key_file, *suspects = sys.argv[1:]
key = read_key(key_file)
reports = [verify(key, suspect) for suspect in suspects]
own = verify(key, suspects[0], controls=[suspects[1]], independent=True)
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([[str(r.verdict) for r in reports], str(own.verdict), loaded]))
"""


def test_recorded_outputs_are_verified_through_python(bare, files):
    done = bare(
        "-c",
        VERIFY,
        str(files / "owner.nsmark"),
        f"recorded:{files / 'stolen.safetensors'}",
        str(files / "innocent.npz"),
    )

    assert done.returncode == 0, done.stderr
    verdicts, with_controls, loaded = json.loads(done.stdout)
    assert verdicts == ["owned", "not_shown"]
    assert with_controls == "owned"
    assert not {"torch", "transformers"} & set(loaded)


@pytest.mark.parametrize(
    ("suspect", "options", "verdict", "status"),
    [
        ("stolen.safetensors", [], "owned", 0),
        ("innocent.npz", [], "not_shown", 1),
        ("stolen.safetensors", ["--independent"], "not_shown", 1),
    ],
)
def test_recorded_outputs_are_verified_on_the_command_line(
    bare, files, suspect, options, verdict, status
):
    done = bare(
        "-m",
        "nsmark",
        "verify",
        str(files / "owner.nsmark"),
        f"recorded:{files / suspect}",
        *options,
        "--json",
    )

    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == verdict
    assert document["null_dim"] == 48
    assert document["suspect"] == f"recorded:{files / suspect}"
    assert "Traceback" not in done.stderr


def test_model_folder_without_torch_gives_a_hint_and_no_traceback(bare, files, tmp_path):
    # The folder looks like a model, so that only torch is missing.
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')

    done = bare("-m", "nsmark", "verify", str(files / "owner.nsmark"), str(tmp_path), "--json")

    assert done.returncode == 3
    assert json.loads(done.stdout)["verdict"] == "could_not_measure"
    error, hint = done.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert "torch" in error
    assert hint == "hint: in the folder of nsmark: pip install -c constraints.txt '.[torch]'"


# --- what a call costs before it does anything ---

LOADED = """
import sys
{command}
print(sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        "import nsmark",
        "import nsmark; nsmark.__version__",
        "from nsmark.cli.main import main; assert main(['--help']) == 0",
        "from nsmark.cli.main import main; assert main(['--version']) == 0",
    ],
)
def test_import_and_help_load_neither_torch_nor_numpy(command):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(command=command)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "'nsmark'" in done.stderr
    for heavy in ("torch", "transformers", "numpy", "scipy", "pydantic", "cryptography"):
        assert f"'{heavy}'" not in done.stderr


def seconds_of_children():
    """The processor's time, which on a busy machine is not the clock's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_within_half_a_second():
    program = Path(sys.executable).with_name("nsmark")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "nsmark"]
    seconds = []
    for _ in range(3):
        started = seconds_of_children()
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
        seconds.append(seconds_of_children() - started)
        assert done.returncode == 0
        assert "verify" in done.stdout

    assert min(seconds) < 0.5
