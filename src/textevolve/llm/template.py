"""Prompt templates: text files in the `prompts` folders of packages. Values are checked when
they are filled in.

They use Jinja's syntax. A value that is filled in is never read as a template.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2
from textevolve.llm.model import text_hash


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled prompt template.

    Attributes:
        version: A hash of the source, so that a changed prompt makes another run.
        variables: The names of all its variables.
    """

    name: str
    version: str
    variables: frozenset[str]
    compiled: jinja2.Template

    def render(self, **values: Any) -> str:
        """Fill in the template; the names of `values` must be exactly the template's variables."""
        if values.keys() != self.variables:
            wrong = sorted(values.keys() ^ self.variables)
            raise KeyError(f"template {self.name}: {', '.join(wrong)} missing or not known")
        compiled = self.compiled
        context = compiled.environment.context_class(  # made here, it has none of jinja's globals
            compiled.environment, values, compiled.name, compiled.blocks
        )
        return "".join(compiled.root_render_func(context))


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(  # plain text: escaping would alter it
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@cache
def load_template(package: str, name: str) -> Template:
    """Load the template in `<package>/prompts/<name>.md`."""
    from jinja2 import meta

    source = (resources.files(package) / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    environment = _environment()
    variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
    version = text_hash(source)[:12]
    return Template(name, version, variables, environment.from_string(source))
