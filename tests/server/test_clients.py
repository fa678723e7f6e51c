"""Others' clients drive our server: the conformance suite of System One, and the SDKs."""

import pytest

jevcompat = pytest.importorskip("jevcompat.runner")


@pytest.mark.slow
def test_the_conformance_suite_of_system_one_passes(serve):
    key = "a-key-of-some-length"
    url = serve(key, judge="probe+rules")
    report = jevcompat.run(url, key=key, timeout=60)
    failed = [(result.id, result.findings) for result in report.results if result.status == "fail"]
    assert failed == []
    assert report.verdict == "conformant"
    assert report.count("MUST", "pass") >= 31


@pytest.mark.slow
def test_the_sdk_of_system_one_reads_all_kinds_of_answers(serve):
    sdk = pytest.importorskip("typesafe_sdk")
    url = serve(judge="probe+rules")
    with sdk.TypeSafeClient(api_key="none", base_url=url) as client:
        found = client.system_one(
            state={"input": "What is 2 + 2?", "output": "4"},
            questions={
                "right": sdk.Noul(instructions="Is the output right?"),
                "tone": sdk.Choice(
                    instructions="Which tone?", criteria={"curt": None, "warm": None}
                ),
                "length": sdk.Score(instructions="How long?", criteria=["short", "fair", "long"]),
            },
        )
        names = [model.name for model in client.models.list().models]
    assert found.model == "judge/probe+rules"
    assert 0 < found.nouls["right"].noul < 1
    tone = found.choices["tone"]
    assert tone.choice == max(tone.probabilities, key=tone.probabilities.__getitem__)
    length = found.scores["length"]
    assert length.score == pytest.approx(sum(n * p for n, p in length.probabilities.items()))
    assert length.legend == {0: "short", 1: "fair", 2: "long"}
    assert found.usage.input_tokens > 0
    assert "jev-latest" in names
