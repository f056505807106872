"""Forged pair codes: everything about them may be chosen, except what a verifier recomputes.

The table follows from the signature, but texts can be matched with it: of many texts, those that
an innocent model answers on the wanted side. Such an innocent is read as if it had been marked.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from forgeries.keys import NUM_TEXTS, OUTPUT_DIM, control_record, file_key, identity_of
from forgeries.kinds import Forgery, Rng, kind
from forgeries.world import Model, Texts, make_model, make_texts
from handmade_keys import forge, make_key, make_signed_claim
from nsmark.core import select_indices
from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.keyfile import WatermarkKey
from nsmark.payload import PairConfig, ordinary_word_list
from nsmark.payload.pairs import choose_pair_words, derive_pair_texts
from nsmark.payload.payload import derive_texts
from nsmark.suspects import RecordedOutputs

SIZES = PairConfig(size=12, repeats=2)
STOCK = 6
"""Texts that the forger tries for each one that he needs."""

FITTED = {
    "pair texts of the owner's choice",
    "pair texts chosen to fit, from a pool not at hand",
    "pair texts chosen to fit, from a pool made for the signature",
    "two pair texts repeated, from a pool not at hand",
    "pair texts chosen to fit, controls invented",
    "words of the pair code chosen by calling others unknown",
    "words of the pair code chosen from a list not at hand",
    "pair code of another signature",
    "pair code under another claim of the same owner",
}
"""Kinds whose suspect is read by the forged pair code."""


@functools.cache
def pair_key(identity: int) -> WatermarkKey:
    """An honest key with a pair code; the readout is not among its marks."""
    key = make_key(identity_seed=identity, pairs=SIZES)
    configuration = key.configuration.model_copy(update={"marks": ("paper", "pairs")})
    return file_key(key, identity, configuration=configuration)


@dataclass(frozen=True)
class PairScene:
    """A false owner with a well-formed key, and a public model that he accuses."""

    identity: int
    key: WatermarkKey
    texts: Texts
    public: Model
    rng: Rng

    def unfitted(self) -> RecordedOutputs:
        """What the public model answers to texts that nobody matched with the table."""
        outputs = self._read(SIZES.num_texts)
        return replace(self.public.answers(self.texts), pair_texts=outputs)

    def fitted(self, key: WatermarkKey | None = None, num_distinct: int = 0) -> RecordedOutputs:
        """What it answers to texts that the forger matched with the table of a key's signature.

        Args:
            key: Whose table; by default the scene's.
            num_distinct: So many texts on each side, again and again; by default all differ.
        """
        key = key or self.key
        assert key.pairs is not None
        wanted = key.pairs.signs(key.signature)[key.pairs.pair_numbers()]
        stock = self._read(STOCK * SIZES.num_texts)
        units = stock / np.linalg.norm(stock, axis=1, keepdims=True)
        centred = units - units.mean(axis=0)
        order = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0])
        chosen = np.empty(len(wanted), dtype=np.intp)
        for sign, side in ((1, order[::-1]), (-1, order)):
            count = np.count_nonzero(wanted == sign)
            some = side[: num_distinct or count]
            chosen[wanted == sign] = self.rng.permutation(np.resize(some, count))
        return replace(self.public.answers(self.texts), pair_texts=stock[chosen])

    def _read(self, count: int) -> np.ndarray:
        return self.public.answers(make_texts(self.rng, count)).untriggered

    def chosen_texts(self) -> tuple[str, ...]:
        """The texts that were matched, as strings: any will do."""
        chosen = self.rng.choice(2000, SIZES.num_texts, replace=False)
        return tuple(" ".join(pool_texts()[index].split()[:64]) for index in chosen)

    def file(self, **changes: object) -> WatermarkKey:
        """The key with some of its pair code changed; others by their names in a key."""
        own = {n: changes.pop(n) for n in ("pool_digest", "controls") if n in changes}
        pairs = replace(self.key.pairs, **changes)
        return file_key(self.key, self.identity, pairs=pairs, **own)


def set_pair_scene(rng: Rng) -> PairScene:
    identity = identity_of(rng)
    texts = make_texts(rng, NUM_TEXTS)
    return PairScene(identity, pair_key(identity), texts, make_model(rng, OUTPUT_DIM), rng)


# --- Texts. ---


@kind("pair texts of the owner's choice")
def chosen_pair_texts(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    key = scene.file(texts=scene.chosen_texts())
    return Forgery(key, scene.fitted(), (), "texts do not follow", bool(rng.integers(2)))


@kind("pair texts chosen to fit, from a pool not at hand")
def fitted_secret_pool(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    key = scene.file(texts=scene.chosen_texts(), pool_digest=rng.bytes(32).hex())
    return Forgery(key, scene.fitted(), (), "not checked", bool(rng.integers(2)))


@kind("pair texts chosen to fit, from a pool made for the signature")
def fitted_pool(rng: Rng) -> Forgery:
    """Every derivation is right: the pool itself has the right text at every place of the walk."""
    scene = set_pair_scene(rng)
    size = int(rng.integers(2, 6)) * SIZES.num_texts
    pool = [f"text {rng.integers(1 << 60)} of a pool" for _ in range(size)]
    places = select_indices(scene.key.signature, pool, SIZES.num_texts, label="pair-select")
    for place, text in zip(places, scene.chosen_texts(), strict=True):
        pool[place] = text
    texts = derive_pair_texts(scene.key.signature, pool, SIZES.num_texts)
    key = replace(
        scene.key,
        verification_texts=derive_texts(scene.key.signature, pool, NUM_TEXTS),
        pool_digest=lines_digest(pool),
    )
    key = replace(scene, key=key).file(texts=texts)
    reason = "may have been made for this signature"
    return Forgery(key, scene.fitted(), (), reason, bool(rng.integers(2)), tuple(pool))


@kind("two pair texts repeated, from a pool not at hand")
def repeated_pair_texts(rng: Rng) -> Forgery:
    """One text for every +1 of the table, another for every −1: a child's play to read."""
    scene = set_pair_scene(rng)
    plus, minus = scene.chosen_texts()[:2]
    signs = scene.key.pairs.signs(scene.key.signature)[scene.key.pairs.pair_numbers()]
    texts = tuple(plus if sign > 0 else minus for sign in signs)
    key = scene.file(texts=texts, pool_digest=rng.bytes(32).hex())
    return Forgery(key, scene.fitted(num_distinct=1), (), "not checked", bool(rng.integers(2)))


@kind("pair texts chosen to fit, controls invented")
def fitted_with_invented_controls(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    controls = tuple(
        control_record(0.0, float(rng.uniform(1, 12)), f"invented {i}")
        for i in range(rng.integers(1, 20))
    )
    controls = tuple(
        record.model_copy(update={"triggered": record.triggered | {"pair_code_p_value": 1.0}})
        for record in controls
    )
    key = scene.file(texts=scene.chosen_texts(), pool_digest=rng.bytes(32).hex(), controls=controls)
    return Forgery(key, scene.fitted(), (), "it does not count")


# --- Words. ---


@kind("words of the pair code chosen by calling others unknown")
def chosen_pair_words(rng: Rng) -> Forgery:
    """Words to which the innocent's answers happen to follow the table."""
    scene = set_pair_scene(rng)
    share = rng.uniform(0.01, 0.9)
    unknown = {word for word in ordinary_word_list().words if rng.random() < share}
    unknown.add(scene.key.pairs.words[int(rng.integers(2 * SIZES.size))])
    words, skipped = choose_pair_words(
        scene.key.signature,
        ordinary_word_list().words,
        SIZES.size,
        scene.key.trigger,
        lambda word: word not in unknown,
    )
    said = bool(rng.integers(2))  # or he does not say that he skipped any
    key = scene.file(words=words, skipped_words=skipped if said else ())
    reason = "by skipping, words can be chosen" if said else "words do not follow"
    return Forgery(key, scene.fitted(), (), reason)


@kind("words of the pair code chosen from a list not at hand")
def secret_pair_words(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    words = rng.choice(ordinary_word_list().words, 2 * SIZES.size, replace=False).tolist()
    key = scene.file(words=tuple(words), word_list_digest=rng.bytes(32).hex())
    return Forgery(key, scene.fitted(), (), "words were not checked")


# --- Signatures and sizes. ---


@kind("pair code of another signature")
def pair_code_of_another(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    other = pair_key(scene.identity % 4 + 1).pairs
    key = file_key(scene.key, scene.identity, pairs=other)
    return Forgery(key, scene.fitted(), (), "words do not follow", bool(rng.integers(2)))


@kind("pair code under another claim of the same owner")
def pair_code_of_another_claim(rng: Rng) -> Forgery:
    """Claims are cheap to sign: one whose table fits answers that are there already."""
    scene = set_pair_scene(rng)
    claim = make_signed_claim(scene.identity, f"Example Lab {rng.integers(1 << 30)}")
    key = file_key(scene.key, scene.identity, signed_claim=claim)
    return Forgery(key, scene.fitted(key), (), "not follow", bool(rng.integers(2)))


@kind("pair code of another size than stated")
def other_size(rng: Rng) -> Forgery:
    scene = set_pair_scene(rng)
    document = scene.key.to_document()
    how = rng.integers(4)
    if how == 0:
        document["pairs"]["size"] = int(rng.choice([4, 11, 13, 64]))
    elif how == 1:
        document["pairs"]["repeats"] = int(rng.choice([1, 3, 64]))
    elif how == 2:  # as many texts, and fewer words, each asked more often
        document["pairs"] |= {"size": 6, "repeats": 8}
    else:
        document["pairs"]["texts"] *= 2
    content = forge(scene.key, document=document, sealed_by=scene.identity)
    return Forgery(content, scene.fitted(), (), "other numbers of words or texts")


@kind("smaller pair code than its words are for")
def smaller_code(rng: Rng) -> Forgery:
    """The first words and texts of a larger code, consistent in themselves."""
    scene = set_pair_scene(rng)
    size = int(rng.integers(4, SIZES.size))
    words, pairs = scene.key.pairs.words, scene.key.pairs
    smaller = replace(
        pairs,
        config=PairConfig(size=size, repeats=2),
        words=words[:size] + words[SIZES.size : SIZES.size + size],
        texts=pairs.texts[: 2 * size**2],
    )
    key = file_key(scene.key, scene.identity, pairs=smaller)
    suspect = scene.fitted()
    suspect = replace(suspect, pair_texts=suspect.pair_texts[: 2 * size**2])
    return Forgery(key, suspect, (), "words do not follow", bool(rng.integers(2)))
