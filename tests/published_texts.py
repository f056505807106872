"""What a test's authority published: the package's own word lists and pool."""

from __future__ import annotations

import functools

from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.payload.word_list import ordinary_word_list, published_word_list
from nsmark_authority.admission import Published


@functools.cache
def published_texts() -> Published:
    lists = (published_word_list(), ordinary_word_list())
    pool = pool_texts()
    return Published({each.digest: each for each in lists}, {lines_digest(pool): pool})
