import pytest

from textevolve.debate.profile import Profile, load_profile, override, parse_profile
from textevolve.errors import InputError

AGENT = "agents:\n  - {name: A, persona: looks}\n"


def test_a_users_profile_with_own_components(tmp_path):
    path = tmp_path / "brief.yaml"
    path.write_text(
        AGENT
        + "components:\n  - accuracy\n  - name: wit\n    meaning: how funny it is\n"
        + "    rubric: {0: dull, 10: hilarious}\nweights: {wit: 0.5}\nrounds: 3\n"
    )
    profile = load_profile(path)
    assert profile.name == "brief"
    assert [c.name for c in profile.components] == ["accuracy", "wit"]
    assert profile.weight_list == (0.0, 0.5)
    assert "wit" in profile.components[1].probe


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("agents: [", 1, "flow sequence|expected"),
        (AGENT + "wieghts: {accuracy: 1}\n", 3, "did you mean 'weights'"),
        (AGENT + "weights:\n  accuracy: 1\n  relevance: 2\n", 5, "less than or equal to 1"),
        (AGENT + "weights: {acuracy: 1}\n", 1, "did you mean 'accuracy'"),
        (AGENT + "  - {name: A, persona: again}\n", 1, "two agents have the name 'A'"),
        (AGENT + "components: [wit]\n", 3, "'wit' is not a shipped component"),
    ],
)
def test_a_wrong_profile_is_refused_with_line_and_reason(text, line, reason):
    with pytest.raises(InputError, match=reason) as caught:
        parse_profile(text, "p.yaml")
    assert str(caught.value).startswith(f"profile p.yaml:{line}") or reason.startswith("flow")


def test_unknown_profiles_are_named_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'general'"):
        load_profile("generall")
    with pytest.raises(InputError, match="cannot be read"):
        load_profile("missing.yaml")


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"rounds": 0}, "rounds"),
        ({"weights": {"accuracy": 0}}, "all are 0"),
        ({"weights": {"beauty": 1}}, "unknown component 'beauty'"),
        ({"roundz": 1}, "did you mean 'rounds'"),
        ({"weights": {"accuracy": float("nan")}}, "weights.accuracy"),
    ],
)
def test_wrong_parameters_are_refused(parameters, reason):
    with pytest.raises(InputError, match=reason):
        override(load_profile("general"), parameters)


def test_overriding_keeps_the_rest():
    general = load_profile("general")
    changed = override(general, {"rounds": 5, "weights": {"accuracy": 1}, "convergence": "none"})
    assert changed.rounds == 5
    assert changed.convergence is None
    assert override(general, {"convergence": None}).convergence is None
    assert changed.weight_list == (0, 0, 1, 0, 0)
    assert changed.agents == general.agents
    assert override(general, {}) is general
    assert Profile.model_validate_json(general.model_dump_json()) == general
