# SPDX-License-Identifier: Apache-2.0
"""Every program under every option set, each remark verified. The default subset pairs each program with plain options
and each option set with the programs that have most to do with it; `-m full` runs the whole matrix."""

import re

import jvm_harness
import pytest
from jvm_options import IMPOSSIBLE, SETS, VERIFY, flags_for

PROGRAMS = jvm_harness.programs()

# What the default subset adds to every program under plain options.
SELECTED = [
    ("ReferenceBlocks", "wide-references"),
    ("ListsAndArrays", "wide-both"),
    ("ClassUnloading", "wide-klass"),
    ("ReferenceBlocks", "align-16"),
    ("ListsAndArrays", "align-32"),
    ("WeakReferenceRaces", "zero-based"),
    ("GraphRewiring", "heap-based"),
    ("HumongousChurn", "region-2m"),
    ("HumongousChurn", "region-8m"),
    ("AtomicMoves", "threads-2"),
    ("ArchivedObjects", "share-off"),
    ("ThreadRoots", "dedup"),
    ("ManyClasses", "no-unloading"),
    ("ShortCycles", "interpreter"),
    ("AutomaticCycles", "full-collections"),
    ("ManyReferences", "g1-verify"),
    ("ThreadRoots", "g1-verify-all"),
    ("HiddenClasses", "g1-verify"),
]


def matrix():
    for name in PROGRAMS:
        for options in SETS.values():
            if (name, options.name) in IMPOSSIBLE:
                continue
            default = options.name == "plain" or (name, options.name) in SELECTED
            marks = [] if default else [pytest.mark.full]
            yield pytest.param(name, options, id=f"{name}-{options.name}", marks=marks)


def least_traces(program, options):
    if not options.cycles_forced or program.traces == 0:
        return 0
    # Memory pressure decides how many cycles full collections leave alone; the program's own count is for its own
    # heap and arguments. With others one is enough.
    own = options.heap_factor == 1 and not options.heap_least and not options.arguments
    # How many cycles a program completes depends on who else uses the machine; that each is right does not. Half of
    # what an idle machine gives shows that offloading is the rule.
    return max(1, program.traces // 2) if own else 1


@pytest.mark.parametrize(("name", "options"), list(matrix()))
def test_offloaded(name, options, java, device, classes, runs, tmp_path):
    program = PROGRAMS[name]
    arguments = [jvm_harness.flag_of_window(f"device:{device.socket}"), *VERIFY, *flags_for(program, options)]
    seconds = 90 * options.seconds_factor
    result = runs(java, [*arguments, "-cp", classes, name, *options.arguments], tmp_path).finish(seconds)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, least_traces(program, options))
    if program.log and options.name == "plain":
        shown = any(re.search(program.log, text) for _, _, text in result.log.lines)
        assert shown, result.describe(f"expected '{program.log}' in the log: the program did not stress what it is for")
    assert device.alive(), f"the device process ended; see {device.log.name}"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_seeds(name, seed, java, device, classes, runs, tmp_path):
    program = PROGRAMS[name]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    arguments = [window, *VERIFY, *flags_for(program, SETS["plain"])]
    result = runs(java, [*arguments, "-cp", classes, name, f"seed={seed}"], tmp_path).finish(120)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, min(program.traces, 1))


def test_lists_of_any_length(java, device, classes, runs, tmp_path):
    """Every link of a list of References is found in the one before it, not by a round trip to the device."""
    program, count = PROGRAMS["ReferenceLists"], 350_000
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    arguments = [window, *VERIFY, *flags_for(program, SETS["plain"]), "-Xms1g", "-Xmx1g"]
    command = [*arguments, "-cp", classes, program.name, f"count={count}", "cycles=3"]
    result = runs(java, command, tmp_path).finish(180)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 2)
    # Links, and Finalizers and Cleaners.
    most = max(trace["ahead"] for trace in result.log.traces)
    assert most > 1.9 * count, result.describe(f"expected {2 * count} References followed ahead, found {most}")


@pytest.mark.full
def test_more_classes_than_shape_slots(java, device, classes, runs, tmp_path):
    """Classes beyond the shape table's room have no shape: slower, never wrong."""
    program = PROGRAMS["ManyClasses"]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    arguments = [window, *VERIFY, *flags_for(program, SETS["plain"]), "-Xmx1g", "-Xms1g"]
    command = [*arguments, "-cp", classes, program.name, "classes=140000", "family=50", "cycles=4"]
    result = runs(java, command, tmp_path).finish(600)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 3)
    assert "The shape table has no room for" in result.log.text("gc,merapi"), result.describe("all found room")


@pytest.mark.parametrize("how", ["exit", "halt", "hook", "return"])
@pytest.mark.parametrize("micros", [0, 3_000, 20_000, 45_000])
def test_exit_in_mid_cycle(how, micros, java, device, classes, runs, tmp_path):
    """The JVM ends at once whatever the device is doing, and the device goes on serving others."""
    program = PROGRAMS["ExitInMidCycle"]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    arguments = [window, *flags_for(program, SETS["plain"]), "-cp", classes, program.name]
    result = runs(java, [*arguments, f"how={how}", f"micros={micros}", "count=300000"], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 1, verified=False)
    assert device.alive(), f"the device process ended; see {device.log.name}"


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [SETS["plain"], SETS["g1-verify"]], ids=lambda o: o.name)
def test_programs_are_right_on_the_unpatched_jdk(name, options, stock_jdk, classes, runs, tmp_path):
    """A program that fails here says nothing about the offload."""
    arguments = [*flags_for(PROGRAMS[name], options), "-cp", classes, name, *options.arguments]
    result = runs(stock_jdk / "bin/java", arguments, tmp_path, patched=False).finish(90 * options.seconds_factor)
    jvm_harness.check_ok(result)
