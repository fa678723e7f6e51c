"""Read the traces of a folder, or of a file, while other programs write them.

Each look reads the lines that were completed since the last one, as OpenTelemetry's spans or an
export of another tool. A trace has no end mark: it is complete when a look brings no more of it.
Only positions in files and the ids of traces are kept; what was judged is known from the stored
runs (`textevolve.studies.following`).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.node_eval.documents import (
    PlacedRecord,
    group_records,
    parse_document,
    place_records,
)
from textevolve.node_eval.history import Instruction
from textevolve.node_eval.judging import Episode, Reading
from textevolve.node_eval.span_states import Span
from textevolve.node_eval.traces import build_episodes

COMPRESSED = (".gz", ".zst", ".xz", ".bz2", ".zip")
ROOTLESS_LOOKS = 10
"""The looks without news after which a trace is complete although the parent of one of its spans
has not arrived: a span is written when it ends, so that the outermost one comes last."""
RUN_OF_OURS = "textevolve.run_id"
"""The attribute of spans of our own runs, such as judges' calls. Judging these would never end."""
TRACES_KEPT = 100_000
"""The number of traces whose spans are recognised if they are written again."""


@dataclass(slots=True)
class Look:
    """The result of a look at a folder.

    `episodes`: the complete traces of the sample, with steps of an agent. `unused`: the numbers of
    complete traces that are not judged, by the reason. `late`: the number of spans that came after
    their trace was complete. `waiting`: the number of traces that may still grow. `notes`: files
    that are left out or were written anew. `reading`: the nodes, and the lines and spans that
    cannot be used.
    """

    episodes: list[Episode] = empty_default(list)
    unused: Counter[str] = empty_default(Counter)
    late: int = 0
    waiting: int = 0
    notes: list[str] = empty_default(list)
    reading: Reading = empty_default(Reading)


@dataclass(slots=True)
class _Position:
    """How far a file was read, and the last line before that, by which it is recognised: a file may
    be cut and written anew, and a new one may get the number of a deleted one."""

    offset: int = 0
    last: bytes = b""


@dataclass(slots=True)
class _Waiting:
    """The records of a trace that is not complete; none if it is not in the sample. `quiet`: the
    number of looks without news."""

    records: list[PlacedRecord]
    quiet: int


def is_sampled(trace: str, rate: float) -> bool:
    """Tell whether a trace is in the sample. The choice hangs on its id alone, so that it is the
    same for every program, and a larger sample contains a smaller one."""
    number = int.from_bytes(hashlib.sha256(trace.encode()).digest()[:8], "big")
    return number < rate * 2**64


class TraceFolder:
    """A folder, or a file, in which traces are written.

    Args:
        path: The folder or the file.
        instructions: The types of nodes by their names.
        sample: The share of traces that are read.
        seconds: The time between two looks. What is older than that at the first look counts as
            unchanged since an earlier one.
        known: The ids of traces that were judged before.

    Raises:
        InputError: there is no such folder or file.
    """

    def __init__(
        self,
        path: str,
        instructions: Mapping[str, Instruction],
        sample: float,
        seconds: float,
        known: Collection[str],
    ) -> None:
        self.path = Path(path)
        self.instructions = instructions
        self.sample = sample
        self.seconds = seconds
        self.known = known
        self._positions: dict[tuple[int, int], _Position] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._complete: dict[str, set[str]] = {}
        self._noted: set[str] = set()
        if not self.path.exists():
            raise InputError(f"{path}: there is no such folder or file")

    def look(self) -> Look:
        """Read what was written since the last look.

        Raises:
            InputError: the folder cannot be read.
        """
        look = Look()
        for waiting in self._waiting.values():
            waiting.quiet += 1
        for file in self._list_files(look):
            # A file may be renamed or deleted meanwhile; the next look finds it by its number.
            with suppress(FileNotFoundError):
                self._read_file(file, look)

        for trace, waiting in list(self._waiting.items()):
            if waiting.quiet:
                self._settle(trace, waiting, look)
        look.waiting = len(self._waiting)

        return look

    def _list_files(self, look: Look) -> list[Path]:
        """Return the files in the order in which they were last written."""
        if self.path.is_file():
            return [self.path]
        files: list[tuple[float, Path]] = []
        try:
            for file in sorted(self.path.iterdir()):
                with suppress(FileNotFoundError):
                    if not file.is_file() or file.name.startswith("."):
                        continue
                    if "json" not in file.name or file.suffix in COMPRESSED:
                        self._note(look, f"{file.name} is left out: only files with JSON are read")
                        continue
                    files.append((file.stat().st_mtime, file))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from error

        return [file for _, file in sorted(files)]

    def _note(self, look: Look, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            look.notes.append(text)

    def _read_file(self, path: Path, look: Look) -> None:
        """Read the complete lines that are new. A last line without an end is read only if its file
        has not changed for long."""
        try:
            stat = path.stat()
            age = max(0.0, time.time() - stat.st_mtime)  # 0 too if the clock was set back
            quiet = int(age / self.seconds) if self.seconds else 0
            with path.open("rb") as file:
                number = (stat.st_dev, stat.st_ino)
                position = self._positions.setdefault(number, _Position())
                file.seek(position.offset - len(position.last))
                if file.read(len(position.last)) != position.last:
                    look.notes.append(f"{path.name} was written anew: it is read from its start")
                    position.offset = 0
                    file.seek(0)
                for line in file:
                    if not line.endswith(b"\n") and not quiet:
                        break
                    where = f"{path.name}: byte {position.offset}"
                    position.offset += len(line)
                    position.last = line
                    self._read_line(where, line.strip(b"\0 \t\r\n"), quiet, look)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._note(look, f"{path.name}: cannot be read ({error.strerror or error})")

    def _read_line(self, where: str, line: bytes, quiet: int, look: Look) -> None:
        if not line:
            return
        try:
            document = parse_document(where, line)
        except InputError as error:
            look.reading.report(str(error))
            return

        for place, record in place_records(where, document, look.reading):
            trace = record.trace_id if isinstance(record, Span) else record[0][0]
            if trace in self.known:
                continue
            if trace in self._complete:
                spans = self._complete[trace]
                if isinstance(record, Span) and spans and record.span_id not in spans:
                    spans.add(record.span_id)
                    look.late += 1
                continue

            waiting = self._waiting.setdefault(trace, _Waiting([], quiet))
            waiting.quiet = min(waiting.quiet, quiet)
            if is_sampled(trace, self.sample):
                waiting.records.append((place, record))

    def _settle(self, trace: str, waiting: _Waiting, look: Look) -> None:
        """Move a trace to the complete ones, if it is complete."""
        spans = [record for _, record in waiting.records if isinstance(record, Span)]
        ids = {span.span_id for span in spans}
        parents = {span.parent_span_id for span in spans} - {""}
        if parents - ids and waiting.quiet < ROOTLESS_LOOKS:
            return

        del self._waiting[trace]
        self._complete[trace] = ids
        if len(self._complete) > TRACES_KEPT:
            del self._complete[next(iter(self._complete))]
        if not waiting.records:
            look.unused["not in the sample"] += 1
            return
        if any(RUN_OF_OURS in span.attributes for span in spans):
            look.unused["of TextEvolve's own runs"] += 1
            return

        grouped = group_records(waiting.records, str(self.path), look.reading)
        episodes = list(build_episodes(grouped, look.reading, self.instructions))
        look.episodes += episodes
        look.unused["without a step of an agent"] += not episodes
