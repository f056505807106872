"""What is kept of a measurement: the same bytes after a restart, and never another's result."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("huey", reason="needs the authority extra")

from nsmark_authority.confined_tasks import Measured
from nsmark_authority.draws import Draw, Finding
from nsmark_authority.errors import AuthorityError
from nsmark_authority.workbench import NotYetError

MEASURED = Measured(
    verdict="owned",
    reasons=("the mark is there",),
    notes=(),
    figures={"extraction_rate": 0.98, "texts": 64, "fresh": True, "none": None},
    html="<p>é</p>" * 1000,
)


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    found = Draw(tmp_path, "ab" * 32)
    with found.alone():
        pass
    return found


def test_randomness_is_drawn_once(draw: Draw, tmp_path: Path) -> None:
    drawn = draw.randomness()

    assert len(drawn) == 32
    again = Draw(tmp_path, "ab" * 32)
    assert again.randomness() == drawn
    assert again.seed(b"entry") == draw.seed(b"entry") != draw.seed(b"another")
    draw.forget()
    with again.alone():
        assert again.randomness() != drawn


def test_damaged_randomness_is_not_replaced_in_silence(draw: Draw) -> None:
    draw.randomness()
    (draw.folder / "randomness").write_bytes(b"short")

    with pytest.raises(AuthorityError, match="damaged"):
        draw.randomness()


def test_results_are_kept_under_all_they_depend_on(draw: Draw) -> None:
    of = ["key", None, "suspect"]
    assert draw.kept(of) is None

    draw.keep(of, Finding(measured=MEASURED, is_ended=True))

    assert draw.kept(of) == Finding(measured=MEASURED, is_ended=True)
    assert draw.kept(["key", "control set", "suspect"]) is None
    for file in draw.folder.glob("*.json"):
        assert file.stat().st_mode & 0o777 == 0o600
        file.write_bytes(file.read_bytes()[:-1])
    assert draw.kept(of) is None


def test_two_do_not_measure_the_same_at_one_time(draw: Draw, tmp_path: Path) -> None:
    with draw.alone(), pytest.raises(NotYetError), Draw(tmp_path, "ab" * 32).alone():
        pass
    with draw.alone():
        pass
