"""What cannot be used is refused with an exit code and a message, which are frozen: a table of
commands, with the files that they read."""

import shlex

import pytest

pytestmark = pytest.mark.guard

FILES = {
    "rows.jsonl": '{"id": "a", "input": "Why?", "candidates": ["Because.", "No."]}\n',
    "broken.jsonl": '{"input": "a"\n',
    "empty.jsonl": "",
    "table.csv": "question,answer\nWhy?,Because.\n",
    "study.yaml": "kind: evaluate\ncases: rows.jsonl\njugde: probe\n",
    "kind.yaml": "kind: evaluation\n",
    "broken.yaml": "kind: [\n",
    "profile.yaml": "agents:\n  - {name: A, persona: You judge.}\nrounds: 0\n",
    "prompt.txt": "Answer {question}",
    "blank.txt": " \n",
    "half.txt": "half \\ud83d",
    "deep.jsonl": "[" * 100_000 + "\n",
    "wide.csv": "input,candidate_1\na,b,c\n",
    "pair.jsonl": '{"id": "i0", "input": "0?", "candidates": ["a", "b"], "winner": 1}\n',
    "pairs.jsonl": '{"input": "?", "candidates": ["good", "poor"], "winner": 1}\n' * 20,
    "tasks.jsonl": '{"id": "a", "task": "x"}\n' * 2,
    "numbers.jsonl": '{"n": 1, "sum": 2}\n' * 40,
    "sum.txt": "What is {n} and {n} more?",
    "judged.jsonl": '{"id": 1, "judged": 1}\n',
    "beyond.jsonl": '{"id": 1, "judged": 2}\n',
    "own.py": "",
    "trace.jsonl": '{"episode": "a", "node": "n", "input": "?", "output": "!"}\n',
}
TABLE = """
evaluate Why? Because. --judge nobody
evaluate Why? Because. --judge own.py:brief
evaluate Why? Because. --judge python:own.py:brief
evaluate Why? Because. --judge probe+colour=red
evaluate Why? Because. --profile nobody
evaluate Why? Because. --profile profile.yaml
evaluate Why? Because. --rounds 0
evaluate Why? Because. --weights accuracy=2
evaluate Why? Because. --store nowhere/at/all/../store.db --judge rules:none.yaml
evaluate Why? @blank.txt
evaluate Why? @none.txt
evaluate broken.jsonl
evaluate empty.jsonl
evaluate none.jsonl
evaluate rows.jsonl --min-pass-rate 2
evaluate rows.jsonl --no-worse-than nothing
evaluate rows.jsonl --on moon
evaluate rows.jsonl --model nobody/at-all
evaluate rows.jsonl --model local/no-such-model
evaluate rows.jsonl -o out.exe
compare -d table.csv --metric exact --label answer
compare -p prompt.txt -d table.csv --metric nothing --label answer
compare -p none.txt -d table.csv --metric exact --label answer
compare -p prompt.txt -d table.csv --metric own.py:score --label answer
memory-eval rows.jsonl --system own.py:Notes
compare --outputs nothing -d table.csv --metric exact --label answer
calibrate prompt.txt --data table.csv --label nothing --metric exact
calibrate prompt.txt --data table.csv --label answer --metric exact --budget none
optimize "" -j probe
optimize Write. -j nobody
judges fit rows.jsonl --signals nobody
bench agreement rows.jsonl
bench agreement none.jsonl --judge probe
run chains run none.yaml
run chains run broken.yaml
run study.yaml
run kind.yaml
run broken.yaml
run none.yaml
run init nothing
run schema nothing
runs show nothing
runs show
runs resume nothing
runs delete nothing --yes
runs compare nothing nothing
runs export nothing out.csv
config store check --store none.db
config store copy none.db other.db
memory-eval rows.jsonl --system nobody
agents show nobody
agents create 'a b' --persona You.
agents create ada
agents create ada --persona You. --collection nothing
memories collections show nothing
memories collections create notes --kind odd
memories add nothing 'A text.'
memories search nothing 'A text?'
memories forget me_none
agents namespaces show nothing
agents users show nobody
chat nobody --model http://127.0.0.1:9/v1#m
labels show nothing
nodes evaluate none.jsonl
nodes evaluate rows.jsonl --judge nobody
judges profiles show nobody
judges rubrics show nobody
models templates show nobody
jobs add nightly study.yaml --cron often
jobs add nightly none.yaml --cron often
jobs show nothing
config keys revoke nothing
models pull nothing
models quantize none.gguf --to q8_0
agents sessions show nothing
summarize none.txt
evaluate Why? Because. --weights 'accuracy=1,relevance=1, accuracy=0.1'
evaluate Why? Because. -m MODEL --max-cost nan
evaluate Why? Because. -m MODEL -o gone/x.csv
evaluate Why? Because. -m openai/gpt-6-luna
evaluate deep.jsonl -m MODEL
evaluate wide.csv -m MODEL
evaluate table.csv --judge look:length --map input=qestion
compare -p sum.txt -d numbers.jsonl -m MODEL --label sum --metric exact -p sum.txt
compare -p sum.txt -d numbers.jsonl -m MODEL --judge pairwise
compare -p sum.txt -d numbers.jsonl -m MODEL --judge single --score-by probe
compare -p sum.txt -d numbers.jsonl -m MODEL --judge single --system 'It was {N}.'
calibrate sum.txt --data numbers.jsonl -m MODEL --metric exact
calibrate sum.txt --data numbers.jsonl -m MODEL -j pairwise
optimize tasks.jsonl -m MODEL
optimize numbers.jsonl -m MODEL
judges fit pairs.jsonl -m MODEL --signals probe,probe
judges fit pairs.jsonl -m MODEL --signals old.judge
bench agreement pair.jsonl -m MODEL --judge probe --judge probe
bench agreement pair.jsonl pair.jsonl -m MODEL --judge probe
bench rate beyond.jsonl rows.jsonl
bench rate rows.jsonl judged.jsonl
bench rate judged.jsonl judged.jsonl
labels create mine rows.jsonl --run last
labels create mine pair.jsonl --kind pairs --scale 5
labels create mine table.csv --kind pairs
nodes evaluate trace.jsonl -m MODEL
nodes evaluate trace.jsonl --latency 1 --only GENERATES
nodes evaluate trace.jsonl --latency 1 -o trace.jsonl
models quantize . --to q8_0
serve --port 0 --model MODEL --host 0.0.0.0
serve --port 0 --model MODEL --key-env NO_SUCH_KEY
"""


@pytest.fixture
def refuse(cli, home):
    for name, text in FILES.items():
        (home / name).write_text(text)

    def run(*command):
        outcome = cli(*(word.replace("MODEL", "http://127.0.0.1:9/v1#none") for word in command))
        lines = outcome.err.strip().splitlines() or ["(nothing)"]
        text = lines[-1] if "Usage:" in outcome.err else " | ".join(lines)
        return f"{outcome.code} {text.replace(str(home), 'HOME')}"

    return run


def test_refusals_are_as_frozen(refuse, frozen):
    commands = TABLE.strip().splitlines()
    frozen(
        "refusals.txt",
        "".join(f"$ textevolve {line}\n{refuse(*shlex.split(line))}\n" for line in commands),
    )
