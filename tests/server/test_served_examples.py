"""The examples of `docs/serve.md` run as they stand, those whose packages are here."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
OURS = "http://127.0.0.1:8400"


def test_there_are_examples():
    assert len(BLOCKS) == 3
    assert all(OURS in code for code in BLOCKS)


@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_run(serve, code, capsys):
    package = re.search(r"^from (\w+)", code)[1]
    pytest.importorskip(package)
    namespace = {}
    exec(
        compile(code.replace(OURS, serve(judge="probe+rules")), "docs/serve.md", "exec"), namespace
    )
    for name in ("client", "typesafe"):
        if name in namespace:
            namespace[name].close()
    assert re.search(r"\d\.\d", capsys.readouterr().out)
