"""The Python examples of `docs/openai.md` run as they stand."""

import re
from pathlib import Path

import pytest

from textevolve.agents.resources import AgentSpec, NamespaceSpec
from textevolve.store import Store, kinds

PAGE = Path(__file__).parents[2] / "docs" / "openai.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
OURS = "http://127.0.0.1:8400"


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_run(serve, code, capsys, home, model):
    pytest.importorskip(re.search(r"^from (\w+)", code)[1])
    store = Store(str(home / "store.db"))
    store.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    store.write(
        kinds.create, kinds.AGENTS, "acme", AgentSpec(name="guide", persona="You are a guide.")
    )
    store.close()
    code = code.replace(OURS, serve(judge="probe+rules")).replace("local/minilm", model)
    namespace = {"__name__": "docs"}
    exec(compile(code, "docs/openai.md", "exec"), namespace)
    if "client" in namespace:
        namespace["client"].close()
    assert capsys.readouterr().out.strip()
