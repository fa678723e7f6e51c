"""Agreement of judges with people on labelled items, and comparisons of judges.

The figures are computed from the verdicts that `verdicts.py` collects; the arithmetic is in
`textevolve.statistics`. Every share is computed over the items that have the data for it, and is
NaN without any. Intervals are 95 %, and are bootstrapped by group, since items of the same question
are not independent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from textevolve.bench.escalation import difference_figure, mean_figure
from textevolve.bench.fitting import FOLDS, draw_folds, split_folds
from textevolve.bench.items import (
    ALWAYS_FAIL,
    ALWAYS_PASS,
    BLIND,
    TIED,
    Item,
    blind_credits,
    share_winners,
    winner_of,
)
from textevolve.bench.verdicts import ItemOutcome, Verdict, count_asked, gather_outcomes
from textevolve.errors import InputError
from textevolve.evaluation import Usage, sum_usage
from textevolve.loading import np
from textevolve.mappings import map_values
from textevolve.statistics.agreement import (
    alpha_of,
    area_under_curve,
    best_threshold,
    coincidences,
    kappa_of,
    krippendorff_alpha,
    table_statistic,
)
from textevolve.statistics.calibration import Calibration, measure_calibration
from textevolve.statistics.comparisons import holm, holm_interval, items_needed, sign_flip_test
from textevolve.statistics.intervals import (
    TIE,
    Array,
    Numbers,
    Statistic,
    group_numbers,
    mean_present,
    vector,
    wilson_interval,
)
from textevolve.statistics.strata import Strata, stratified_mean, weigh_items


@dataclass(frozen=True, slots=True)
class Position:
    """The effect of the order of candidates on a judge's choices (position bias).

    Attributes:
        items: The number of items that have a winner in both orders.
        consistency: The share of them with the same winner in both orders, with a Wilson interval.
        first: The share of all presentations in which the text in the first place won; ties count
            half. An unbiased judge of pairs has 0.5.
    """

    items: int
    consistency: Statistic
    first: float


@dataclass(frozen=True, slots=True)
class Spending:
    """The average calls, tokens, seconds and cost of judging one item, over all orders and samples.
    `cost`: US dollars, None if unknown; `seconds`: the models' time."""

    calls: float
    tokens: float
    seconds: float
    cost: float | None


@dataclass(frozen=True, slots=True)
class PassFigures:
    """The agreement of a judge's verdicts (pass or fail) on single responses with people's.

    Attributes:
        alpha: Krippendorff's alpha of the judge and the majority of people.
        precision: Of the responses that the judge fails, the share that people fail as well.
        recall: Of the responses that people fail, the share that the judge fails as well.
    """

    accuracy: Statistic
    kappa: Statistic
    alpha: Statistic
    precision: Statistic
    recall: Statistic


@dataclass(frozen=True, slots=True)
class Confusion:
    """The numbers of single responses by the label of people (`good` or `bad`, a pass or a
    failure) and the verdict of a judge."""

    good_passed: int
    good_failed: int
    good_missing: int
    bad_passed: int
    bad_failed: int
    bad_missing: int


@dataclass(frozen=True, slots=True)
class ResponseFigures:
    """A judge's figures on single responses.

    Attributes:
        verdicts: The figures of its own verdicts.
        auc: The area under the ROC curve of its scores.
        threshold: The score from which responses should pass, so that kappa is highest on all
            responses; NaN if there is none.
        validated: The figures of verdicts by such thresholds in ten cross-validation folds; each
            threshold is chosen on other questions than it is applied to.
        confusion: The numbers behind `verdicts`.
    """

    verdicts: PassFigures
    auc: Statistic
    threshold: float
    validated: PassFigures
    confusion: Confusion


@dataclass(frozen=True, slots=True)
class PeopleFigures:
    """The labels of single responses.

    Attributes:
        passed: The share of responses that people pass.
        even: The number of responses with as many passes as failures; they are left out of all
            figures except the Brier score and the calibration curve.
        annotators: The number of people who labelled.
        alpha: Krippendorff's alpha of the annotators with each other.
    """

    passed: float
    even: int
    annotators: int
    alpha: Statistic


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """The figures of one judge.

    Attributes:
        covered: The number of `items` with complete verdicts in every order; `coverage` is their
            share. Accuracy is computed over them.
        accuracy: The share of items on which the judge chooses as people do, by the mean score over
            both orders; a tie of one side alone counts half.
        kappa: Cohen's kappa of the winner's position, where a tie is shared among its positions;
            for single responses, of the verdicts (pass or fail).
        ties: The share of items on which the judge has no winner.
        position: The position bias; None if items were shown in one order only.
        per_item: The average usage for an item.
        failures: The number of missing verdicts by reason: the five most frequent reasons, the most
            frequent first.
        calibration: The calibration of the judge's probabilities; None if it has none.
        responses: The figures on single responses; None if items are pairs.
        over_length: The accuracy less that of a look at the length (`LengthRule`) on the same
            items, in [-1, 1]. A judge whose interval reaches 0 is not shown to read the texts.
    """

    name: str
    items: int
    covered: int
    coverage: float
    accuracy: Statistic
    over_length: Statistic
    kappa: Statistic
    ties: float
    position: Position | None
    usage: Usage
    per_item: Spending
    failures: Mapping[str, int]
    calibration: Calibration | None = None
    responses: ResponseFigures | None = None


@dataclass(frozen=True, slots=True)
class LengthRule:
    """The best answers that a look at the length of the texts gives: nobody reads them for it.

    Attributes:
        name: The rule, such as "the longer text".
        accuracy: Its share of right answers, with an interval by group.
        credits: Its agreement with people on each item, in [0, 1]; NaN without a label.
    """

    name: str
    accuracy: Statistic
    credits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """The comparison of two judges on the items that both covered and people labelled.

    Attributes:
        items: The number of these items.
        same: The share of items, labelled or not, on which both choose the same.
        difference: The accuracy of `first` minus that of `second`, with an interval widened for the
            number of pairs of judges.
        better: The number of items on which `first` does better; `worse`: on which it does worse.
        permutation: The two-sided p-value of a sign-flip test by group, and `permutation_holm`: the
            same, adjusted for all pairs of judges.
        items_needed: The number of items that would show a difference of this size with a power of
            80 % at the 5 % level; NaN without a difference.
    """

    first: str
    second: str
    items: int
    same: Statistic
    difference: Statistic
    better: int
    worse: int
    permutation: float
    permutation_holm: float
    items_needed: float


@dataclass(frozen=True, slots=True)
class AgreementSummary:
    """The agreement of all judges with people.

    Attributes:
        items: The number of items. `labelled`: the number with people's labels, over which accuracy
            is computed.
        groups: The number of groups (questions).
        always_first: The accuracy of always choosing the first text, and `always_shorter` and
            `always_longer`: of choosing the shortest or longest text in characters. A judge that is
            no better than these rules has shown nothing.
        length_rule: The best rule that looks at the length of the texts alone, and `length`: its
            accuracy.
        judges: The figures of each judge.
        comparisons: The comparisons of all pairs of judges.
        seed: The seed of the bootstrap.
        people: The labels of single responses; None for pairs.
    """

    items: int
    labelled: int
    groups: int
    always_first: float
    always_shorter: float
    always_longer: float
    length_rule: str
    length: Statistic
    judges: tuple[JudgeSummary, ...]
    comparisons: tuple[JudgeComparison, ...]
    seed: int
    people: PeopleFigures | None = None

    @property
    def blind_answers(self) -> list[tuple[str, float]]:
        """Return the rules that do not read the texts, each with its accuracy."""
        if self.people is not None:
            passed = self.people.passed
            return [(ALWAYS_PASS, passed), (ALWAYS_FAIL, 1 - passed)]
        shares = (self.always_first, self.always_shorter, self.always_longer)
        return list(zip(BLIND, shares, strict=True))

    def judge(self, name: str) -> JudgeSummary:
        return next(judge for judge in self.judges if judge.name == name)

    def compare(self, judge: str, other: str) -> JudgeComparison:
        """Return the comparison of two judges, in either order."""
        return next(
            pair for pair in self.comparisons if {pair.first, pair.second} == {judge, other}
        )


def best_probabilities(log_odds: Sequence[float]) -> tuple[float, ...]:
    """Return for each candidate the probability that it is the best one: the softmax of the
    log-odds. For two candidates that is the logistic function of their difference.

    Luce (1959), "Individual Choice Behavior"; for two, Bradley and Terry (1952).
    """
    odds = vector(log_odds)
    raised = np.exp(odds - odds.max())
    return tuple(map(float, raised / raised.sum()))


REASONS = 5


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the items were drawn, for means over them: with equal probability, or in strata.

    Attributes:
        groups: The group of each item.
        seed: The seed of the bootstrap.
        strata: The stratum of each item; None if all items were equally likely.
        weights: The weight of each item; 0 without a label.
    """

    groups: Sequence[str]
    seed: int
    strata: Strata | None
    weights: Array

    def mean(self, values: Numbers) -> Statistic:
        """Return the mean of values in [0, 1], with its interval."""
        if self.strata is None:
            return mean_figure(values, self.groups, self.seed)
        return stratified_mean(values, self.strata, self.weights, self.groups)

    def difference(self, ours: Numbers, theirs: Numbers) -> Statistic:
        """Return the mean difference of paired values in [0, 1], with its interval."""
        if self.strata is None:
            return difference_figure(ours, theirs, self.groups, self.seed)
        gaps = np.subtract(ours, theirs)
        return stratified_mean(gaps, self.strata, self.weights, self.groups, bounds=(-1, 1))

    def table(self, tables: Array, measure: Callable[[Array], Array]) -> Statistic:
        """Return a measure of the weighted sum of tables (items, q, q), with its interval."""
        if self.strata is not None:
            tables = tables * self.weights[:, None, None]
        return table_statistic(tables, measure, self.groups, seed=self.seed)


def read_sampling(items: Sequence[Item], seed: int) -> Sampling:
    """Return how items were drawn.

    Raises:
        InputError: some were drawn in strata and others not, or a stratum has two sizes.
    """
    groups = [item.group for item in items]
    strata = [item.stratum for item in items if item.stratum is not None]
    if not strata:
        return Sampling(groups, seed, None, np.ones(len(items)))
    if len(strata) < len(items) or len(dict(strata)) < len(set(strata)):
        raise InputError(
            "the items were not drawn from the same strata: give those of one run, drawn with"
            " `labels create --draw judges`, to one command"
        )

    labelled = np.array([item.labelled for item in items], dtype=np.bool_)
    return Sampling(groups, seed, strata, weigh_items(strata, labelled))


def summarise(
    items: Sequence[Item],
    verdicts: Sequence[Verdict],
    *,
    seed: int = 0,
    threshold: float | None = None,
) -> AgreementSummary:
    """Compute the figures of each judge and of each pair of judges; the same seed gives the same
    intervals. `threshold`: the score from which a single response passes, instead of the judge's
    verdict.

    Raises:
        InputError: there are no items or no verdicts, or they do not belong together.
    """
    if not items or not verdicts:
        raise InputError(f"nothing to summarise: {len(items)} items, {len(verdicts)} verdicts")
    outcomes = gather_outcomes(items, verdicts, threshold)
    groups = [item.group for item in items]
    judges: list[JudgeSummary] = []
    sampling = read_sampling(items, seed)
    length = look_at_length(items, sampling)
    for name, of_items in outcomes.items():
        of_judge = [verdict for verdict in verdicts if verdict.judge == name]
        measure = _Measure(items, list(of_items.values()), of_judge, sampling)
        judges.append(measure.all(length))

    labelled = [item for item in items if item.labelled]
    blind = map_values(lambda shares: sampling.mean(shares).value, blind_credits(items))
    first_place, shorter, longer = (blind.get(name, math.nan) for name in BLIND)

    return AgreementSummary(
        items=len(items),
        labelled=len(labelled),
        groups=len(set(groups)),
        always_first=first_place,
        always_shorter=shorter,
        always_longer=longer,
        length_rule=length.name,
        length=length.accuracy,
        judges=tuple(judges),
        comparisons=_compare_all(outcomes, sampling),
        seed=seed,
        people=_describe_people(items, sampling) if items[0].is_single else None,
    )


@dataclass(frozen=True, slots=True)
class Consistency:
    """The agreement of a judge with itself on items that it judged several times.

    Attributes:
        items: The number of items with verdicts in several samples.
        flips: The share of them on which not all samples choose the same.
        kappa: The agreement of two samples beyond chance (Fleiss 1971, "Measuring nominal scale
            agreement among many raters").
    """

    items: int
    flips: Statistic
    kappa: Statistic


def measure_consistency(
    items: Sequence[Item],
    verdicts: Sequence[Verdict],
    *,
    seed: int = 0,
    threshold: float | None = None,
) -> dict[str, Consistency]:
    """Compute the agreement of each judge with itself, by its name; judges without an item that
    they judged several times are left out."""
    by_sample: defaultdict[int, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_sample[verdict.sample].append(verdict)
    choices: dict[str, defaultdict[str, list[int]]] = {}
    for of_sample in by_sample.values():
        for judge, outcomes in gather_outcomes(items, of_sample, threshold).items():
            of_judge = choices.setdefault(judge, defaultdict(list))
            for id, outcome in outcomes.items():
                if outcome.winner is not None:
                    of_judge[id].append(outcome.winner)

    groups = {item.id: item.group for item in items}
    figures: dict[str, Consistency] = {}
    for judge, of_judge in choices.items():
        repeated = {id: winners for id, winners in of_judge.items() if len(winners) > 1}
        if not repeated:
            continue
        classes = sorted(set(chain.from_iterable(repeated.values())))
        chosen = [list(map(classes.index, winners)) for winners in repeated.values()]
        tables = coincidences(chosen, len(classes))
        flips = [float(len(set(winners)) > 1) for winners in repeated.values()]
        clusters = [groups[id] for id in repeated]
        kappa = table_statistic(tables, kappa_of, clusters, seed=seed)
        figures[judge] = Consistency(len(repeated), mean_figure(flips, clusters, seed), kappa)

    return figures


def look_at_length(items: Sequence[Item], sampling: Sampling) -> LengthRule:
    """Return the better of the two rules that look at the length alone: of several texts the longer
    or the shorter one is the better; a single response passes from a number of characters on, or up
    to one, which is chosen on other questions in ten cross-validation folds."""
    if items[0].is_single:
        people = _majorities(items)
        lengths = vector([len(item.candidates[0]) for item in items])
        rules = {
            "a response that is long enough": _length_passes(lengths, people, sampling),
            "a response that is short enough": _length_passes(-lengths, people, sampling),
        }
    else:
        blind = blind_credits(items)
        rules = {"the longer text": blind[BLIND[2]], "the shorter text": blind[BLIND[1]]}

    def accuracy(name: str) -> float:
        share = mean_present(rules[name])
        return -math.inf if math.isnan(share) else share

    best = max(rules, key=accuracy)
    return LengthRule(best, sampling.mean(rules[best]), tuple(rules[best]))


def _length_passes(scores: Array, people: Array, sampling: Sampling) -> Sequence[float]:
    """Return the agreement with people on each response of a threshold that is cross-validated."""
    passed = validate_threshold(scores, people, sampling.groups, seed=sampling.seed)
    agrees = find_agreement(passed, people)
    return [float(value) for value in agrees]


def _describe_people(items: Sequence[Item], sampling: Sampling) -> PeopleFigures:
    passes = _majorities(items)
    labels = [dict(item.labels) for item in items]
    ratings = [list(map(int, by_name.values())) for by_name in labels]

    return PeopleFigures(
        passed=sampling.mean(passes).value,
        even=sum(abs(item.human[0] - 0.5) <= TIE for item in items),
        annotators=len(set(chain.from_iterable(labels))),
        alpha=krippendorff_alpha(ratings, 2, sampling.groups, seed=sampling.seed),
    )


def _majorities(items: Sequence[Item]) -> Array:
    """Return for each single response whether most people pass it: 1 or 0, or NaN if exactly half
    do or there is no label."""
    shares = vector([item.human[0] for item in items])
    return np.where(np.abs(shares - 0.5) > TIE, np.round(shares), np.nan)


def count_verdicts(passed: Array, people: Array) -> Confusion:
    """Count a judge's verdicts on single responses beside people's labels: 1 for a pass, 0 for a
    failure, NaN without a verdict."""
    counts: list[int] = []
    for label in (1.0, 0.0):
        verdicts = passed[people == label]
        passes = int((verdicts == 1).sum())
        failures = int((verdicts == 0).sum())
        counts += [passes, failures, verdicts.size - passes - failures]

    return Confusion(*counts)


def find_agreement(passed: Array, people: Array) -> Array:
    """Return for each response 1 if a verdict agrees with people, 0 if not, and NaN if either is
    missing."""
    return np.where(np.isnan(passed + people), np.nan, passed == people)


def measure_passes(passed: Array, people: Array, sampling: Sampling) -> PassFigures:
    """Compute the agreement of a judge's verdicts on single responses with people's. `passed` and
    `people`: 1 for a pass, 0 for a failure, NaN without a verdict."""
    agrees = find_agreement(passed, people)
    # For each response a table of the judge's verdict (rows) by people's (columns).
    sides = np.array([0, 1])
    judge_sides = passed[:, None, None] == sides[:, None]
    tables = (judge_sides & (people[:, None, None] == sides)).astype(np.float64)
    both = tables + tables.transpose(0, 2, 1)  # the coincidences of two raters

    return PassFigures(
        accuracy=sampling.mean(agrees),
        kappa=sampling.table(tables, kappa_of),
        alpha=sampling.table(both, lambda sums: alpha_of(sums, 1 - np.eye(2))),
        precision=sampling.mean(np.where(passed == 0, agrees, np.nan)),
        recall=sampling.mean(np.where(people == 0, agrees, np.nan)),
    )


def validate_threshold(
    scores: Array, people: Array, groups: Sequence[str], *, seed: int = 0
) -> Array:
    """Return 1 (pass) or 0 (fail) for each response by a threshold that was chosen on other
    questions, in cross-validation folds; NaN without a score, a label or a threshold."""
    passed = np.full(scores.size, np.nan)
    for learnt, held_out in split_folds(
        draw_folds(group_numbers(groups, scores.size), FOLDS, seed)
    ):
        threshold = best_threshold(scores[learnt], people[learnt])
        use = held_out & ~np.isnan(scores + people + threshold)
        passed[use] = scores[use] >= threshold

    return passed


@dataclass(frozen=True, slots=True)
class _Measure:
    """The computation of one judge's figures; `outcomes` are parallel to `items`."""

    items: Sequence[Item]
    outcomes: Sequence[ItemOutcome]
    verdicts: Sequence[Verdict]
    sampling: Sampling

    def all(self, length: LengthRule) -> JudgeSummary:
        # Kappa of single responses compares verdicts, that of pairs compares winners.
        responses = self.responses() if self.items[0].is_single else None
        kappa = responses.verdicts.kappa if responses else self.kappa()

        # The position's influence is visible only if both orders were judged.
        orders = {verdict.order for verdict in self.verdicts}
        position = self.position() if len(orders) == 2 else None

        covered = [outcome for outcome in self.outcomes if outcome.scores]
        credits = [outcome.credit for outcome in self.outcomes]
        usage = sum_usage(self.verdicts)
        failures = Counter(verdict.failure.reason for verdict in self.verdicts if verdict.failure)

        return JudgeSummary(
            name=self.outcomes[0].judge,
            items=len(self.items),
            covered=len(covered),
            coverage=len(covered) / len(self.items),
            accuracy=self.sampling.mean(credits),
            over_length=self.sampling.difference(credits, length.credits),
            kappa=kappa,
            ties=mean_present([float(outcome.winner == TIED) for outcome in covered]),
            position=position,
            usage=usage,
            per_item=self.spending(usage),
            failures=dict(failures.most_common(REASONS)),
            calibration=self.calibration(),
            responses=responses,
        )

    def responses(self) -> ResponseFigures:
        groups = self.sampling.groups
        seed = self.sampling.seed
        people = _majorities(self.items)
        # A winner that is None becomes NaN: a response without a verdict.
        passed = np.array([outcome.winner for outcome in self.outcomes], dtype=np.float64)
        scores = np.array([outcome.score for outcome in self.outcomes], dtype=np.float64)
        validated = validate_threshold(scores, people, groups, seed=seed)

        return ResponseFigures(
            verdicts=measure_passes(passed, people, self.sampling),
            auc=area_under_curve(scores, people, groups, seed=seed),
            threshold=best_threshold(scores, people),
            validated=measure_passes(validated, people, self.sampling),
            confusion=count_verdicts(passed, people),
        )

    def calibration(self) -> Calibration | None:
        """Measure how well the judge's probabilities agree with people's choices.

        For a pair the predicted event is that the first candidate is the better one; for more
        candidates each has an event, that it is the best. Items that people called a tie are left
        out. For a single response the event is that people pass it, and the score of any judge is
        its probability. Return None for pairs if a verdict has no log-odds, or if people prefer one
        candidate in no item.
        """
        if self.items[0].is_single:
            scores = [outcome.score for outcome in self.outcomes]
            people = [item.human[0] for item in self.items]
            return measure_calibration(
                scores, people, self.sampling.groups, seed=self.sampling.seed
            )

        answered = [verdict for verdict in self.verdicts if verdict.failure is None]
        if not all(verdict.log_odds for verdict in answered):
            return None
        probabilities: list[float] = []
        came_true: list[float] = []
        groups: list[str] = []

        places = zip(self.items, self.outcomes, self.sampling.groups, strict=True)
        for item, outcome, group in places:
            best = winner_of(item.human) if item.labelled else TIED
            if best == TIED or not outcome.scores:
                continue
            chances = best_probabilities(outcome.scores)
            events = 1 if len(chances) == 2 else len(chances)
            probabilities += chances[:events]
            came_true += [float(place == best) for place in range(events)]
            groups += [group] * events

        if not probabilities:
            return None

        return measure_calibration(probabilities, came_true, groups, seed=self.sampling.seed)

    def kappa(self) -> Statistic:
        """Return Cohen's kappa of the agreement on the winner's position."""
        places = max(len(item.candidates) for item in self.items)
        tables = np.zeros((len(self.items), places, places))
        for table, item, outcome in zip(tables, self.items, self.outcomes, strict=True):
            if outcome.scores and item.labelled:
                table += share_winners(outcome.scores, item.human, places)
        return self.sampling.table(tables, kappa_of)

    def position(self) -> Position:
        first_shares: list[float] = []
        same: list[float] = []
        for item, outcome in zip(self.items, self.outcomes, strict=True):
            last = len(item.candidates) - 1
            for order, winner in outcome.winners.items():
                first = 0 if order == "given" else last
                first_shares.append(0.5 if winner == TIED else float(winner == first))
            if len(outcome.winners) == 2:
                same.append(float(not outcome.flipped))

        return Position(len(same), _share_of(same), mean_present(first_shares))

    def spending(self, usage: Usage) -> Spending:
        items = count_asked(self.verdicts)
        return Spending(
            calls=usage.calls / items,
            tokens=usage.tokens / items,
            seconds=sum(verdict.seconds for verdict in self.verdicts) / items,
            cost=None if usage.cost is None else usage.cost / items,
        )


def _share_of(flags: Sequence[float]) -> Statistic:
    return Statistic(mean_present(flags), wilson_interval(sum(flags), len(flags)))


def _compare_all(
    outcomes: Mapping[str, Mapping[str, ItemOutcome]], sampling: Sampling
) -> tuple[JudgeComparison, ...]:
    groups = sampling.groups
    seed = sampling.seed
    credits: dict[str, list[float]] = {}
    for name, of_items in outcomes.items():
        credits[name] = [outcome.credit for outcome in of_items.values()]

    pairs = list(combinations(credits, 2))
    flips = [sign_flip_test(credits[a], credits[b], groups, seed=seed) for a, b in pairs]
    adjusted = holm([test.p for test in flips]).tolist()
    comparisons: list[JudgeComparison] = []

    for (a, b), test, corrected in zip(pairs, flips, adjusted, strict=True):
        ours = credits[a]
        theirs = credits[b]
        if sampling.strata is not None:
            difference = sampling.difference(ours, theirs)
        else:
            interval = holm_interval(ours, theirs, groups, p=test.p, corrected=corrected, seed=seed)
            difference = Statistic(mean_present(np.subtract(ours, theirs)), interval)
        comparisons.append(
            JudgeComparison(
                first=a,
                second=b,
                items=test.items,
                same=_same(outcomes[a], outcomes[b]),
                difference=difference,
                better=test.first,
                worse=test.second,
                permutation=test.p,
                permutation_holm=corrected,
                items_needed=items_needed(ours, theirs, tests=len(pairs)),
            )
        )

    return tuple(comparisons)


def _same(ours: Mapping[str, ItemOutcome], theirs: Mapping[str, ItemOutcome]) -> Statistic:
    """Return the share of items on which two judges have the same winner; two ties are the same,
    too."""
    pairs = [(ours[id].winner, theirs[id].winner) for id in ours]
    return _share_of([float(a == b) for a, b in pairs if a is not None and b is not None])
