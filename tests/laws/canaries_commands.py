"""Single commands with one canary each: prompts that name a label, applications under test,
addresses with passwords, keys in the wrong place, settings that lead a key elsewhere, and answers
that repeat a key.

In commands, files and settings OWN and OTHER stand for the addresses of the two hosts' models,
OWN_ROOT and OTHER_ROOT for those of the hosts, OWN_PLACE for the first one's host and port.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from laws.canaries_world import OWN_HEADER, OWN_KEY, Watched, canary
from laws.studies import write_rows
from textevolve.llm.testing import Answer

LABEL = canary("label")
QUESTION = canary("question")
ROWS = write_rows(
    [
        {"id": f"r{number}", "question": f"Question {number}? {QUESTION}", "answer": LABEL}
        for number in range(2)
    ]
)
PROMPT_FORMS: Mapping[str, str] = {
    "in braces": "{sum}",
    "in double braces": "{{ sum }}",
    "in tight double braces": "{{sum}}",
    "in a box of LaTeX": "\\boxed{sum}",
    "in double braces in a box": "\\boxed{{sum}}",
    "as a field of JSON": '{"answer": {sum}}',
    "with a conversion": "{sum!r}",
    "with a width": "{sum:>9}",
    "in spaced braces": "{ sum }",
    "with a filter": "{{ sum | upper }}",
    "as a part of the row": "{row.sum}",
    "as a part of the row in double braces": "{{ row['sum'] }}",
    "in a condition": "{% if sum %}x{% endif %}",
}
"""The ways in which a prompt can name the column `sum` of the recipes, which is the label."""
FEW_FORMS = ("in braces", "in double braces", "in a box of LaTeX", "in double braces in a box")
SEARCHED_FORMS = (*FEW_FORMS, "as a field of JSON", "with a conversion", "with a filter")
PROMPT_PLACES: Mapping[str, Iterable[str]] = {
    "text": PROMPT_FORMS,
    "template of calibrate": SEARCHED_FORMS,
    "chat": FEW_FORMS,
    "earlier answer of a chat": FEW_FORMS,
    "system message": FEW_FORMS,
    "conversation": FEW_FORMS,
    "text for quants": FEW_FORMS,
    "text from Python": FEW_FORMS,
}
"""Where a prompt can name the label, with the forms that are tried there."""


def prompt_cells() -> dict[str, tuple[str, str]]:
    """Return each place with its forms."""
    return {
        f"label in a prompt / {place} / {form}": (place, PROMPT_FORMS[form])
        for place, forms in PROMPT_PLACES.items()
        for form in forms
    }


@dataclass(frozen=True)
class Situation:
    """A command with a canary.

    Attributes:
        secret: The secret, as the table of the law names it.
        command: The command.
        files: The content of each file in its folder.
        environment: Further variables.
        settings: A file `textevolve.toml` in the folder, which then counts, and not the user's.
        reader: The model that must read the question, or nothing.
        door: The door that the canary must pass, or nothing.
        reply: What the own host answers to every request, instead of a model's answer.
        at: The beginning of the paths that `reply` answers.
    """

    secret: str
    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: str | None = None
    reader: str = ""
    door: str = ""
    reply: Answer | None = None
    at: str = "/"


PROMPTED = ("compare", "-p", "p.txt", "-d", "rows.jsonl", "--label", "answer", "--metric", "exact")
TARGETED = ("compare", "-d", "rows.jsonl", "--label", "answer", "--metric", "exact")
WRITES = ("-o", "report.html", "-o", "report.json", "-o", "table.csv")
APPLICATION = Answer(body=b'{"answer": "An answer."}')


def _target(*lines: str, secret: str = "label", **fields: object) -> Situation:
    """Return a comparison of an application that a file describes."""
    command = (*TARGETED, "--target", "app.yaml", *WRITES)
    files = {"app.yaml": "\n".join(lines) + "\n"}
    common = {"reader": "/app", "reply": APPLICATION, "at": "/app"}
    return Situation(secret, command, files, **{**common, **fields})


def _addressed(secret: str, *targets: str, **fields: object) -> Situation:
    """Return a comparison of applications that are named by their addresses or commands."""
    command = TARGETED
    for target in targets:
        command = (*command, "--target", target)
    return Situation(secret, (*command, *WRITES), reply=APPLICATION, at="/app", **fields)


RECORDED = """\
def whole(row):
    return keep(repr(row))

def named(question, answer="nothing"):
    return keep(question + answer)

def keywords(**row):
    return keep(repr(row))

async def answer(prompts, row):
    keep(repr(row))
    return await prompts.ask("first", question=row["question"])

def keep(text):
    with open("seen.txt", "a") as file:
        file.write(text)
    return "An answer."
"""
ASKED_PROGRAM = """\
import sys
with open("seen.txt", "a") as file:
    file.write(sys.stdin.read() + " ".join(sys.argv))
print("An answer.")
"""
GOAL_ROWS = write_rows(
    [
        {
            "id": canary("id"),
            "goal": f"Get {canary('goal')}. {QUESTION}",
            "persona": f"You are {canary('persona of a user')}.",
            "stop": f"After {canary('stop of a user')}.",
            "answer": LABEL,
        }
    ]
)
MANY_ROWS = write_rows(
    [
        {"id": f"r{number}", "question": f"Question {number}? {QUESTION}", "answer": LABEL}
        for number in range(12)
    ]
)
SIMULATED = (
    *("compare", "-p", "p.txt", "-d", "goals.jsonl", "--label", "answer", "--metric", "contains"),
    *("--judge", "probe", "-m", "own/tested", "--user-model", "own/user", "--max-turns", "2"),
    *("--judge-model", "own/judge", *WRITES),
)
SIMULATED_TARGET = (
    *("compare", "--target", "OWN_ROOT/app", "-d", "goals.jsonl", "--label", "answer"),
    *("--judge", "probe", "--user-model", "own/user", "--judge-model", "own/judge"),
    *("--max-turns", "2", *WRITES),
)


def _simulated(secret: str, command: tuple[str, ...], reader: str) -> Situation:
    """Return a conversation with a simulated user."""
    files = {"p.txt": "Be kind.", "goals.jsonl": GOAL_ROWS}
    return Situation(secret, command, files, reader=reader, reply=APPLICATION, at="/app")


UNDER_TEST: Mapping[str, Situation] = {
    "application / whole row": _target("target: OWN_ROOT/app"),
    "application / body": _target(
        "target: OWN_ROOT/app", 'body: {q: "{question}", a: "{ answer }"}'
    ),
    "application / nested body": _target(
        "target: OWN_ROOT/app", 'body: {q: "{question}", a: {b: ["so: \\boxed{answer}"]}}'
    ),
    "application / header": _target("target: OWN_ROOT/app", 'headers: {X-Answer: "{answer}"}'),
    "application / address": _target("target: OWN_ROOT/app?a={answer}"),
    "Python function / whole row": _addressed("label", "python:canary_app.whole", reader="program"),
    "Python function / parameter": _addressed("label", "python:canary_app.named", reader="program"),
    "Python function / keywords": _addressed(
        "label", "python:canary_app.keywords", reader="program"
    ),
    "program of the shell / row": _addressed("label", "cmd:python asked.py", reader="program"),
    "program under calibration / row": Situation(
        "label",
        (
            *(
                "calibrate",
                "prompts.yaml",
                "--program",
                "canary_app.py:answer",
                "--label",
                "answer",
            ),
            *("--data", "many.jsonl", "--metric", "exact", "-m", "own/tested"),
            *("--editor", "own/editor", "--strategy", "reflect", "--budget", "40"),
        ),
        {"prompts.yaml": "first: '{question}'\n", "many.jsonl": MANY_ROWS},
        reader="program",
    ),
    "program under calibration / prompt": Situation(
        "label",
        (
            *(
                "calibrate",
                "prompts.yaml",
                "--program",
                "canary_app.py:answer",
                "--label",
                "answer",
            ),
            *("--data", "many.jsonl", "--metric", "exact", "-m", "own/tested"),
            *("--editor", "own/editor", "--strategy", "reflect", "--budget", "40"),
        ),
        {"prompts.yaml": "first: '{question} {answer}'\n", "many.jsonl": MANY_ROWS},
    ),
    "conversation / label": _simulated("label", SIMULATED, "user"),
    "conversation / goal": _simulated("goal", SIMULATED, "user"),
    "conversation / persona": _simulated("persona of a user", SIMULATED, "user"),
    "conversation / stop": _simulated("stop of a user", SIMULATED, "user"),
    "conversation / id": _simulated("id", SIMULATED, "user"),
    "conversation with an application / label": _simulated("label", SIMULATED_TARGET, "user"),
    "conversation with an application / goal": _simulated("goal", SIMULATED_TARGET, "user"),
    "conversation with an application / persona": _simulated(
        "persona of a user", SIMULATED_TARGET, "user"
    ),
    "evaluated application / reference": Situation(
        "reference",
        ("evaluate", "cases.jsonl", "--target", "OWN_ROOT/app", "-j", "probe", "-m", "own/judge"),
        {
            "cases.jsonl": write_rows(
                [{"id": "x", "input": QUESTION, "reference": canary("reference")}]
            )
        },
        reader="/app",
        reply=APPLICATION,
        at="/app",
    ),
}
"""What is tested: it gets its row, and neither label nor reference."""

PROXY_DOWN = "http://gpu.example.test:8000/v1#m"
SHOW = ("config", "show")
SHOW_JSON = ("config", "show", "--json")


def _shown(variable: str, value: str, command: tuple[str, ...] = SHOW) -> Situation:
    """Return a command that shows settings, with an address in a variable."""
    return Situation("password in an address", command, environment={variable: value})


PASSWORD = canary("password in an address")
ADDRESSES: Mapping[str, tuple[str, str]] = {
    "model": ("TEXTEVOLVE_MODEL", f"http://ann:{PASSWORD}@OWN_PLACE/v1#m"),
    "embedder": ("TEXTEVOLVE_EMBEDDER", f"http://ann:{PASSWORD}@OWN_PLACE/v1#m"),
    "server": ("TEXTEVOLVE_SERVER", f"https://ann:{PASSWORD}@host.test"),
    "traces": ("TEXTEVOLVE_TRACES", f"http://ann:{PASSWORD}@host.test:1"),
    "memory store": ("TEXTEVOLVE_MEMORY_STORE", f"postgresql://ann:{PASSWORD}@host.test/db"),
    "proxy": ("HTTP_PROXY", f"http://ann:{PASSWORD}@127.0.0.1:9"),
}
"""Settings that are addresses, each with its variable and an address with a password."""
POOL = f'[pools.big]\nmembers = [{{model = "http://ann:{PASSWORD}@OWN_PLACE/v1#m"}}]\n'
PROVIDER = f'[providers.mine]\nbase_url = "http://ann:{PASSWORD}@OWN_PLACE/v1"\n'


def _proxied(password: str, host: str, *command: str) -> Situation:
    """Return a command whose calls pass a proxy with a password."""
    proxy = f"http://ann:{password}@{host}"
    environment = {"HTTP_PROXY": proxy, "TEXTEVOLVE_API_KEY": ""}
    return Situation("password of a proxy", command, environment=environment)


PROXY_PASSWORD = canary("password of a proxy")
COMPARES_BEHIND = (*PROMPTED, "-m", PROXY_DOWN, *WRITES)
LEADS = '[providers.openai]\nbase_url = "OWN"\n'
KEPT: Mapping[str, Situation] = {
    **{
        f"shown settings / password of the {name}": _shown(*address)
        for name, address in ADDRESSES.items()
    },
    **{
        f"shown settings as JSON / password of the {name}": _shown(*address, SHOW_JSON)
        for name, address in ADDRESSES.items()
    },
    "shown settings / password of a member of a pool": Situation(
        "password in an address", SHOW, settings=POOL
    ),
    "shown settings / password of a provider": Situation(
        "password in an address", SHOW, settings=PROVIDER
    ),
    "shown settings / keys of the environment": Situation("own key", SHOW),
    "shown settings / value of a header": Situation("own header", SHOW),
    "shown settings / key written as a header": Situation(
        "key in settings",
        SHOW,
        settings='[providers.mine]\nbase_url = "OWN"\n'
        f'headers = {{x-a = "{canary("key in settings")}"}}\n',
    ),
    "doctor / own key": Situation(
        "own key", ("doctor", "own/m"), door="header authorization at own"
    ),
    "doctor / own header": Situation(
        "own header", ("doctor", "own/m", "--json"), door="header x-own at own"
    ),
    "doctor / password of a model's address": Situation(
        "password in an address", ("doctor", f"http://ann:{PASSWORD}@OWN_PLACE/v1#m")
    ),
    "compare / password of a model's address": Situation(
        "password in an address",
        (*PROMPTED, "-m", f"http://ann:{PASSWORD}@OWN_PLACE/v1#m", *WRITES),
    ),
    "compare / password of a model's address with a blank": Situation(
        "password in an address",
        (*PROMPTED, "-m", f"http://ann:{PASSWORD} x@OWN_PLACE/v1#m", *WRITES),
    ),
    "compare / password of a server": Situation(
        "password in an address",
        (*PROMPTED, "--server", f"http://ann:{PASSWORD}@127.0.0.1:9"),
    ),
    "runs list / password of a store": Situation(
        "password in an address",
        ("runs", "list", "--store", f"postgresql://ann:{PASSWORD}@127.0.0.1:9/db"),
    ),
    "store copy / password of a store": Situation(
        "password in an address",
        (
            *("config", "store", "copy", f"postgresql://ann:{PASSWORD}@127.0.0.1:9/db"),
            "copied.db",
        ),
    ),
    "memory-eval / password of a memory system": Situation(
        "password in an address",
        (
            *("memory-eval", "run", "people.jsonl", "--system"),
            *(f"http://ann:{PASSWORD}@OWN_PLACE", "-m", "own/judge"),
        ),
        {"people.jsonl": "{}\n"},
    ),
    "compare / query of a model's address": Situation(
        "key in an address",
        (*PROMPTED, "-m", f"OWN?api_key={canary('key in an address')}#m", *WRITES),
    ),
    "compare / key for a model's name": Situation(
        "key as a name", (*PROMPTED, "-m", f"sk-{canary('key as a name')}-0123456789abcdef")
    ),
    "compare / key for a provider's model": Situation(
        "key as a name",
        (*PROMPTED, "-m", f"groq/sk-{canary('key as a name')}-0123456789abcdef"),
    ),
    "doctor / key for a model's name": Situation(
        "key as a name", ("doctor", f"sk-{canary('key as a name')}-0123456789abcdef")
    ),
    "compare / password of a proxy that is down": _proxied(
        PROXY_PASSWORD, "127.0.0.1:9", *COMPARES_BEHIND
    ),
    "compare / password of a proxy that cannot be read": _proxied(
        f"pa#{PROXY_PASSWORD}", "127.0.0.1:3128", *COMPARES_BEHIND
    ),
    "compare / password of a proxy that answers": _proxied(
        PROXY_PASSWORD, "OWN_PLACE", *COMPARES_BEHIND
    ),
    "doctor / password of a proxy that is down": _proxied(
        PROXY_PASSWORD, "127.0.0.1:9", "doctor", PROXY_DOWN
    ),
    "doctor / password of a proxy that cannot be read": _proxied(
        f"pa#{PROXY_PASSWORD}", "127.0.0.1:3128", "doctor", PROXY_DOWN
    ),
    "new collection / password of a proxy that cannot be read": _proxied(
        f"pa#{PROXY_PASSWORD}",
        "127.0.0.1:3128",
        *("memories", "collections", "create", "notes", "--embedder", PROXY_DOWN),
    ),
    "application / password of a proxy that cannot be read": _proxied(
        f"pa#{PROXY_PASSWORD}",
        "127.0.0.1:3128",
        *(*TARGETED, "--target", "http://app.example.test/app", *WRITES),
    ),
    "application / key in the query": _addressed(
        "key in an address", f"OWN_ROOT/app?api_key={canary('key in an address')}"
    ),
    "application / password in the address": _addressed(
        "password in an address", f"http://ann:{PASSWORD}@OWN_PLACE/app"
    ),
    "application / key in the command": _addressed(
        "key in a command",
        f"cmd:python asked.py --api-key sk-{canary('key in a command')}-0123456789",
    ),
    "application / key written as a header": _target(
        "target: OWN_ROOT/app",
        f"headers: {{X-Api-Key: {canary('key in settings')}}}",
        secret="key in settings",
        reader="",
    ),
    "application / key of its own variable": _target(
        "target: OWN_ROOT/app",
        "key_env: APP_KEY",
        secret="key of an application",
        environment={"APP_KEY": f"sk-{canary('key of an application')}-0123"},
        door="header authorization at own",
    ),
    "application / header of a variable": _target(
        "target: OWN_ROOT/app",
        "headers: {X-Tenant: env:TENANT}",
        secret="header of an application",
        environment={"TENANT": f"sk-{canary('header of an application')}-0123"},
        door="header x-tenant at own",
    ),
    "two applications / key of one address": _addressed(
        "key for applications",
        *("OWN_ROOT/app", "OTHER_ROOT/app"),
        environment={"TEXTEVOLVE_TARGET_KEY": f"sk-{canary('key for applications')}-0123"},
        door="header authorization at own",
    ),
    "application beside a model / key": Situation(
        "key for applications",
        (*PROMPTED, "-m", "OTHER#m", "--target", "OWN_ROOT/app", *WRITES),
        environment={"TEXTEVOLVE_TARGET_KEY": f"sk-{canary('key for applications')}-0123"},
        door="header authorization at own",
        reply=APPLICATION,
        at="/app",
    ),
    "model by an address / keys of providers": Situation(
        "key of another provider", (*PROMPTED, "-m", "OTHER#m", *WRITES), reader="m"
    ),
    "redirected application / key": _addressed(
        "key for applications",
        "OWN_ROOT/moved",
        environment={"TEXTEVOLVE_TARGET_KEY": f"sk-{canary('key for applications')}-0123"},
        door="header authorization at own",
    ),
    "project's settings / key of a known provider": Situation(
        "key of another provider", (*PROMPTED, "-m", "openai/m"), settings=LEADS
    ),
    "project's settings / key of a known provider that is named": Situation(
        "key of another provider",
        (*PROMPTED, "-m", "openai/m"),
        settings=LEADS + 'key_env = "OPENAI_API_KEY"\n',
    ),
    "project's settings / any variable as a key": Situation(
        "any variable",
        (*PROMPTED, "-m", "mine/m"),
        settings='[providers.mine]\nbase_url = "OWN"\nkey_env = "SHOP_PASSWORD"\n',
    ),
    "project's settings / any variable as a header": Situation(
        "any variable",
        (*PROMPTED, "-m", "mine/m"),
        settings='[providers.mine]\nbase_url = "OWN"\nkeyless = true\n'
        'headers = {x-a = "env:SHOP_PASSWORD"}\n',
    ),
    "project's settings / key for addresses": Situation(
        "key for addresses", PROMPTED, settings='model = "OWN#m"\n'
    ),
    "project's settings / key for addresses in a pool": Situation(
        "key for addresses",
        (*PROMPTED, "-m", "pool/big"),
        settings='[pools.big]\nmembers = [{model = "OWN#m"}]\n',
    ),
    "project's settings / key of a server": Situation(
        "key of a server", (*PROMPTED, "-m", "openai/m"), settings='server = "OWN_ROOT"\n'
    ),
    "project's settings / rows to a server": Situation(
        "question", (*PROMPTED, "-m", "openai/m"), settings='server = "OWN_ROOT"\n'
    ),
    "project's settings / key for an embedder": Situation(
        "key for addresses",
        ("memories", "collections", "create", "notes"),
        settings='embedder = "OWN#e"\n',
    ),
}
"""Keys and passwords, which no text shows and no stranger gets."""

ECHOES: Mapping[str, Answer] = {
    "key in a refusal (401)": Answer(
        status=401, body=f'{{"error": {{"message": "Incorrect API key: {OWN_KEY}."}}}}'.encode()
    ),
    "key in a refusal (400)": Answer(
        status=400, body=f'{{"error": {{"message": "bad: Bearer {OWN_KEY}"}}}}'.encode()
    ),
    "header in a refusal (400)": Answer(
        status=400, body=f'{{"error": {{"message": "bad: X-Own: {OWN_HEADER}"}}}}'.encode()
    ),
    "key in a code (403)": Answer(
        status=403,
        body=f'{{"error": {{"message": "no", "code": "{OWN_KEY}", "type": "{OWN_KEY}"}}}}'.encode(),
    ),
    "key in a page (502)": Answer(status=502, body=f"<html>{OWN_KEY}</html>".encode()),
    "key in an error (200)": Answer(
        body=f'{{"error": {{"message": "{OWN_KEY}", "code": 502}}}}'.encode()
    ),
    "key as the body (200)": Answer(body=OWN_KEY.encode()),
    "key in an address (302)": Answer(
        status=302, body=b"", headers={"Location": f"http://127.0.0.1:9/?key={OWN_KEY}"}
    ),
}
"""Answers that repeat what the request held."""
ECHOED_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "chat": ("chat", "bot", "--user", "ann", "--once", "Hello?"),
    "memories add": ("memories", "add", "notes", "Ann drinks tea."),
    "memories search": ("memories", "search", "notes", "Ann"),
    "memories re-embed": ("memories", "re-embed", "notes", "--embedder", "own/e2"),
    "memories import": ("memories", "import", "notes", "memories.jsonl"),
    "doctor": ("doctor", "own/m", "own/e"),
}
"""Commands that are no study and ask a model."""


def fill(text: str, world: Watched) -> str:
    """Put the hosts' addresses into a text."""
    addresses = {
        "OWN_ROOT": world.server.root,
        "OTHER_ROOT": world.other.root,
        "OWN_PLACE": world.server.root.removeprefix("http://"),
        "OTHER#": f"{world.other.url}#",
        "OWN#": f"{world.server.url}#",
        "OWN?": f"{world.server.url}?",
        '"OWN"': f'"{world.server.url}"',
    }
    for name, address in addresses.items():
        text = text.replace(name, address)
    return text
