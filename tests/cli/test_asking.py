"""The options of commands that ask an endpoint."""

import dataclasses
import json
import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from endpoint_server import EndpointServer
from nsmark.cli.asking import asking_options, parse_token_ids, show_plan
from nsmark.cli.main import main
from nsmark.cli.output import quiet_option
from nsmark.errors import ConfigError
from nsmark.suspects import QueryOptions, QueryPlan


def parse(*arguments: str) -> tuple[str, bool, QueryOptions]:
    seen = []

    @click.command()
    @click.argument("suspect")
    @asking_options
    @quiet_option
    def command(suspect: str, quiet: bool, queries: QueryOptions) -> None:
        seen.append((suspect, quiet, queries))

    CliRunner().invoke(
        command, ["somebody", *arguments], catch_exceptions=False, standalone_mode=False
    )
    return seen[0]


def test_without_options_the_defaults_are_the_records_own():
    suspect, quiet, queries = parse()

    assert (suspect, quiet) == ("somebody", False)
    assert queries == QueryOptions()
    assert queries.on_plan is show_plan


def test_every_option_arrives():
    _, quiet, queries = parse(
        *("--repeat", "3", "--max-queries", "9000", "--price", "0.02", "--batch-size", "8"),
        *("--concurrency", "2", "--timeout", "7.5", "--retries", "1", "--cache", "answers"),
        *("--decoys", "0.5", "--api-key-env", "THEIR_KEY", "--top-logprobs", "20"),
        *("--token-ids", "5,10-12", "--quiet"),
    )

    assert queries == QueryOptions(
        repeats=3,
        max_queries=9000,
        price_per_million_tokens=0.02,
        batch_size=8,
        concurrency=2,
        timeout_seconds=7.5,
        retries=1,
        cache=Path("answers"),
        decoys=0.5,
        api_key_variable="THEIR_KEY",
        top_logprobs=20,
        token_ids=(5, 10, 11, 12),
    )
    assert quiet
    assert queries.on_plan is None


@pytest.mark.parametrize(
    "arguments", [("--repeat", "0"), ("--decoys", "-1"), ("--token-ids", "1,2"), ("--price", "-1")]
)
def test_values_out_of_range_are_wrong_usage(arguments):
    with pytest.raises(ConfigError) as caught:
        parse(*arguments)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["", "a", "1,", "-3", "1--3", "5-3", "1.5", "0-9999999", "²", "1-"]
)
def test_lists_of_tokens_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="token_ids"):
        parse_token_ids(text)


def test_lists_of_tokens_are_numbers_and_ranges():
    assert parse_token_ids(None) == ()
    assert parse_token_ids("7, 0-2,9-9") == (7, 0, 1, 2, 9)


def test_plan_is_told_on_standard_error(capsys):
    plan = QueryPlan(
        num_texts=10,
        repeats=2,
        num_cached=4,
        num_decoys=2,
        num_queries=18,
        num_requests=3,
        estimated_tokens=360,
        estimated_price=0.5,
    )

    show_plan(plan)
    show_plan(dataclasses.replace(plan, num_queries=0, num_cached=20))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "asking 18 texts in 3 requests, 2 of them decoys, 4 answers from the cache, "
        "about 360 tokens, price about 0.5",
        "asking nothing: 20 answers are in the cache",
    ]


def test_endpoint_is_verified_from_the_command_line(tiny_marked, tmp_path, capsys):
    from nsmark.suspects.local import LocalModel

    model = LocalModel(str(tiny_marked.model_folder), device="cpu")
    with EndpointServer(model.outputs) as server:
        command = [
            *("verify", str(tiny_marked.key_file), f"openai:{server.url}#m", "--rule", "paper"),
            *("--cache", str(tmp_path / "answers"), "--price", "10", "--json"),
        ]
        assert main([*command, "--max-queries", "211"]) == 2
        assert not server.requests
        refused = capsys.readouterr()
        assert "212 texts would be sent, the limit is 211" in refused.err

        assert main([*command, "--max-queries", "212"]) == 0
        first = capsys.readouterr()
        asked = len(server.requests)
        assert main([*command, "--quiet"]) == 0
        second = capsys.readouterr()

    assert asked == len(server.requests) == 7
    assert "asking 212 texts in 7 requests, 20 of them decoys, about " in first.err
    assert second.err == ""
    documents = [json.loads(captured.out) for captured in (first, second)]
    for document in documents:
        assert document["verdict"] == "owned"
        assert document["suspect"] == f"openai:{server.url}#m"
    assert documents[0]["matching_degree"] == documents[1]["matching_degree"]


def test_endpoint_that_is_not_there_is_an_error_in_two_lines(tiny_marked, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"openai:http://127.0.0.1:{free.getsockname()[1]}/v1#m"
        status = main(
            ["verify", str(tiny_marked.key_file), address, "--rule", "paper", "--retries", "0"]
        )

    captured = capsys.readouterr()
    assert status == 3
    lines = [line for line in captured.err.splitlines() if not line.startswith("asking")]
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert "Traceback" not in captured.err
