"""The rows of a SQLite file, read page by page and past what is damaged. No SQLite here, which
gives up where the way to a row is damaged though the row itself is whole.

The format is described at https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

PageValue: TypeAlias = int | float | str | bytes | None

USUAL_SIZE = 4096
SIZES = tuple(2**n for n in range(9, 17))
HEADER, WAL_HEADER, FRAME_HEADER = 100, 32, 24
INDEX_BRANCH, INDEX_LEAF, TABLE_LEAF = 2, 10, 13
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


@dataclass(frozen=True, slots=True)
class PageRow:
    """What a cell holds; `rowid` is of no meaning in an index."""

    kind: Literal["table", "index"]
    rowid: int
    values: list[PageValue]


def read_rows(path: Path) -> Iterator[PageRow | None]:
    """All rows of tables and entries of indexes, in no order; None for each that is damaged."""
    with path.open("rb") as file:
        if path.stat().st_size < USUAL_SIZE:
            return
        with closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            size = _page_size(data)
            pages = _Pages(data, size, _read_log(path.with_name(path.name + "-wal"), size))
            yield from pages.rows()


def _page_size(data: mmap.mmap) -> int:
    """As the header says, unless that is damaged: then another gives more rows."""
    (said,) = struct.unpack_from(">H", data, 16)
    said = 65536 if said == 1 else said
    if said == USUAL_SIZE or said not in SIZES:
        return USUAL_SIZE

    def count(size: int) -> int:
        return sum(row is not None for row in _Pages(data, size, {}).rows())

    return max((said, USUAL_SIZE), key=count)


def _read_log(path: Path, size: int) -> dict[int, bytes]:
    """The pages that stand in the write-ahead log, as its last whole transaction left them."""
    try:
        log = path.read_bytes()
    except OSError:
        return {}
    salts, done, begun = log[16:24], dict[int, bytes](), dict[int, bytes]()
    for start in range(WAL_HEADER, len(log) - FRAME_HEADER - size + 1, FRAME_HEADER + size):
        number, committed = struct.unpack_from(">II", log, start)
        if log[start + 8 : start + 16] != salts:
            break
        begun[number] = log[start + FRAME_HEADER : start + FRAME_HEADER + size]
        if committed:
            done |= begun
            begun = {}
    return done


class _Pages:
    """The pages of a file by their numbers, which count from 1."""

    def __init__(self, data: mmap.mmap, size: int, log: dict[int, bytes]) -> None:
        self._data, self._size, self._log = data, size, log
        self._count = max([len(data) // size, *log])

    def _page(self, number: int) -> bytes:
        if not 1 <= number <= self._count:
            raise ValueError("there is no such page")
        start = (number - 1) * self._size
        page = self._log.get(number) or self._data[start : start + self._size]
        if len(page) < self._size:
            raise ValueError("the page is cut off")
        return page

    def rows(self) -> Iterator[PageRow | None]:
        free = self._find_free()
        for number in range(2, self._count + 1):  # the first describes the tables
            if number not in free:
                try:
                    page = self._page(number)
                except ValueError:
                    continue
                yield from self._rows_on(page)

    def _find_free(self) -> set[int]:
        """Pages that were given back: what stands on them was deleted. None if the list of them is
        damaged."""
        trunk, expected = struct.unpack_from(">II", self._page(1), 32)
        free: set[int] = set()
        try:
            while trunk and trunk not in free:
                page = self._page(trunk)
                after, number = struct.unpack_from(">II", page)
                free |= {trunk, *struct.unpack_from(f">{number}I", page, 8)}
                trunk = after
        except (ValueError, struct.error, MemoryError):
            return set()
        return free if len(free) == expected else set()

    def _rows_on(self, page: bytes) -> Iterator[PageRow | None]:
        if page[0] not in (INDEX_BRANCH, INDEX_LEAF, TABLE_LEAF):
            return
        (number,) = struct.unpack_from(">H", page, 3)
        first = 12 if page[0] == INDEX_BRANCH else 8
        for n in range(min(number, (self._size - first) // 2)):
            (place,) = struct.unpack_from(">H", page, first + 2 * n)
            try:
                yield self._read_cell(page, place)
            except (ValueError, IndexError, struct.error):
                yield None

    def _read_cell(self, page: bytes, place: int) -> PageRow:
        if page[0] == INDEX_BRANCH:
            place += 4
        length, place = _varint(page, place)
        rowid = 0
        if page[0] == TABLE_LEAF:
            rowid, place = _varint(page, place)
        payload = self._read_payload(page, place, length)
        return PageRow("table" if page[0] == TABLE_LEAF else "index", rowid, _read_record(payload))

    def _read_payload(self, page: bytes, place: int, length: int) -> bytes:
        """The bytes of a cell: some stand on its page, the rest on a chain of others."""
        if length > self._count * self._size:
            raise ValueError("longer than the file")
        most = self._size - 35 if page[0] == TABLE_LEAF else (self._size - 12) * 64 // 255 - 23
        here = length
        if length > most:
            least = (self._size - 12) * 32 // 255 - 23
            here = least + (length - least) % (self._size - 4)
            here = here if here <= most else least
        payload = page[place : place + here]
        if len(payload) < here:
            raise ValueError("beyond the page")
        if here < length:
            parts, left = [payload], length - here
            (follows,) = struct.unpack_from(">I", page, place + here)
            while left > 0:
                rest = self._page(follows)
                (follows,) = struct.unpack_from(">I", rest)
                parts.append(rest[4 : 4 + left])
                left -= self._size - 4
            payload = b"".join(parts)
        return payload


def _read_record(payload: bytes) -> list[PageValue]:
    end, place = _varint(payload, 0)
    kinds: list[int] = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[PageValue] = []
    for kind in kinds:
        value, place = _read_value(payload, place, kind)
        values.append(value)
    if place != len(payload):
        raise ValueError("of another length")
    return values


def _read_value(payload: bytes, place: int, kind: int) -> tuple[PageValue, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), place
    length = _INTEGERS.get(kind, 8) if kind < 12 else (kind - 12) // 2
    raw = payload[place : place + length]
    if len(raw) < length or kind in (10, 11):
        raise ValueError("no value")
    if kind in _INTEGERS:
        return int.from_bytes(raw, "big", signed=True), place + length
    if kind == 7:
        return struct.unpack(">d", raw)[0], place + length
    return (raw.decode() if kind % 2 else raw), place + length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = data[place]
        place += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place
    return value << 8 | data[place], place + 1
