"""Terms of papers and other tools, with the names that TextEvolve uses for them.

They are separate from specifications, so that the command line can look one up without importing
pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TERMS: Mapping[str, str] = {
    "adaptive_threshold": "convergence",
    "convergence_threshold": "convergence",
    "early_stop": "convergence",
    "c": "convergence",
    "window": "history_rounds",
    "window_size": "history_rounds",
    "history": "history_rounds",
    "l": "history_rounds",
    "max_rounds": "rounds",
    "r": "rounds",
    "debaters": "agents",
    "personas": "agents",
    "a": "agents",
    "w": "weights",
    "metrics": "components",
    "criteria": "components",
    "responses": "candidates",
    "outputs": "candidates",
    "critic": "judge",
    "evaluator": "judge",
    "controller": "optimize",
    "up": "innovate",
    "unsupervised_upscaling": "innovate",
    "utility_prompting": "innovate",
    "spo": "calibrate",
    "supervised_prompt_optimisation": "calibrate",
    "supervised_prompt_optimization": "calibrate",
    "gr": "guide",
    "guided_reasoning": "guide",
}
"""The names of parameters and commands in TextEvolve, by the words of papers and other tools."""


OF_A_DEBATE = "a profile sets it, or the judge's name, as in --judge debate:general+{name}=VALUE"
ASSOCIATE_GONE = (
    "recall by shared people found no more than the search does: leave it out; `memories graph"
    " COLLECTION NAME` lists the memories that mention a person"
)
OF_ROWS = "the comparison is on your rows: give --data FILE with --metric or --judge"
RENDERING = "`models templates convert` writes the template"
OLD_OPTIONS: Mapping[str, str] = {
    "resume": "the same command resumes its run: {command}",
    "max_answer_tokens": f"{OF_A_DEBATE}; --max-tokens is the budget of the whole run",
    "sampling_temperature": f"{OF_A_DEBATE}; --temperature is that of the softmax over scores",
    "convergence_mode": OF_A_DEBATE,
    "history_rounds": OF_A_DEBATE,
    "argument_words": OF_A_DEBATE,
    "recall": "the profile names collections to recall from; in Python give recall=",
    "limit": "give a file with fewer rows; --max-calls and --time-limit stop a run",
    "best_of_n": "write --mode best-of-n",
    "no_revise": "write --mode best-of-n",
    "minimum_score": "write --min-mean, whose exit code is 4 if it fails",
    "max_seconds": "write --time-limit",
    "seconds": "write --time-limit",
    "evaluator": "write --judge",
    "rules_weight": "write share: NUMBER in the file of rules",
    "length": "write a rule of the kind length, and --judge rules:FILE.yaml",
    "json_schema": "write a rule of the kind json_schema, and --judge rules:FILE.yaml",
    "images": "the column images is read; --map images=COLUMN names another one",
    "candidate_images": "the column candidate_images is read; --map candidate_images=COLUMN names"
    " another one",
    "image_limit": "make the images smaller",
    "images_per_case": "give fewer images in a row",
    "turns": "-o FILE.jsonl has the turns of debates",
    "sort": "write the run to a file with `runs export`, and sort that",
    "outputs_of": "give the same comparison with other judges: its outputs come from the journal",
    "split": "give the smaller tasks steps of their own in a chain",
    "choice": "--select sample draws the template that is rewritten next",
    "choice_temperature": "--select sample draws by the softmax of the scores from 0 to 10",
    "grad_debate_rounds": "the writer sees the arguments of the last round: leave it out",
    "group": "rows of one group stay together if a column `group` names it: --map group=COLUMN",
    "judged": "judges see the original template, filled: leave it out",
    "failures": "an output that cannot be scored is missing: leave it out",
    "orders": "each judge is asked in both orders where that matters: leave it out",
    "samples": "a jury has the mean of several agents: --judge jury:general",
    "format": "the format is known by the fields of the rows: leave it out",
    "first_round": "`bench ablate` compares the first round with the whole debate",
    "with": "write --judge-option",
    "worth": "write --minimum-effect",
    "judge_option": "name the debate with its options: --then debate:general+rounds=1",
    "signal": "write all in one: --signals NAME,NAME",
    "labels": "give each text a row with a label, and --good",
    "logs": "join spans and logs into one file",
    "weight": "the nodes of `runs export RUN FILE.jsonl` have rewards",
    "near": "insights are compared with known ones as other memories are: leave it out",
    "duplicate": "insights are compared with known ones as other memories are: leave it out",
    "into": "give the agent a collection: agents update NAME --insights COLLECTION",
    "from": "give the agent collections: agents update NAME --collection COLLECTION",
    "as": "name the role in the text",
    "embeddings": "an import embeds texts again; `config store copy` takes embeddings along",
    "every": "write a cron expression: --cron '0 */6 * * *'",
    "start": "write a cron expression: --cron '0 8 * * 1-5'",
    "end": "pause the job with `jobs pause`",
    "retries": "a failed run is resumed at the job's next time, or by `jobs run`",
    "retry_wait": "a failed run is resumed at the job's next time, or by `jobs run`",
    "repeat": "in `compare` write --samples; to label twice, make a second task",
    "each": "the export has a row for each label: leave it out",
    "any": "name models with --model, judges with --judge, and what studies may ask with"
    " --allow-model",
    "linger": "the server ends by itself when its work is done: leave it out",
    "allow_requantize": "a note tells what was quantised already: leave it out",
    "generation_prompt": RENDERING,
    "text": OF_ROWS,
    "chunks": OF_ROWS,
    "words": OF_ROWS,
    "repeats": OF_ROWS,
    "decider": "write --judge decide",
    "server": "give the run's own command with --server: it finds the run again",
    "template": RENDERING,
    "profile": "write --judge debate:PROFILE",
    "rubric": "write it in the judge's name: probe+rubric=TEXT",
    "judge": "judge the results with `evaluate`",
    "judge_model": "write it in the judge's name: probe@MODEL",
    "tokens": OF_ROWS,
    "associate": ASSOCIATE_GONE,
    "dimension": "the embedder has the dimension: leave it out",
}
"""What to write in place of options of earlier versions, by their names with underscores. An option
that some commands still have is here for the others. `{name}` is the option itself, `{command}` the
command without it."""

OLD_COMMANDS: Mapping[str, str] = {
    "namespaces": "agents namespaces",
    "users": "agents users",
    "sessions": "agents sessions",
    "collections": "memories collections",
    "templates": "models templates",
    "rubrics": "judges rubrics",
    "profile": "judges profiles",
    "profiles": "judges profiles",
    "fit": "judges fit",
    "chains": "run chains",
    "init": "run init",
    "schema": "run schema",
    "keys": "config keys",
    "store": "config store",
    "labelling": "labels",
    "runs replay": "The run's own command with other weights is answered from the journal.",
    "runs check": "config store check",
    "runs variance": "bench ablate",
    "runs cancel": "End the run at its server's page.",
    "nodes export": "runs export",
    "memories history": "memories show",
    "agents sessions export": "agents sessions show",
    "judges profiles check": "judges profiles show",
    "models check": "models pull",
    "models pools": "doctor",
    "models templates detect": "models templates check",
    "models templates render": "models templates convert",
    "run chains show": "run chains run",
    "config store stats": "config show",
}
"""The commands in place of those of earlier versions, or a sentence on what to do."""

_OF_CLIENTS = "use the method of this name of textevolve.AsyncClient without the a"
_OF_FORMATS = "it is in textevolve.llm.chat_formats"
OLD_NAMES: Mapping[str, str] = {
    "Probe": 'write judge="probe+rules"',
    "open_chat": "write textevolve.chat(AGENT)",
    "open_namespace": "write textevolve.namespace(NAME)",
    "aopen_chat": "write AsyncClient().chat(AGENT)",
    "aopen_namespace": "write AsyncClient().namespace(NAME)",
    **dict.fromkeys(
        ("as_runnable", "as_chat_model", "as_dspy_lm", "as_dspy_module"),
        "it is a method of textevolve.Client",
    ),
    "judge_memory": "textevolve.memory_eval.judging.judge_subject judges one item",
    **dict.fromkeys(
        ("judge_accuracy", "judge_answer", "judge_integrity", "judge_update"),
        "it is in textevolve.memory_eval.judging",
    ),
    **dict.fromkeys(
        ("ChatFormat", "JinjaTemplate", "chat_format", "parse_chat", "render_chat"), _OF_FORMATS
    ),
    **dict.fromkeys(
        ("check_chat_template", "read_chat_template"),
        "`textevolve models templates check` reads and checks templates",
    ),
    **dict.fromkeys(
        ("read_template", "to_langchain_template"),
        "steps, compare and calibrate take LangChain's prompts as they are",
    ),
    "infer_format": "`parse_prompt` of textevolve.llm.chat_formats.inference parses prompts of any"
    " template",
    **dict.fromkeys(
        ("branch", "each", "together"),
        "write a function as a step, which may call other chains with `await chain.acall(...)`",
    ),
    "quantize_file": "it is in textevolve.llm.quantize",
    "Quantized": "it is in textevolve.llm.quantize",
    **dict.fromkeys(
        (
            *("AccessError", "AnswerError", "BusyError", "CapabilityError", "ClusterError"),
            *("ConflictError", "FatalModelError", "MismatchError", "RejectedError"),
            *("TooLongError", "UnavailableError", "UnjudgedError"),
        ),
        "it is in textevolve.errors",
    ),
    "Turn": "it is in textevolve.debate.result",
    "Feedback": "it is in textevolve.debate.result",
    "LabelledTensor": "it is in textevolve.debate.tensor",
    "Attempt": "it is in textevolve.loops.attempt",
    "Optimization": "it is in textevolve.loops.optimization",
    "CalibrationResult": "it is in textevolve.loops.calibration.plan",
    "Comparison": "it is in textevolve.studies.compare",
    "QuantComparison": "it is in textevolve.studies.compare_quants",
    "OpenChain": "it is in textevolve.api.opened",
    **dict.fromkeys(
        (
            *("acalibrate", "acompare", "acompare_quants", "acreate_memories", "aevaluate"),
            *("aevaluate_batch", "aevaluate_memory", "aevolve_persona", "afit_judge", "aguide"),
            *("agenerate_profile", "ainnovate", "aintegrate_memories", "aoptimize"),
            *("aread_corpus", "arun_chain", "asummarize"),
        ),
        _OF_CLIENTS,
    ),
}
"""What to write in place of names of earlier versions of the package."""


def advise(option: str, command: str = "COMMAND") -> str:
    """Return what to write in place of an option or field of earlier versions; empty if there is no
    advice. `command`: the user's command without the option."""
    name = option.lstrip("-").lower().replace("-", "_")
    advice = OLD_OPTIONS.get(name, "")
    return advice.replace("{name}", name).replace("{command}", command)


def find_term(word: str, terms: Iterable[str]) -> str | None:
    """Return the TextEvolve name of a term from a paper or another tool; None if it is not in
    `terms`."""
    term = TERMS.get(word.strip().lower().lstrip("-").replace("-", "_"))
    return term if term is not None and term in terms else None
