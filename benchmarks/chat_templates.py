"""How long it takes to render conversations: a format of the catalogue, a Jinja template under
limits, and transformers, on the same conversations.

    python benchmarks/chat_templates.py [--conversations 10000] [--turns 20]

Each contender runs in a process of its own and renders each conversation once, after one that it
warms up with. What counts is processor time from then on, with that of the process which renders
Jinja templates, its start included; the ratio to transformers is what carries over to other
machines. All contenders must have written the same texts, which are compared by a hash.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from textevolve.llm.chat_formats.catalogue import chat_format
from textevolve.llm.chat_formats.chat_format import render_chat
from textevolve.llm.chat_formats.sources import JinjaTemplate, end_rendering

FOLDER = Path(__file__).parent.parent / "tests" / "llm" / "chat_templates"
TEMPLATES = {
    "chatml": "chatml",
    "zephyr": "zephyr",
    "llama-3.1": "llama-3.1",
    "qwen-2.5": "qwen-2.5",
    "mistral-v1": "mistral-v1",
}
"""Published templates, with the format of the catalogue that writes the same."""
CONTENDERS = ("transformers", "Jinja", "format")


def conversations(number: int, turns: int) -> list[list[dict[str, Any]]]:
    roles = ("user", "assistant")
    return [
        [
            {"role": "system", "content": f"Answer question {case} in one line."},
            *(
                {"role": roles[turn % 2], "content": f"Turn {turn} of {case}: " + "word " * 20}
                for turn in range(turns - 1)
            ),
        ]
        for case in range(number)
    ]


def read(name: str) -> tuple[str, dict[str, str]]:
    tokens = json.loads((FOLDER / "tokens.json").read_text("utf-8"))
    return (FOLDER / f"{name}.jinja").read_bytes().decode(), tokens[name]


Many = Callable[[list[list[dict[str, Any]]]], list[str]]


def open_contender(contender: str, name: str) -> Many:
    """What renders many conversations."""
    source, tokens = read(name)
    if contender == "transformers":
        from transformers.tokenization_utils_base import PreTrainedTokenizerBase

        tokenizer: Any = PreTrainedTokenizerBase(chat_template=source, **tokens)
        apply = partial(tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
        return lambda many: [apply(chat) for chat in many]
    if contender == "format":
        format = chat_format(TEMPLATES[name])
        return lambda many: [render_chat(format, chat) for chat in many]
    template = JinjaTemplate(source, tokens["bos_token"], tokens["eos_token"])
    return lambda many: [template.render(chat, add_generation_prompt=True) for chat in many]


def contend(contender: str, name: str, number: int, turns: int) -> tuple[float, str]:
    """Seconds of processor time, and a hash of all texts."""
    render = open_contender(contender, name)
    chats = conversations(number, turns)
    render(chats[:1])
    began = time.process_time()
    texts = render(chats)
    took = time.process_time() - began
    end_rendering()
    apart = resource.getrusage(resource.RUSAGE_CHILDREN)
    digest = sha256("\0".join(texts).encode()).hexdigest()
    return took + apart.ru_utime + apart.ru_stime, digest


def measure(contender: str, name: str, number: int, turns: int) -> tuple[float, str]:
    """The same, in a process of its own."""
    names = ["--contender", contender, "--template", name]
    done = subprocess.run(
        [sys.executable, __file__, *names, "--conversations", str(number), "--turns", str(turns)],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"TRANSFORMERS_VERBOSITY": "error"},
    )
    seconds, digest = done.stdout.split()[-2:]
    return float(seconds), digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--template")
    parser.add_argument("--contender", choices=CONTENDERS)
    options = parser.parse_args()
    number, turns = options.conversations, options.turns
    if options.contender:
        print(*contend(options.contender, options.template, number, turns))
        return
    print(f"{number:,} conversations of {turns} turns; CPU seconds, and the share of transformers'")
    print(f"{'':12}" + "".join(f"{name:>22}" for name in CONTENDERS))
    for name in [options.template] if options.template else TEMPLATES:
        took: dict[str, float] = {}
        hashes: set[str] = set()
        for contender in CONTENDERS:
            took[contender], digest = measure(contender, name, number, turns)
            hashes.add(digest)
        assert len(hashes) == 1, f"{name}: the texts differ"
        base = took[CONTENDERS[0]]
        cells = "".join(f"{seconds:>14.2f} s {seconds / base:>4.0%}" for seconds in took.values())
        print(f"{name:12}{cells}")


if __name__ == "__main__":
    main()
