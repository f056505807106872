"""Settings of the payload and their bounds."""

import pytest

from nsmark.errors import ConfigError
from nsmark.payload import PayloadConfig
from nsmark.payload.config import default_num_texts


def test_defaults_are_the_contracts() -> None:
    config = PayloadConfig()

    assert (config.num_bits, config.spread_factor, config.copies, config.window) == (256, 3, 5, 64)
    assert config.placement == "spread"
    assert config.vector_length == 768


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("num_bits", 8, 4096), ("spread_factor", 1, 63), ("copies", 1, 64), ("window", 1, 64)],
)
def test_each_number_has_bounds_that_are_themselves_allowed(
    name: str, lowest: int, highest: int
) -> None:
    for value in (lowest, highest):
        assert getattr(PayloadConfig(**{name: value}), name) == value
    for value in (lowest - 1, highest + 1, -1, 10**9):
        with pytest.raises(ConfigError, match=f"{name} = {value}"):
            PayloadConfig(**{name: value})


@pytest.mark.parametrize("placement", ["", "Front", "back", None])
def test_unknown_placements_are_refused(placement: object) -> None:
    with pytest.raises(ConfigError, match="placement"):
        PayloadConfig(placement=placement)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PayloadConfig().num_bits = 8


@pytest.mark.parametrize(
    ("output_dim", "num_texts"), [(1, 1500), (384, 1500), (750, 1500), (768, 1536), (4096, 8192)]
)
def test_the_default_number_of_texts_is_twice_the_dimension_or_1500(
    output_dim: int, num_texts: int
) -> None:
    assert default_num_texts(output_dim) == num_texts
