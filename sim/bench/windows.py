# SPDX-License-Identifier: Apache-2.0
"""Windows saved from running programs for bench-rtl, each with the time that stock G1 marking took on its heap."""

import hashlib
import json
import re
import shutil
import statistics
import subprocess
import zipfile
from pathlib import Path

import measured_jvm
from children import die_with_parent
from common import BUILD, say, write_whole
from device import Device
from measured_jvm import BenchError

FOLDER = BUILD / "bench/windows"
CLASSES = BUILD / "apps/classes.sha256"  # of the programs
SOURCES = BUILD / "apps/lib/h2-2.3.232-sources.jar"
# What is live is to lie in old regions: objects in young ones are roots, which no device marks.
FLAGS = ["-XX:+UseG1GC", "-XX:ConcGCThreads=1", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxTenuringThreshold=0"]
# The marking cycle that is saved, and how many runs G1's time is the median of.
CYCLE = 2
RUNS = 5
GRAPHS = ("hashmap", "graph", "list")
REAL = ("h2", "jgrapht", "javac", "xml")
NAMES = (*GRAPHS, *REAL)


def sources():
    """Folder with the Java sources that the compiler compiles."""
    folder = FOLDER / SOURCES.stem
    if not folder.exists():
        # Under its name when all of it is there: javac takes what there is.
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(SOURCES) as archive:
            archive.extractall(part, [n for n in archive.namelist() if n.startswith("org/") and n.endswith(".java")])
        part.rename(folder)
    return folder


def programs(scale, index):
    """{name: (kind, heap MB, java's arguments)}; `scale` 1 is the size of the project's limits."""
    apps = ["-cp", f"{BUILD / 'apps/classes'}:{BUILD / 'apps/lib'}/*"]
    full = {"hashmap": (5_000_000, 1200), "graph": (10_000_000, 900), "list": (10_000_000, 700)}
    found = {}
    for name in GRAPHS:
        size, megabytes = int(full[name][0] * scale), max(128, int(full[name][1] * scale))
        found[name] = (name, megabytes, [*apps, "merapi.apps.MarkBench", name, "3", str(size)])
    for name in REAL:
        source = sources() if name == "javac" else index
        found[name] = ("real", 1200, [*apps, "merapi.apps.LivePrograms", name, "3", str(source)])
    return found


def capture(name, kind, megabytes, arguments, tag, java, device_program):
    """Save the window of a program at its second cycle, unless it is there, made by this JVM, these programs and these
    arguments; its description. G1's time for the heap is the median over the saved cycle, marked on the CPU, and the
    same cycle of more runs without a window."""
    image, description = FOLDER / f"{name}-{tag}.window", FOLDER / f"{name}-{tag}.json"
    heap = [f"-Xms{megabytes}m", f"-Xmx{megabytes}m"]
    made_by = {
        "jvm": digest(java.parent.parent / "lib/server/libjvm.so"),
        "classes": CLASSES.read_text(),
        "arguments": [*FLAGS, *heap, *arguments],
        "cycle": CYCLE,
        "runs": RUNS,
    }
    if image.exists() and description.exists():
        found = json.loads(description.read_text())
        if found | made_by == found:
            return found
    say(f"saving the window of {name}")
    description.unlink(missing_ok=True)
    image.unlink(missing_ok=True)
    with Device(device_program, "model", FOLDER) as device:
        flags = [f"-XX:MerapiWindow=device:{device.socket}", f"-XX:MerapiSaveImage={image}"]
        flags += [f"-XX:MerapiSaveImageCycle={CYCLE}", *heap]
        log = FOLDER / f"{name}.log"
        measured = measured_jvm.run(java, [*FLAGS, *flags, *arguments], log, sample=measured_jvm.MARKERS)
    if not image.exists():
        raise BenchError(f"expected the window of {name} at {image}, found none; see {log}")
    marking = saved_marking(log)
    if marking is None:
        raise BenchError(f"expected the time of marking on the CPU in {log}, found none")
    samples = [{"wall_ms": marking["ms"], "cpu_ms": measured.marking_cpu_ms.get(marking["gc_id"])}]
    for number in range(1, RUNS):
        say(f"marking {name} on the CPU: run {number} of {RUNS - 1}")
        log = FOLDER / f"{name}-stock.log"
        measured = measured_jvm.run(java, [*FLAGS, *heap, *arguments], log, sample=measured_jvm.MARKERS)
        samples.append(stock_marking(measured, name, log))
    found = {
        "name": name,
        "kind": kind,
        "image": image.name,
        "g1_ms": g1_ms(samples),
        "g1_samples": samples,
        **made_by,
    }
    write_whole(description, (json.dumps(found, indent=1) + "\n").encode())
    return found


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def stock_marking(measured, name, log):
    """Time of the marking that a run without a window has where the other one's window was saved."""
    cycles = [c for c in sorted(measured.log.cycles.values(), key=lambda c: c.gc_id) if c.mark_ms is not None]
    if len(cycles) < CYCLE:
        raise BenchError(f"expected {CYCLE} marking cycles of {name}, found {len(cycles)}; see {log}")
    cycle = cycles[CYCLE - 1]
    return {"wall_ms": cycle.mark_ms, "cpu_ms": measured.marking_cpu_ms.get(cycle.gc_id)}


def g1_ms(samples):
    """The median of what marking took. On a busy machine wall time holds more than marking, and a thread's own time
    does not: of each run the lesser one counts."""
    return statistics.median(min(s["wall_ms"], s["cpu_ms"] or s["wall_ms"]) for s in samples)


def saved_marking(log):
    """Wall time of the saved cycle's marking on the CPU and that cycle's number, from the JVM's log."""
    found = None
    for line in Path(log).read_text(errors="replace").splitlines():
        _, mark, rest = line.partition("Marking the saved cycle on the CPU took ")
        if mark:
            found = float(rest.split()[0])
        elif found is not None and (end := re.search(r"GC\((\d+)\) Concurrent Mark From Roots [\d.,]+ms$", line)):
            return {"ms": found, "gc_id": int(end[1])}
    return None


def aged(window, program):
    """The same window with half of its addresses shuffled among objects of one size, and the fresh one's G1 time."""
    image = FOLDER / window["image"]
    old = image.with_name(f"aged-{image.name}")
    made_of = max(image.stat().st_mtime, Path(program).stat().st_mtime)
    if not old.exists() or old.stat().st_mtime < made_of:
        say(f"ageing the window of {window['name']}")
        done = subprocess.run(
            [program, image, old, "--percent", "50"], capture_output=True, text=True, preexec_fn=die_with_parent
        )
        if done.returncode:
            raise BenchError(f"{program} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    kind = "aged" if window["kind"] == "real" else f"aged {window['kind']}"
    return window | {"name": f"{window['name']}, aged", "kind": kind, "image": old.name}
