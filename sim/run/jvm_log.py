# SPDX-License-Identifier: Apache-2.0
"""Reads the JVM's unified log while it is written and after: marking cycles, pauses, safepoints.

The log is written with the decorations `tn` (monotonic nanoseconds, the clock of
time.monotonic_ns) and `tg`. Under gc,merapi, records are machine-readable: a word
(Trace, Verify, Fallback) and a JSON object to the end of the line.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

TIME = r"([\d.,]+)"  # as the locale of the JVM's user has it, but in records and sentences under gc,merapi
LINE = re.compile(r"^\[(\d+)ns\]\[([a-z,+ ]+?) *\] ?(?:GC\((\d+)\) )?(.*)$")
RECORD = re.compile(r"^(Trace|Verify|Fallback) (\{.*\})$")
RECORD_BEGIN = re.compile(r"^(Trace|Verify|Fallback) .*\{")
MARK_BEGIN = re.compile(r"^Concurrent Mark From Roots$")
MARK_END = re.compile(rf"^Concurrent Mark From Roots {TIME}ms$")
MARK_ABORT = re.compile(r"^Concurrent Mark Abort")
PAUSE = re.compile(rf"^Pause (Young|Remark|Cleanup|Full)(.*?) \d+[KMG]->\d+[KMG]\(\d+[KMG]\) {TIME}ms$")
PAUSE_ACKNOWLEDGED = re.compile(r"^Pause acknowledged after ([\d.]+) us$")
COLLECTOR = re.compile(r"^Using (?:The )?(\w+)(?: Garbage Collector)?$")  # Z alone has a sentence for a name
WINDOW = re.compile(r"^Window (.+): (\d+) bytes, heap at offset (\d+) ")
SAFEPOINT = re.compile(r'^Safepoint "(\w+)",.* Reaching safepoint: (\d+) ns,.* At safepoint: (\d+) ns')


def log_flag(path, *more):
    """The -Xlog flag that writes what this module reads; `more` are further selections (gc+merapi=debug)."""
    selections = ",".join(["gc*=info", "safepoint=info", *more])
    return f"-Xlog:{selections}:file={path}:tn,tg:filecount=0"


class Line(NamedTuple):
    instant: int  # nanoseconds
    tags: str
    gc_id: int | None
    text: str


def number(text):
    """What TIME has found."""
    return float(text.replace(",", "."))


def parse(line):
    """A line of the log in its parts; None when it is none."""
    match = LINE.match(line.rstrip("\n"))
    if not match:
        return None
    return Line(int(match[1]), match[2].strip(), int(match[3]) if match[3] is not None else None, match[4])


@dataclass
class Cycle:
    """One concurrent marking cycle as the log tells it; times in milliseconds, instants in nanoseconds."""

    gc_id: int
    trace: dict | None = None
    verify: dict | None = None
    remark_ms: float | None = None
    mark_ms: float | None = None
    mark_begin_ns: int | None = None
    mark_end_ns: int | None = None


@dataclass
class JvmLog:
    """Everything read so far. `feed` takes lines in order and returns what a line told, as (kind, value): a "trace",
    "verify", "remark" or "abort" with its Cycle, a "fallback" with its record."""

    cycles: dict = field(default_factory=dict)
    fallbacks: list = field(default_factory=list)
    problems: list = field(default_factory=list)  # records that cannot be read
    young_ms: list = field(default_factory=list)  # (kind as "Normal", milliseconds, begins inside marking)
    full_gcs: int = 0
    reaching_ns: list = field(default_factory=list)  # time to safepoint of young collections
    device_pauses_us: list = field(default_factory=list)  # only with gc+merapi=debug
    collector: str | None = None  # as the JVM names it at its start: G1, Parallel, ...
    window_bytes: int | None = None
    marking: int | None = None
    last_gc: int | None = None

    def cycle(self, gc_id):
        return self.cycles.setdefault(gc_id, Cycle(gc_id))

    def feed(self, line):
        parsed = parse(line)
        return self.take(parsed) if parsed else None

    def take(self, line):
        instant, tags, gc_id, text = line
        if "merapi" in tags.split(","):
            return self.record(gc_id, text)
        if tags == "safepoint":
            return self.safepoint(text)
        if gc_id is None:
            if match := COLLECTOR.match(text):
                self.collector = match[1]
            return None
        if MARK_BEGIN.match(text):
            self.cycle(gc_id).mark_begin_ns = instant
            self.marking = gc_id
        elif match := MARK_END.match(text):
            cycle = self.cycle(gc_id)
            cycle.mark_ms, cycle.mark_end_ns = number(match[1]), instant
            self.marking = None
        elif MARK_ABORT.match(text):
            return ("abort", self.cycle(gc_id))
        elif match := PAUSE.match(text):
            return self.pause(gc_id, match[1], match[2].strip(), number(match[3]))
        return None

    def pause(self, gc_id, kind, detail, milliseconds):
        if kind == "Remark":
            cycle = self.cycle(gc_id)
            cycle.remark_ms = milliseconds
            return ("remark", cycle)
        if kind == "Young":
            name = re.match(r"\((.*?)\)", detail)
            self.young_ms.append((name[1] if name else detail, milliseconds, self.marking is not None))
        elif kind == "Full":
            self.full_gcs += 1
            self.marking = None
        return None

    def safepoint(self, text):
        match = SAFEPOINT.match(text)
        if match and match[1] in ("G1CollectForAllocation", "G1TryInitiateConcMark"):
            self.reaching_ns.append(int(match[2]))

    def record(self, gc_id, text):
        begin = RECORD_BEGIN.match(text)
        if not begin:
            return self.sentence(text)
        kind, match = begin[1], RECORD.match(text)
        try:
            value = json.loads(match[2])
        except (TypeError, json.JSONDecodeError) as error:
            self.problems.append(f"not '{kind} {{json}}': {text} ({error})")
            return None
        if kind == "Trace":
            cycle = self.cycle(value.get("gc_id", gc_id))
            cycle.trace = value
            self.last_gc = cycle.gc_id
            return ("trace", cycle)
        if kind == "Verify":
            number = value.get("gc_id", gc_id if gc_id is not None else self.last_gc)
            if number is None:
                self.problems.append(f"Verify of no collection: {text}")
                return None
            self.cycle(number).verify = value
            return ("verify", self.cycle(number))
        self.fallbacks.append(value)
        return ("fallback", value)

    def sentence(self, text):
        if match := PAUSE_ACKNOWLEDGED.match(text):
            self.device_pauses_us.append(float(match[1]))
        elif match := WINDOW.match(text):
            self.window_bytes = int(match[2])

    def offloaded(self):
        """Cycles whose marking the device finished, in order."""
        return [c for c in self.cycles.values() if c.trace is not None and not c.trace.get("fallback")]


class Follower:
    """Reads complete lines of a growing file; a line is given out once its end has been written."""

    def __init__(self, path):
        self.path, self.file, self.rest = Path(path), None, ""

    def lines(self):
        if self.file is None:
            try:
                self.file = self.path.open(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return []
        text = self.rest + self.file.read()
        *complete, self.rest = text.split("\n")
        return complete

    def close(self):
        if self.file:
            self.file.close()


def read(path, kind=JvmLog):
    """The log of a JVM as far as it is written."""
    log = kind()
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            log.feed(line)
    return log
