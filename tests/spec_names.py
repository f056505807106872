"""Names that SPEC §8 promises for `verify --json`; literals, so that a rename shows."""

STATISTICS = {
    "extraction_rate",
    "derived_extraction_rate",
    "derived_p_value",
    "pair_code_rate",
    "pair_code_p_value",
    "matching_degree",
    "invariant_matching_degree",
    "centred_matching_degree",
    "projective_matching_degree",
    "subspace_overlap",
    "predictability",
    "alignment_gap",
    "aligned_subspace_overlap",
    "aligned_predictability",
}
OWN_STATISTICS = {"pair_wager_p_value"}
"""Ours, beside them: docs/adr/0015."""
REPORT = STATISTICS | {
    "verdict",
    "rule",
    "reasons",
    "untriggered",
    "thresholds",
    "calibrated_by",
    "num_texts",
    "output_dim",
    "null_dim",
    "dead_rows",
    "key_id",
    "suspect",
    "versions",
    "seconds",
}
