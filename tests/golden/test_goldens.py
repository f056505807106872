"""Nothing of what is frozen has changed; the first lines of a failure name what has."""

from __future__ import annotations

import sys

import pytest

from golden import training
from golden.cases import CASES
from golden.compare import differences, load, plain
from golden.suspects import workplace

# New options and fields may come; old ones stay.
_MAY_GROW = {"commands"}
# Losses after the same draws: rounding has not grown yet.
_NEARLY = 5e-3


def require_same(lines: list[str]) -> None:
    more = [f"… and {len(lines) - 20} more"] if len(lines) > 20 else []
    assert not lines, "\n".join(["changed:", *lines[:20], *more])


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_it_was(name):
    with workplace():
        found = plain(CASES[name]())
    require_same(list(differences(load(name), found, may_grow=name in _MAY_GROW)))


def test_embedding_is_as_it_was(capsys):
    pytest.importorskip("torch", reason="needs the torch extra")
    golden = load("training")
    with workplace():
        found = training.run_apart()
    anywhere = differences(
        golden["anywhere"], found["anywhere"], relative=_NEARLY, may_grow=True, path="anywhere"
    )
    require_same(list(anywhere))
    others = list(differences(golden["arithmetic"], found["arithmetic"]))
    if others:
        with capsys.disabled():
            sys.stdout.write(
                f"\nother arithmetic: only what does not depend on it is compared: {others}\n"
            )
    else:
        require_same(list(differences(golden["here"], found["here"], may_grow=True, path="here")))
