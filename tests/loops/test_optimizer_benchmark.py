"""The benchmarks of prompt optimisers: the simulated tasks, the arms, the tasks for real models."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

pytest.importorskip("gepa")

import optimizers
from optimizer_simulator import (
    DECOY,
    RULE,
    WORLDS,
    BudgetSpent,
    Simulation,
    World,
    fill,
)

CLEAR = World("clear", omission=0.0, notices=1.0, forgets=0.0)


def test_what_a_template_carries_shows_in_answers_and_in_its_quality():
    simulation = Simulation(CLEAR, 0)
    whole = "\n".join([simulation.template, *(RULE.format(k) for k in range(8))])
    assert simulation.quality(whole) == 1
    for row in simulation.given[:20]:
        assert simulation.grade(simulation.generate(fill(whole, row)), row.label) == 1
    some = simulation.generate(fill(simulation.template, simulation.given[0]))
    assert 0 < simulation.quality(simulation.template) < 0.3
    assert simulation.grade(some, simulation.given[0].label) < 1
    assert simulation.quality(f"{simulation.template}\nMind point M1.") < simulation.quality(
        simulation.template
    )


def test_the_editor_mends_only_what_is_shown_and_demonstrations_teach():
    simulation = Simulation(CLEAR, 0)
    rows = [row for row in simulation.given if len(row.needs) > 1][:4]
    shown = "\n".join(f"{simulation.generate(fill('{ticket}', r))} {r.label}" for r in rows)
    needed = {k for row in rows for k in row.needs}
    for sample in range(10):
        mended = simulation.rewrite("Answer.\n{ticket}", shown, sample)
        had = {int(line[20:-1]) for line in mended.splitlines() if line.startswith("Always apply")}
        assert had <= needed
        assert len(had) <= CLEAR.mends
    assert "apply skill" not in simulation.rewrite("Answer.\n{ticket}", "Say it better.")
    demos = "\n\n".join(f"{row.ticket}\n{row.label}" for row in simulation.given[:6])
    assert simulation.quality(f"{demos}\n\n{{ticket}}") > simulation.quality("{ticket}") == 0


def test_the_judge_can_be_played_and_the_truth_cannot():
    simulation = Simulation(WORLDS["decoy alone"], 0)
    row = simulation.given[0]
    played = f"{simulation.template}\n{DECOY}"
    before, said = simulation.judge(row.number, simulation.generate(fill(simulation.template, row)))
    after, _ = simulation.judge(row.number, simulation.generate(fill(played, row)))
    assert after > before
    assert "confidence" in said
    assert simulation.quality(played) == simulation.quality(simulation.template)


@pytest.mark.parametrize("arm", optimizers.arms())
def test_every_arm_keeps_its_budget_and_is_repeatable(arm):
    found = [optimizers.measure(arm, "graded", 60, 70, 3) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].calls <= 70
    with pytest.raises(BudgetSpent):
        Simulation(WORLDS["graded"], 0, budget=0).generate("ticket r1")


def test_the_table_of_a_quick_run(capsys, tmp_path):
    asked = ["--quick", "--arms", "original", "GEPA", "--keep", str(tmp_path / "kept.jsonl")]
    optimizers.main(asked)
    first = capsys.readouterr().out
    assert "| GEPA | 0." in first
    optimizers.main(asked)
    assert capsys.readouterr().out.split("\n", 1)[1] == first.split("\n", 1)[1]
