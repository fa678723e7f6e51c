"""The evaluators of nodes that ask no model, as they are named on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from textevolve.errors import InputError
from textevolve.loops.rules import load_rules
from textevolve.node_eval.checks import (
    ConsistencyEvaluator,
    LatencyEvaluator,
    LengthEvaluator,
    RulesEvaluator,
    SchemaEvaluator,
    TokenEvaluator,
)
from textevolve.node_eval.evaluators import NodeEvaluator, ThresholdEvaluator
from textevolve.node_eval.instructions import Instruction
from textevolve.rows import read_text
