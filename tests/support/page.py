"""A page as an HTML parser sees it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

VOID = {"meta", "br", "wbr"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str | None]
    path: tuple[str, ...]
    words: list[str]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


class Page(HTMLParser):
    """All elements in order, each with its text and that of what is in it. Fails on a tag that is
    not closed where it should be."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(content)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        element = Element(tag, dict(attrs), tuple(e.tag for e in self.open), [])
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.words.append(data)

    def all(self, tag: str, css: str | None = None) -> list[Element]:
        return [
            e
            for e in self.elements
            if e.tag == tag and (css is None or css in (e.attributes.get("class") or "").split())
        ]

    def texts(self, tag: str, css: str | None = None) -> list[str]:
        return [e.text for e in self.all(tag, css)]
