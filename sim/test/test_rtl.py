# SPDX-License-Identifier: Apache-2.0
"""The simulated tracer in the device process and in replay: what the model does there, it does."""

import json
import re
import subprocess
import time

import pytest
from device_processes import BINARIES, RTL, binary, finish, simulated_tracer
from native_fixtures import wait_until
from test_replay import replay, save

# What does not depend on the order of tracing. Greys that a full store dropped are read again.
EQUAL = ["objects_marked", "live_words"]
# Its small stores drop greys on these heaps when memory is slow, which is what it is for.
MEMORIES = ["ideal", "ddr4-2400"]


@pytest.fixture(autouse=True)
def built():
    simulated_tracer()


def test_a_host_is_served(start, probes, folder):
    device = start("--socket", folder / "s", engine=RTL)
    device.wait_event("ready")
    code, result = finish(probes(f"device:{folder}/s", "--seed", 3, "--cycles", 2, "--pauses", 2))
    assert code == 0, result
    assert any("simulating sim-small with memory ideal" in line for line in device.log.all)
    assert device.stop() == 0


@pytest.mark.parametrize(("options", "name"), [([], "merapi-rtl sim-small"), (["--name", "a board's"], "a board's")])
def test_its_name(options, name, start, probes, folder):
    window = folder / "window"
    device = start("--window", window, "--size", "256M", *options, engine=RTL)
    device.wait_event("ready")
    code, result = finish(probes(f"file:{window}", "--seed", 3, "--regions", 4))
    assert code == 0, result
    with open(window, "rb") as file:
        assert b"\0" + name.encode() + b"\0" in file.read(4096)
    assert device.stop() == 0


@pytest.mark.parametrize("engine", [["--model"], RTL])
def test_a_window_without_a_host_is_detached(engine, start, probes, folder):
    device = start("--window", folder / "w", "--size", "256M", engine=engine)
    device.wait_event("ready")
    code, result = finish(probes(f"file:{folder}/w", "--seed", 3, "--regions", 4))
    assert code == 0, result

    def told():
        context = device.status()[0]
        return context["state"], context["cycle"], context["cycles"]

    wait_until(lambda: told() == ("detached", 0, 1))
    assert device.stop() == 0


def test_each_window_has_a_simulation(start, probes, folder):
    device = start("--socket", folder / "s", engine=RTL)
    device.wait_event("ready")
    hosts = [probes(f"device:{folder}/s", "--seed", i, "--regions", 6) for i in (1, 2)]
    for host in hosts:
        code, result = finish(host)
        assert code == 0, result
    assert device.stop() == 0


def test_an_idle_simulation_sleeps(start, probes, folder):
    device = start("--socket", folder / "s", engine=RTL)
    device.wait_event("ready")
    go_on = folder / "go-on"
    host = probes(f"device:{folder}/s", "--seed", 1, "--regions", 4, "--cycles", 2, "--wait-for", go_on)
    device.wait_event("began")

    def traced():
        contexts = device.status()
        return contexts and contexts[0]["state"] == "idle"

    wait_until(traced, 60)
    before, begin = cpu_seconds(device), time.monotonic()
    time.sleep(1)
    share = (cpu_seconds(device) - before) / (time.monotonic() - begin)
    assert share < 0.2, f"an idle simulation used {share:.0%} of a processor"
    go_on.touch()
    code, result = finish(host)
    assert code == 0, result


def cpu_seconds(device):
    with open(f"/proc/{device.process.pid}/schedstat") as own:
        total = int(own.read().split()[0])
    tasks = subprocess.run(
        ["sh", "-c", f"cat /proc/{device.process.pid}/task/*/schedstat"], capture_output=True, text=True
    )
    return max(total, sum(int(line.split()[0]) for line in tasks.stdout.splitlines())) / 1e9


def test_killed_while_it_traces(start, probes, folder):
    first = start("--socket", folder / "s", engine=RTL)
    first.wait_event("ready")
    host = probes(f"device:{folder}/s", "--seed", 5, "--cycles", 2, "--reattach")
    first.wait_event("began")
    time.sleep(0.3)
    first.kill()
    second = start("--socket", folder / "s", engine=RTL)
    second.wait_event("ready")
    code, result = finish(host)
    assert code == 0, result
    assert second.stop() == 0


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_saved_window_gives_what_the_model_gives(folder, memory):
    image, _ = save(folder, 7)
    run, modelled = replay(image, "--check", "--json")
    assert run.returncode == 0, run
    # A sign of life, which a simulation without news is asked for, is one more pause: not here, however long it takes.
    how = ["--check", "--lines", "--json", "--pauses", 2, "--patience-us", 600_000_000]
    run, simulated = replay(image, *RTL, "--memory", memory, *how)
    assert run.returncode == 0, run
    assert simulated["checked"] and simulated["kind"] == "rtl" and simulated["device"] == "merapi-rtl sim-small"
    assert (simulated["rtl_preset"], simulated["memory"]) == ("sim-small", memory)
    assert simulated["counters"]["pauses"] == len(simulated["pause_us"]) == 2
    for name in EQUAL:
        assert simulated["counters"][name] == modelled["counters"][name], name
    assert (simulated["deferred"], simulated["shapes_seen"]) == (modelled["deferred"], modelled["shapes_seen"])
    needed = simulated["lines_needed"]
    assert simulated["counters"]["bytes_read"] >= 64 * (needed["heap"] + needed["bitmap"])
    assert simulated["counters"]["cycles"] > needed["heap"]


def test_what_is_not_there_is_named(folder):
    image, _ = save(folder, 8)
    run, _ = replay(image, "--rtl", "--preset", "abacus")
    assert run.returncode == 3 and "sim-small" in run.stderr and "make rtl-simulations" in run.stderr
    run, _ = replay(image, *RTL, "--memory", "drum")
    assert run.returncode == 3 and "expected a memory of ideal, " in run.stderr and "ddr4-2400" in run.stderr
    run = subprocess.run(
        [binary("merapi-device"), "--rtl", "--preset", "abacus", "--socket", folder / "s"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.returncode == 3 and "abacus" in run.stderr


DRAM = (BINARIES / "../../rtl/lib/memory/ddr4-2400.ini").resolve()
# What a configuration is changed to, and what is said of it.
DAMAGED = {
    "no timing": (r"(?s)\[timing\].*?(?=\n\[)", "", "found no [timing];"),
    "no keys": (r"\n(tRCD|BL|rows)\b[^\n]*", "", "found no rows in [dram_structure], BL in [dram_structure], tRCD (or"),
    "a word for a number": (
        r"\nCL\b[^\n]*",
        "\nCL = fast",
        "CL a whole number from 1 to 100000 in [timing], found 'fast'",
    ),
    "no whole number": (r"\nCL\b[^\n]*", "\nCL = 1e2", "found '1e2'"),
    "another base": (r"\ntRFC\b[^\n]*", "\ntRFC = 0x10", "found '0x10'"),
    "a time that may be missing": (r"\ntREFI\b[^\n]*", "\ntREFI = 7.8us", "trefi a whole number of at most 100000"),
    "too fast a clock": (r"\ntCK\b[^\n]*", "\ntCK = 0.0005", "tCK from 0.1 to 100 (nanoseconds)"),
    "too slow a clock": (r"\ntCK\b[^\n]*", "\ntCK = 1e9", "tCK from 0.1 to 100 (nanoseconds)"),
    "no queue": (r"\ntrans_queue_size\b[^\n]*", "\ntrans_queue_size = 0.5", "found '0.5'"),
    "no power of two": (r"\nbankgroups\b[^\n]*", "\nbankgroups = 3", "bankgroups a power of two"),
    "too few rows": (r"\nrows\b[^\n]*", "\nrows = 512", "rows of at least 1 MiB in a bank"),
    "too few columns": (r"\ncolumns\b[^\n]*", "\ncolumns = 4", "columns of a burst (BL) at least"),
    "too large": (r"\nchannel_size\b[^\n]*", "\nchannel_size = 99999999999", "channel_size a whole number from 1 to"),
    "too many ranks": (r"\nchannel_size\b[^\n]*", "\nchannel_size = 1048576", "channel_size of at most 64 ranks"),
    "too many banks": (r"\nbankgroups\b[^\n]*", "\nbankgroups = 1048576", "bankgroups a whole number from 1 to 64"),
    "refreshes alone": (r"\ntRFC\b[^\n]*", "\ntRFC = 20000", "tRFC below tREFI"),
    "a key twice": (r"\n(queue_structure\b[^\n]*)", r"\n\1\n\1", "found queue_structure twice in [system]"),
    "no channel": (r"DDR4", "HMC", "found 'HMC'"),
    "continued": (r"\n(CL\b)", r"\n \1", "found no CL in [timing];"),
    "an abacus": (r"DDR4", "abacus", "found 'abacus'"),
    "a field twice": (r"rorabacobgch", "rorabacobgco", "found 'rorabacobgco'"),
    "half a line": (
        r"\nBL *= *8",
        "\nBL = 4",
        "with BL 8 (lines of 64 bytes at that bus_width) in [dram_structure], found '4'",
    ),
    "channels": (r"channels *= *1", "channels = 8", "found '8'"),
    "no device": (r"bus_width *= *64", "bus_width = 4", "found '4'"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_memory_that_says_too_little_is_refused(folder, kind):
    """DRAMsim3 would take values of its own, and the result would be invented."""
    image, _ = save(folder, 8)
    pattern, new, told = DAMAGED[kind]
    text = DRAM.read_text()
    own = folder / "own.ini"
    own.write_text(re.sub(pattern, new, text))
    run, _ = replay(image, *RTL, "--memory", own)
    assert run.returncode == 3 and not run.stdout and told in run.stderr and str(own) in run.stderr, run


def test_a_memory_of_one_s_own(folder):
    """What is behind a number does not matter to DRAMsim3."""
    image, _ = save(folder, 8)
    own = folder / "own.ini"
    own.write_text(re.sub(r"\n(tCK[^\n]*)", r"\n\1 (of 2400 MT/s)", DRAM.read_text()))
    run, result = replay(image, *RTL, "--memory", own, "--check", "--json")
    assert run.returncode == 0 and result["memory"] == str(own), run


def test_a_file_of_another_kind_is_no_memory(folder):
    image, _ = save(folder, 8)
    other = folder / "T.java"
    other.write_text("class T {\n  int x = 1;\n}\n")
    run, _ = replay(image, *RTL, "--memory", other)
    assert run.returncode == 3 and "found no [dram_structure], [timing], [system];" in run.stderr, run
    command = [binary("merapi-device"), *RTL, "--memory", folder, "--socket", folder / "s"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert run.returncode == 3 and "found another kind of file" in run.stderr, run


def test_an_aged_window_is_the_same_graph(folder):
    image, _ = save(folder, 9)
    aged = folder / "aged"
    done = subprocess.run([binary("merapi-age"), image, aged], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert result["live"] // 4 < result["moved"] <= result["live"] // 2
    run, fresh = replay(image, "--check", "--json")
    assert run.returncode == 0, run
    run, old = replay(aged, "--check", "--json")
    assert run.returncode == 0, run
    for name in (*EQUAL, "references_read", "refs_null"):
        assert old["counters"][name] == fresh["counters"][name], name
    assert old["unanswered"] == 0 and old["g1_seconds"] == fresh["g1_seconds"]
    assert image.read_bytes() != aged.read_bytes()
