"""What pages are read with, and the texts that they have to stand."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "</title></style></script></svg><script>alert(1)</script>",
    '"><img src=http://evil.example/x onerror=alert(1)>',
    "' onload='alert(1)' x='",
    "<svg onload=alert(1)><a href=javascript:alert(1)>x</a></svg>",
    "]]><!--<iframe src=//evil.example>-->",
    "{{ 7 * 7 }}{% raw %}{{ config }}",
    "&lt;b&gt; &#60;b&#62; \x1b[31m \x00 \u202e",
)
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "p", "h1"),
    *(
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "div",
        "span",
        "b",
        "i",
        "a",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "table",
    ),
    *("thead", "tbody", "tr", "th", "td", "details", "summary", "article", "figure", "figcaption"),
    *("script", "svg", "defs", "pattern", "g", "line", "rect", "circle", "text"),
}


class Outline(HTMLParser):
    """The elements with their attributes, and all text outside of `style` and `script`."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._style = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += attrs
        self._style = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
