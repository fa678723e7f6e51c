"""The table of all commands: the groups, and for each command a line of help, two examples, and the
location of its code.

The table imports no command, so that the help of a group loads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from textevolve.texts.prose import join_lines


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command or a group of commands.

    Attributes:
        help: The line of help in lists of commands, with which the command's own help begins.
        path: The location of a command: `study:KIND` (without a kind, a file names it),
            `resources:GROUP.VERB`, or `MODULE:FUNCTION` below `textevolve.cli`. Groups have none.
        examples: The arguments after `textevolve` in the examples of the help.
        below: The commands of a group by name.
        default: The command of a group that is used if the first word names none.
    """

    help: str
    path: str = ""
    examples: tuple[str, ...] = ()
    below: Mapping[str, CommandEntry] = field(default_factory=dict[str, "CommandEntry"])
    default: str = ""


def _command(path: str, help: str, *examples: str) -> CommandEntry:
    return CommandEntry(help, path, examples)


def _group(help: str, below: Mapping[str, CommandEntry], default: str = "") -> CommandEntry:
    return CommandEntry(help, below=below, default=default)


def _resources(words: str, noun: str, name: str, option: str) -> dict[str, CommandEntry]:
    """Return the commands of a kind of resource. `name` and `option`: the name and option in
    examples."""
    group = words.split()[-1]
    texts = {
        "create": (f"Create {noun}.", option, f"{option} --json"),
        "list": (f"List {group}.", "", "--json"),
        "show": (f"Show {noun} in full.", "", "--versions"),
        "update": (f"Change fields of {noun}.", option, f"{option} --json"),
        "revert": (f"Revert {noun} to an earlier version.", "1", "2 --json"),
        "delete": (f"Delete {noun}, with all that belongs to it.", "", "--yes"),
        "export": (f"Write {noun} to a file, with all that belongs to it.", "", f"-o {name}.jsonl"),
        "import": ("Read a file that `export` wrote.", "", f"--name {name}-2"),
    }
    names = dict.fromkeys(texts, name) | {"list": "", "import": f"{name}.jsonl"}
    entries: dict[str, CommandEntry] = {}
    for verb, (text, *endings) in texts.items():
        examples = [join_lines(f"{words} {verb} {names[verb]} {end}") for end in endings]
        entries[verb] = _command(f"resources:{group}.{verb}", text, *examples)

    return entries


MEASURE = {
    "evaluate": _command(
        "study:evaluate",
        "Judge candidate texts by a debate, or by any other judge.",
        'evaluate "Is the sky blue?" "Yes, by day." "No, it is green."',
        "evaluate cases.csv --judge probe+rules -o results.html",
    ),
    "compare": _command(
        "study:compare",
        "Run prompts and models on your rows; test which is better.",
        "compare -p old.txt -p new.txt -d rows.csv --judge probe+rules",
        "compare -p a.txt -p b.txt -d rows.csv --label y --metric exact",
    ),
    "bench": _group(
        "Measure how good judges are.",
        {
            "agreement": _command(
                "study:agreement",
                "Measure how far judges agree with people.",
                "bench agreement labels.csv -j debate:general -j probe+rules",
                "bench agreement labelling:answers -j pairwise+rules --limit 100",
            ),
            "ablate": _command(
                "study:ablation",
                "Measure whether a debate is better than cheaper judges.",
                "bench ablate labels.csv -p general",
                "bench ablate labels.csv --limit 50 -o ablation.html",
            ),
            "escalation": _command(
                "study:escalation",
                "Find when a cheap judge, or a debate's first round, is enough.",
                "bench escalation labels.csv --agreement 0.9",
                "bench escalation labels.csv --first probe+rules --then debate",
            ),
            "card": _command(
                "study:robustness",
                "Measure a judge's biases (order, length, attacks).",
                "bench card -j probe+rules",
                "bench card -j debate:general --cases mine.yaml -o card.html",
            ),
            "rate": _command(
                "study:rates",
                "Correct a judge's pass rate with labels by people.",
                "bench rate judged.csv labelled.csv",
                "bench rate judged.csv labelled.csv --field passed",
            ),
        },
    ),
    "nodes": _group(
        "Judge the steps of recorded agents.",
        {
            "evaluate": _command(
                "nodes:evaluate",
                "Judge every node of a trace.",
                "nodes evaluate trace.jsonl --judge probe+rules",
                "nodes evaluate spans/ --follow --latency 5 --expected 0.95",
            ),
            "show": _command(
                "nodes:show",
                "Show the nodes of a trace as a tree.",
                "nodes show trace.jsonl",
                "nodes show spans.json --states",
            ),
        },
        default="evaluate",
    ),
    "memory-eval": _group(
        "Measure how well a memory system remembers.",
        {
            "run": _command(
                "study:memory-eval",
                "Measure how well a memory system remembers.",
                "memory-eval users.jsonl -s textevolve",
                "memory-eval users.jsonl -s mem0 --users 2 -o memory.html",
            ),
            "synth": _command(
                "memory_eval:synth",
                "Write a data set of users with dialogues, made from templates.",
                "memory-eval synth users.jsonl",
                "memory-eval synth users.jsonl --users 20 --sessions 5",
            ),
        },
        default="run",
    ),
}
IMPROVE = {
    "calibrate": _command(
        "study:calibrate",
        "Search for a better prompt template (prompt optimization).",
        "calibrate prompt.txt -d rows.csv --label answer --metric exact",
        "calibrate prompt.txt -d rows.csv --judge probe+rules -o best.txt",
    ),
    "optimize": _command(
        "study:optimize",
        "Write, judge and revise a text; keep the best (self-refine).",
        'optimize "Explain tides to a child."',
        "optimize @task.txt --judge probe+rules --threshold 0.9",
    ),
    "innovate": _command(
        "study:innovate",
        "Refine an input by judgements of its outputs.",
        'innovate "A slogan for a bakery"',
        "innovate @brief.txt --outputs 4 --rounds 3",
    ),
    "guide": _command(
        "study:guide",
        "Answer a question after a debate about candidate answers.",
        'guide "Is a hot dog a sandwich?"',
        'guide "Which database?" "PostgreSQL" "SQLite" --profile general',
    ),
    "summarize": _command(
        "study:summarize",
        "Shorten texts of any length to a budget of tokens.",
        "summarize report.txt --budget 300",
        'summarize chapter-1.md chapter-2.md --focus "What happens to Ann"',
    ),
}
AGENTS = {
    "chat": _command(
        "chat:chat",
        "Chat with an agent that remembers.",
        "chat ann",
        'chat acme/guide --user eve --once "What did I order?"',
    ),
    "agents": _group(
        "Agents with a persona and memories; users, chats, namespaces.",
        {
            **_resources("agents", "an agent", "ann", '--persona "You are Ann."'),
            "evolve": _command(
                "study:evolve-persona",
                "Change an agent's persona according to its memories.",
                "agents evolve ann --propose",
                "agents evolve ann --changes 2",
            ),
            "namespaces": _group(
                "Isolated workspaces.",
                _resources("agents namespaces", "a namespace", "acme", '--description "A firm."'),
            ),
            "users": _group(
                "The people that agents talk with.",
                _resources("agents users", "a user", "eve", '--description "Likes tea."'),
            ),
            "sessions": _group(
                "List, show and delete chats.",
                {
                    "list": _command(
                        "sessions:list_sessions",
                        "List the stored chats.",
                        "agents sessions list",
                        "agents sessions list --agent acme/guide",
                    ),
                    "show": _command(
                        "sessions:show",
                        "Show the messages of a chat.",
                        "agents sessions show last",
                        "agents sessions show se_3f9a --json > chat.jsonl",
                    ),
                    "delete": _command(
                        "sessions:delete",
                        "Delete a chat; memories that were created from it stay.",
                        "agents sessions delete last",
                        "agents sessions delete se_3f9a --yes",
                    ),
                },
            ),
        },
    ),
    "memories": _group(
        "Add, search and forget memories, in collections.",
        {
            "add": _command(
                "memories:add",
                "Add a memory to a collection.",
                'memories add notes "Ann drinks green tea."',
                "memories add notes @note.txt --importance 0.9 --entity Ann",
            ),
            "search": _command(
                "memories:search",
                "Search memories by a question, best first.",
                'memories search notes "What does Ann drink?"',
                'memories search notes "Who is ill?" --limit 3 --as-of 2025-01-31',
            ),
            "list": _command(
                "memories:list_memories",
                "List a collection, the newest last.",
                "memories list notes",
                "memories list acme/notes --limit 10 --closed",
            ),
            "show": _command(
                "memories:show",
                "Show memories in full, with their sources and history.",
                "memories show me_3f9a",
                "memories show me_3f9a me_77b0 --json",
            ),
            "graph": _command(
                "memories:graph",
                "List the people and things that memories mention.",
                "memories graph notes",
                "memories graph notes Ann --json",
            ),
            "audit": _command(
                "memories:audit",
                "List memories to look at: duplicates, contradictions, unused ones.",
                "memories audit notes",
                "memories audit acme/notes --json",
            ),
            "forget": _command(
                "memories:forget",
                "Forget memories: searches skip them; their history stays.",
                "memories forget me_3f9a",
                "memories forget me_3f9a me_77b0 --erase",
            ),
            "import": _command(
                "memories:import_file",
                "Import memories from a file.",
                "memories import notes memories.jsonl",
                "memories import notes old.csv --namespace acme",
            ),
            "export": _command(
                "memories:export",
                "Write the memories of a collection to files.",
                "memories export notes notes.csv",
                "memories export notes notes.jsonl notes.parquet --closed",
            ),
            "re-embed": _command(
                "memories:re_embed",
                "Move a collection to another embedder.",
                "memories re-embed notes --embedder local/minilm",
                "memories re-embed notes --embedder openai/text-embedding-3-small",
            ),
            "create": _command(
                "study:create-memories",
                "Create memories from dialogues.",
                "memories create chat.json -c notes",
                "memories create chats.jsonl -c notes --about Ann",
            ),
            "integrate": _command(
                "study:integrate-memories",
                "Draw insights from an agent's memories (reflection).",
                "memories integrate ann",
                "memories integrate ann --always --insights 3",
            ),
            "read": _command(
                "study:read-corpus",
                "Read documents into a collection.",
                "memories read handbook.md -c docs",
                "memories read manual.txt faq.txt -c docs --chunk-tokens 300",
            ),
            "collections": _group(
                "Collections of memories.",
                _resources(
                    "memories collections", "a collection", "notes", '--description "Notes."'
                ),
            ),
        },
    ),
}
WORK = {
    "run": _group(
        "Run a study that a YAML file describes, or a chain.",
        {
            "file": _command(
                "study:",
                "Run the study that a YAML file describes.",
                "run study.yaml",
                "run study.yaml --max-cost 5 -o results.html",
            ),
            "init": _command(
                "study_files:init",
                "Write a commented example of a study file.",
                "run init evaluate",
                "run init calibrate -o my-study.yaml",
            ),
            "schema": _command(
                "study_files:schema",
                "Print the JSON schema of study files, for checks in an editor.",
                "run schema > study.schema.json",
                "run schema calibrate",
            ),
            "chains": _group(
                "Run chains of steps.",
                {
                    "run": _command(
                        "study:chain",
                        "Run a chain on values, or on each row of a file.",
                        'run chains run answer.yaml -i question="Is it wet?"',
                        "run chains run answer.yaml --data rows.csv -o outputs.csv",
                    ),
                },
            ),
        },
        default="file",
    ),
    "runs": _group(
        "List, show, resume, compare, export and delete runs.",
        {
            "list": _command(
                "runs:list_runs",
                "List the stored runs, the newest first.",
                "runs list",
                "runs list --limit 5 --json",
            ),
            "show": _command(
                "runs:show",
                "Show a run's results, without a model call.",
                "runs show last",
                "runs show my-run --failed",
            ),
            "resume": _command(
                "runs:resume",
                "Resume a run: only missing calls are made.",
                "runs resume last",
                "runs resume 3f9a --concurrency 64 -o results.csv",
            ),
            "export": _command(
                "runs:export",
                "Write a run's results to files, without a model call.",
                "runs export last results.csv",
                "runs export my-run report.html results.parquet",
            ),
            "annotate": _command(
                "runs:annotate",
                "Send a run's scores to their spans in Phoenix or MLflow.",
                "runs annotate last phoenix:http://127.0.0.1:6006",
                "runs annotate 3f9a mlflow:http://127.0.0.1:5000",
            ),
            "compare": _command(
                "runs:compare",
                "Compare two runs over the same cases, case by case.",
                "runs compare before after",
                "runs compare before last --json",
            ),
            "tag": _command(
                "runs:tag",
                "Set the tags of a run, which lists of runs show.",
                "runs tag last nightly main",
                "runs tag 3f9a",
            ),
            "cancel-batch": _command(
                "runs:cancel_batch",
                "Cancel a run's batch jobs at their provider.",
                "runs cancel-batch last",
                "runs cancel-batch 3f9a --forget",
            ),
            "delete": _command(
                "runs:delete",
                "Delete a run, with the answers that no other run uses.",
                "runs delete my-run",
                "runs delete 3f9a --yes",
            ),
        },
    ),
    "view": _command(
        "serve:view",
        "Look at runs in the browser, on this machine.",
        "view",
        "view last --no-browser --port 8000",
    ),
    "serve": _command(
        "serve:serve",
        "Serve models, judges, agents, studies and pages over HTTP.",
        "serve --model local/qwen2.5-coder-1.5b",
        "serve --judge probe+rules --host 0.0.0.0 --keys",
    ),
    "mcp": _command(
        "serve:mcp",
        "Answer coding agents and other MCP clients.",
        "mcp --model local/qwen2.5-coder-1.5b",
        "mcp --http --port 8400",
    ),
    "jobs": _group(
        "Schedule studies (cron).",
        {
            "add": _command(
                "jobs:add",
                "Schedule a study; `jobs work`, or a server, runs it.",
                'jobs add nightly study.yaml --cron "0 3 * * *"',
                "jobs add hourly study.yaml --cron '0 * * * *' --max-cost 2",
            ),
            "list": _command(
                "jobs:list_jobs",
                "List the jobs, and when each runs next.",
                "jobs list",
                "jobs list --namespace acme --json",
            ),
            "show": _command(
                "jobs:show",
                "Show a job and its runs.",
                "jobs show nightly",
                "jobs show nightly --limit 5",
            ),
            "pause": _command(
                "jobs:pause",
                "Pause a job until it is resumed.",
                "jobs pause nightly",
                "jobs pause acme/nightly",
            ),
            "resume": _command(
                "jobs:resume",
                "Resume a paused job.",
                "jobs resume nightly",
                "jobs resume acme/nightly",
            ),
            "remove": _command(
                "jobs:remove",
                "Remove a job with its history; its runs stay.",
                "jobs remove nightly",
                "jobs remove nightly --yes",
            ),
            "run": _command(
                "jobs:run",
                "Run a job now; its schedule stays the same.",
                "jobs run nightly",
                "jobs run acme/nightly",
            ),
            "work": _command(
                "jobs:work",
                "Run jobs when they are due, until Ctrl-C.",
                "jobs work",
                "jobs work --at-once 4",
            ),
        },
    ),
    "labels": _group(
        "Have people label texts, to compare judges with people.",
        {
            "create": _command(
                "labelling:create",
                "Create a task from a file of rows, or from a run.",
                "labels create answers pairs.csv --sample 100",
                "labels create prompts --run last --kind single",
            ),
            "list": _command(
                "labelling:list_tasks",
                "List the tasks with the progress of each person.",
                "labels list",
                "labels list --json",
            ),
            "show": _command(
                "labelling:show",
                "Show how far people agree, and where not.",
                "labels show answers",
                "labels show answers --json",
            ),
            "export": _command(
                "labelling:export",
                "Write labels as rows for `bench agreement` and `bench rate`.",
                "labels export answers -o labels.jsonl",
                "labels export answers -o answers.csv",
            ),
            "delete": _command(
                "labelling:delete",
                "Delete a task with all its labels.",
                "labels delete answers",
                "labels delete answers --yes",
            ),
        },
    ),
    "judges": _group(
        "List judges, fit one to labels; profiles of debates, and rubrics.",
        {
            "list": _command(
                "judges:list_judges", "List every judge.", "judges list", "judges list --json"
            ),
            "fit": _command(
                "study:fit",
                "Fit a judge to labels by people: a weighted mix of judges.",
                "judges fit labels.csv -o mine.judge",
                "judges fit labels.csv --signals probe,length -o mine.judge",
            ),
            "profiles": _group(
                "Write, list and show profiles of debates.",
                {
                    "generate": _command(
                        "study:profile",
                        "Have a model write a profile.",
                        'judges profiles generate "Advice to patients" -o advice.yaml',
                        "judges profiles generate @brief.txt --agents 4",
                    ),
                    "list": _command(
                        "judges:list_profiles",
                        "List the shipped profiles.",
                        "judges profiles list",
                        "judges profiles list --json",
                    ),
                    "show": _command(
                        "judges:show_profile",
                        "Print a profile in full; report errors in a file.",
                        "judges profiles show general",
                        "judges profiles show advice.yaml --json",
                    ),
                },
            ),
            "rubrics": _group(
                "List and show the shipped rubrics.",
                {
                    "list": _command(
                        "judges:list_rubrics",
                        "List the shipped rubrics, with their sources.",
                        "judges rubrics list",
                        "judges rubrics list | less",
                    ),
                    "show": _command(
                        "judges:show_rubric",
                        "Print a rubric, to edit and pass as --rubric @FILE.",
                        "judges rubrics show correctness",
                        "judges rubrics show tone > house-style.md",
                    ),
                },
            ),
        },
    ),
    "models": _group(
        "List, fetch, check and quantise local models; chat templates.",
        {
            "list": _command(
                "models:list_models",
                "List the known local models.",
                "models list",
                "models list --json",
            ),
            "pull": _command(
                "models:pull",
                "Fetch weights and check their hash; a broken download resumes.",
                "models pull",
                "models pull qwen2.5-coder-1.5b",
            ),
            "quantize": _command(
                "models:quantize",
                "Quantise a GGUF file: write weights with fewer bits.",
                "models quantize qwen2.5-coder-1.5b --to q8_0,q4_0",
                "models quantize model-f16.gguf --to q4_k_m -o quants",
            ),
            "compare-quants": _command(
                "study:compare-quants",
                "Compare quantised models on your rows: scores, size and speed.",
                "models compare-quants f16.gguf q4.gguf -d rows.csv --judge probe",
                "models compare-quants f16.gguf q4.gguf -d rows.csv --judge rules",
            ),
            "templates": _group(
                "Show, convert and check instruction formats and chat templates.",
                {
                    "list": _command(
                        "models:list_formats",
                        "List the known formats.",
                        "models templates list",
                        "models templates list --json",
                    ),
                    "show": _command(
                        "models:show",
                        "Show the markers and rules of a format.",
                        "models templates show chatml",
                        "models templates show llama-3.1 --jinja",
                    ),
                    "convert": _command(
                        "models:convert",
                        "Write a prompt or a conversation in a model's format.",
                        "models templates convert prompt.txt --to llama-3.1",
                        "models templates convert chat.json -t my-model.gguf",
                    ),
                    "check": _command(
                        "models:check",
                        "Check a model's chat template.",
                        "models templates check my-model.gguf",
                        "models templates check tokenizer_config.json --json",
                    ),
                },
            ),
        },
    ),
    "config": _group(
        "Show the settings; manage a server's keys and the store.",
        {
            "show": _command(
                "config:show",
                "Show the settings and where they come from.",
                "config",
                "config show --json",
            ),
            "allow": _command(
                "config:allow",
                "Allow the working folder's settings file to name addresses and keys.",
                "config allow",
                "config allow project/textevolve.toml",
            ),
            "keys": _group(
                "Make, list and revoke keys of a server's clients.",
                {
                    "add": _command(
                        "config:add_key",
                        "Make a key. It is printed once.",
                        "config keys add ann --expires 30d",
                        "config keys add bot --scope run --namespace acme --streams 8",
                    ),
                    "list": _command(
                        "config:list_keys",
                        "List all keys, also expired and revoked ones.",
                        "config keys list",
                        "config keys list --json",
                    ),
                    "revoke": _command(
                        "config:revoke_key",
                        "Revoke a key at once, with its browser sessions.",
                        "config keys revoke ann",
                        "config keys revoke ke_3f9a",
                    ),
                },
            ),
            "store": _group(
                "Copy and check the database that keeps everything.",
                {
                    "copy": _command(
                        "config:copy_database",
                        "Copy a store into a new one, and compare both; a broken copy resumes.",
                        "config store copy runs.db copy.db",
                        "config store copy runs.db postgresql://ann@db.example.org/texts",
                    ),
                    "vacuum": _command(
                        "config:vacuum_store",
                        "Free unused disk space, such as that of deleted runs.",
                        "config store vacuum",
                        "config store vacuum --store runs.db",
                    ),
                    "check": _command(
                        "config:check_store",
                        "Check a store; salvage intact rows into a new one.",
                        "config store check",
                        "config store check --salvage saved.db",
                    ),
                },
            ),
        },
        default="show",
    ),
    "doctor": _command(
        "doctor:doctor",
        "Check settings, keys, store and endpoints.",
        "doctor",
        "doctor openai/gpt-6-luna local/qwen2.5-coder-1.5b",
    ),
}
PANELS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Measure": MEASURE,
    "Improve": IMPROVE,
    "Agents": AGENTS,
    "Work": WORK,
}
COMMANDS: Mapping[str, CommandEntry] = {**MEASURE, **IMPROVE, **AGENTS, **WORK}
