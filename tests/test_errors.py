"""The error tree: complete, drawn as it is, every error with a hint."""

import inspect
import re

import pytest

from nsmark import errors
from nsmark.errors import (
    ConfigError,
    EmptyNullSpaceError,
    EvidenceError,
    FileAccessError,
    MissingExtraError,
    NsmarkError,
    UsageError,
)
from nsmark_authority import errors as authority_errors

MODULES = (errors, authority_errors)
CLASSES = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if inspect.isclass(value) and value.__module__ == module.__name__
}
EXAMPLES = {
    "ConfigError": lambda: ConfigError("copies", 0, "must be at least 1"),
    "EmptyNullSpaceError": lambda: EmptyNullSpaceError(num_texts=5, output_dim=9),
    "MissingExtraError": lambda: MissingExtraError("torch", "torch"),
}


def drawn_tree() -> dict[str, str]:
    """Child → parent as the modules' docstrings draw them."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in "".join(module.__doc__ or "" for module in MODULES).splitlines():
        match = re.match(r"^    ([│├└─ ]*)(\w+Error)\b", line)
        if match:
            depth = len(match.group(1)) // 4
            path[depth:] = [match.group(2)]
            if depth:
                parents[path[depth]] = path[depth - 1]
    return parents


def test_everything_raised_on_purpose_is_announced() -> None:
    assert {name for module in MODULES for name in module.__all__} == set(CLASSES)
    assert all(module.__all__ == sorted(module.__all__) for module in MODULES)
    assert all(issubclass(value, NsmarkError) for value in CLASSES.values())


def test_the_tree_is_as_the_docstring_draws_it() -> None:
    actual = {
        name: value.__mro__[1].__name__ for name, value in CLASSES.items() if name != "NsmarkError"
    }

    assert drawn_tree() == actual


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_has_a_message_a_hint_and_an_exit_status(name: str) -> None:
    make = EXAMPLES.get(name, lambda: CLASSES[name]("what was found", "what to do"))

    error = make()

    assert str(error)
    assert error.hint
    assert "\n" not in str(error) + error.hint  # one line each on the command line
    assert error.exit_code == (2 if isinstance(error, UsageError) else 3)
    with pytest.raises(NsmarkError):
        raise error


def test_a_hint_may_be_left_out() -> None:
    assert NsmarkError("message").hint == ""


def test_a_setting_is_named_with_its_value_and_rule() -> None:
    error = ConfigError("placement", "back", "must be 'spread' or 'front'")

    assert str(error) == "placement = 'back': must be 'spread' or 'front'"
    assert "placement" in error.hint


@pytest.mark.parametrize(
    ("output_dim", "needed", "better"), [(9, 10, 1500), (768, 769, 1536), (750, 751, 1500)]
)
def test_too_few_texts_name_what_is_needed_and_what_is_better(
    output_dim: int, needed: int, better: int
) -> None:
    error = EmptyNullSpaceError(num_texts=5, output_dim=output_dim)

    assert error.needed == needed
    assert re.findall(r"\d+", error.hint) == [str(needed), str(better)]
    assert isinstance(error, EvidenceError)


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtraError("transformers", "torch")

    assert "'transformers'" in str(error)
    assert error.hint == "in the folder of nsmark: pip install -c constraints.txt '.[torch]'"


def test_our_file_errors_are_not_the_systems() -> None:
    # So that "except OSError" around our own calls never swallows them.
    assert not issubclass(FileAccessError, OSError)
