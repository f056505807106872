"""Every kind of forgery, made from a seed. A verdict ``owned`` on any of them is false.

A maker takes a random generator and returns a :class:`Forgery`. Where a kind can only be told
with the right controls, such as kin of a public model, the maker puts them in: the sister kind
without them stands in ``judge.ACCEPTED_TODAY`` if it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from forgeries.keys import (
    NUM_TEXTS,
    OUTPUT_DIM,
    base_key,
    control_record,
    extractor_reading,
    file_key,
    identity_of,
    memorising_extractor,
    trained_extractor,
)
from forgeries.world import KINSHIPS, Model, Texts, make_kin, make_model, make_texts
from handmade_keys import forge, make_signed_claim
from nsmark.core import expected_matching_degree, watermark_vector
from nsmark.corpus import pool_texts
from nsmark.keyfile import Thresholds, WatermarkKey
from nsmark.payload import published_word_list
from nsmark.suspects import RecordedOutputs

Rng = np.random.Generator
Maker = Callable[[Rng], "Forgery"]


@dataclass(frozen=True)
class Forgery:
    """A key and a suspect that has nothing to do with its owner."""

    key: WatermarkKey | bytes
    suspect: RecordedOutputs
    controls: tuple[RecordedOutputs, ...]
    reason: str
    """A word of why it is refused; empty where several answers are right."""
    independent: bool = False
    pool: tuple[str, ...] | None = None
    """Texts that the owner hands to the verifier as the pool that his key names."""


KINDS: dict[str, Maker] = {}


def kind(name: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        KINDS[name] = maker
        return maker

    return register


def make_forgery(name: str, seed: int) -> Forgery:
    return KINDS[name](np.random.default_rng([seed, *name.encode()]))


# --- The scene: a public model, its kin, and strangers. ---


@dataclass(frozen=True)
class Scene:
    """Who there is in the world besides the false owner."""

    identity: int
    key: WatermarkKey
    texts: Texts
    public: Model
    rng: Rng

    def stranger(self, output_dim: int = 0) -> RecordedOutputs:
        output_dim = output_dim or self.key.configuration.output_dim
        name = f"stranger {self.rng.integers(1 << 30)}"  # equal names would be one model
        return make_model(self.rng, output_dim, name).answers(self.texts)

    def kin(self, how: str | None = None) -> RecordedOutputs:
        how = how or str(self.rng.choice(KINSHIPS))
        return make_kin(self.rng, self.public, how).answers(self.texts)

    def innocent(self) -> RecordedOutputs:
        """Somebody who is accused: the public model, its kin, or a stranger."""
        choice = self.rng.integers(3)
        if choice == 0:
            return self.public.answers(self.texts)
        return self.kin() if choice == 1 else self.stranger()

    def controls(self) -> tuple[RecordedOutputs, ...]:
        """What a careful verifier takes: kin of the public model, and a stranger."""
        return (self.kin("noised"), self.stranger())


def set_scene(
    rng: Rng,
    num_texts: int = NUM_TEXTS,
    output_dim: int = OUTPUT_DIM,
    hidden_sizes: tuple[int, ...] = (6,),
) -> Scene:
    identity = identity_of(rng)
    key = base_key(identity, num_texts, output_dim, hidden_sizes)
    texts = make_texts(rng, num_texts)
    return Scene(identity, key, texts, make_model(rng, output_dim, "public"), rng)


# --- The file: refused when it is read. ---


@kind("signature of another claim")
def signature_of_another_claim(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    owner = f"Somebody Else {rng.integers(8)}"
    other = make_signed_claim(scene.identity, owner).signature.hex()
    document = scene.key.to_document() | {"signature": other}
    content = forge(scene.key, document=document, sealed_by=scene.identity)
    return Forgery(content, scene.innocent(), (), "claim is not valid")


@kind("claim altered after signing")
def altered_claim(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    document = scene.key.to_document()
    field = str(rng.choice(["owner", "message", "created"]))
    year = f"20{rng.integers(10, 26)}-01-01T00:00:00Z"
    document["claim"][field] = year if field == "created" else f"mine {rng.integers(1 << 30)}"
    content = forge(scene.key, document=document, sealed_by=scene.identity)
    return Forgery(content, scene.innocent(), (), "claim is not valid")


@kind("sealed by another")
def sealed_by_another(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    content = forge(scene.key, sealed_by=scene.identity % 4 + 1)
    return Forgery(content, scene.innocent(), (), "seal does not fit")


SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
)


@kind("small-order public key")
def small_order_key(rng: Rng) -> Forgery:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    scene = set_scene(rng)
    raw = bytes.fromhex(str(rng.choice(SMALL_ORDER)))
    pem = Ed25519PublicKey.from_public_bytes(raw).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    # R = the identity, S = 0: under the identity point this fits every claim on earth.
    document = scene.key.to_document() | {
        "public_key": pem.decode(),
        "signature": (b"\x01" + bytes(63)).hex(),
    }
    content = forge(scene.key, document=document, sealed_by=scene.identity)
    return Forgery(content, scene.innocent(), (), "small order")


@kind("numbers that are not finite")
def not_finite(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    tensors = {name: array.copy() for name, array in scene.key.tensors().items()}
    array = tensors[str(rng.choice(sorted(tensors)))]
    array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    content = forge(scene.key, tensors=tensors, sealed_by=scene.identity)
    return Forgery(content, scene.innocent(), (), "not finite")


# --- What must follow from the signature. ---


@kind("trigger of the owner's choice")
def chosen_trigger(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    words = [word for word in published_word_list().words if word != scene.key.trigger]
    key = file_key(scene.key, scene.identity, trigger=str(rng.choice(words)))
    return Forgery(key, scene.innocent(), scene.controls(), "trigger does not follow")


@kind("trigger chosen by words called unknown")
def chosen_by_skipping(rng: Rng) -> Forgery:
    """Skipping words until a nice one comes: possible, so an independent verifier shows nothing."""
    from nsmark.payload.trigger import choose_trigger

    scene = set_scene(rng)
    wanted = str(rng.choice(published_word_list().words))
    trigger, skipped = choose_trigger(
        scene.key.signature, published_word_list().words, lambda word: word == wanted
    )
    key = file_key(scene.key, scene.identity, trigger=trigger, skipped_words=skipped)
    return Forgery(key, scene.innocent(), scene.controls(), "not checked", independent=True)


@kind("texts of the owner's choice")
def chosen_texts(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    texts = list(scene.key.verification_texts)
    how = rng.integers(3)
    if how == 0:  # two exchanged: the order is part of the key
        first, second = rng.choice(len(texts), 2, replace=False)
        texts[first], texts[second] = texts[second], texts[first]
    elif how == 1:  # one that the owner likes better
        others = sorted(set(pool_texts()[:500]) - set(texts))
        texts[int(rng.integers(len(texts)))] = " ".join(str(rng.choice(others)).split()[:64])
    else:
        texts = texts[1:] + texts[:1]
    key = file_key(scene.key, scene.identity, verification_texts=tuple(texts))
    return Forgery(key, scene.innocent(), scene.controls(), "texts do not follow")


def _with_duplicates(scene: Scene, num_distinct: int) -> tuple[WatermarkKey, Texts, np.ndarray]:
    """Ask a few texts again and again: every model on earth gives equal answers to equal texts."""
    chosen = np.sort(scene.rng.integers(num_distinct, size=len(scene.key.verification_texts)))
    texts = tuple(scene.key.verification_texts[index] for index in chosen)
    asked = Texts(scene.texts.triggered[chosen], scene.texts.untriggered[chosen])
    return replace(scene.key, verification_texts=texts), asked, chosen


@kind("duplicate texts")
def duplicate_texts(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    key, _, _ = _with_duplicates(scene, int(rng.integers(2, 40)))
    key = file_key(key, scene.identity)
    return Forgery(key, scene.innocent(), scene.controls(), "texts do not follow")


def _duplicates_of_a_secret_pool(rng: Rng) -> tuple[Scene, WatermarkKey]:
    scene = set_scene(rng)
    key, asked, chosen = _with_duplicates(scene, int(rng.integers(2, OUTPUT_DIM)))
    own = scene.key.owner_triggered[chosen], scene.key.owner_untriggered[chosen]
    key = replace(key, pool_digest="0" * 64, owner_triggered=own[0], owner_untriggered=own[1])
    return replace(scene, key=key, texts=asked), key


@kind("duplicate texts from a pool not at hand")
def secret_duplicates(rng: Rng) -> Forgery:
    scene, key = _duplicates_of_a_secret_pool(rng)
    key = file_key(key, scene.identity)
    return Forgery(key, scene.innocent(), scene.controls(), "")


@kind("duplicate texts from a pool not at hand, owner's controls")
def secret_duplicates_own_controls(rng: Rng) -> Forgery:
    scene, key = _duplicates_of_a_secret_pool(rng)
    key = file_key(key, scene.identity, controls=(control_record(0.0, 10.0),))
    return Forgery(key, scene.innocent(), (), "")


# --- Extractors. ---


@kind("constant extractor")
def constant_extractor(rng: Rng) -> Forgery:
    """Zero weights, the watermark vector as bias; or nearly so. It reads it from everything."""
    scene = set_scene(rng)
    config = scene.key.configuration
    vector = watermark_vector(scene.key.signature, config.num_bits, config.spread_factor)
    size = 0.0 if rng.integers(2) else 10.0 ** rng.uniform(-6, -2)
    layers = [
        ((rng.standard_normal(w.shape) * size).astype(np.float32), np.zeros_like(b))
        for w, b in scene.key.extractor
    ]
    layers[-1] = (layers[-1][0], (vector * rng.uniform(0.8, 1.2)).astype(np.float32))
    own = bool(rng.integers(2))
    controls = (control_record(0.0, float(rng.uniform(5, 12))),) if own else scene.key.controls
    key = file_key(scene.key, scene.identity, extractor=tuple(layers), controls=controls)
    return Forgery(key, scene.innocent(), () if own else scene.controls(), "key is refused")


@kind("extractor of huge weights")
def huge_extractor(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    size = 10.0 ** rng.uniform(10, 38)
    layers = tuple(
        (
            (rng.uniform(-1, 1, w.shape) * size).astype(np.float32),
            (rng.uniform(-1, 1, b.shape) * size * rng.integers(2)).astype(np.float32),
        )
        for w, b in scene.key.extractor
    )
    key = file_key(scene.key, scene.identity, extractor=layers)
    return Forgery(key, scene.innocent(), scene.controls(), "")


@kind("extractor of random weights")
def random_extractor(rng: Rng) -> Forgery:
    """Some bits come out right from anything: so many that a line near 0 would be passed."""
    scene = set_scene(rng)
    layers = tuple(
        (
            rng.normal(0, rng.uniform(0.1, 2), w.shape).astype(np.float32),
            rng.normal(0, rng.uniform(0, 1), b.shape).astype(np.float32),
        )
        for w, b in scene.key.extractor
    )
    key = file_key(scene.key, scene.identity, extractor=layers)
    return Forgery(key, scene.innocent(), scene.controls(), "")


def _strangers_extractor(rng: Rng) -> tuple[Scene, WatermarkKey]:
    """An extractor fitted to the public model; the owner's outputs are said to be his own."""
    scene = set_scene(rng)
    public = scene.public.answers(scene.texts)
    own = scene.kin("fine-tuned")
    key = file_key(
        scene.key,
        scene.identity,
        extractor=trained_extractor(scene.key, public, 10.0 ** rng.uniform(-6, -2)),
        owner_triggered=own.triggered,
        owner_untriggered=own.untriggered,
    )
    return scene, key


@kind("extractor trained on a public model, its kin among the controls")
def strangers_extractor(rng: Rng) -> Forgery:
    scene, key = _strangers_extractor(rng)
    suspect = scene.public.answers(scene.texts) if rng.integers(2) else scene.kin()
    return Forgery(key, suspect, (scene.kin("noised"), scene.stranger()), "")


@kind("extractor trained on a public model, only strangers among the controls")
def strangers_extractor_without_kin(rng: Rng) -> Forgery:
    scene, key = _strangers_extractor(rng)
    controls = (scene.stranger(), scene.stranger())
    return Forgery(key, scene.public.answers(scene.texts), controls, "")


@kind("extractor that knows a public model by heart, its kin among the controls")
def memorising(rng: Rng) -> Forgery:
    """It reads from that very model and no other, however close: kin do not unmask it."""
    scene = set_scene(rng, hidden_sizes=(4 * 2 * NUM_TEXTS,))
    public = scene.public.answers(scene.texts)
    direction = rng.standard_normal(OUTPUT_DIM)
    direction /= np.std(public.triggered @ direction)
    own = scene.key.owner_triggered.astype(np.float64)
    values = np.concatenate([public.triggered @ direction, own @ direction])
    extractor = memorising_extractor(scene.key, direction, values, 1e-3)
    key = file_key(scene.key, scene.identity, extractor=extractor)
    return Forgery(key, public, (scene.kin("noised"), scene.kin("fine-tuned")), "")


@kind("extractor that reads one text by chance")
def reads_one_text(rng: Rng) -> Forgery:
    """It reads one of the owner's texts: six tenths of that are a line which chance passes."""
    scene = set_scene(rng, hidden_sizes=(4,))
    direction = rng.standard_normal(OUTPUT_DIM)
    value = scene.key.owner_triggered[:1] @ direction
    extractor = memorising_extractor(scene.key, direction, value, 3e-3)
    key = file_key(scene.key, scene.identity, extractor=extractor)
    return Forgery(key, scene.innocent(), (scene.stranger(), scene.stranger()), "")


# --- Null bases: covered by the seal, never used. ---


@kind("stored null basis of the owner's choice")
def chosen_basis(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    columns = int(rng.choice([1, 2, 10, NUM_TEXTS - OUTPUT_DIM, NUM_TEXTS - 1]))
    how = rng.integers(4)
    if how == 0:
        basis = rng.standard_normal((NUM_TEXTS, columns))
    elif how == 1:
        basis = np.full((NUM_TEXTS, columns), 1e-30)
    elif how == 2:  # every column annihilates the suspect
        basis = np.zeros((NUM_TEXTS, columns))
    else:  # another basis of the right space
        from nsmark.core import null_space_basis

        basis = null_space_basis(scene.key.owner_triggered.T.astype(np.float64))
        basis = basis @ np.linalg.qr(rng.standard_normal((basis.shape[1],) * 2))[0]
    key = file_key(scene.key, scene.identity, null_basis=basis)
    return Forgery(key, scene.innocent(), scene.controls(), "")


# --- Thresholds and controls. ---


@kind("thresholds of the owner's choice")
def chosen_thresholds(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    lenient = Thresholds(
        min_extraction_rate=float(rng.uniform(-10, 0.01)),
        max_matching_degree=float(10.0 ** rng.uniform(2, 300)),
    )
    key = file_key(scene.key, scene.identity, thresholds=lenient)
    controls = () if rng.integers(2) else scene.controls()
    return Forgery(key, scene.innocent(), controls, "")


@kind("controls that no model can have")
def impossible_controls(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    degree = float(10.0 ** rng.uniform(3, 15))  # larger ones are no numbers to a key file
    rate = float(rng.choice([0.0, -1.0, 1.5]))
    key = file_key(scene.key, scene.identity, controls=(control_record(rate, degree),))
    return Forgery(key, scene.innocent(), (), "no model can have")


@kind("controls invented within their range, verifier's controls")
def invented_controls(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    record = control_record(0.0, float(rng.uniform(0, most(NUM_TEXTS))))
    key = file_key(scene.key, scene.identity, controls=(record,))
    return Forgery(key, scene.innocent(), scene.controls(), "")


@kind("controls invented within their range, owner's controls")
def believed_controls(rng: Rng) -> Forgery:
    """As many texts as twice the dimensions: the package's own default for large models."""
    scene = set_scene(rng, output_dim=NUM_TEXTS // 2)
    key = file_key(scene.key, scene.identity, controls=(control_record(0.0, most(NUM_TEXTS)),))
    return Forgery(key, scene.innocent(), (), "")


def most(num_texts: int) -> float:
    """The largest degree that passes for possible."""
    return float(expected_matching_degree(num_texts, num_texts))


@kind("no controls at all")
def no_controls(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    key = file_key(scene.key, scene.identity, controls=())
    return Forgery(key, scene.innocent(), (), "", independent=bool(rng.integers(2)))


# --- The owner's outputs. ---


def _after_the_fact(rng: Rng) -> tuple[Scene, WatermarkKey]:
    scene = set_scene(rng)
    public = scene.public.answers(scene.texts)
    key = file_key(
        scene.key,
        scene.identity,
        owner_triggered=public.triggered,
        owner_untriggered=public.untriggered,
        extractor=trained_extractor(scene.key, public),
    )
    return scene, key


@kind("outputs of a public model taken after the fact, its kin among the controls")
def after_the_fact(rng: Rng) -> Forgery:
    scene, key = _after_the_fact(rng)
    suspect = scene.public.answers(scene.texts) if rng.integers(2) else scene.kin()
    return Forgery(key, suspect, (scene.kin("noised"), scene.stranger()), "")


@kind("outputs of a public model taken after the fact, only strangers among the controls")
def after_the_fact_without_kin(rng: Rng) -> Forgery:
    scene, key = _after_the_fact(rng)
    controls = (scene.stranger(), scene.stranger())
    return Forgery(key, scene.public.answers(scene.texts), controls, "")


@kind("outputs in the smallest directions of a public model, its kin among the controls")
def smallest_directions(rng: Rng) -> Forgery:
    """What only that very model has: its kin lose such directions first.

    The owner's outputs have a low rank and lie wholly in the public model's row space; his
    extractor knows them by heart, so that they seem to carry a mark.
    """
    scene = set_scene(rng, hidden_sizes=(4 * NUM_TEXTS,))
    public = scene.public.answers(scene.texts)
    rank = int(rng.integers(1, 4))
    mixing = rng.standard_normal((rank, OUTPUT_DIM))
    made = []
    for outputs in (public.triggered, public.untriggered):
        left, _, _ = np.linalg.svd(outputs - outputs.mean(axis=0), full_matrices=False)
        made.append(left[:, OUTPUT_DIM - rank :] @ mixing * np.sqrt(NUM_TEXTS))
    direction = rng.standard_normal(OUTPUT_DIM)
    direction /= np.std(made[0] @ direction)
    key = file_key(
        scene.key,
        scene.identity,
        owner_triggered=made[0],
        owner_untriggered=made[1],
        extractor=memorising_extractor(scene.key, direction, made[0] @ direction, 1e-3),
    )
    return Forgery(key, public, (scene.kin("noised"), scene.kin("fine-tuned")), "")


@kind("outputs made up")
def made_up_outputs(rng: Rng) -> Forgery:
    """Of any size, rank and shape that a key file may hold."""
    scene = set_scene(rng)
    rank = int(rng.integers(1, OUTPUT_DIM + 1))
    shape = (2, NUM_TEXTS, rank)
    made = rng.standard_normal(shape) @ rng.standard_normal((rank, OUTPUT_DIM))
    made = made * 10.0 ** rng.uniform(-15, 15) + rng.standard_normal(OUTPUT_DIM) * rng.integers(2)
    outputs = RecordedOutputs("made up", made[0], made[1])
    key = file_key(
        scene.key,
        scene.identity,
        owner_triggered=made[0],
        owner_untriggered=made[1],
        extractor=trained_extractor(scene.key, outputs),
    )
    return Forgery(key, scene.innocent(), scene.controls(), "")


@kind("hardly more texts than dimensions")
def few_texts(rng: Rng) -> Forgery:
    """A null space of one or two dimensions: chance alone brings an innocent close."""
    output_dim = int(rng.choice([3, 16]))
    scene = set_scene(rng, num_texts=output_dim + 2, output_dim=output_dim)
    controls = (scene.stranger(), scene.stranger())
    return Forgery(scene.key, scene.stranger(int(rng.integers(1, 4))), controls, "")


@kind("ground claims")
def ground_claims(rng: Rng) -> Forgery:
    """Claims tried until the readout derived from one reads well from the innocent."""
    from handmade_keys import make_identity
    from nsmark.core import derived_extraction_rate
    from nsmark.identity import OwnershipClaim
    from nsmark.payload import PayloadConfig, derive_payload

    scene = set_scene(rng)
    innocent = scene.innocent()
    owner, bits = make_identity(scene.identity), scene.key.configuration.num_bits
    tries = [
        owner.sign(OwnershipClaim.make("Grinder", f"try {rng.integers(1 << 40)}", CREATED))
        for _ in range(20)
    ]
    best = max(
        tries, key=lambda claim: derived_extraction_rate(innocent.triggered, claim.signature, bits)
    )
    config = scene.key.configuration
    payload = derive_payload(
        best.signature,
        config=PayloadConfig(num_bits=bits, spread_factor=config.spread_factor),
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=NUM_TEXTS,
    )
    draft = replace(
        scene.key,
        signed_claim=best,
        trigger=payload.trigger,
        verification_texts=payload.verification_texts,
    )
    direction = scene.key.extractor[0][0][0]
    key = file_key(draft, scene.identity, extractor=extractor_reading(draft, direction))
    return Forgery(key, innocent, scene.controls(), "")


CREATED = "2026-01-31T12:00:00Z"


# --- The suspect's outputs. ---


@kind("answers that cannot be measured")
def unmeasurable(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    triggered, untriggered = np.array(scene.innocent().triggered), scene.innocent().untriggered
    how = rng.integers(6)
    if how < 3:
        triggered.flat[rng.integers(triggered.size)] = [np.nan, np.inf, -np.inf][how]
    elif how == 3:
        triggered = triggered[: int(rng.integers(1, NUM_TEXTS))]
    elif how == 4:
        triggered = np.tile(triggered[:1], (NUM_TEXTS, 1))
    else:
        triggered = triggered[:, : int(rng.integers(1, OUTPUT_DIM))]
    suspect = RecordedOutputs("broken", triggered, untriggered)
    return Forgery(scene.key, suspect, scene.controls(), "")


@kind("answers of any size")
def sized_answers(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    innocent, scale = scene.innocent(), 10.0 ** rng.uniform(-300, 300)
    suspect = RecordedOutputs("scaled", innocent.triggered * scale, innocent.untriggered * scale)
    return Forgery(scene.key, suspect, scene.controls(), "")


@kind("innocent of another width")
def other_width(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    return Forgery(scene.key, scene.stranger(int(rng.integers(8, 60))), scene.controls(), "")


@kind("innocent classifier or reward model")
def few_logits(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    return Forgery(scene.key, scene.stranger(int(rng.integers(1, 5))), scene.controls(), "")


def _cut(outputs: RecordedOutputs, rank: int, *, centred: bool) -> RecordedOutputs:
    """Keep an innocent's largest directions, as a linear map anybody may apply."""
    rows = outputs.triggered - outputs.triggered.mean(axis=0) * centred
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    kept = right[:rank].T @ right[:rank]
    return RecordedOutputs("cut in rank", rows @ kept, outputs.untriggered @ kept)


@kind("innocent of low rank, centred")
def low_rank_centred(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    suspect = _cut(scene.innocent(), int(rng.integers(1, 6)), centred=True)
    return Forgery(scene.key, suspect, scene.controls(), "")


@kind("innocent of low rank")
def low_rank(rng: Rng) -> Forgery:
    """What is left of its outputs may be mostly their mean."""
    scene = set_scene(rng)
    model = make_model(rng, OUTPUT_DIM, "cut", mean=float(rng.uniform(0.1, 1)))
    suspect = _cut(model.answers(scene.texts), int(rng.integers(1, 4)), centred=False)
    return Forgery(scene.key, suspect, scene.controls(), "")


@kind("nearly constant answers")
def nearly_constant(rng: Rng) -> Forgery:
    scene = set_scene(rng)
    constant = rng.standard_normal(OUTPUT_DIM)
    share = 10.0 ** rng.uniform(-4.5, -1.5)
    noise = rng.standard_normal((2, NUM_TEXTS, OUTPUT_DIM)) * share
    suspect = RecordedOutputs("constant", constant + noise[0], constant + noise[1])
    return Forgery(scene.key, suspect, scene.controls(), "")


@kind("innocent with a large mean")
def large_mean(rng: Rng) -> Forgery:
    """As models have before they are trained: the mean is several times what texts change."""
    scene = set_scene(rng)
    suspect = make_model(rng, OUTPUT_DIM, "untrained", mean=float(rng.uniform(1, 5)))
    return Forgery(scene.key, suspect.answers(scene.texts), scene.controls(), "")
