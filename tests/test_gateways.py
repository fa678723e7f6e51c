"""Behind gateways such as LiteLLM's proxy and Portkey's: another model answers, refusals have other
words, headers other names."""

import json
import socket

import pytest

from textevolve.evaluation import Usage, answering_name
from textevolve.llm.testing import Answer, Fault
from textevolve.report.wording import is_same_model, other_models

DEBATE = ("evaluate", "Say hello.", "Hello!", "--rounds", "1", "--readout", "verbalized")


@pytest.mark.parametrize(
    ("requested", "answering", "same"),
    [
        ("gw/m", "m", True),
        ("openai/m", "m-2026-10-01", True),
        ("gw/m-latest", "m-2506", True),
        ("http://h:1/v1#m", "org/M:latest", True),
        ("router/org/m:free", "org/m", True),
        ("gw/m-2025-01-01", "m-2026-10-01", False),
        ("gw/m", "m-mini", False),
        ("gw/gpt-4", "gpt-4-1", False),
    ],
)
def test_the_version_of_an_alias_is_no_other_model(requested, answering, same):
    assert is_same_model(requested, answering) is same


def test_versions_that_change_within_a_run_are_told():
    first, second = (answering_name("gw/m", f"m-2026-{month}-01") for month in (10, 11))
    assert other_models(Usage(models={first: 2})) == ""
    both = Usage(models={first: 2}) + Usage(models={first: 1, second: 1})
    assert (
        other_models(both) == "gw/m was answered by m-2026-10-01 (3 calls), m-2026-11-01 (1 call)"
    )
    assert (both - Usage(models={second: 1})).models == {first: 3}


CASES = "".join(json.dumps({"input": f"Say {n}.", "output": "Hm."}) + "\n" for n in range(120))


def falls_back(body, number):
    return Answer(model="small") if body["model"] == "dead" else None


def test_a_variant_that_another_model_answered_is_told(cli, home, server):
    server.script = falls_back
    (home / "p.txt").write_text("What is {n}?")
    (home / "rows.csv").write_text("n,sum\n1,1\n2,2\n")
    small, dead = f"{server.url}#small", f"{server.url}#dead"
    models = ("-m", small, "-m", dead)
    ended = cli("compare", "-p", "p.txt", *models, "-d", "rows.csv", "--label", "sum", *METRIC)
    told = f"{dead} was answered by small (2 calls)"
    assert f"Not every output is its variant's own: {told}." in flat(ended.out)
    assert told in flat(ended.err)  # the display
    shown = cli("runs", "show", "--json")
    first, second = json.loads(shown.out)["variants"]
    assert first["usage"]["models"] == {}
    assert second["usage"]["models"] == {answering_name(dead, "small"): 2}


METRIC = ("--metric", "exact")


def flat(text):
    return " ".join(text.split())


def test_a_debate_with_fallbacks_is_told_by_its_report_and_when_shown(cli, home, server, model):
    header = {"x-litellm-attempted-fallbacks": "1"}
    server.script = lambda body, number: Answer(headers=header) if number == 2 else None
    ended = cli(*DEBATE, "-m", model)
    told = f"{model} was answered by a fallback that is not named (1 call)"
    assert told in flat(ended.out)
    server.script = Fault.NOT_FOUND
    assert told in flat(cli("runs", "show").out)
    assert json.loads(cli("runs", "show", "--json").out)


def test_a_limit_of_tokens_holds_where_no_usage_is_reported(cli, home, server, model, caplog):
    server.script = lambda body, number: Answer(usage={})
    (home / "cases.jsonl").write_text(CASES)
    ended = cli("evaluate", "cases.jsonl", "-m", model, "--judge", "probe", "--max-tokens", "1500")
    assert ended.code == 3
    assert "the limit of 1500 tokens is reached (about" in flat(ended.err)
    assert server.calls < 120
    assert "Spent about 1," in flat(ended.out)
    assert caplog.text.count("the endpoint reports no tokens") == 1
    assert "Spent about 1," in flat(cli("runs", "show").out)


@pytest.fixture
def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens


def test_a_server_that_cannot_be_reached_ends_the_run(cli, home, free_address):
    (home / "textevolve.toml").write_text("[retries]\nattempts = 2\nfirst = 0.001\n")
    (home / "cases.jsonl").write_text(CASES)
    ended = cli("evaluate", "cases.jsonl", "-m", f"http://{free_address}#m", "--judge", "probe")
    assert ended.code == 1
    run = json.loads(cli("runs", "list", "--json").out)
    assert run["status"] == "interrupted"
    assert f"cannot connect to {free_address}: the first 8 calls all failed" in ended.err
    assert f"Go on with: textevolve runs resume {run['id']}" in ended.err
    assert 8 <= run["failed_calls"] < 120
