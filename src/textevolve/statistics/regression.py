"""Logistic regression with a ridge penalty, by Newton's method.

The functions are pure arithmetic on arrays; the caller chooses the variables and the strength of
the penalty.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from textevolve.errors import InputError
from textevolve.statistics.resampling import Array

Slopes: TypeAlias = tuple[float, Array, Array]
"""The value of a function, its gradient (k,) and its second derivative (k, k)."""

STEPS = 100
HALVINGS = 50
CLOSE = 1e-12
"""The size of Newton's decrement, as a share of the function's value, at which the minimum counts
as reached."""


def logistic(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def log_logistic(x: Array) -> Array:
    """Compute the logarithm of the logistic function, accurate also for tiny values."""
    return np.asarray(-np.logaddexp(0.0, -x))


def fit_logistic(rows: Array, shares: Array, counts: Array, ridge: float | Array) -> Array:
    """Fit a logistic regression to `rows` (n, k), and return its weights (k,).

    It minimises sum(counts * cross-entropy(shares, logistic(rows @ weights))) + sum(ridge *
    weights^2) / 2, in natural logarithms. `ridge` may differ between weights, as for an intercept,
    which is the weight of a column of ones. `shares` lie in [0, 1]; a tie is one half (Papke and
    Wooldridge 1996, "Econometric methods for fractional response variables"). With a ridge above 0
    the function is strictly convex and has one minimum, even if a plane separates the rows, which
    damped Newton steps find (Boyd and Vandenberghe 2004, 9.5).

    Raises:
        InputError: the shapes do not fit, or the ridge is not above 0.
    """
    if rows.ndim != 2 or any(each.shape != (len(rows),) for each in (shares, counts)):
        raise InputError(
            f"rows must have the shape (n, k), and targets n numbers, not {rows.shape}"
        )
    strengths = np.broadcast_to(ridge, rows.shape[1])
    if not (strengths > 0).all():
        raise InputError(f"the ridge must be above 0, not {ridge}")

    def slopes(weights: Array) -> Slopes:
        odds = rows @ weights
        chance = logistic(odds)
        losses = shares * log_logistic(odds) + (1 - shares) * log_logistic(-odds)
        value = float((strengths * weights) @ weights / 2 - counts @ losses)
        gradient = strengths * weights - rows.T @ (counts * (shares - chance))
        spread = counts * chance * (1 - chance)
        curvature = (rows.T * spread) @ rows + np.diag(strengths)
        return value, gradient, curvature

    here = np.zeros(rows.shape[1])
    value, gradient, curvature = slopes(here)
    for _ in range(STEPS):
        step = -np.linalg.solve(curvature, gradient)
        promise = float(gradient @ step)
        if -promise <= CLOSE * (1 + abs(value)):
            break
        size = 1.0
        for _ in range(HALVINGS):
            there = here + size * step
            slopes_there = slopes(there)
            # A step is halved until it lowers the function by a share of what its slope predicts
            # (Armijo).
            if slopes_there[0] <= value + 1e-4 * size * promise:
                break
            size /= 2
        else:
            break  # nothing lower can be told apart in floating point
        here, (value, gradient, curvature) = there, slopes_there
    return here
