"""Images in reports: what stands for one where it is not shown, and those of a store put in.

Records name images in short; a page needs their content. What a page may show is a data URL of a
kind that has no script in it, and nothing else becomes the address of an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from textevolve.images import image_facts, image_reference, is_shown, key_in_reference
from textevolve.report.blocks import Block, Entry, Images, Matrix, MatrixRow, Section

MOST_SHOWN = 32_000_000
"""Characters of images in one report; of more the page says what they are."""

FindImage: TypeAlias = Callable[[str], str | None]
"""The data URL of an image by its key; None where there is none."""


def say_image(url: str) -> str:
    """What is known of an image: `png, 12 kB`."""
    return str(image_facts(url))


def source_of(url: str) -> str:
    """What a page may have as the address of an image; empty where it is not to be shown."""
    return url if is_shown(url) else ""


def put_images(blocks: Iterable[Block], find: FindImage, most: int = MOST_SHOWN) -> Iterator[Block]:
    """The blocks with the images of a store where they name some, as far as there is room."""
    return _Putting(find, most).blocks(blocks)


class _Putting:
    def __init__(self, find: FindImage, most: int) -> None:
        self._find = find
        self._left = most

    def blocks(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            match block:
                case Images():
                    found = [(name, self._image(url)) for name, url in block.images]
                    yield replace(block, images=found)
                case Section():
                    yield replace(block, blocks=self.blocks(block.blocks))
                case Matrix():
                    yield replace(block, rows=map(self._row, block.rows))
                case _:
                    yield block

    def _row(self, row: MatrixRow) -> MatrixRow:
        return replace(
            row, entries=list(map(self._entry, row.entries)), details=self._details(row.details)
        )

    def _entry(self, entry: Entry | None) -> Entry | None:
        if entry is None or not entry.details:
            return entry
        return replace(entry, details=self._details(entry.details))

    def _details(self, details: Sequence[Block]) -> Sequence[Block]:
        return list(self.blocks(details))

    def _image(self, url: str) -> str:
        key = key_in_reference(url)
        found = url if key is None else self._find(key) if self._left > 0 else None
        if found is None or len(found) > self._left:
            return image_reference(url)
        self._left -= len(found)
        return found
