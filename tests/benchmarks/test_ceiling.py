"""Operation counts against counting by hand and against torch's own counter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ceiling.py"


def load_script():
    spec = importlib.util.spec_from_file_location("benchmarks_ceiling", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ceiling = load_script()


def test_a_linear_layer_multiplies_and_adds_once_per_weight_and_row():
    assert ceiling.linear_flops(3, 5, 7) == 2 * 15 * 7


def test_attention_of_two_tokens_in_one_dimension():
    # Four scores of one product, four weighted values: eight multiplications, eight additions.
    assert ceiling.attention_flops(width=1, length=2, tokens=2) == 16


def test_one_layer_counted_by_hand():
    # width 2, ffn 3: 4·(2·2) weights in the projections, 2·3 + 3·2 in the feed-forward block.
    weights = 16 + 12
    # 5 tokens; each reads 5 keys and 5 values of width 2, at two operations an entry.
    attention = 5 * (5 * 2 * 2 + 5 * 2 * 2)

    assert ceiling.encoder_flops(1, 2, 3, length=5, tokens=5) == 2 * weights * 5 + attention


def test_the_head_counts_predicted_tokens_only():
    # transform 2·2 and vocabulary 2·11 weights, for 3 tokens
    assert ceiling.head_flops(2, 11, 3) == 2 * (4 + 22) * 3
    with_head = ceiling.transformer_flops(1, 2, 3, 5, vocabulary=11, predicted=3)
    assert with_head - ceiling.transformer_flops(1, 2, 3, 5) == ceiling.head_flops(2, 11, 3)
    assert ceiling.transformer_flops(1, 2, 3, 5, vocabulary=11) == ceiling.encoder_flops(
        1, 2, 3, 5, 5
    )


def test_bert_base_has_the_known_size():
    # 85 million weights in the layers, and a little attention at length 128.
    per_token = ceiling.transformer_flops(12, 768, 3072, 128, tokens=1)

    assert per_token == 2 * 84_934_656 + 12 * 4 * 128 * 768


def test_tokens_are_counted_one_by_one():
    one = ceiling.transformer_flops(2, 8, 16, 10, tokens=1)

    assert ceiling.transformer_flops(2, 8, 16, 10, tokens=37) == 37 * one
    assert ceiling.transformer_flops(2, 8, 16, 10) == 10 * one


def test_backward_costs_twice_forward():
    forward = ceiling.transformer_flops(2, 8, 16, 10, vocabulary=50, predicted=4)
    both = ceiling.transformer_flops(2, 8, 16, 10, vocabulary=50, predicted=4, with_backward=True)

    assert both == 3 * forward == forward + ceiling.backward_flops(forward)


@pytest.mark.parametrize("heads", [1, 4])
def test_counts_equal_those_of_torch(heads):
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertForMaskedLM

    layers, width, ffn, length, texts, vocabulary = 3, 32, 48, 10, 2, 40
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn,
    )
    model = BertForMaskedLM(config)
    model.set_attn_implementation("eager")  # torch's counter sees its products
    ids = torch.arange(texts * length).reshape(texts, length)

    def counted(work):
        with FlopCounterMode(display=False) as counter:
            result = work()
        return counter.get_total_flops(), result

    shape, tokens = (layers, width, ffn, length), texts * length
    encoder, _ = counted(lambda: model.base_model(ids))
    assert ceiling.transformer_flops(*shape, tokens) == encoder
    # This head answers at every position.
    head = {"vocabulary": vocabulary, "predicted": tokens}
    forward, output = counted(lambda: model(ids, labels=ids))
    assert ceiling.transformer_flops(*shape, tokens, **head) == forward
    backward, _ = counted(output.loss.backward)
    assert ceiling.backward_flops(forward) == backward
    assert ceiling.transformer_flops(*shape, tokens, **head, with_backward=True) == (
        forward + backward
    )


def test_the_ceiling_is_refused_without_a_gpu():
    pytest.importorskip("torch", reason="needs the torch extra")
    with pytest.raises(ValueError, match="CUDA"):
        ceiling.bf16_ceiling("cpu")


@pytest.mark.gpu
def test_the_ceiling_is_a_rate_in_tera():
    # No present GPU is outside this range; a slip of units would be.
    assert 10 < ceiling.bf16_ceiling("cuda", bursts=2) < 10_000
