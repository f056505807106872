"""What ``nsmark.core`` promises to callers: names, parameters, and no torch."""

import inspect
import subprocess
import sys

import pytest

import nsmark.core
from processes import PATIENCE

# The contract (SPEC §9), parameter by parameter.
CONTRACT = {
    "signature_bits": "signature, num_bits=256",
    "spreading_code": "signature, length",
    "watermark_vector": "signature, num_bits=256, spread_factor=3",
    "select_indices": "signature, texts, count",
    "insertion_positions": "signature, text_index, num_words, copies=5, window=64",
    "insert_trigger": "words, trigger, positions",
    "readout_matrix": "signature, num_bits, output_dim",
    "derived_extraction_rate": "outputs, signature, num_bits=256",
    "despread": "outputs, spreading_code, num_bits",
    "extraction_rate": "outputs, signature, num_bits=256, spread_factor=3",
    "null_space_basis": "output_matrix",
    "matching_degree": "output_matrix, null_basis",
    "invariant_matching_degree": "output_matrix, null_basis",
    "expected_matching_degree": "num_texts, null_dim",
    "centred_matching_degree": "owner_matrix, suspect_matrix",
    "projective_matching_degree": "output_matrix, null_basis",
    "subspace_overlap": "owner_matrix, suspect_matrix",
    "predictability": "owner_matrix, suspect_matrix",
    "alignment": "suspect_matrix, null_basis",
    "pair_words": "signature, words, size=16",
    "pair_table": "signature, size=16",
    "pair_code_test": "outputs, pair_indices, table, seed=0",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_every_function_of_the_contract_is_exported_with_its_parameters(name: str) -> None:
    parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in inspect.signature(getattr(nsmark.core, name)).parameters.values()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY  # ours to add
    ]

    assert name in nsmark.core.__all__
    assert ", ".join(map(str, parameters)) == CONTRACT[name]


def test_everything_announced_exists_and_is_sorted() -> None:
    assert nsmark.core.__all__ == sorted(nsmark.core.__all__)
    assert all(callable(getattr(nsmark.core, name)) for name in nsmark.core.__all__)


def test_core_identity_and_payload_import_without_torch() -> None:
    program = (
        "import sys\n"
        "import nsmark.core, nsmark.identity, nsmark.payload, nsmark.files\n"
        "sys.exit(' '.join({'torch', 'transformers'} & set(sys.modules)) or 0)"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
