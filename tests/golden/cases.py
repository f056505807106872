"""What is frozen, case by case: each function returns a JSON value for one file of ``data/``."""

from __future__ import annotations

import hashlib
import html
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

import nsmark
import nsmark.core
from golden import where
from golden.compare import digest
from golden.suspects import KEYS, PASSPHRASE, make_identity, record, run, run_json, served

RANDOMNESS = bytes(range(16)).hex()

# Key: suspect and options, once for each verdict; where an option names a suspect, it is recorded.
VERDICTS = """
v1: marked, mapped, untouched, noised
v1: marked --rule paper, mapped --rule paper, untouched --rule paper, noised --rule paper
v1: untouched --controls innocent, mapped --controls untouched --controls innocent
v1: marked --independent, marked --independent --controls untouched
v1: cut, innocent, cut --independent --controls untouched --controls innocent
paired: own, without-pairs, mapped, noised, scaled, cut, half, innocent, wide
paired: own --rule paper, mapped --rule paper, scaled --rule paper, cut --rule paper
paired: innocent --rule paper, wide --rule paper, own --controls innocent --rule paper
paired: own --independent, without-pairs --independent, innocent --independent
paired: without-pairs --independent --controls innocent
paired: without-pairs --controls innocent --controls innocent-2 --controls innocent-3
paired: cut --controls innocent --controls innocent-2 --rate 0.01
paired: 130-pairs, 130-pairs --pair-texts 130, own --pair-texts 0, own --pair-texts 5
paired: own --pool pool.txt, own --independent --pool pool.txt, own --word-list words.txt
paired: own --fresh 000102030405060708090a0b0c0d0e0f, constant, short, not-a-number
second: own, innocent
"""


def verdicts() -> Any:
    """All that `verify --json` says; with options, what they change of what it says without."""
    # A pool and a word list that no key here was made with.
    Path("pool.txt").write_text("\n".join(f"text {n} of another pool" for n in range(200)))
    letters = "abcdefghijklmnop"
    words = [f"word{a}{b}{c}" for a in letters for b in letters for c in letters]
    Path("words.txt").write_text("\n".join(words))
    found: dict[str, Any] = {}
    for line in VERDICTS.strip().splitlines():
        key, _, wanted = line.partition(": ")
        for how, *options in map(str.split, wanted.split(", ")):
            for place, before in enumerate(options[:-1], 1):
                if before == "--controls":
                    options[place] = record(key, options[place])
            document = run_json("verify", KEYS[key], record(key, how), *options)
            for name in ("claim", "key_id"):  # the same for each key, and in "keys"
                document.pop(name, None)
            first = found.setdefault(f"{key} {how}", document)
            if document is not first:
                found[" ".join((key, how, *options))] = {
                    name: value for name, value in document.items() if first.get(name) != value
                }
    return found


def keys() -> Any:
    """What keys say, what they ask, and their bytes made anew."""
    found: dict[str, Any] = {}
    for (name, path), seed in zip(KEYS.items(), (1, 2, 3), strict=True):
        shown = run_json("inspect", path)
        run("inspect", path, "--queries", f"{name}.jsonl")
        rows = [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        run("inspect", path, "--public", f"{name}.public")
        nsmark.write_key(where.resealed(nsmark.read_key(path), make_identity(seed)), Path(name))
        found[name] = {
            "inspect": shown,
            "public form": digest(Path(f"{name}.public").read_bytes()),
            "questions": {"rows": len(rows), "digest": digest(rows), "last": rows[-1]},
            "key id": nsmark.read_key(path).key_id,
            "the same bytes when sealed anew": Path(name).read_bytes() == path.read_bytes(),
        }
    passphrase = Path("passphrase")
    passphrase.write_text(PASSPHRASE)
    encrypted = ("encrypted.nsmark", "--key-passphrase-file", passphrase)
    found["v1"]["the same encrypted"] = run_json("inspect", *encrypted) == found["v1"]["inspect"]
    found["paired"]["public form"] = Path("paired.public").read_text("utf-8")
    return found


# --- endpoints: what is asked, in which order, and what is kept of it ----------------------------


def endpoints() -> Any:
    asked: dict[str, Any] = {}
    usual = ("--quiet", "--decoys", 0)

    def ask(name: str, marks: list[str], *arguments: object, dim: int = 48) -> None:
        with served(marks, dim) as (address, server):
            given = [address if each == "SUSPECT" else each for each in arguments]
            document = run_json(*given, *usual)
            if "--cache" in arguments:
                document = {"verdict": document["verdict"]}  # the rest as without
            for finding in document.get("keys", ()):
                finding["file"] = Path(finding["file"]).name
            asked[name] = {
                "document": document,
                "requests": sorted(len(batch) for batch in server.batches),
                "texts": digest(sorted(server.texts)),  # their order is drawn anew every time
                "first text": min(server.texts, default=None),
            }

    verify, keys = ("verify", KEYS["paired"], "SUSPECT"), list(KEYS.values())
    ask("verify", ["paired"], *verify)
    ask("verify twice", [], *verify, "--repeat", 2, "--pair-texts", 0)
    ask("verify on fresh texts", ["paired"], *verify, "--fresh", RANDOMNESS)
    ask("verify with too few queries", [], *verify, "--max-queries", 10)
    identify = ("identify", "SUSPECT", *keys, "--fresh", RANDOMNESS)
    ask("identify", ["second"], *identify, "--pair-repeats", 2)
    ask("identify, plan", [], *identify, "--plan", "--pairs", 90)
    ask("identify nobody", [], *identify, "--pairs", 90, "--pair-repeats", 1)
    # So many columns are added up with random signs.
    ask("identify, wide", ["paired"], *identify, "--pairs", 96, "--pair-repeats", 1, dim=2100)
    ask("identify without pairs", [], "identify", "SUSPECT", KEYS["v1"])
    ask("verify, kept", [], *verify, "--pair-texts", 0, "--cache", "kept")
    texts = [[f"text {number}" for number in range(count)] for count in (40, 25)]
    asked["in which order, among which decoys"] = where.query_order(texts, seed=11)
    return {"asked": asked, "kept answers": kept_answers(Path("kept"))}


def kept_answers(folder: Path) -> Any:
    """The file of answers: names, values without time and port, and how lines are checked."""
    (file,) = folder.iterdir()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names, checks = sorted(rows[1]), [each.pop("check") for each in rows]
    texts = [json.dumps(each, sort_keys=True, separators=(",", ":")) for each in rows]
    digests = [hashlib.sha256(text.encode("ascii")).hexdigest() for text in texts]
    header, *answers = ({n: v for n, v in each.items() if n != "time"} for each in rows)
    answers.sort(key=lambda each: each["text"])
    return {
        "header": {n: re.sub(r":\d+/", ":PORT/", v) for n, v in header.items()},
        "names": names,
        "answers": digest(answers),
        "first answer": answers[0],
        "name of the file follows from its header": file.stem == digests[0][:32],
        "every line is checked": checks == [each[:16] for each in digests],
    }


# --- derivations and random streams --------------------------------------------------------------


def derivations() -> Any:
    """What follows from a signature or a seed, by public functions where there are any."""
    core, signature = nsmark.core, bytes(range(64))
    texts, corpus = list(where.pool_texts()), list(where.training_texts())
    words = [f"word{number:04}" for number in range(500)]
    table, rng = core.pair_table(signature, 8), np.random.default_rng(5)
    pairs = np.arange(192) % 64
    outputs = rng.standard_normal((192, 12)) + 0.4 * table.reshape(-1)[pairs][:, None]
    rows = np.random.default_rng(6).standard_normal((40, 6))
    altered = where.altered(rows, 0)
    lengths = np.random.default_rng(7).integers(5, 60, 333).tolist()
    return {
        "signature_bits": "".join("-+"[int(bit > 0)] for bit in core.signature_bits(signature)),
        "spreading_code": digest(np.asarray(core.spreading_code(signature, 768), np.int64)),
        "watermark_vector": digest(np.asarray(core.watermark_vector(signature), np.int64)),
        "select_indices": [int(n) for n in core.select_indices(signature, texts, 12)],
        "insertion_positions": [
            [int(n) for n in core.insertion_positions(signature, *where_)]
            for where_ in ((0, 20), (1, 20), (7, 3), (1499, 90))
        ],
        "readout_matrix": digest(np.asarray(core.readout_matrix(signature, 256, 64), np.int64)),
        "pair_words": list(core.pair_words(signature, words, 8)),
        "pair_table": digest(np.asarray(core.pair_table(signature), np.int64)),
        "pair_code_test": [list(core.pair_code_test(outputs, pairs, table, n)) for n in range(4)],
        "pair orders": {
            f"{purpose} {seed}": where.deal_pairs(20, seed, purpose).tolist()
            for purpose, seed in (("deal", 0), ("deal", 9), ("wager-0", 0), ("wager-7", 9))
        },
        "verifier's seeds": {
            purpose: digest(where.seed_from(bytes.fromhex(RANDOMNESS), purpose))
            for purpose in ("fresh", "identify")
        },
        "made-up owners": [where.made_up_owners(seed) for seed in (0, 1)],
        "corpus": {"texts": len(corpus), "digest": digest(corpus), "first": corpus[0]},
        "pool": {"texts": len(texts), "digest": digest(texts), "last": texts[-1]},
        "changes of outputs": {name: each[17].tolist() for name, each in altered.items()},
        "batches": where.batch_order(lengths, 16, 3, 45),
    }


def identities() -> Any:
    """A signed claim, by the command line, from a fixed identity."""
    Path("owner.pem").write_bytes(make_identity(4).to_pem())
    Path("owner.pem").chmod(0o600)
    claim = make_identity(4).sign(
        nsmark.OwnershipClaim.make("Ä Lab", "“ours”", "2026-01-31T12:00:00Z")
    )
    Path("claim.json").write_text(json.dumps(claim.to_mapping()), "utf-8")
    return {
        "claim file": claim.to_mapping(),
        "check": run_json("identity", "check", "claim.json"),
        "show": run_json("identity", "show", "owner.pem"),
    }


# --- public names --------------------------------------------------------------------------------


def names() -> Any:
    """Names in Python, with their parameters."""
    return {
        "nsmark": nsmark.__all__,
        "nsmark.core": {
            name: [
                f"{p}"
                for p in inspect.signature(getattr(nsmark.core, name), eval_str=False)
                .replace(return_annotation=inspect.Signature.empty)
                .parameters.values()
            ]
            for name in nsmark.core.__all__
        },
    }


def commands() -> Any:
    """Every command with its arguments and options; and what command lines end with."""
    return {"commands": dict(sorted(tree(where.cli, "nsmark").items())), "exit": exits()}


def tree(command: click.Command, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    context = click.Context(command)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            found |= tree(inner, f"{name} {each}")
    options, arguments = {}, []
    for parameter in command.params:
        about = described(parameter)
        if isinstance(parameter, click.Option):
            options |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), about)
        else:
            arguments.append({"name": parameter.human_readable_name.lower()} | about)
    return found | {name: {"arguments": arguments, "options": options}}


def described(parameter: click.Parameter) -> dict[str, Any]:
    """What is not usual about a parameter."""
    info = parameter.to_info_dict()
    kind = {
        name: info["type"][name]
        for name in ("choices", "min", "max")
        if info["type"].get(name) is not None
    }
    found = {
        "type": "flag" if info.get("is_flag") else info["type"]["param_type"].lower(),
        "default": info.get("default"),
        **{name: info[name] for name in ("required", "multiple") if info.get(name)},
        **({"nargs": info["nargs"]} if info["nargs"] != 1 else {}),
        **{name: list(v) if name == "choices" else v for name, v in kind.items()},
    }
    if found["default"] in (None, False, (), []):
        found.pop("default")
    return found


def exits() -> dict[str, int]:
    """Exit statuses of command lines."""
    files = {"KEY": str(KEYS["paired"]), "OWN": record("paired", "own")}
    files |= {"INNOCENT": record("paired", "innocent"), "SHORT": record("paired", "short")}
    files |= {"NOTHING": "nothing", "DAMAGED": "damaged.nsmark"}
    Path("damaged.nsmark").write_bytes(KEYS["paired"].read_bytes()[:-1])
    lines = """
        --help; --version; verify --help; magic; verify; verify KEY; verify KEY OWN --rule magic
        verify KEY OWN; verify KEY INNOCENT; verify KEY SHORT; verify KEY OWN --independent
        verify NOTHING OWN; verify DAMAGED OWN; verify KEY recorded:NOTHING; verify KEY magic:x
        verify KEY OWN --fresh 00; verify KEY OWN --fresh xyz; verify KEY OWN --owner-model NOTHING
        inspect KEY; inspect DAMAGED; identify OWN KEY; identify OWN; attack list
        attack show magic; attack show signs; embed; embed NOTHING --identity NOTHING --out OUT
        identity check NOTHING; calibrate KEY --identity NOTHING --reference NOTHING --out OUT
    """
    found = {}
    for line in re.split(r"[;\n]", lines):
        words = line.split()
        for word, file in files.items():
            words = [each.replace(word, file) for each in words]
        if words:
            found[" ".join(line.split())] = run(*words)[0]
    return found


# --- the page ------------------------------------------------------------------------------------

_MASKS = (
    (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|\+00:00| UTC)?", "TIME"),
    (r"\b\d+\.\d+\.\d+[\w.+]*", "VERSION"),
    (r"\b\d+(\.\d+)? (s|seconds|min)\b", "SECONDS"),
)


def page_lines(page: Path) -> list[str]:
    """The words of a page, a line for each block; of drawings their titles and labels."""
    text = re.sub(
        r"<style.*?</style>|<!--.*?-->|</?(?:a|abbr|b|bdi|code|em|i|small|span|strong|su[bp])\b[^>]*>",
        "",
        page.read_text("utf-8"),
        flags=re.S,
    )
    for pattern, word in ((r"<[^>]*>", "\n"), *_MASKS):
        text = re.sub(pattern, word, text)
    lines = [" ".join(line.split()) for line in html.unescape(text).splitlines()]
    return [line for line in lines if line]


def pages() -> Any:
    found = {}
    for key, how, options in (
        ("paired", "noised", ("--show-table", "--controls", record("paired", "innocent"))),
        ("paired", "innocent", ("--rule", "paper")),
        ("v1", "cut", ("--controls", record("v1", "untouched"))),
    ):
        page = Path(f"{key}-{how}.html")
        run("verify", KEYS[key], record(key, how), *options, "--report", page)
        found[f"{key} {how}"] = page_lines(page)
    found["v1 cut"] = [line for line in found["v1 cut"] if "cut to" in line]  # so are its controls
    return found


CASES: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (verdicts, keys, endpoints, derivations, identities, names, commands, pages)
}
