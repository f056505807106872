"""Where the table's randomness comes from: seeds, and a signature without an identity."""

from __future__ import annotations

import hashlib

SEED = 0
# Now and then the extractor settles where it reads a little too much from clean outputs (0.10 to
# 0.15), and nothing moves it any more: the loss asks for a right angle, not for silence. Then the
# next seed is tried, and the page says so.
TRAINING_SEEDS = (0, 1, 2)
SIGNATURE = hashlib.sha512(b"embedding table").digest()
