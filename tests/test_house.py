"""`tools/house.py` on a made-up package in which each fault is planted, and on our own."""

from pathlib import Path
from textwrap import dedent

import pytest

TOOLS = Path(__file__).parent.parent / "tools"

FILES = {
    "__init__.py": '"""The front."""\n\nfrom pack.cli.app import go\n',
    "cli/__init__.py": "",
    "cli/app.py": """\
        '''The command line.

        Two lines of it.'''
        # A comment.
        from typing import TYPE_CHECKING
        from pack.low import Thing
        if TYPE_CHECKING:
            from pack.high import Other
        else:
            from pack import fallback
        text = '''A string is code,

        # whatever it holds.
        '''
        '''A remark on it.'''
        def go(one):
            '''A docstring.'''
            import json
            class Inner:
                from pack.high import Other
            return json, Inner
    """,
    "low.py": """\
        from . import high
        Table = dict[str, int]
        NUMBER = 3
        class Thing:
            def fits(self, a, b, c, d, *e, f, g, **h): pass
            @classmethod
            def is_too_wide(cls, a, b, c, d, e, f, g, h, /, i): pass
            def fits_too(self): pass
        def unbound(self, a, b, c, d, e, f, g, h): pass
        def _private(): unbound(*(1, 2))
    """,
    "high.py": """\
        from pack.fallback import go as gone
        class Other:
            def go(self):
                from .low import Thing
                return Thing
        def fits_too(): pass
        def _private(): pass
    """,
    "fallback.py": """\
        from pack.high import Other as Thing
        Table = dict[str, str] | None
        async def go(): pass
    """,
    "long.py": "def long():\n" + "    pass\n" * 120,
}


@pytest.fixture
def house(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    import house

    return house


@pytest.fixture
def package(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return tmp_path / "pack"


def test_every_planted_fault_is_counted(house, package):
    assert house.measure(house.read_house(package)) == {
        "syntax nodes": 259,
        "calls packed as f(*(a, b))": 1,
        "functions above 120 lines": 1,
        "functions with more than 8 parameters": 2,
        "imports inside functions": 3,
        "modules in circles of imports": 2,
        "modules in circles with hidden imports": 3,
        "public names used twice": 2,
    }
    assert all(limit.goal <= limit.most for limit in house.LIMITS.values())
