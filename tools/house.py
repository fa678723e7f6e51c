"""How the package is built: its size, functions, imports and names, beside the limits set to them.

    python tools/house.py             everything; ends with 1 where a limit is broken
    python tools/house.py --short     the figures beside their limits, without what they count
    python tools/house.py --limits    the limits and the goals alone
    python tools/house.py --goals     held against the goals in place of the limits

Only the standard library is used and nothing of the package is imported, so that it runs anywhere.
What a module means, and which room may import which, is not looked at here: import-linter does.

Size is counted in *syntax nodes* (what `ast.walk` yields, without contexts and annotations), so
that formatting, comments and blank lines cost nothing and denser code gains nothing. A docstring
costs two nodes, however long it is.
Lines have no limit, in no file: a limit on them buys dense sentences.

What a name used twice is: two public classes or type aliases of one name, wherever they stand, and
two functions of one name that other modules each import by that bare name, so that a reader meets
it in two meanings. A function that only its own module names, such as the `run`, `summarise` and
`report` that every study hands over, or a command's, is told apart by its module and does not
count. Nor do the names of a package that mirrors another's and are that one's own (`MIRRORS`).

What an import inside a function is: one of our own modules, of the standard library or of another
package. Those of packages that are heavy to load or optional (`HEAVY`) are meant, and listed apart.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FUNCTION_LINES = 120
PARAMETERS = 8
VERB_PARAMETERS = 16
VERBS = re.compile(r"textevolve\.(api\.|testing\.assertions)")
LONGEST_SHOWN = 10


class Limit(NamedTuple):
    """`most` is what is allowed now, `goal` what it is to come down to."""

    most: int
    goal: int


LIMITS: Mapping[str, Limit] = {
    "syntax nodes": Limit(432_600, 332_000),
    "calls packed as f(*(a, b))": Limit(0, 0),
    f"functions above {FUNCTION_LINES} lines": Limit(0, 0),
    f"functions with more than {PARAMETERS} parameters": Limit(0, 0),
    "imports inside functions": Limit(12, 12),
    "modules in circles of imports": Limit(0, 0),
    "modules in circles with hidden imports": Limit(0, 0),
    "public names used twice": Limit(8, 0),
}
"""`most` is what is allowed today. That of the nodes leaves room for mends; the others are lowered
whenever the figure falls."""

HEAVY = frozenset(
    {
        *(
            "cronsim",
            "dspy",
            "fcntl",
            "genai_prices",
            "huggingface_hub",
            "jinja2",
            "jsonschema",
            "opentelemetry",
            "referencing",
        ),
        *("keyring", "ladybug", "langchain_core", "langgraph", "mem0", "onnxruntime", "pgvector"),
        *("openpyxl", "psycopg", "pyarrow", "pytest", "ray", "rich", "tokenizers", "xllamacpp"),
    }
)
"""Packages that are heavy to load, optional, or not on every system."""
HEAVY_OURS = frozenset(
    (
        "textevolve.llm.chains.dspy_modules",
        "textevolve.llm.chains.langchain_runnables",
        "textevolve.llm.chat_formats.sources",
        "textevolve.node_eval.langgraph",
        "textevolve.remote.runs",
        "textevolve.server.app",
        "textevolve.server.mcp",
        "textevolve.studies.loop_spans",
        "textevolve.studies.span_export",
    )
)
"""Our modules that need such a package at their top."""
MIRRORS = ("textevolve.node_eval.arbiteros",)

_ALIAS = re.compile(r"[A-Z]\w*[a-z]\w*")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class FoundFunction:
    module: str
    name: str
    line: int
    lines: int
    parameters: int

    @property
    def place(self) -> str:
        return f"{self.module}:{self.line} {self.name}"

    @property
    def is_wide(self) -> bool:
        """Whether it has too many parameters; a verb of Python may have more, each by its name."""
        return self.parameters > (VERB_PARAMETERS if VERBS.match(self.module) else PARAMETERS)


@dataclass
class Module:
    """What is read of one file. `imports`: the modules named at its top, `hidden` those named
    inside functions; what only a type checker reads is in neither."""

    name: str
    package: str
    lines: int = 0
    nodes: int = 0
    packed_calls: int = 0
    functions: list[FoundFunction] = field(default_factory=list[FoundFunction])
    imports: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    hidden: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    hidden_statements: int = 0
    heavy_statements: int = 0
    public: list[str] = field(default_factory=list[str])
    functions_public: frozenset[str] = frozenset()


@dataclass(frozen=True)
class House:
    """All modules of a package, and what they make together."""

    modules: Sequence[Module]

    def room(self, module: Module) -> str:
        """The folder below the package that a module lies in; the package's own files share one."""
        parts = module.package.split(".")
        return parts[1] if len(parts) > 1 else "(top)"

    def rooms(self) -> dict[str, list[Module]]:
        grouped: dict[str, list[Module]] = defaultdict(list)
        for module in self.modules:
            grouped[self.room(module)].append(module)
        return dict(sorted(grouped.items()))

    def functions(self) -> list[FoundFunction]:
        """The longest first."""
        listed = [function for module in self.modules for function in module.functions]
        return sorted(listed, key=lambda function: (-function.lines, function.place))

    def circles(self, hidden: bool) -> list[list[str]]:
        names = {module.name for module in self.modules}
        arrows: dict[str, list[str]] = {}
        for module in self.modules:
            imports = module.imports + (module.hidden if hidden else [])
            aims = {aim for imported in imports if (aim := aim_of(imported, names))}
            arrows[module.name] = sorted(aims - {module.name})
        return find_circles(arrows)

    def twice(self) -> dict[str, list[str]]:
        """Public names that mean two things to a reader (see above), with their modules."""
        imported = {pair for module in self.modules for pair in module.imports + module.hidden}
        places: dict[str, list[str]] = defaultdict(list)
        for module in self.modules:
            if module.name.startswith(MIRRORS):
                continue
            for name in dict.fromkeys(module.public):
                if name not in module.functions_public or (module.name, name) in imported:
                    places[name].append(module.name)
        return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def read_house(folder: Path) -> House:
    """Every module of the package whose folder this is."""
    return House([read_module(path, folder) for path in sorted(folder.rglob("*.py"))])


def read_module(path: Path, folder: Path) -> Module:
    parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
    package = ".".join(parts[:-1])
    name = package if parts[-1] == "__init__" else ".".join(parts)
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    module = Module(name, package, lines=len(text.splitlines()), public=list(find_public(tree)))
    module.functions_public = frozenset(n.name for n in tree.body if isinstance(n, Function))
    _Reader(module).visit(tree)
    module.nodes = count_nodes(tree)
    module.packed_calls = count_packed_calls(tree)
    return module


class _Reader(ast.NodeVisitor):
    """Walks once through a file and writes down what it comes across."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.around: list[Function | ast.ClassDef] = []

    def visit_FunctionDef(self, node: Function) -> None:
        of_class = bool(self.around) and isinstance(self.around[-1], ast.ClassDef)
        function = FoundFunction(
            module=self.module.name,
            name=".".join([*(parent.name for parent in self.around), node.name]),
            line=node.lineno,
            lines=(node.end_lineno or node.lineno) - node.lineno + 1,
            parameters=count_parameters(node, of_class),
        )
        self.module.functions.append(function)
        self._enter(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def _enter(self, node: Function | ast.ClassDef) -> None:
        self.around.append(node)
        self.generic_visit(node)
        self.around.pop()

    def visit_If(self, node: ast.If) -> None:
        condition = node.test.attr if isinstance(node.test, ast.Attribute) else node.test
        if "TYPE_CHECKING" in (condition, getattr(condition, "id", None)):
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._imported([(alias.name, "") for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.module.package.split(".")[: -(node.level - 1) or None] if node.level else []
        start = ".".join([*above, *([node.module] if node.module else [])])
        self._imported([(start, alias.name) for alias in node.names])

    def _imported(self, names: list[tuple[str, str]]) -> None:
        if any(isinstance(parent, Function) for parent in self.around):
            self.module.hidden += names
            heavy = names[0][0].split(".")[0] in HEAVY or names[0][0] in HEAVY_OURS
            self.module.heavy_statements += heavy
            self.module.hidden_statements += not heavy
        else:
            self.module.imports += names


def count_parameters(node: Function, of_class: bool) -> int:
    """All of a function's parameters but the self or cls of a method."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    bound = of_class and bool(positional) and positional[0].arg in ("self", "cls")
    starred = (arguments.vararg is not None) + (arguments.kwarg is not None)
    return len(positional) + len(arguments.kwonlyargs) + starred - bound


def count_nodes(tree: ast.AST) -> int:
    """Syntax nodes without contexts and annotations, which say nothing of what code does."""
    number, todo = 0, [tree]
    while todo:
        node = todo.pop()
        number += 1
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "ctx"):
                continue
            children = value if isinstance(value, list) else [value]  # pyright: ignore
            todo += [child for child in children if isinstance(child, ast.AST)]  # pyright: ignore
    return number


def count_packed_calls(tree: ast.AST) -> int:
    """Calls of the form `f(*(a, b))`, which hide how many arguments a call has."""
    return sum(
        isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in node.args
    )


def find_public(tree: ast.Module) -> Iterator[str]:
    """Public names of the classes, functions and type aliases at the top of a file."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        elif type(node).__name__ == "TypeAlias":  # `type X = ...`, from Python 3.12 on
            name = str(getattr(node, "name").id)  # noqa: B009
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            name = ast.unparse(node.target)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and is_alias(node):
            name = ast.unparse(node.targets[0])
        else:
            continue
        if not name.startswith("_"):
            yield name


def is_alias(node: ast.Assign) -> bool:
    """Whether `Name = dict[str, int]` or `Name = A | B` stands there, by its capital letter."""
    target, value = node.targets[0], node.value
    union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
    is_named_so = isinstance(target, ast.Name) and _ALIAS.fullmatch(target.id) is not None
    return is_named_so and (union or isinstance(value, ast.Subscript))


def aim_of(imported: tuple[str, str], names: set[str]) -> str | None:
    """The module of the package that an import names: `from a import b` may mean a.b or a's b.

    The packages around it are loaded too, but they are not what is asked for: a package whose front
    gathers its own files would else be a circle with each of them.
    """
    start, name = imported
    full_name = f"{start}.{name}" if name else start
    return full_name if full_name in names else start if start in names else None


def find_circles(arrows: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Sets of two or more modules that all reach one another (Tarjan), the largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: list[str] = []
    circles: list[list[str]] = []

    def reach(name: str) -> None:
        number[name] = low[name] = len(number)
        waiting.append(name)
        for aim in arrows[name]:
            if aim not in number:
                reach(aim)
                low[name] = min(low[name], low[aim])
            elif aim in waiting:
                low[name] = min(low[name], number[aim])
        if low[name] == number[name]:
            at = waiting.index(name)
            if len(waiting) - at > 1:
                circles.append(sorted(waiting[at:]))
            del waiting[at:]

    for name in arrows:
        if name not in number:
            reach(name)
    return sorted(circles, key=lambda circle: (-len(circle), circle))


def measure(house: House) -> dict[str, int]:
    """The figure that belongs to each limit."""
    functions = house.functions()
    figures = (
        sum(module.nodes for module in house.modules),
        sum(module.packed_calls for module in house.modules),
        sum(function.lines > FUNCTION_LINES for function in functions),
        sum(function.is_wide for function in functions),
        sum(module.hidden_statements for module in house.modules),
        sum(map(len, house.circles(hidden=False))),
        sum(map(len, house.circles(hidden=True))),
        len(house.twice()),
    )
    return dict(zip(LIMITS, figures, strict=True))


def describe_house(house: House) -> Iterator[str]:
    """The lines that are printed above the table of limits."""
    yield from table("room", ("files", "lines", "nodes"), list_rooms(house))
    functions = house.functions()
    number = max(LONGEST_SHOWN, sum(function.lines > FUNCTION_LINES for function in functions))
    longest = [(function.place, function.lines) for function in functions[:number]]
    yield from table("longest functions", ("lines",), longest)
    many = Counter({f.place: f.parameters for f in functions if f.is_wide})
    title = f"functions with more than {PARAMETERS} parameters"
    yield from table(title, ("count",), many.most_common())
    hidden = Counter({m.name: m.hidden_statements for m in house.modules if m.hidden_statements})
    yield from table("imports inside functions", ("count",), hidden.most_common())
    heavy = Counter({m.name: m.heavy_statements for m in house.modules if m.heavy_statements})
    yield from table("those of heavy packages", ("count",), heavy.most_common())
    for title, also in (("", False), (", with the imports inside functions", True)):
        circles = [(" ".join(circle), len(circle)) for circle in house.circles(also)]
        yield from table(f"circles of imports{title}", ("modules",), circles)
    twice = [(f"{name}: {' '.join(where)}", len(where)) for name, where in house.twice().items()]
    yield from table("public names used twice", ("modules",), twice)


def list_rooms(house: House) -> Iterator[tuple[str, int, int, int]]:
    """Each room with its files, lines and syntax nodes."""
    for room, modules in [*house.rooms().items(), ("in all", house.modules)]:
        lines = sum(module.lines for module in modules)
        nodes = sum(module.nodes for module in modules)
        yield room, len(modules), lines, nodes


def list_limits(figures: Mapping[str, int] | None) -> Iterator[str]:
    """The table of limits, with the figures where there are any."""
    now = {} if figures is None else {title: (figure,) for title, figure in figures.items()}
    rows = [(title, *now.get(title, ()), *limit) for title, limit in LIMITS.items()]
    yield from table("limits", ("now", "most", "goal")[not now :], rows)


def table(
    title: str, heads: Sequence[str], rows: Iterable[tuple[str, *tuple[int, ...]]]
) -> Iterator[str]:
    """Numbers come first, since names are of any length. Nothing where there are no rows."""
    rows = list(rows)
    if not rows:
        return
    yield "".join(f"{head:>8}" for head in heads) + f"  {title}".rstrip()
    for name, *numbers in rows:
        yield "".join(f"{number:>8,}" for number in numbers) + f"  {name}"
    yield ""


def find_broken(figures: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """A line for each figure that is above what is allowed."""
    return [
        f"broken: {title}: {figures[title]:,}, allowed are {allowed:,}"
        for title, allowed in most.items()
        if figures[title] > allowed
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Size, functions, imports, names: with limits.")
    default = Path(__file__).resolve().parent.parent / "src" / "textevolve"
    parser.add_argument("package", nargs="?", type=Path, default=default, help="its folder")
    parser.add_argument("--short", action="store_true", help="print no lists of what is counted")
    parser.add_argument("--limits", action="store_true", help="print the limits and goals alone")
    parser.add_argument("--goals", action="store_true", help="hold it against the goals")
    options = parser.parse_args(arguments)
    if options.limits:
        print("\n".join(list_limits(None)))
        return 0
    house = read_house(options.package)
    if not house.modules:
        parser.error(f"{options.package}: no Python files")
    figures = measure(house)
    broken = find_broken(
        figures,
        {title: limit.goal if options.goals else limit.most for title, limit in LIMITS.items()},
    )
    if not options.short:
        print("\n".join(describe_house(house)))
    print("\n".join([*list_limits(figures), *broken]))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
