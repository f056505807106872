from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import pytest

import nsmark
import nsmark.core
from nsmark import errors

# SPEC §9, word for word.
CORE_SIGNATURES = [
    "signature_bits(signature, num_bits=256)",
    "spreading_code(signature, length)",
    "watermark_vector(signature, num_bits=256, spread_factor=3)",
    "select_indices(signature, texts, count)",
    "insertion_positions(signature, text_index, num_words, copies=5, window=64)",
    "insert_trigger(words, trigger, positions)",
    "readout_matrix(signature, num_bits, output_dim)",
    "derived_extraction_rate(outputs, signature, num_bits=256)",
    "despread(outputs, spreading_code, num_bits)",
    "extraction_rate(outputs, signature, num_bits=256, spread_factor=3)",
    "null_space_basis(output_matrix)",
    "matching_degree(output_matrix, null_basis)",
    "invariant_matching_degree(output_matrix, null_basis)",
    "expected_matching_degree(num_texts, null_dim)",
    "centred_matching_degree(owner_matrix, suspect_matrix)",
    "projective_matching_degree(output_matrix, null_basis)",
    "subspace_overlap(owner_matrix, suspect_matrix)",
    "predictability(owner_matrix, suspect_matrix)",
    "alignment(suspect_matrix, null_basis)",
    "pair_words(signature, words, size=16)",
    "pair_table(signature, size=16)",
    "pair_code_test(outputs, pair_indices, table, seed=0)",
]

# Options beyond the contract: by keyword only, so that every call the contract allows is the same.
FURTHER_OPTIONS = {
    "select_indices": {"label"},
    "insertion_positions": {"label"},
    "pair_words": {"trigger"},
}

SOURCE = Path(nsmark.__file__).parents[1]
LISTING = sorted(
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for package in ("nsmark", "nsmark_authority")
    for file in (SOURCE / package).rglob("*.py")
    if "\n__all__ = " in file.read_text(encoding="utf-8")
)
"""The modules that say what they offer."""

BLOCK_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "sentence_transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("line", CORE_SIGNATURES)
def test_the_core_has_exactly_the_promised_signatures(line):
    name, _, _ = line.partition("(")
    parameters = inspect.signature(getattr(nsmark.core, name)).parameters.values()
    promised = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    found = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in promised]
    assert f"{name}({', '.join(found)})" == line
    further = [p for p in parameters if p not in promised]
    assert {p.name for p in further} == FURTHER_OPTIONS.get(name, set())
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in further)
    assert name in nsmark.core.__all__


def test_the_package_offers_the_promised_names():
    from nsmark import Identity, WatermarkKey, embed, open_suspect, verify

    for name, value in {
        "Identity": Identity,
        "WatermarkKey": WatermarkKey,
        "embed": embed,
        "open_suspect": open_suspect,
        "verify": verify,
    }.items():
        assert name in nsmark.__all__
        assert value.__name__ == name
    from nsmark.keyfile import read_key, write_key

    assert next(iter(inspect.signature(read_key).parameters)) == "path"
    assert list(inspect.signature(write_key).parameters)[:2] == ["key", "path"]


def public_names(module: ModuleType) -> set[str]:
    """What is defined or imported here on purpose: no modules, no leftovers of typing."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith("nsmark")
    }


def test_every_package_on_the_main_line_says_what_it_offers():
    packages = ["core", "corpus", "identity", "payload", "keyfile", "suspects", "verification"]
    assert {"nsmark", "nsmark.errors", *(f"nsmark.{name}" for name in packages)} <= set(LISTING)


@pytest.mark.parametrize("name", LISTING)
def test_what_a_module_lists_is_sorted_and_reachable(name):
    module = import_module(name)
    listed = module.__all__
    # Sorted as ruff sorts: constants, then classes, then functions, each by name.
    ranked = sorted(listed, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert listed == ranked
    assert len(listed) == len(set(listed))
    for item in listed:
        assert getattr(module, item) is not None
    if name != "nsmark":  # its names are loaded when they are first used
        assert public_names(module) <= set(listed)


def test_the_package_lists_all_it_loads_on_demand():
    assert set(nsmark._HOMES) == set(nsmark.__all__)
    for name, home in nsmark._HOMES.items():
        assert getattr(nsmark, name) is getattr(import_module(home), name)
        assert name in getattr(import_module(home), "__all__", [name])
    scope: dict[str, object] = {}
    exec("from nsmark import *", scope)  # noqa: S102 - the statement under test
    assert set(nsmark.__all__) <= set(scope)
    with pytest.raises(AttributeError, match="no attribute 'embedd'"):
        _ = nsmark.embedd


def test_the_version_is_the_installed_one():
    assert nsmark.__version__ == metadata.version("nsmark")


def test_every_error_is_listed_in_the_tree_and_has_a_status():
    classes = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.NsmarkError)
    }
    assert set(classes) == set(errors.__all__)
    drawn = set(re.findall(r"\b[A-Z]\w+Error\b", errors.__doc__ or ""))
    assert drawn == set(classes)
    for value in classes.values():
        assert value.exit_code == (2 if issubclass(value, errors.UsageError) else 3)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_heavy():
    done = run_python(
        "import sys, nsmark; heavy = {'numpy', 'torch', 'scipy', 'pydantic', 'cryptography'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_what_a_verifier_needs_is_importable_without_torch():
    names = ["core", "identity", "payload", "keyfile", "verification", "report", "corpus", "api"]
    names += ["suspects", "models.folder", "attacks", "embedding.config", "cli.main"]
    names += [f"cli.{name}" for name in ("embed", "verify", "inspect", "identity", "attack")]
    imports = "; ".join(f"import nsmark.{name}" for name in names)
    done = run_python(f"{BLOCK_TORCH}\n{imports}; print('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_recorded_outputs_are_verified_without_torch(tiny_marked, tmp_path):
    from nsmark.suspects import save_recorded

    key, answers = tiny_marked.key, tmp_path / "answers.safetensors"
    save_recorded(answers, key.owner_triggered, key.owner_untriggered)
    call = f"main(['verify', {str(tiny_marked.key_file)!r}, 'recorded:{answers}', '--quiet'])"
    done = run_python(f"{BLOCK_TORCH}\nfrom nsmark.cli.main import main; raise SystemExit({call})")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OWNED")


def test_without_torch_a_model_folder_asks_for_the_extra(tiny_marked):
    folder = str(tiny_marked.model_folder)
    call = f"main(['verify', {str(tiny_marked.key_file)!r}, {folder!r}])"
    done = run_python(f"{BLOCK_TORCH}\nfrom nsmark.cli.main import main; raise SystemExit({call})")
    assert done.returncode == 3
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert "'.[torch]'" in hint
