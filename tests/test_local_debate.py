"""Debates by real local models, from the weights to the scores."""

import re
from pathlib import Path

import pytest

from flat_verbs import evaluate
from textevolve import Agent, Profile, Settings
from textevolve.debate.profile import load_profile
from textevolve.errors import FatalModelError
from textevolve.events import CallFinished
from textevolve.llm.weights import fetch
from textevolve.settings import Local, read_settings

DEMO = Path(__file__).parent.parent / "examples" / "demo"
PROFILE = Profile(
    agents=(
        Agent(name="Critic", persona="You hunt for flaws. Say it in a few words."),
        Agent(name="Supporter", persona="You look for merits. Say it in a few words."),
    ),
    components=("accuracy",),
    rounds=1,
    sampling_temperature=0.7,
    max_answer_tokens=140,
)


@pytest.fixture
def settings(tmp_path):
    """This machine's weights, as a user has them; a store of the test's own. One thread, for two on
    two cores that another test shares wait for each other."""
    settings = read_settings(store=tmp_path / "store.db")
    return settings.model_copy(update={"local": Local(threads=1)})


def have(name, settings: Settings):
    try:
        fetch(name, settings)
    except FatalModelError as error:
        pytest.skip(f"the weights of {name} cannot be had here: {error}")
    return f"local/{name}"


@pytest.mark.slow
def test_the_smallest_model_debates_and_is_probed(settings):
    """It can hold a debate, hardly more: now and then it talks until its answer is cut."""
    model = have("smollm2-135m", settings)

    def debate(seed, **options):
        texts = "What is the capital of France?", ["Paris.", "Bananas."]
        options |= {"model": model, "profile": PROFILE, "settings": settings}
        return evaluate(*texts, seed=seed, **options)

    seed = 1
    result = debate(seed)
    assert result.profile.readout == "pointwise"
    assert {turn.model for turn in result.turns} == {model}
    for turn in result.turns:
        if turn.failure is None:
            assert turn.log_odds is not None
            assert all(0 <= score <= 10 for row in turn.scores for score in row)
        else:
            # It seldom answers a question with yes or no, and then its words are no verdict.
            assert re.search("of the probability|cut at the token limit", turn.failure.reason)
    assert result.usage.cached_tokens > 0
    assert result.usage.cost == 0
    heard = []
    assert debate(seed, listener=heard.append) == result
    assert all(event.replayed for event in heard if isinstance(event, CallFinished))


@pytest.mark.slow
def test_the_default_model_puts_the_answers_of_the_demo_in_their_order(settings):
    """`make demo` with two of its three agents, who disagree: three candidates, short arguments."""
    model = have("qwen2.5-coder-1.5b", settings)
    names = ("question", "first", "second", "third")
    question, *candidates = ((DEMO / f"{n}.txt").read_text(encoding="utf-8") for n in names)
    profile = load_profile(str(DEMO / "profile.yaml"))
    profile = profile.model_copy(update={"agents": profile.agents[:2]})
    result = evaluate(question, candidates, model=model, settings=settings, profile=profile)
    assert result.coverage == 1
    assert result.tensor.shape == (2, 2, 3, 1)
    good, poor, beside = result.scores
    assert good > poor
    assert poor > beside + 1
    # The profile asks for 25 words, and the copied words before them may be 8 more.
    assert all(0 < len(turn.argument.split()) <= 40 for turn in result.turns)
