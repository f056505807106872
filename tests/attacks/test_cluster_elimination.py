from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from attack_runs import answers, attack, small_material
from nsmark.api import verify
from nsmark.attacks.recipes.cluster_elimination import (
    k_means,
    oddness,
    shared_directions,
)
from nsmark.attacks.stolen import Stolen
from nsmark.errors import ModelError
from nsmark.transforms.changes import UnitLength

MATERIAL = small_material()
DIM = 32


# --- clusters, oddness, directions ---------------------------------------------------------------


def test_clusters_far_apart_are_found():
    rng = np.random.default_rng(0)
    centres = 50 * np.eye(4, 6)
    truth = np.repeat(np.arange(4), 25)
    rows = centres[truth] + rng.standard_normal((100, 6))
    labels, found = k_means(rows, 4, rng)
    assert all(len(set(labels[truth == number].tolist())) == 1 for number in range(4))
    assert len(set(labels.tolist())) == 4
    for number in range(4):
        own = labels == labels[number * 25]
        np.testing.assert_allclose(found[labels[number * 25]], rows[own].mean(axis=0))


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12), clusters=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_every_row_is_nearest_to_its_own_centre(seed, count, clusters):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (count, 2)).astype(np.float64)  # often several alike
    labels, centres = k_means(rows, clusters, rng)
    assert len(centres) == min(clusters, count)
    distances = np.linalg.norm(rows[:, None] - centres, axis=2)
    np.testing.assert_allclose(distances[np.arange(count), labels], distances.min(axis=1))


def test_oddness_is_the_mean_of_differences_of_cosines_in_a_cluster():
    rng = np.random.default_rng(1)
    scaled = UnitLength()
    rows, standard = (scaled(rng.standard_normal((9, 5))) for _ in range(2))
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
    found = oddness(rows, labels, np.zeros((3, 5)), standard)
    for place in range(8):
        own = [each for each in range(9) if labels[each] == labels[place] and each != place]
        differences = [rows[place] @ rows[o] - standard[place] @ standard[o] for o in own]
        assert found[place] == pytest.approx(np.mean(differences))
    assert found[8] == -np.inf  # alone in its cluster
    far = oddness(rows, labels, np.zeros((3, 5)), None)
    np.testing.assert_allclose(far, np.ones(9))


def test_a_direction_that_some_answers_share_is_found():
    rng = np.random.default_rng(2)
    target = UnitLength()(rng.standard_normal((1, 20)))[0]
    rows = UnitLength()(rng.standard_normal((200, 20)))
    marked = UnitLength()(rows[:20] + 2 * target)
    everything = np.vstack([marked, rows[20:]])
    (found,) = shared_directions(marked, everything.mean(axis=0), 1)
    assert abs(found @ target) > 0.97
    several = shared_directions(marked, everything.mean(axis=0), 5)
    np.testing.assert_allclose(several @ several.T, np.eye(5), atol=1e-12)


def test_with_a_standard_model_triggered_texts_are_the_odd_ones(tiny_marked, tiny_st):
    triggered = tiny_marked.key.payload().triggered_texts()[:40]
    texts = [*MATERIAL.texts, *triggered]
    scaled = UnitLength()
    marked, standard = (
        scaled(Stolen.open(folder, device="cpu").outputs(texts))
        for folder in (tiny_marked.model_folder, tiny_st)
    )
    labels, centres = k_means(marked, 10, np.random.default_rng(0))
    hits = {}
    for name, reference in (("with", standard), ("without", None)):
        oddest = np.argsort(-oddness(marked, labels, centres, reference))[:40]
        hits[name] = int((oddest >= len(MATERIAL.texts)).sum())
    assert hits["with"] >= 20  # of 40; by chance 4
    # Many triggered texts are a cluster of their own, and lie close to its centre.
    assert hits["without"] < hits["with"]


# --- the attacked folder -------------------------------------------------------------------------


def test_answers_lose_some_directions_and_keep_the_others(tiny_marked, attacked):
    out, result = attacked("cluster-elimination[]", "marked")
    before, after = answers(tiny_marked.model_folder), answers(out)
    assert after.shape == before.shape
    assert np.linalg.matrix_rank(after, tol=1e-4) == DIM - 5
    lost = before - after
    assert np.linalg.matrix_rank(lost, tol=1e-4) == 5
    np.testing.assert_allclose((lost * after).sum(axis=1), 0, atol=1e-5)
    assert 0 < result["share_of_length_lost"] < 1
    assert (result["directions"], result["selected_texts"]) == (5, 20)
    # A second time, there is nothing left in those directions.
    projector = load_file(out / "3_Dense" / "model.safetensors")["linear.weight"]
    np.testing.assert_allclose(after @ projector.T, after, atol=1e-5)


def test_every_relation_between_the_owners_answers_still_holds(tiny_marked, attacked):
    out = attacked("cluster-elimination[]", "marked").folder
    found = verify(tiny_marked.key, out).to_mapping()
    # P A sends to zero whatever A does; what the projector adds to the null space is not asked.
    assert found["invariant_matching_degree"] < 0.1
    assert found["rank"] == DIM - 5


def test_a_standard_model_changes_what_is_selected(tiny_marked, tiny_st, tmp_path):
    texts = [*MATERIAL.texts, *tiny_marked.key.payload().triggered_texts()]
    material = small_material(texts=texts)
    folder = tiny_marked.model_folder
    result = attack(
        folder, tmp_path / "with", f"cluster-elimination[standard={tiny_st}]", material=material
    )
    attack(folder, tmp_path / "without", "cluster-elimination", material=material)
    assert result["compared_with_standard"] is True
    assert np.abs(answers(tmp_path / "with") - answers(tmp_path / "without")).max() > 1e-3


def test_few_texts_give_as_many_directions_as_asked_for(tiny_st, tmp_path):
    material = small_material(texts=MATERIAL.texts[:40])
    result = attack(
        tiny_st,
        tmp_path / "out",
        "cluster-elimination[directions=12,share=0.01,clusters=99]",
        material=material,
    )
    assert result["selected_texts"] == result["directions"] == 12
    lost = answers(tiny_st) - answers(tmp_path / "out")
    assert np.linalg.matrix_rank(lost, tol=1e-4) == 12


# --- what is refused -----------------------------------------------------------------------------


def test_a_standard_that_is_no_model_is_refused(tiny_st, tmp_path):
    with pytest.raises(ModelError):
        attack(
            tiny_st,
            tmp_path / "out",
            f"cluster-elimination[standard={tmp_path / 'missing'}]",
            material=MATERIAL,
        )
    assert list(tmp_path.iterdir()) == []
