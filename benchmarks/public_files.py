"""Feed public files of other projects to the command line as their owners would, and say which are
read right, which are refused, and which are read wrongly.

    python benchmarks/public_files.py FOLDER

FOLDER holds the files, in any sub-folders; nothing of them is part of this project. The table says
for each file its project, the commands that its owner tries, and what a person who looks into the
file expects: the number of cases, and what the command says about columns and labels. A file that
no command can use is right if it is refused with a message that helps. Commands are only planned
(`--dry-run`), unless a judge without a model looks at tool calls.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = "FILE"
"""The word of a command that stands for the file."""
_COUNT = re.compile(r"^cases\s+([\d,]+)|^run \S+: [a-z ]+, ([\d,]+) cases?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A public file.

    Attributes:
        name: Its name in the folder.
        project: The project that it comes from.
        tries: The commands that its owner tries, the next one after a refusal.
        cases: The number of cases that it has; 0 if it must be refused.
        texts: What the command says.
    """

    name: str
    project: str
    tries: Sequence[str]
    cases: int
    texts: Sequence[str] = ()


EVALUATE = f"evaluate {FILE} --judge look:length --dry-run"
EXACT = f"evaluate {FILE} --judge metric:exact --dry-run"
AGREEMENT = f"bench agreement {FILE} --judge look:length --dry-run"
CALLS = f"evaluate {FILE} --judge metric:tool-called"
COMPARE = f"compare -d {FILE} -p prompt.txt -m http://127.0.0.1:1/v1#any --dry-run"

INSPECT = "UKGovernmentBEIS/inspect_ai"
ANSWERED = ("input, output, id, reference",)
RAGAS = "explodinggradients/ragas"
CLAUDE = "daaain/claude-code-log"
STUDIO = "HumanSignal/label-studio-sdk"

PUBLIC_FILES = (
    # Rows with one output, or with columns of outputs.
    PublicFile(
        "gsm8k_test.jsonl",
        "openai/grade-school-math",
        (EVALUATE,),
        1319,
        ("question -> input, answer -> output",),
    ),
    PublicFile(
        "model_solutions.jsonl",
        "openai/grade-school-math",
        (
            EVALUATE,
            f"compare -d {FILE} --outputs 175b_verification --outputs 6b_finetuning"
            " --label ground_truth --metric exact --dry-run",
        ),
        1319,
    ),
    PublicFile(
        "alpaca_outputs.json",
        "tatsu-lab/alpaca_eval",
        (EVALUATE,),
        805,
        ("instruction -> input, output",),
    ),
    PublicFile(
        "promptflow_rag.jsonl",
        "microsoft/promptflow",
        (EXACT,),
        1,
        ("ground_truth -> reference, context",),
    ),
    PublicFile(
        "promptflow_cls.json",
        "microsoft/promptflow",
        (
            EXACT,
            f"{EXACT} --map input=line_number --map output=prediction --map reference=groundtruth",
        ),
        3,
    ),
    PublicFile(
        "deepeval_goldens.csv",
        "confident-ai/deepeval",
        (EXACT,),
        15,
        ("actual_output -> output, expected_output -> reference",),
    ),
    PublicFile(
        "deepeval_goldens.json",
        "confident-ai/deepeval",
        (EXACT,),
        15,
        ("actual_output -> output, expected_output -> reference",),
    ),
    PublicFile(
        "openfunctions.json",
        "ShishirPatil/gorilla",
        (EVALUATE, f"{EVALUATE} --map output=model_answer"),
        112,
        ("question -> input",),
    ),
    PublicFile(
        "swebench_rows.json",
        "SWE-agent/SWE-agent",
        (EVALUATE, f"{EVALUATE} --map input=problem_statement --map output=patch"),
        1,
    ),
    PublicFile(
        "mtbench_answers.jsonl",
        "lm-sys/FastChat",
        (EVALUATE, f"{EVALUATE} --map input=question_id"),
        30,
    ),
    PublicFile(
        "arena_answers.jsonl",
        "lm-sys/arena-hard-auto",
        (EVALUATE, f"{EVALUATE} --map input=question_id"),
        500,
    ),
    # Questions, of which prompts are made.
    PublicFile(
        "HumanEval.jsonl.gz",
        "openai/human-eval",
        (f"{COMPARE} --label canonical_solution --metric exact",),
        164,
    ),
    PublicFile(
        "alignbench.jsonl",
        "THUDM/AlignBench",
        (
            f"{COMPARE} --label reference --metric exact",
            f"{COMPARE} --label reference --metric exact --map prompt=question",
        ),
        683,
    ),
    PublicFile(
        "mtbench_question.jsonl",
        "lm-sys/FastChat",
        (COMPARE, f"{COMPARE} --map prompt=turns.0"),
        80,
    ),
    PublicFile(
        "arena_questions.jsonl",
        "lm-sys/arena-hard-auto",
        (COMPARE, f"{COMPARE} --map prompt=turns.0.content"),
        500,
    ),
    PublicFile(
        "taubench_fewshot.jsonl",
        "sierra-research/tau-bench",
        (COMPARE, f"{COMPARE} --map prompt=messages_display"),
        19,
    ),
    PublicFile(
        "alpaca_seed.jsonl",
        "tatsu-lab/stanford_alpaca",
        (EVALUATE, f"{EVALUATE} --map output=instances.0.output"),
        175,
        ("instruction -> input",),
    ),
    PublicFile(
        "ragas_qa.csv",
        RAGAS,
        (
            f"{COMPARE} --label expected_answer --metric exact",
            f"{COMPARE} --label expected_answer --metric exact --map prompt=question",
        ),
        0,
        ("ragas_qa.csv:101", "missing or empty"),
    ),
    PublicFile(
        "support_triage.csv",
        RAGAS,
        (
            f"{COMPARE} --label priority --metric exact",
            f"{COMPARE} --label priority --metric exact --map prompt=text",
        ),
        20,
    ),
    PublicFile(
        "booksql.csv",
        RAGAS,
        (
            f"{COMPARE} --label SQL --metric exact",
            f"{COMPARE} --label SQL --metric exact --map prompt=Query",
        ),
        99,
    ),
    PublicFile(
        "discount.csv",
        RAGAS,
        (
            f"{COMPARE} --label expected_discount --metric exact",
            f"{COMPARE} --label expected_discount --metric exact --map prompt=customer_profile",
        ),
        10,
    ),
    PublicFile(
        "bfcl_parallel.json",
        "ShishirPatil/gorilla",
        (COMPARE, f"{COMPARE} --map prompt=question.0.0.content"),
        200,
    ),
    PublicFile(
        "inspect_bridge.json",
        INSPECT,
        (COMPARE, f"{COMPARE} --map prompt=input.0.content --label target --metric exact"),
        3,
    ),
    PublicFile(
        "deepeval_multi_turn.json",
        "confident-ai/deepeval",
        (COMPARE, f"{COMPARE} --map prompt=scenario"),
        5,
    ),
    # Chats, sessions and logs.
    PublicFile(
        "sharegpt.json",
        "lm-sys/FastChat",
        (EVALUATE,),
        500,
        ("conversations -> input and output",),
    ),
    PublicFile(
        "taubench_airline.json",
        "sierra-research/tau-bench",
        (AGREEMENT, f"{AGREEMENT} --map messages=traj --map label=reward"),
        200,
        ("trial -> repeat", "1 counts as pass, 0 as fail: 84 of 200", "left out in 200 of"),
    ),
    PublicFile("inspect_formats.json", INSPECT, (EXACT,), 1),
    PublicFile("inspect_formats.eval", INSPECT, (EXACT,), 1),
    PublicFile("inspect_read_sample.json", INSPECT, (EXACT,), 1),
    PublicFile("inspect_images.json", INSPECT, (EXACT,), 1),
    PublicFile("inspect_popularity.json", INSPECT, (EXACT,), 3),
    PublicFile("inspect_security.json", INSPECT, (EXACT,), 3),
    PublicFile("inspect_choices.eval", INSPECT, (EXACT,), 1),
    PublicFile("inspect_scorer.eval", INSPECT, (EXACT,), 10),
    PublicFile("inspect_browser.json", INSPECT, (f"{CALLS}:web_browser_go",), 1, ("1.000",)),
    PublicFile("inspect_tool_error.json", INSPECT, (EVALUATE,), 0, ("no column has the output",)),
    PublicFile("claude_code_session.jsonl", CLAUDE, (f"{CALLS}:Bash=1",), 1, ("1.000",)),
    PublicFile("claude_code_todo.jsonl", CLAUDE, (f"{CALLS}:TodoWrite=3",), 1, ("1.000",)),
    PublicFile("claude_code_b.jsonl", CLAUDE, (EVALUATE,), 1, ("messages -> input and output",)),
    PublicFile("claude_code_edge.jsonl", CLAUDE, (EVALUATE,), 0, ("claude_code_edge.jsonl:13",)),
    PublicFile(
        "rollout-2026-01-02T03-04-05.jsonl",
        CLAUDE,
        (f"{CALLS}:exec_command=1",),
        1,
        ("1.000",),
    ),
    PublicFile(
        "sweagent_ctf.traj",
        "SWE-agent/SWE-agent",
        (f"{CALLS}:submit=1",),
        1,
        ("1.000",),
    ),
    PublicFile(
        "sweagent_simple.traj",
        "SWE-agent/SWE-agent",
        (f"{CALLS}:submit=1",),
        1,
        ("1.000",),
    ),
    PublicFile("miniswe_issue.traj.json", "SWE-agent/mini-swe-agent", (EVALUATE,), 1),
    PublicFile("miniswe_local.traj.json", "SWE-agent/mini-swe-agent", (EVALUATE,), 1),
    # Labels of people.
    PublicFile(
        "hh_test.jsonl.gz",
        "anthropics/hh-rlhf",
        (AGREEMENT,),
        2312,
        ("chosen -> chosen text, rejected -> rejected text",),
    ),
    PublicFile(
        "llmbar_natural.json",
        "princeton-nlp/LLMBar",
        (AGREEMENT,),
        100,
        ("candidate 1 wins 42, candidate 2 wins 58",),
    ),
    PublicFile(
        "judgebench.jsonl",
        "ScalerLab/JudgeBench",
        (AGREEMENT,),
        350,
        ("candidate 1 wins 193, candidate 2 wins 157",),
    ),
    PublicFile(
        "judgebench_out.jsonl",
        "ScalerLab/JudgeBench",
        (AGREEMENT,),
        350,
        ("candidate 1 wins 193, candidate 2 wins 157",),
    ),
    PublicFile(
        "wice_claims.jsonl",
        "ryokamoi/wice",
        (
            AGREEMENT,
            f"{AGREEMENT} --map input=meta.claim_title --map output=claim --good supported",
        ),
        358,
        ("supported counts as pass",),
    ),
    PublicFile(
        "wice_tokens.jsonl",
        "ryokamoi/wice",
        (
            AGREEMENT,
            f"{AGREEMENT} --map input=meta.claim_title --map output=claim --good supported",
        ),
        105,
        ("partially_supported as fail: 0 of 105",),
    ),
    PublicFile(
        "amazon_cells.tsv",
        STUDIO,
        (AGREEMENT, f"{AGREEMENT} --map input=label --map output=text"),
        0,
        ("label",),
    ),
    # Files that no command can use as they are.
    PublicFile("autoj_pairwise_output.jsonl", "GAIR-NLP/auto-j", (EVALUATE,), 0, ("--map input",)),
    PublicFile("autoj_critique.jsonl", "GAIR-NLP/auto-j", (EVALUATE,), 0, ("--map input",)),
    PublicFile("ceval_submission.json", "hkust-nlp/ceval", (EVALUATE,), 0, ("--map input",)),
    PublicFile("quality_example.jsonl", "nyu-mll/quality", (EVALUATE,), 0, ("--map input",)),
    PublicFile(
        "squad_out.json", "rajpurkar/SQuAD-explorer", (EVALUATE,), 0, ("must be a list of cases",)
    ),
    PublicFile("ragas_annotated.json", RAGAS, (EVALUATE,), 0, ("metric_input",)),
    PublicFile("ragas_annotated_summary.json", RAGAS, (EVALUATE,), 0, ("metric_input",)),
    PublicFile("ragas_runs.json", RAGAS, (EVALUATE,), 0, ("metric_input",)),
    PublicFile("labelstudio_csv2.json", STUDIO, (EVALUATE,), 0, ("data.title",)),
    PublicFile("labelstudio_chat.json", STUDIO, (EVALUATE,), 0, ("data.scenario_prompt",)),
    PublicFile("labelstudio_min.json", STUDIO, (EVALUATE,), 0, ("data.image",)),
    PublicFile("locomo10.zip", "snap-research/locomo", (EVALUATE,), 0, ("it has 10",)),
    PublicFile("leaderboard.csv", "tatsu-lab/alpaca_eval", (EVALUATE,), 0, ("win_rate",)),
    PublicFile("tests.csv", "promptfoo/promptfoo", (EVALUATE,), 0, ("ignore-case",)),
    PublicFile("tests_javascript.csv", "promptfoo/promptfoo", (EVALUATE,), 0, ("__expected",)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file: `right`, `refused` or `wrong`, after how many tries, and why."""

    verdict: str
    tries: int
    reason: str = ""


def run_command(command: str, file: Path, folder: Path) -> tuple[int, str]:
    """Run a command on a file, and return its exit code and all that it printed."""
    words = [str(file) if word == FILE else word for word in command.split()]
    environment = {**os.environ, "TEXTEVOLVE_STORE": str(folder / "store.db"), "COLUMNS": "200"}
    process = subprocess.run(
        [sys.executable, "-m", "textevolve", *words],
        capture_output=True,
        check=False,
        cwd=folder,
        env=environment,
        text=True,
    )
    return process.returncode, process.stderr + process.stdout


def try_file(public_file: PublicFile, file: Path, folder: Path) -> Outcome:
    """Try the commands for a file until one is not refused, and compare what it says."""
    output = ""
    for number, command in enumerate(public_file.tries, 1):
        code, output = run_command(command, file, folder)
        if code == 2:
            continue
        missing = [text for text in public_file.texts if text not in output]
        match = _COUNT.search(output)
        cases = int((match[1] or match[2]).replace(",", "")) if match else 0
        if code > 3 or "Traceback" in output or missing or cases != public_file.cases:
            reason = f"{cases} cases; missing: {missing}; {output[-300:]}"
            return Outcome("wrong", number, reason)
        return Outcome("right", number)

    is_expected = not public_file.cases and all(text in output for text in public_file.texts)
    reason = "" if is_expected else output[-300:]

    return Outcome("right" if is_expected else "refused", len(public_file.tries), reason)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    files = {path.name: path for path in Path(sys.argv[1]).rglob("*") if path.is_file()}
    verdicts: Counter[str] = Counter()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompt.txt").write_text("{prompt}\n", encoding="utf-8")
        for public_file in PUBLIC_FILES:
            path = files.get(public_file.name)
            if path is None:
                verdicts["not here"] += 1
                continue
            outcome = try_file(public_file, path, folder)
            verdicts[outcome.verdict] += 1
            kind = "refusal" if not public_file.cases else f"{public_file.cases:,} cases"
            line = f"{outcome.verdict:8} {outcome.tries}  {public_file.name:36} {kind:12}"
            print(f"{line} {public_file.project}", flush=True)
            if outcome.reason:
                print(f"         {' '.join(outcome.reason.split())}", flush=True)

    print(", ".join(f"{verdict} {count}" for verdict, count in verdicts.items()))


if __name__ == "__main__":
    main()
