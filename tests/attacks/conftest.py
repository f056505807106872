"""Every attack on the tiny models is made once for all tests that look at it."""

from __future__ import annotations

from functools import cache

import pytest

from attack_runs import Attacked, attack


@pytest.fixture(scope="session")
def attacked(tiny_marked, tiny_st, tmp_path_factory):
    """Return a function: an attack as it is written, and the marked model or the unmarked one."""
    models = {"marked": tiny_marked.model_folder, "unmarked": tiny_st}

    @cache
    def run(expression: str, model: str = "unmarked") -> Attacked:
        folder = tmp_path_factory.mktemp("attacked") / "model"
        return Attacked(folder, attack(models[model], folder, expression))

    return run
