"""Pure functions: arrays and bytes in, arrays and numbers out.

No files, clock, network, logging or global randomness, and no torch. Matrices are
``(output_dim, num_texts)``; ``outputs`` are ``(num_texts, width)``.
"""

from nsmark.core.derive import (
    insert_trigger,
    insertion_positions,
    pair_table,
    pair_words,
    readout_matrix,
    select_indices,
    signature_bits,
    spreading_code,
    watermark_vector,
)
from nsmark.core.extraction import derived_extraction_rate, derived_p_value, extraction_rate
from nsmark.core.null_space import (
    expected_matching_degree,
    invariant_matching_degree,
    matching_degree,
    null_space_basis,
)
from nsmark.core.pair_code import pair_code_test
from nsmark.core.spread import despread
from nsmark.core.statistics import (
    alignment,
    centred_matching_degree,
    predictability,
    projective_matching_degree,
    subspace_overlap,
)

__all__ = [
    "alignment",
    "centred_matching_degree",
    "derived_extraction_rate",
    "derived_p_value",
    "despread",
    "expected_matching_degree",
    "extraction_rate",
    "insert_trigger",
    "insertion_positions",
    "invariant_matching_degree",
    "matching_degree",
    "null_space_basis",
    "pair_code_test",
    "pair_table",
    "pair_words",
    "predictability",
    "projective_matching_degree",
    "readout_matrix",
    "select_indices",
    "signature_bits",
    "spreading_code",
    "subspace_overlap",
    "watermark_vector",
]
