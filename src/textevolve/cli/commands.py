"""The table of all commands: the groups, a line of help for each command, and where its code is.

Nothing is imported here, so that the help of a group loads no command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Entry:
    """A command or a group of commands.

    Attributes:
        path: The place of a command: `study:KIND` (no kind: a file names it),
            `resources:GROUP.VERB`, or `MODULE:FUNCTION` below `textevolve.cli`. Groups have none.
        help: The line that lists show.
        below: The commands of a group.
        default: The command of a group that is meant if the first word names none.
    """

    path: str
    help: str
    below: Mapping[str, Entry] = field(default_factory=dict[str, "Entry"])
    default: str = ""


def _group(help: str, default: str = "", **below: Entry) -> Entry:
    return Entry(
        "", help, {name.replace("_", "-"): entry for name, entry in below.items()}, default
    )


def _resources(group: str, help: str, noun: str, **more: Entry) -> Entry:
    """The commands that each kind of resource has, and those of this kind alone."""
    verbs = {
        "create": f"Create {noun}.",
        "list": "List them.",
        "show": "Show one whole.",
        "update": "Change the given fields.",
        "revert": "Go back to an earlier version.",
        "delete": "Delete one, with all that belongs to it.",
        "export": "Write one to a file, with all that belongs to it.",
        "import": "Read such a file.",
    }
    below = {verb: Entry(f"resources:{group}.{verb}", text) for verb, text in verbs.items()}
    return _group(help, **below, **more)


MEASURE = {
    "evaluate": Entry("study:evaluate", "Judge candidate texts by a debate, or by any judge."),
    "compare": Entry(
        "study:compare", "Run prompts and models over your rows; say which is better."
    ),
    "bench": _group(
        "Measure judges before believing them.",
        agreement=Entry("study:agreement", "Measure how far judges agree with people."),
        ablate=Entry("study:ablation", "Find out whether a debate pays on your own items."),
        escalation=Entry(
            "study:escalation", "Find when a cheap judge, or a debate's first round, will do."
        ),
        card=Entry("study:robustness", "Measure what sways a judge that should not."),
        rate=Entry("study:rates", "Correct a judge's rate by what people said."),
    ),
    "nodes": _group(
        "Judge the steps of recorded agents.",
        evaluate=Entry("study:nodes", "Judge every node of a trace, or of an earlier run."),
        show=Entry("nodes:show", "Show the nodes of a trace or of a run as a tree."),
        export=Entry("nodes:export", "Write rewards for training, or a page."),
    ),
    "memory-eval": replace(
        _group(
            "Measure what a memory system keeps.",
            run=Entry("study:memory-eval", "Measure what a memory system keeps."),
            synth=Entry("memory_eval:synth", "Make users with dialogues, by templates."),
        ),
        default="run",
    ),
}
IMPROVE = {
    "calibrate": Entry("study:calibrate", "Search for a better prompt template."),
    "optimize": Entry("study:optimize", "Write, judge and revise a text; keep the best."),
    "innovate": Entry("study:innovate", "Refine an input by judgements of its outputs."),
    "guide": Entry("study:guide", "Answer a question with a debate as reasoning."),
    "summarize": Entry("study:summarize", "Shorten texts of any length to a budget of tokens."),
}
AGENTS = {
    "chat": Entry("chat:chat", "Chat with an agent that remembers."),
    "agents": _resources(
        "agents",
        "Agents with a persona and memories; users, chats, namespaces.",
        "an agent",
        evolve=Entry("study:evolve-persona", "Change a persona by what its agent remembers."),
        namespaces=_resources("namespaces", "Isolated workspaces.", "a namespace"),
        users=_resources("users", "The people that agents talk with.", "a user"),
        sessions=_group(
            "List, show, export and delete chats.",
            list=Entry("sessions:list_sessions", "List the stored chats."),
            show=Entry("sessions:show", "Show the messages of a chat."),
            export=Entry("sessions:export", "Write a chat as JSON."),
            delete=Entry("sessions:delete", "Delete a chat; its memories stay."),
        ),
    ),
    "memories": _group(
        "Keep, search and forget memories, in collections.",
        add=Entry("memories:add", "Keep a memory."),
        search=Entry("memories:search", "Find what bears on a question."),
        list=Entry("memories:list_memories", "List a collection, the newest last."),
        show=Entry("memories:show", "Show memories whole."),
        history=Entry("memories:history", "Show what a memory was before, and is now."),
        forget=Entry("memories:forget", "Close memories, or erase them."),
        export=Entry("memories:export", "Write memories to a file of rows."),
        re_embed=Entry("memories:re_embed", "Move a collection to another embedder."),
        create=Entry("study:create-memories", "Make memories of dialogues."),
        integrate=Entry(
            "study:integrate-memories", "Draw insights from an agent's memories (reflection)."
        ),
        read=Entry("study:read-corpus", "Read documents into a collection."),
        collections=_resources("collections", "Collections of memories.", "a collection"),
        **{"import": Entry("memories:import_file", "Keep the memories of a file.")},
    ),
}
WORK = {
    "run": replace(
        _group(
            "Run a study that a YAML file describes, or a chain.",
            file=Entry("study:", "Run a study of any kind that a YAML file describes."),
            init=Entry("study_files:init", "Write a commented example of such a file."),
            schema=Entry("study_files:schema", "Print the JSON schema of such files."),
            chains=_group(
                "Show and run chains of steps.",
                show=Entry("chains:show", "Show a chain's steps, inputs, outputs and models."),
                run=Entry("study:chain", "Run a chain on values, or on each row of a file."),
            ),
        ),
        default="file",
    ),
    "runs": _group(
        "List, show, resume, compare, export and delete runs.",
        list=Entry("runs:list_runs", "List the stored runs."),
        show=Entry("runs:show", "Show a run's results."),
        resume=Entry("runs:resume", "Resume a run: only what is missing is asked."),
        replay=Entry("runs:replay", "Score a run's debates anew, without a model call."),
        export=Entry("runs:export", "Write a run's results to files."),
        compare=Entry("runs:compare", "Compare two runs over the same cases."),
        cancel=Entry("runs:cancel", "End a run at a server."),
        cancel_batch=Entry("batches:cancel_batch", "Cancel a run's batch jobs."),
        delete=Entry("runs:delete", "Delete a run."),
    ),
    "view": Entry("view:view", "Look at runs in the browser, on this machine."),
    "serve": Entry("serve:serve", "Serve models, judges, agents, studies and pages over HTTP."),
    "jobs": _group(
        "Schedule studies (cron).",
        add=Entry("jobs:add", "Schedule a study."),
        list=Entry("jobs:list_jobs", "List the jobs, and when each runs next."),
        show=Entry("jobs:show", "Show a job and its runs."),
        pause=Entry("jobs:pause", "Pause a job."),
        resume=Entry("jobs:resume", "Let a paused job run again."),
        remove=Entry("jobs:remove", "Remove a job; its runs stay."),
        run=Entry("jobs:run", "Run a job now."),
        work=Entry("jobs:work", "Run jobs when they are due."),
    ),
    "labels": _group(
        "Have people label texts, to measure judges by.",
        create=Entry("labelling:create", "Make a task of a file of rows, or of a run."),
        list=Entry("labelling:list_tasks", "List the tasks, with who labelled how much."),
        show=Entry("labelling:show", "Show how far people agree, and where not."),
        export=Entry("labelling:export", "Write labels as rows that judges are measured on."),
        delete=Entry("labelling:delete", "Delete a task with all its labels."),
    ),
    "judges": _group(
        "List judges, fit one to labels; profiles of debates, and rubrics.",
        list=Entry("judges:list_judges", "List every judge in a line."),
        fit=Entry("study:fit", "Fit a judge to people's labels, from several judges."),
        profiles=_group(
            "Write, list, show and check profiles of debates.",
            generate=Entry("study:profile", "Have a model write a profile."),
            list=Entry("judges:list_profiles", "List the shipped profiles."),
            show=Entry("judges:show_profile", "Show a profile whole."),
            check=Entry("judges:check_profiles", "Check profiles; say what is wrong."),
        ),
        rubrics=_group(
            "List and show the shipped rubrics.",
            list=Entry("judges:list_rubrics", "List the shipped rubrics, with their sources."),
            show=Entry("judges:show_rubric", "Print one as a file, to be changed."),
        ),
    ),
    "models": _group(
        "List, fetch, check and quantise local models; chat templates.",
        list=Entry("models:list_models", "Show the local models that are known."),
        pull=Entry("models:pull", "Fetch weights and check their hash."),
        check=Entry("models:check", "Hash weights anew and compare with the catalogue."),
        quantize=Entry("quantize:quantize", "Make files of weights with fewer bits."),
        compare_quants=Entry("study:compare-quants", "Measure what quantisation costs."),
        templates=_group(
            "Show, convert and check instruction formats and chat templates.",
            list=Entry("templates:list_formats", "List the known formats."),
            show=Entry("templates:show", "Show the markers and rules of one."),
            detect=Entry("templates:detect", "Say which format a prompt is in."),
            convert=Entry("templates:convert", "Write a prompt or a conversation in a format."),
            render=Entry("templates:render", "Print a conversation as a model reads it."),
            check=Entry("templates:check", "Say what is wrong with a model's template."),
        ),
    ),
    "config": replace(
        _group(
            "Show the settings; manage a server's keys and the store.",
            show=Entry("config:show", "Show the settings and where they come from."),
            keys=_group(
                "Make, list and revoke keys of a server's clients.",
                add=Entry("keys:add", "Make a key."),
                list=Entry("keys:list_keys", "List all keys, also those that have ended."),
                revoke=Entry("keys:revoke", "End a key at once."),
            ),
            store=_group(
                "Copy, check and measure the database that keeps everything.",
                copy=Entry("store:copy", "Copy all of a store into another one."),
                stats=Entry("store:stats", "Tell how much a store holds."),
                vacuum=Entry("store:vacuum", "Give back unused room."),
                check=Entry("store:check", "Check a store, and save what is whole."),
            ),
        ),
        default="show",
    ),
    "doctor": Entry("doctor:doctor", "Check settings, keys, store and endpoints."),
}
PANELS: Mapping[str, Mapping[str, Entry]] = {
    "Measure": MEASURE,
    "Improve": IMPROVE,
    "Agents": AGENTS,
    "Work": WORK,
}
COMMANDS: Mapping[str, Entry] = {**MEASURE, **IMPROVE, **AGENTS, **WORK}
