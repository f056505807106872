"""What an append-only public log is made of: Merkle proofs, checkpoints and signed envelopes.

What is listed here reads no file, no clock and no network. Whatever does not check out raises
``TransparencyError``; there is no ``False`` that a caller could forget to look at.
"""

from nsmark_authority.transparency.checkpoint import (
    MAX_NOTE_BYTES,
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignedCheckpoint,
    open_checkpoint,
    sign_checkpoint,
)
from nsmark_authority.transparency.envelope import (
    MAX_ENVELOPE_BYTES,
    MAX_PAYLOAD_BYTES,
    Envelope,
    EnvelopeSignature,
    open_envelope,
    pre_authentication_encoding,
    sign_envelope,
)
from nsmark_authority.transparency.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    MAX_TREE_SIZE,
    CompleteSubtree,
    Frontier,
    MemoryTree,
    SubtreeHashes,
    hash_children,
    hash_leaf,
    tree_root,
)
from nsmark_authority.transparency.proofs import (
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
)

__all__ = [
    "EMPTY_ROOT",
    "HASH_BYTES",
    "MAX_ENVELOPE_BYTES",
    "MAX_NOTE_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_TREE_SIZE",
    "Checkpoint",
    "CompleteSubtree",
    "Envelope",
    "EnvelopeSignature",
    "Frontier",
    "MemoryTree",
    "NoteKey",
    "NoteSignature",
    "SignedCheckpoint",
    "SubtreeHashes",
    "check_consistency",
    "check_inclusion",
    "consistency_proof",
    "hash_children",
    "hash_leaf",
    "inclusion_proof",
    "open_checkpoint",
    "open_envelope",
    "pre_authentication_encoding",
    "sign_checkpoint",
    "sign_envelope",
    "tree_root",
]
