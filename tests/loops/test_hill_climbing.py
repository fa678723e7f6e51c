"""The steps of a hill climb one by one, on a search whose model knows what it is taught.

The model answers the row n if its prompt has the sentence `Know n.`, so the score of a template on
every row can be read from its text.
"""

import json
import re
from dataclasses import replace

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.llm.model import Response
from textevolve.loops.calibration import hill_climbing
from textevolve.loops.calibration.hill_climbing import (
    Climb,
    Proposal,
    ablate,
    affordable_width,
    can_demonstrate,
    choose_operator,
    choose_parent,
    demonstrate,
    draw_demos,
    end_without_faults,
    find_faults,
    gate_rows,
    give_credit,
    go_on,
    improve,
    is_perfect,
    list_removals,
    pass_gate,
    race,
    reflect,
    remove,
    take_step,
)
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan, SearchSpent
from textevolve.loops.calibration.rewriting import HEADING, MOST_CHARACTERS, Rewritten, show_demo
from textevolve.loops.calibration.search import SEED, TemplateSearch
from textevolve.loops.calibration.trial_runner import Example, Material, Templates
from textevolve.metrics.label_metrics import Grader, open_metric

ORIGINAL = "What is {n}?"


class Pupil:
    """A model that answers the rows that its prompt teaches."""

    name = "pupil"

    async def __call__(self, request, /):
        prompt = request.messages[-1].text
        number = re.search(r"What is (\d+)", prompt)[1]
        text = f"label {number}" if f"Know {number}." in prompt else "unknown"
        return Response(text, "stop", Usage(1, 1, 0, 1))


class Writer:
    """An editor that writes the same instruction and the same template each time."""

    name = "writer"

    def __init__(self, template="What is {n}? Know 1."):
        self.template = template
        self.requests = []

    async def __call__(self, request, /):
        self.requests.append(request)
        answer = {"template": self.template}
        if "instructions" in str(request.schema):
            answer = {"instructions": ["Be exact."]}
        elif "changes" in str(request.schema):
            answer["changes"] = ["Know 1."]
        return Response(json.dumps(answer), "stop", Usage(1, 1, 0, 1))


def begin(rows=12, count=None, budget=1000, labels=None, template=ORIGINAL, **means):
    """A search on rows in their own order, of which `count` are in play."""
    texts = labels or [f"label {n}" for n in range(rows)]
    examples = tuple(Example(f"row {n}", {"n": str(n)}, texts[n]) for n in range(rows))
    means = {"editor": Writer(), "metric": Grader(open_metric("exact")), **means}
    options = CalibrationPlan.model_fields.keys() & means.keys() - {"editor"}
    plan = {name: means.pop(name) for name in options}
    slots = means.pop("slots", ())
    search = TemplateSearch(
        Material(template, ("n",), ("n",), examples, (), slots),
        CalibrationPlan(budget=budget, **plan),
        CalibrationContext(generator=Pupil(), **means),
    )
    search.order = tuple(range(rows))
    search.count = rows if count is None else count
    return search


def climb_of(search, *, rows=8, gate=4, width=2, operators=("demos", "reflect"), **state):
    return Climb(search, operators, rows, gate, width, **state)


def teach(*rows):
    return "".join(f" Know {row}." for row in rows)


def add(search, text, parent=SEED, **more):
    node = search.add(parent, Rewritten(text, (f"new {len(search.nodes)}",)), **more)
    assert node is not None
    return node


async def try_all(search, *nodes):
    for node in nodes:
        await search.ask([(node, row) for row in search.in_play(node)])


def record(search, node, scores):
    """Record scores that no trial has to give."""
    for row, score in enumerate(scores):
        example = search.material.training[row]
        result = EvaluationResult(score, score >= 0.5)
        search.outcomes[node, row] = replace(OUTCOME, example=example, result=result)


OUTCOME = hill_climbing.TrialOutcome(Example("x"), "x", Failure("failed", "none"))


# Faults of the leader, and the end without any


async def test_more_rows_show_faults():
    search = begin(template=ORIGINAL + teach(0, 1, 2, 3, 4), count=4)
    assert await find_faults(climb_of(search, rows=10))
    assert search.count == 9  # four, and half of a race
    assert search.faults(SEED) == [5, 6, 7, 8]


async def test_two_faults_are_enough():
    search = begin(template=ORIGINAL + teach(0, 1), count=4)
    await try_all(search, SEED)
    assert await find_faults(climb_of(search))
    assert search.count == 4


async def test_one_fault_is_too_few():
    search = begin(template=ORIGINAL + teach(0, 1, 2), count=4)
    await try_all(search, SEED)
    assert await find_faults(climb_of(search, rows=2))
    assert search.count == 8


@pytest.mark.parametrize(("room", "count"), [(0, 4), (1, 5), (3, 7)])
async def test_new_rows_keep_the_budget(room, count):
    search = begin(template=ORIGINAL + teach(*range(12)), count=4, budget=4 + room)
    await try_all(search, SEED)
    assert not await find_faults(climb_of(search))
    assert search.count == count


async def test_all_rows_come_into_play():
    search = begin(template=ORIGINAL + teach(*range(11)), count=4)
    assert await find_faults(climb_of(search))
    assert search.count == 12
    assert search.faults(SEED) == [11]


async def test_perfect_originals_cost_no_more():
    """Inverted, a perfect original would be tried on every row that there is."""
    search = begin(template=ORIGINAL + teach(*range(12)), count=4, final_minibatch=6)
    await try_all(search, SEED)
    assert not await find_faults(climb_of(search))
    assert search.count == 8


async def test_perfection_needs_enough_rows():
    perfect = ORIGINAL + teach(*range(12))
    search = begin(template=perfect, count=6, final_minibatch=6)
    assert not is_perfect(search)  # nothing was tried yet
    await try_all(search, SEED)
    assert is_perfect(search)
    search.plan = search.plan.model_copy(update={"final_minibatch": 7})
    assert not is_perfect(search)
    search.count = 12
    await try_all(search, SEED)
    search.plan = search.plan.model_copy(update={"final_minibatch": 99})
    assert is_perfect(search)  # there are no more rows


async def test_faults_are_not_perfect():
    search = begin(template=ORIGINAL + teach(*range(11)), final_minibatch=6)
    await try_all(search, SEED)
    assert not is_perfect(search)


async def test_judges_prove_no_perfection():
    search = begin(template=ORIGINAL + teach(*range(12)), final_minibatch=6)
    await try_all(search, SEED)
    assert is_perfect(search)
    search.context = replace(search.context, metric=None)
    assert not is_perfect(search)


async def test_only_originals_are_perfect():
    search = begin(template=ORIGINAL + teach(*range(12)), final_minibatch=6)
    search.leader = add(search, f"{ORIGINAL} Be kind.{teach(*range(12))}")
    await try_all(search, SEED, search.leader)
    assert not is_perfect(search)


async def test_reasons_for_the_end():
    search = begin(template=ORIGINAL + teach(*range(12)), count=6, final_minibatch=6)
    climb = climb_of(search)
    assert end_without_faults(climb) == "failed"
    await try_all(search, SEED)
    assert end_without_faults(climb) == "accepted"
    assert search.perfect == 6
    search.leader = add(search, f"{ORIGINAL} Be kind.{teach(*range(12))}")
    assert end_without_faults(climb) == "converged"


# What a step may cost


@pytest.mark.parametrize(
    ("operator", "width", "held", "affordable"),
    [("reflect", 9, 0, 3), ("demos", 9, 0, 4), ("reflect", 2, 0, 2), ("reflect", 9, 4, 2)],
)
def test_rewrites_cost_outputs(operator, width, held, affordable):
    search = begin(budget=56)
    search.spending.learned = {"rewrite": 2.0, "output": 4.0}  # room for 14 outputs
    climb = climb_of(search, gate=3, width=width, held=held)
    assert affordable_width(climb, operator) == affordable


@pytest.mark.parametrize("budget", [1, 4])
def test_no_room_no_width(budget):
    assert affordable_width(climb_of(begin(budget=budget)), "demos") == 0


# The choice among operators


def choices(climb, operator, wins):
    """The operators that are chosen after each of an operator's steps."""
    chosen = []
    for won in wins:
        give_credit(climb, operator, won)
        chosen.append(choose_operator(climb))
    return chosen


def test_reflections_come_first():
    climb = climb_of(begin())
    assert choose_operator(climb) == "reflect"
    assert choices(climb, "reflect", [False, False]) == ["reflect", "demos"]


def test_wins_earn_credit():
    climb = climb_of(begin())
    assert choices(climb, "demos", [True, False]) == ["demos", "reflect"]


def test_credit_fades():
    """(0.5 + 0.85**k) / (1 + the sum of 0.85**i up to k) is below 0.2 from k = 5 on."""
    climb = climb_of(begin())
    chosen = choices(climb, "reflect", [True] + [False] * 30)
    assert chosen.index("demos") == 5


def test_one_operator_needs_no_credit():
    climb = climb_of(begin(), operators=("demos",))
    assert choices(climb, "demos", [False] * 5) == ["demos"] * 5


async def test_parents_are_drawn_among_faulty_ones():
    """Templates that were not tried on every row, and those without faults, have no turn."""
    search = begin(template=ORIGINAL + teach(*range(6)), select="sample")
    better = add(search, ORIGINAL + teach(*range(8)))
    perfect = add(search, ORIGINAL + teach(*range(12)))
    untried = add(search, ORIGINAL + teach(*range(9)))
    await try_all(search, SEED, better, perfect)
    parents = set[int]()
    for search.rounds in range(60):
        parents.add(choose_parent(climb_of(search), "reflect"))
    assert parents == {SEED, better}
    assert untried not in parents


# The gate


def test_gates_begin_with_faults():
    """Most rows of each half are faults, those that the writer saw first; one shows losses."""
    search = begin(template=ORIGINAL + teach(*range(6, 12)))
    record(search, SEED, [0.0] * 6 + [1.0] * 6)
    node = add(search, ORIGINAL + teach(0))
    rows = gate_rows(climb_of(search), SEED, node, (2, 0, 99))
    assert (rows[:3], rows[4:7]) == ([2, 0, 1], [3, 4, 5])
    assert {rows[3], rows[7]} < set(range(6, 12))
    assert len(set(rows)) == 8


def test_few_faults_leave_room():
    search = begin()
    record(search, SEED, [0.0] * 2 + [1.0] * 10)
    node = add(search, ORIGINAL + teach(0))
    rows = gate_rows(climb_of(search, gate=5), SEED, node, ())
    assert rows[:2] == [0, 1]
    assert sorted(rows[2:]) != rows[2:]  # the others in random order
    assert len(set(rows)) == 10


def test_large_gates_show_losses():
    search = begin(24)
    record(search, SEED, [0.0] * 16 + [1.0] * 8)
    node = add(search, ORIGINAL + teach(0))
    rows = gate_rows(climb_of(search, gate=8), SEED, node, ())
    assert [row >= 16 for row in rows] == 2 * (6 * [False] + 2 * [True])


def test_shown_rows_test_nothing():
    search = begin()
    record(search, SEED, [0.0] * 12)
    node = add(search, ORIGINAL + teach(0), demos=("row 0", "row 1"))
    assert set(gate_rows(climb_of(search, gate=6), SEED, node, (0, 5))) == set(range(2, 12))


async def test_the_gate_lets_gains_pass():
    search = begin(template=ORIGINAL + teach(*range(8, 12)))
    await try_all(search, SEED)
    good = ORIGINAL + teach(*range(8, 12))
    little = add(search, good + teach(0))
    much = add(search, good + teach(0, 1, 2))
    equal = add(search, good + " Be kind.")
    late = add(search, good + teach(5))
    worse = add(search, ORIGINAL)
    rows = dict.fromkeys((little, much, equal, late, worse), (0, 1, 2, 3, 4, 5))
    assert await pass_gate(climb_of(search), SEED, rows) == [much, little, late, equal]
    tried = {node: len([n for n, _ in search.outcomes if n == node]) for node in rows}
    assert tried == {little: 4, much: 4, equal: 8, late: 8, worse: 4}  # ties are tried on more


async def test_gates_stop_at_the_budget():
    search = begin(budget=12 + 3)
    await try_all(search, SEED)
    node = add(search, ORIGINAL + teach(0))
    await pass_gate(climb_of(search), SEED, {node: (0, 1, 2, 3)})
    assert [row for n, row in search.outcomes if n == node] == [0, 1, 2]


# The race


async def test_the_best_becomes_the_leader():
    search = begin(budget=1000)
    search.spending.reserve = lambda cost: 100 * cost
    search.spending.most_reserved = 48
    await try_all(search, SEED)
    some = add(search, ORIGINAL + teach(1))
    more = add(search, ORIGINAL + teach(1, 2, 3))
    climb = climb_of(search, equals={"demos": some})
    await race(climb, [some, more], "reflect")
    assert (search.leader, search.beam, climb.equals) == (more, [more], {})
    assert all((more, row) in search.outcomes for row in range(12))
    assert search.spending.most_reserved == float("inf")  # now there is something to decide


async def test_losers_are_not_tried_on():
    """Only templates that are not worse on the first rows are tried on the others."""
    search = begin(template=ORIGINAL + teach(0, 1))
    await try_all(search, SEED)
    worse = add(search, ORIGINAL + teach(0, 8, 9, 10))
    equal = add(search, ORIGINAL + teach(0, 1, 11))
    await race(climb_of(search, rows=5), [worse, equal], "reflect")
    tried = [[row for n, row in search.outcomes if n == node] for node in (worse, equal)]
    assert [len(rows) for rows in tried] == [5, 12]
    assert search.leader == equal


async def test_worse_templates_lose_the_race():
    search = begin(template=ORIGINAL + teach(1, 2))
    await try_all(search, SEED)
    worse = add(search, ORIGINAL + teach(1))
    climb = climb_of(search, equals={"demos": SEED})
    await race(climb, [worse], "reflect")
    assert (search.leader, search.beam) == (SEED, [SEED])
    assert climb.equals == {"demos": SEED}


async def test_shorter_equals_win():
    """A leader that wins without a gain still replaces what operators continued from."""
    search = begin(template=ORIGINAL + " Be kind." + teach(1))
    await try_all(search, SEED)
    shorter = add(search, ORIGINAL + teach(1))
    climb = climb_of(search, equals={"demos": SEED})
    await race(climb, [shorter], "reflect")
    assert search.leader == shorter
    assert climb.equals == {}


@pytest.mark.parametrize(("known", "operators"), [((1,), ["demos", "reflect"]), ((), ["reflect"])])
async def test_longer_equals_are_continued(known, operators):
    """While nothing scores, an operator continues only from its own template."""
    search = begin(template=ORIGINAL + teach(*known))
    await try_all(search, SEED)
    longer = add(search, ORIGINAL + teach(*known) + " Be kind.")
    climb = climb_of(search)
    await race(climb, [longer], "reflect")
    assert search.leader == SEED
    assert climb.equals == dict.fromkeys(operators, longer)


async def test_untried_templates_lose():
    search = begin(budget=12)
    await try_all(search, SEED)
    untried = add(search, ORIGINAL + teach(1))
    await race(climb_of(search), [untried], "reflect")
    assert search.leader == SEED


# A step


@pytest.fixture
def proposals(monkeypatch):
    """What the operator `reflect` proposes, and the parents from which it does."""
    listed, parents = [], []

    async def propose(search, parent, width):
        parents.append((search.rounds, parent, width))
        return listed

    operators = dict.fromkeys(("reflect", "demos"), propose)
    monkeypatch.setattr(hill_climbing, "OPERATORS", {**hill_climbing.OPERATORS, **operators})
    return listed, parents


FAILED = Proposal(Failure("failed", "no answer"))


async def test_useless_proposals_are_idle(proposals):
    listed, _ = proposals
    search = begin(template=ORIGINAL + teach(*range(6)))
    await try_all(search, SEED)
    climb = climb_of(search)
    await take_step(climb, "reflect", SEED, 2)
    assert (climb.idle, search.rounds) == (1, 1)  # a round without any proposal
    listed += [FAILED, Proposal(Rewritten(ORIGINAL, ("worse",)))]
    await take_step(climb, "reflect", SEED, 2)
    assert (climb.idle, search.rounds) == (3, 2)  # idle counts up by each proposal
    assert [node.operator for node in search.nodes[1:]] == ["reflect", "reflect"]
    assert search.nodes[1].fault == "no answer"


async def test_a_new_leader_ends_idleness(proposals):
    listed, _ = proposals
    search = begin(template=ORIGINAL + teach(*range(6)))
    await try_all(search, SEED)
    climb = climb_of(search, idle=5)
    listed.append(Proposal(Rewritten(ORIGINAL + teach(*range(9)), ("better",)), shown=(7, 8)))
    await take_step(climb, "reflect", SEED, 1)
    assert (climb.idle, search.leader) == (0, 1)
    before, after = (search.nodes[node].placings[-1] for node in (SEED, 1))
    assert (before.kept, before.mean) == (False, 0.5)
    assert (after.kept, after.mean) == (True, 0.75)


async def test_new_equals_end_idleness(proposals):
    listed, _ = proposals
    search = begin(template=ORIGINAL + teach(*range(6)))
    await try_all(search, SEED)
    climb = climb_of(search, idle=5)
    listed.append(Proposal(Rewritten(f"{ORIGINAL}{teach(*range(6))} Be kind.", ("equal",))))
    await take_step(climb, "reflect", SEED, 1)
    assert (climb.idle, climb.equals) == (0, {"demos": 1, "reflect": 1})
    listed[:] = [FAILED]
    await take_step(climb, "reflect", SEED, 1)
    assert climb.idle == 1  # the same equals as before


# The whole climb


async def test_patience_ends_the_climb(proposals):
    listed, parents = proposals
    listed.append(FAILED)
    search = begin(patience=2, successors=3)
    await try_all(search, SEED)
    climb = climb_of(search, equals={"demos": SEED})
    assert await go_on(climb) == "converged"
    assert search.rounds == 12  # patience, successors and two operators
    assert [width for _, _, width in parents] == [2] * 12


async def test_losing_operators_give_way(proposals):
    listed, parents = proposals
    listed.append(FAILED)
    search = begin(patience=1, successors=2)
    equal = add(search, f"{ORIGINAL} Be kind.")
    await try_all(search, SEED)
    await go_on(climb_of(search, equals={"demos": equal}))
    assert [node.operator for node in search.nodes[2:]] == [
        "reflect",
        "reflect",
        "demos",
        "reflect",
    ]
    assert [parent for _, parent, _ in parents] == [SEED, SEED, equal, SEED]


async def test_spent_budgets_end_the_climb(proposals):
    _, parents = proposals
    search = begin(budget=12 + 5)
    await try_all(search, SEED)
    assert await go_on(climb_of(search)) == "max_iterations"
    assert not parents


@pytest.mark.parametrize(("reserve", "room"), [(30, 90), (100, 72)])
async def test_originals_reserve_little(monkeypatch, reserve, room):
    """While the original leads, no more than a large gain needs is reserved."""

    async def stop(climb):
        assert climb.room == room - climb.rows
        return "converged"

    monkeypatch.setattr(hill_climbing, "go_on", stop)
    search = begin(60, 0, budget=120)
    search.spending.reserve = lambda cost: reserve * cost
    await improve(search, ("demos", "reflect"))


async def test_perfection_ends_the_climb(proposals):
    _, parents = proposals
    search = begin(template=ORIGINAL + teach(*range(12)))
    await try_all(search, SEED)
    assert await go_on(climb_of(search)) == "accepted"
    assert not parents


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (None, (17, 6, 2, 17)),  # 300 outputs; a tenth of the others is one race
        (2000, (45, 6, 4, 180)),
        (400, (20, 6, 2, 20)),
        (100, (10, 3, 1, 0)),
        (30, (5, 2, 1, 0)),
        (13, (4, 2, 1, 0)),
    ],
)
async def test_budgets_shape_the_climb(monkeypatch, budget, expected):
    """The rows of a race and of a gate, the proposals at once, and what ablation may cost."""
    climbs = []

    async def stop(climb):
        climbs.append((climb.rows, climb.gate, climb.width, climb.held))
        assert climb.search.count == climb.rows
        return "converged"

    monkeypatch.setattr(hill_climbing, "go_on", stop)
    assert await improve(begin(60, 0, budget), ("demos", "reflect")) == "converged"
    assert climbs == [expected]


async def test_few_rows_are_all_raced(monkeypatch):
    async def stop(climb):
        assert (climb.rows, climb.gate, climb.operators) == (5, 2, ["reflect"])
        raise SearchSpent("spent")

    monkeypatch.setattr(hill_climbing, "go_on", stop)
    search = begin(5, labels=[None] * 5, metric=Grader(lambda output, label: 1.0))
    assert await improve(search, ("demos", "reflect")) == "max_iterations"


async def test_climbs_without_scores_failed():
    class Silent(Pupil):
        async def __call__(self, request, /):
            return Response("", "stop", Usage(1, 1, 0, 0))

    search = begin()
    search.runner.program = replace(search.runner.program, model=Silent())
    assert await improve(search, ("reflect",)) == "failed"


async def test_costs_are_learned_first():
    class Judge:
        """Three calls for each judgement."""

        async def __call__(self, case):
            class Judged:
                result = (EvaluationResult(1.0, True),)
                usage = Usage(calls=3)
                coverage = 1.0

            return Judged()

    search = begin(metric=None, evaluator=Judge(), budget=40)
    with pytest.raises(InputError, match="a budget of 40 calls is too small"):
        await improve(search, ("reflect",))
    assert search.tried == 1
    assert search.spending.cost("output") == 4


async def test_demos_need_labelled_rows():
    for labels, usable in (([*"abcd", None, None], True), ([*"abc", None, None, ""], False)):
        search = begin(6, labels=labels)
        assert can_demonstrate(search) == usable
    with pytest.raises(InputError, match="at least four labelled training rows"):
        await improve(search, ("demos",))
    assert not can_demonstrate(begin(metric=None, evaluator=Pupil()))
    assert not can_demonstrate(begin(program=TwoSteps()))


# Removal of what does not help


async def test_ablation_removes_useless_sentences():
    search = begin(budget=12 + 12 + 12)
    node = add(search, f"{ORIGINAL}{teach(1)} Be very kind.")
    search.leader = node
    await try_all(search, SEED, node)
    await ablate(climb_of(search, held=12))
    assert search.nodes[search.leader].text == ORIGINAL + teach(1)
    assert search.nodes[search.leader].operator == "remove"


async def test_ablation_needs_a_whole_race():
    search = begin(budget=12 + 12 + 11)
    search.leader = add(search, f"{ORIGINAL}{teach(1)} Be very kind.")
    await try_all(search, SEED, search.leader)
    await ablate(climb_of(search))
    assert len(search.nodes) == 2


def removed(search, node):
    return [proposal.new.instructions[0] for proposal in list_removals(search, node)]


async def test_additions_are_removed_longest_first():
    search = begin()
    node = add(search, f"{ORIGINAL} Be kind. Know 1.\n- Answer in one word.")
    assert removed(search, node) == [
        "without: - Answer in one word.",
        "without: Be kind.",
        "without: Know 1.",
    ]
    without_last, without_rule = await remove(search, node, 2)
    assert without_last.new.text == f"{ORIGINAL} Be kind. Know 1."
    assert without_rule.new.text == f"{ORIGINAL} Know 1.\n- Answer in one word."
    assert removed(search, SEED) == []


def test_removals_are_not_repeated():
    """Except those that are part of how a template came about."""
    search = begin()
    node = add(search, f"{ORIGINAL} Be very kind. Know 1.")
    kindless = Rewritten(ORIGINAL + teach(1), ("without: Be very kind.",))
    shorter = search.add(node, kindless, operator="remove")
    assert removed(search, node) == ["without: Know 1."]
    kind = add(search, f"{ORIGINAL} Know 1. Be very kind.", shorter)
    assert removed(search, kind) == ["without: Be very kind.", "without: Know 1."]


@pytest.mark.parametrize(
    ("names", "remaining"),
    [
        ("0", [""]),
        ("01", ["", "1", "0"]),
        ("0123", ["", "23", "01", "123", "023", "013", "012"]),
    ],
)
def test_demos_are_removed_in_groups(names, remaining):
    search = begin()
    demos = [search.material.training[int(name)] for name in names]
    text = hill_climbing.front(demos) + ORIGINAL
    node = add(search, text, demos=tuple(demo.id for demo in demos))
    proposals = list(list_removals(search, node))
    assert ["".join(id[4:] for id in proposal.demos) for proposal in proposals] == remaining
    for proposal in proposals:
        demos_shown = "".join(re.findall(r"n: (\d+)\nanswer", proposal.new.text))
        assert demos_shown == "".join(id[4:] for id in proposal.demos)
        assert proposal.new.text.endswith(ORIGINAL)
    assert proposals[0].new.instructions[0].count("row") == len(names) + 1


# Demonstrations


def draw(search, times=60, parent=SEED):
    return [draw_demos(search, parent, k) for k in range(times)]


def test_demo_sets_vary_in_size():
    sets = draw(begin(30, count=10))
    assert {len(demos) for demos in sets} == {2, 4, 8}
    assert all(len({demo.id for demo in demos}) == len(demos) for demos in sets)
    assert len({tuple(demo.id for demo in demos) for demos in sets}) > 50


def test_demos_come_from_unused_rows():
    """A row that the prompt shows cannot be used for comparisons."""
    sets = draw(begin(30, count=20))
    assert all(int(demo.values["n"]) >= 20 for demos in sets for demo in demos)
    sets = draw(begin(30, count=27))
    assert all(
        {"row 27", "row 28", "row 29"} <= {demo.id for demo in demos}
        for demos in sets
        if len(demos) > 2
    )


@pytest.mark.parametrize(("rows", "sizes"), [(2, {1}), (9, {2, 3}), (12, {2, 4})])
def test_few_rows_give_few_demos(rows, sizes):
    assert {len(demos) for demos in draw(begin(rows, count=0))} == sizes


def test_demos_show_every_class():
    labels = ["a", "b", "c", *["a"] * 27]
    sets = draw(begin(30, count=3, labels=labels))
    assert {len(demos) for demos in sets} == {3, 4, 8}
    assert all({demo.label for demo in demos} == {"a", "b", "c"} for demos in sets)


@pytest.mark.parametrize(
    ("classes", "rows", "least"), [(12, 40, 12), (13, 42, 2), (12, 24, 8), (12, 23, 2)]
)
def test_many_labels_are_no_classes(classes, rows, least):
    labels = [f"label {n % classes}" for n in range(rows)]
    sets = draw(begin(rows, count=0, labels=labels))
    assert min(len(demos) for demos in sets) == least


def test_demos_change_one_by_one():
    search = begin(60, count=20)
    before = [search.material.training[n] for n in (0, 1, 2)]
    node = add(search, ORIGINAL + teach(1), demos=tuple(demo.id for demo in before))
    changes = []
    for demos in draw(search, 300, node):
        stays = [demo for demo in before if demo in demos]
        if stays:
            assert demos[: len(stays)] == stays
            changes.append((len(stays), len(demos)))
    assert set(changes) == {(2, 3), (3, 4)}
    assert 120 < len(changes) < 180  # half of the sets are new
    assert 0.55 < changes.count((2, 3)) / len(changes) < 0.78  # two of three are exchanges


def test_the_last_demo_stays():
    search = begin(60, count=20)
    node = add(search, ORIGINAL + teach(1), demos=("row 0",))
    sets = [demos for demos in draw(search, 60, node) if demos[0].id == "row 0"]
    assert {len(demos) for demos in sets} == {2}


def test_long_demos_are_left_out():
    search = begin(30, count=0)
    empty = len(show_demo(Example("", {"n": ""}, "label")))
    for length, most in ((1000, 6), (1001, 5)):
        text = "x" * (length - empty)
        rows = tuple(Example(f"row {n}", {"n": text}, "label") for n in range(30))
        search.material = replace(search.material, training=rows)
        assert MOST_CHARACTERS == 6000
        assert max(len(demos) for demos in draw(search)) == most


async def test_demos_precede_the_template():
    search = begin(30, count=10)
    record(search, SEED, [0.0] * 8 + [1.0] * 2)
    search.rounds = 1
    proposal, other = await demonstrate(search, SEED, 2)
    assert proposal.demos != other.demos
    assert sorted(proposal.shown) == sorted(other.shown) == list(range(8))
    assert proposal.shown != other.shown
    node = search.add(SEED, proposal.new, demos=proposal.demos)
    (child,) = await demonstrate(search, node, 1)
    assert child.new.text.count(HEADING) == 1
    assert child.new.text.endswith(f"\n{ORIGINAL}")
    assert child.new.instructions == (f"{len(child.demos)} rows as demonstrations",)


# Reflection


class TwoSteps:
    """A program of two templates."""

    templates = Templates((("plan", "Plan {n}."), ("answer", "Answer {n}.")))


async def test_reflections_see_different_faults():
    writer = Writer()
    search = begin(24, editor=writer)
    record(search, SEED, [1.0] * 4 + [0.0] * 20)
    search.rounds = 3
    proposals = await reflect(search, SEED, 2)
    for proposal in proposals:
        assert len(set(proposal.shown)) == 10
        assert min(proposal.shown) >= 4
        assert proposal.new.text == writer.template
    assert proposals[0].shown != proposals[1].shown
    assert [request.sample for request in writer.requests] == [3000, 3001]
    for row in proposals[0].shown:
        assert f"n: {row}\n" in writer.requests[0].messages[0].text


async def test_reflections_keep_demos():
    writer = Writer()
    search = begin(24, editor=writer)
    (demos,) = await demonstrate(search, SEED, 1)
    node = search.add(SEED, demos.new, demos=demos.demos)
    record(search, node, [0.0] * 24)
    (proposal,) = await reflect(search, node, 1)
    assert proposal.demos == demos.demos
    assert proposal.new.text == demos.new.text.removesuffix(ORIGINAL) + writer.template
    assert HEADING not in writer.requests[0].messages[0].text


async def test_unusable_reflections_add_no_demos():
    search = begin(24, editor=Writer("No placeholder. {other}"))
    (demos,) = await demonstrate(search, SEED, 1)
    node = search.add(SEED, demos.new, demos=demos.demos)
    record(search, node, [0.0] * 24)
    (proposal,) = await reflect(search, node, 1)
    assert proposal.new.note.startswith("not rewritten")


@pytest.mark.parametrize(("rounds", "parts"), [(1, ["plan", "answer"]), (2, ["answer", "plan"])])
async def test_templates_are_improved_in_turn(rounds, parts):
    writer = Writer("Exactly {n}.")
    slots = (("plan", ("n",)), ("answer", ("n",)))
    search = begin(24, editor=writer, program=TwoSteps(), slots=slots)
    record(search, SEED, [0.0] * 24)
    search.rounds = rounds
    proposals = await reflect(search, SEED, 2)
    assert [proposal.part for proposal in proposals] == parts
    assert len(writer.requests) == 4  # instructions first, then the template
    assert all(proposal.new.instructions == ("Be exact.",) for proposal in proposals)
