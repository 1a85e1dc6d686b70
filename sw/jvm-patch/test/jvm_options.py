# SPDX-License-Identifier: Apache-2.0
"""Sets of JVM options that change what the tracer sees: encodings, alignments, regions, archives, barriers."""

import re
from dataclasses import dataclass

BASE = ["-XX:+UseG1GC", "-XX:+ExplicitGCInvokesConcurrent", "-XX:ConcGCThreads=1"]
VERIFY = ["-XX:+MerapiVerify"]
G1_VERIFY = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifyDuringGC"]
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class OptionSet:
    name: str
    flags: tuple
    heap_factor: int = 1  # the program's heap is multiplied: wider references, coarser alignment
    heap_least: int = 0  # MiB; large regions need a heap of some dozens of them
    cycles_forced: bool = True  # System.gc() is a concurrent cycle; otherwise few cycles need happen
    seconds_factor: int = 1
    arguments: tuple = ()  # of the program


SETS = {
    s.name: s
    for s in [
        OptionSet("plain", ()),
        OptionSet("wide-references", ("-XX:-UseCompressedOops",), heap_factor=2),
        OptionSet("wide-klass", ("-XX:-UseCompressedClassPointers",), heap_factor=2),
        OptionSet("wide-both", ("-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"), heap_factor=2),
        OptionSet("align-16", ("-XX:ObjectAlignmentInBytes=16",), heap_factor=2),
        OptionSet("align-32", ("-XX:ObjectAlignmentInBytes=32",), heap_factor=2),
        OptionSet("align-256", ("-XX:ObjectAlignmentInBytes=256",), heap_factor=5),
        OptionSet("align-16-wide", ("-XX:ObjectAlignmentInBytes=16", "-XX:-UseCompressedOops"), heap_factor=2),
        OptionSet("zero-based", ("-XX:HeapBaseMinAddress=6g",)),
        OptionSet("heap-based", ("-XX:HeapBaseMinAddress=40g",)),
        OptionSet("region-1m", ("-XX:G1HeapRegionSize=1m",)),
        OptionSet("region-2m", ("-XX:G1HeapRegionSize=2m",)),
        OptionSet("region-4m", ("-XX:G1HeapRegionSize=4m",), heap_least=192),
        OptionSet("region-8m", ("-XX:G1HeapRegionSize=8m",), heap_least=256),
        OptionSet("region-16m", ("-XX:G1HeapRegionSize=16m",), heap_least=512),
        OptionSet("region-32m", ("-XX:G1HeapRegionSize=32m",), heap_least=1024),
        OptionSet("threads-2", ("-XX:ConcGCThreads=2", "-XX:ParallelGCThreads=2", "-XX:+ParallelRefProcEnabled")),
        OptionSet("dedup", ("-XX:+UseStringDeduplication", "-XX:StringDeduplicationAgeThreshold=1")),
        OptionSet("share-off", ("-Xshare:off",)),
        OptionSet("no-unloading", ("-XX:-ClassUnloadingWithConcurrentMark",)),
        OptionSet("never-unloading", ("-XX:-ClassUnloading",)),
        OptionSet("interpreter", ("-Xint",), seconds_factor=8),
        OptionSet("c1", ("-XX:TieredStopAtLevel=1",)),
        OptionSet("full-collections", ("-XX:-ExplicitGCInvokesConcurrent",), cycles_forced=False),
        OptionSet("pretouch", ("-XX:+AlwaysPreTouch",)),
        OptionSet("large-heap", ("-XX:InitiatingHeapOccupancyPercent=5",), heap_least=2048),
        OptionSet("g1-verify", tuple(G1_VERIFY), seconds_factor=4, arguments=("cycles=3",)),
        OptionSet(
            "g1-verify-all",
            (*G1_VERIFY, "-XX:+VerifyBeforeGC", "-XX:+VerifyAfterGC"),
            seconds_factor=10,
            arguments=("cycles=3",),
        ),
    ]
}

# Programs that a set cannot run, and why.
IMPOSSIBLE = {
    ("ClassUnloading", "never-unloading"): "nothing is ever unloaded",
    ("HiddenClasses", "never-unloading"): "nothing is ever unloaded",
    ("FullCollectionRaces", "never-unloading"): "unpatched G1 crashes too: its heap dumps then hold dead objects",
    ("OutOfMemory", "region-16m"): "minutes to fill the heap that such regions need",
    ("OutOfMemory", "region-32m"): "minutes to fill the heap that such regions need",
    ("OutOfMemory", "large-heap"): "minutes to fill it",
    ("EvacuationFailure", "full-collections"): "minutes: hardly anything but full collections",
    ("EvacuationFailure", "region-16m"): "minutes to fill the heap that such regions need",
    ("EvacuationFailure", "region-32m"): "minutes to fill the heap that such regions need",
    ("EvacuationFailure", "large-heap"): "minutes to fill it",
    ("ClassUnloading", "interpreter"): "minutes: class writer and reflection interpreted",
}


def bytes_of(text):
    match = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    return int(match[1]) * UNITS.get(match[2], 1)


def flags_for(program, options):
    """The program's own flags with the heap that the option set needs, then the set's."""
    flags = []
    for flag in program.flags:
        match = re.fullmatch(r"-(Xm[sx])(\d+[kmg])", flag)
        if match:
            size = bytes_of(match[2]) * options.heap_factor
            if match[1] == "Xmx" or "-Xms" + match[2] in program.flags and "-Xmx" + match[2] in program.flags:
                size = max(size, options.heap_least << 20)
            flag = f"-{match[1]}{size >> 20}m"
        flags.append(flag)
    return [*BASE, *flags, *options.flags]
