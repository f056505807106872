"""Write the reference pages from the program itself: commands, settings, errors.

python docs/generate.py            writes commands.md, settings.md, errors.md, attacks/README.md
python docs/generate.py --check    fails if a page is not what would be written
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from pathlib import Path

import click

from nsmark import errors
from nsmark.attacks import ATTACKS
from nsmark.attacks.plan import COMBINATIONS
from nsmark.cli.main import cli
from nsmark.embedding.config import EmbeddingConfig
from nsmark.payload.config import PayloadConfig
from nsmark.suspects.options import QueryOptions
from nsmark_authority import errors as authority_errors

HERE = Path(__file__).parent

SETTINGS = (
    (PayloadConfig, "Payload", "`nsmark embed`, `nsmark.payload.PayloadConfig`"),
    (EmbeddingConfig, "Embedding", "`nsmark embed`, `nsmark.embedding.config.EmbeddingConfig`"),
    (QueryOptions, "Asking an endpoint", "`nsmark verify`, `nsmark.suspects.QueryOptions`"),
)


def one_line(text: str) -> str:
    """Join a text's lines."""
    return " ".join(text.replace("``", "`").split())


def commands_page() -> str:
    """Return every command with its options."""
    lines = [
        "# Commands",
        "",
        "`--json` prints one JSON document on standard output and nothing else there; progress and",
        "messages go to standard error. Exit status: 0 done or owned, 1 not shown, 2 wrong usage,",
        "3 could not measure or bad input (one line `error:`, one line `hint:`), 130 interrupted.",
        "",
        "Environment: `NSMARK_PASSPHRASE` and `NSMARK_KEY_PASSPHRASE` unlock an encrypted identity",
        "and key file; `NSMARK_DEBUG=1` shows the traceback of an internal error.",
        "",
    ]
    context = click.Context(cli, info_name="nsmark")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        lines += command_section(command, f"nsmark {name}", 2)
    return "\n".join(lines).rstrip() + "\n"


def command_section(command: click.Command, path: str, level: int) -> list[str]:
    """Return one command's section, and its sub-commands'."""
    text, _, example = inspect.cleandoc(command.help or "").partition("\b")
    lines = ["#" * level + f" `{path}`", ""]
    for paragraph in text.strip().split("\n\n"):
        lines += [one_line(paragraph), ""]
    steps = [line.strip() for line in example.strip().splitlines()[1:] if line.strip()]
    lines += ["```console", *steps, "```", ""]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            lines += command_section(child, f"{path} {name}", level + 1)
        return lines
    lines += ["| option | meaning |", "|---|---|"]
    lines += [option_row(parameter) for parameter in command.params]
    return [*lines, ""]


def option_row(parameter: click.Parameter) -> str:
    """Return one row of an option table."""
    if not isinstance(parameter, click.Option):
        return f"| `{(parameter.metavar or parameter.name or '').upper()}` | argument |"
    meaning = (parameter.help or "").rstrip(".")
    if isinstance(parameter.type, click.Choice):
        choices = ", ".join(str(choice) for choice in parameter.type.choices)
        meaning = f"{meaning} ({choices})".strip()
    if parameter.show_default:
        meaning = f"{meaning}; default: {parameter.default}".lstrip("; ")
    if parameter.required:
        meaning += "; required"
    return f"| {', '.join(f'`{name}`' for name in parameter.opts)} | {meaning} |"


def settings_page() -> str:
    """Return every setting with its default and meaning."""
    lines = ["# Settings", ""]
    for record, title, where in SETTINGS:
        lines += [f"## {title}", "", one_line(record.__doc__ or ""), "", f"Used by {where}.", ""]
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{n}` | `{d}` | {m} |" for n, d, m in documented_fields(record)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def documented_fields(record: type) -> list[tuple[str, str, str]]:
    """Return (name, default, docstring below the field) of a dataclass, from its source."""
    usual = {each.name: each.default for each in dataclasses.fields(record)}
    body = ast.parse(inspect.getsource(record)).body[0]
    assert isinstance(body, ast.ClassDef)
    rows: list[tuple[str, str, str]] = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = ast.unparse(node.value) if node.value else ""
            if isinstance(node.value, ast.Name):  # what it stands for, not what it is called
                default = repr(usual[node.target.id])
            rows.append((node.target.id, default, ""))
        elif rows and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            name, default, _ = rows[-1]
            rows[-1] = (name, default, one_line(str(node.value.value)))
    return rows


def errors_page() -> str:
    """Return the error tree and what each error means."""
    lines = [
        "# Errors",
        "",
        "Every error has a message (what was found) and a hint (what to do). The command line",
        "shows both and ends with the status below; in Python catch `nsmark.NsmarkError`.",
        "",
        "| error | is a | exit status | meaning |",
        "|---|---|---|---|",
    ]
    classes = [getattr(m, name) for m in (errors, authority_errors) for name in m.__all__]
    for error in sorted(classes, key=lambda error: error.__name__):
        base = error.__mro__[1].__name__
        meaning = one_line(error.__doc__ or "").split(". ")[0].rstrip(".")
        lines.append(f"| `{error.__name__}` | `{base}` | {error.exit_code} | {meaning} |")
    return "\n".join(lines) + "\n"


KINDS = {
    "outputs": "answers",
    "texts": "queries",
    "weights": "weights",
    "training": "training",
    "surrogate": "another model",
}


def attacks_page() -> str:
    """Return the index of attacks, and the settings of each."""
    lines = [
        "# Attacks",
        "",
        "What a thief may do to a stolen model, each as a recipe: `nsmark attack run NAME MODEL",
        "--out DIR`. Several may follow one another: `'fine-tuning + output-noise[share=0.1]'`.",
        "`nsmark attack suite KEY MODEL --out DIR` tries all of them and compares what they cost",
        "with what evidence they leave.",
        "",
        "| attack | what it does | on | source | cost to the thief | use that is left |",
        "|---|---|---|---|---|---|",
    ]
    recipes = {attack: attack.recipe() for attack in ATTACKS}
    for attack, recipe in recipes.items():
        cells = [attack.summary, KINDS[attack.kind], recipe.source, recipe.cost, recipe.keeps]
        cells = [one_line(cell).replace("|", "\\|") for cell in cells]
        lines.append(f"| [{attack.name}]({attack.name}.md) | {' | '.join(cells)} |")
    lines += ["", "One after the other, in the suite:", ""]
    lines += [f"- `{each}`" for each in COMBINATIONS]
    lines += ["", "## Settings", ""]
    for attack, recipe in recipes.items():
        lines += [f"### {attack.name}", "", one_line(recipe.deviations), ""]
        rows = documented_fields(recipe.settings)
        if rows:
            lines += ["| setting | default | meaning |", "|---|---|---|"]
            lines += [f"| `{n}` | `{d}` | {m} |" for n, d, m in rows]
        else:
            lines.append("No settings.")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


PAGES = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "attacks/README.md": attacks_page,
}


def main() -> int:
    """Write or check the pages."""
    stale = []
    for name, make in PAGES.items():
        path, content = HERE / name, make()
        if "--check" not in sys.argv:
            path.write_text(content, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            stale.append(name)
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
