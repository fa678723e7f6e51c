"""The Python examples of `docs/http-api.md` run as they stand, if their packages are installed."""

import re
from pathlib import Path

import pytest

from textevolve.agents.resources import AgentSpec
from textevolve.store import kinds

PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
OURS = "http://127.0.0.1:8400"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_run(serve, code, capsys, resources, model):
    pytest.importorskip(re.search(r"^from (\w+)", code)[1])
    resources.ensure_namespace("acme")
    agent = AgentSpec(name="guide", persona="You are a guide.")
    resources.write(kinds.create, kinds.AGENTS, "acme", agent)
    decides = "/v1" not in code
    code = code.replace(OURS, serve(judge="probe+rules")).replace("local/minilm", model)
    namespace = {"__name__": "docs"}
    exec(compile(code, "docs/http-api.md", "exec"), namespace)
    for name in ("client", "typesafe"):
        if name in namespace:
            namespace[name].close()
    out = capsys.readouterr().out
    assert re.search(r"\d\.\d", out) if decides else out.strip()
