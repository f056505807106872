"""Writes goldens anew: only after a change that is meant."""

from __future__ import annotations

import sys

import conftest  # noqa: F401 - the same environment as in tests
from golden import training
from golden.cases import CASES
from golden.compare import save
from golden.suspects import workplace

if __name__ == "__main__":
    for name, make in (CASES | {"training": training.run_apart}).items():
        if name in sys.argv[1:] or not sys.argv[1:]:
            with workplace():
                save(name, make())
