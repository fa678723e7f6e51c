"""The Python examples of `docs/openai.md` and `docs/serve.md` run as they stand, if their packages
are installed."""

import re
from pathlib import Path

import pytest

from textevolve.agents.resources import AgentSpec, NamespaceSpec
from textevolve.store import Store, kinds

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(page, code, id=f"{page}-{number}")
    for page in ("openai", "serve")
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL)
    )
]
OURS = "http://127.0.0.1:8400"


@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_examples_run(serve, page, code, capsys, home, model):
    pytest.importorskip(re.search(r"^from (\w+)", code)[1])
    store = Store(str(home / "store.db"))
    store.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    agent = AgentSpec(name="guide", persona="You are a guide.")
    store.write(kinds.create, kinds.AGENTS, "acme", agent)
    store.close()
    code = code.replace(OURS, serve(judge="probe+rules")).replace("local/minilm", model)
    namespace = {"__name__": "docs"}
    exec(compile(code, f"docs/{page}.md", "exec"), namespace)
    for name in ("client", "typesafe"):
        if name in namespace:
            namespace[name].close()
    out = capsys.readouterr().out
    assert re.search(r"\d\.\d", out) if page == "serve" else out.strip()
