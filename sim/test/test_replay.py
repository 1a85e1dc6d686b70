# SPDX-License-Identifier: Apache-2.0
"""Saved windows traced again by merapi-replay, on its own model and on a device process."""

import ctypes
import json
import os
import re
import signal
import subprocess
import time

import pytest
import saved_windows
from device_processes import BINARIES, binary
from native_fixtures import stop_process


def replay(*arguments):
    run = subprocess.run([binary("merapi-replay"), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return run, json.loads(lines[-1]) if lines else None


def save(folder, seed):
    image = folder / f"image{seed}"
    out = subprocess.run(
        [binary("device_probe"), f"file:{folder}/w{seed}", "--seed", str(seed), "--save", str(image)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert out.returncode == 0, out.stdout
    return image, json.loads(out.stdout)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_on_own_model(folder, seed):
    image, saved = save(folder, seed)
    # Its sign of life is one more pause: nobody asks for it, however busy the machine is.
    run, result = replay(image, "--check", "--json", "--pauses", 3, "--patience-us", 600_000_000)
    assert run.returncode == 0, run
    assert result["ok"] and result["checked"]
    assert result["counters"]["objects_marked"] == saved["marked"]
    assert result["deferred"] == saved["deferred"] and result["unanswered"] == 0
    assert result["g1_seconds"] == 0.0015 and result["ratio"] > 0
    # The heap is small, and the trace may be over before somebody pauses it.
    assert result["counters"]["pauses"] == len(result["pause_us"]) <= 3


@pytest.mark.parametrize("text", ('{"g1_mark_ms":"x"}', '{"g1_mark_ms":[]}', "[1]", "no JSON"))
def test_a_text_that_does_not_tell_g1_s_time(folder, text):
    """It was refused in the words of a JSON library."""
    image, saved = save(folder, 7)
    library = ctypes.CDLL(str(BINARIES.parent / "lib/libmerapi.so"))
    assert library.merapi_image_annotate(os.fsencode(image), text.encode(), None) == 0
    run, result = replay(image, "--check", "--json")
    assert run.returncode == 0, run
    assert result["counters"]["objects_marked"] == saved["marked"] and "g1_seconds" not in result


def test_pauses_all_along(folder):
    image, saved = save(folder, 5)
    run, result = replay(image, "--check", "--json", "--pause-every-us", 1)
    assert run.returncode == 0, run
    assert result["checked"] and result["counters"]["objects_marked"] == saved["marked"]
    assert result["pause_us"]


def test_what_was_asked_for_is_printed_without_json_too(folder):
    image, _ = save(folder, 6)
    run, _ = replay(image, "--lines", "--pause-every-us", 1)
    assert run.returncode == 0, run
    printed = dict(re.findall(r"^(\S.*?) {2,}(\d+)", run.stdout, re.M))
    _, result = replay(image, "--lines", "--json")
    assert printed["heap lines needed"] == str(result["lines_needed"]["heap"])
    assert printed["bitmap lines"] == str(result["lines_needed"]["bitmap"])
    assert int(printed["pauses"]) > 0 and "longest pause" in printed


def test_replay_on_a_device_process(start, folder):
    image, saved = save(folder, 4)
    start("--socket", folder / "s", "--strict").wait_event("ready")
    for _ in range(2):
        run, result = replay(image, "--socket", folder / "s", "--check", "--json")
        assert run.returncode == 0, run
        assert result["counters"]["objects_marked"] == saved["marked"]
    run, _ = replay(image, "--socket", folder / "s", "--check")
    assert run.returncode == 0 and "equal to the closure" in run.stdout


def test_damaged_image_is_refused(folder):
    image, _ = save(folder, 5)
    data = bytearray(image.read_bytes())
    damaged = folder / "damaged"
    for at in range(len(data) // 2, len(data) // 2 + 4096):
        data[at] ^= 0x5A
    damaged.write_bytes(data)
    run, _ = replay(damaged, "--check", "--json")
    refused(run, "checksum")


@pytest.mark.parametrize(
    "option", [("--preset", "sim-small"), ("--memory", "ideal"), ("--rtl-folder", "/"), ("--trace-waves", "/x")]
)
def test_options_of_a_simulated_tracer_alone(folder, option):
    """Without --rtl they would be those of nobody, and the model's result be taken for the tracer's."""
    image, _ = save(folder, 6)
    for others in ([], ["--model"], ["--socket", folder / "s"]):
        run, _ = replay(image, *option, *others)
        assert run.returncode == 2 and not run.stdout and f"{option[0]} requires --rtl" in run.stderr, run


def refused(run, reason):
    """The image or the device cannot be used: the reason, and nothing that looks like a result."""
    assert run.returncode == 3 and not run.stdout, run
    assert reason in run.stderr, run


def test_what_cannot_be_replayed(folder):
    text = folder / "text"
    text.write_text("not an image")
    run, _ = replay(text)
    refused(run, "expected a saved window at ")
    for missing in (folder / "missing", folder):
        run, _ = replay(missing)
        refused(run, f"merapi-replay: expected a saved window at {missing}, found")
        assert run.stderr.count(f"{missing}") == 1, run.stderr
    image, _ = save(folder, 6)
    for socket in (folder / "nobody", text):
        for arguments in ([], ["--json"]):
            run, _ = replay(image, "--socket", socket, *arguments)
            refused(run, str(socket))


@pytest.fixture
def rogue(folder):
    """rogue(mode): the socket of a device that goes wrong in that way; it ends with the test."""
    started = []

    def start(mode):
        socket = folder / f"{mode}.sock"
        command = [binary("merapi-rogue"), "--socket", socket, "--mode", mode]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline().startswith("ready ")
        return socket

    yield start
    for process in started:
        process.kill()
        process.wait(10)


def test_a_device_that_does_not_take_the_window(folder, rogue):
    image, _ = save(folder, 6)
    run, _ = replay(image, "--socket", rogue("wrong-version"))
    refused(run, "expected a device of contract version ")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_device_that_fails_in_the_trace(start, folder, arguments):
    """It has taken the window and failed: that is a result, but one without counters and time."""
    image = saved_windows.unpack("javac", folder)
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    # Some tenths of a second; one that is over before it is looked at says nothing.
    long = ["--pause-every-us", "1", "--patience-us", "300000"]
    command = [binary("merapi-replay"), image, "--socket", folder / "s", *long, *arguments]
    end, traces = time.monotonic() + 60, False
    while not traces:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while process.poll() is None and not traces:
            assert time.monotonic() < end, "no trace began"
            traces = any(context["state"] in ("tracing", "paused") for context in device.status())
    device.kill()
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1 and out.count("\n") == 1, out
    noticed = ("did not acknowledge a pause", "the device went away while it traced")  # in a pause, or before one
    if arguments:
        result = json.loads(out)
        assert not result["ok"] and result["problem"].endswith(noticed)
        assert "counters" not in result and "seconds" not in result
    else:
        assert out.endswith(tuple(f"{how}\n" for how in noticed))


@pytest.mark.parametrize("content", [b"no library", None])
def test_a_simulated_tracer_that_does_not_load(folder, content):
    """A device process says so before any host connects."""
    image, _ = save(folder, 6)
    library = folder / "merapi-rtl-sim-small.so"
    library.write_bytes((BINARIES / "../lib/libmerapi.so").read_bytes() if content is None else content)
    rtl = ["--rtl", "--preset", "sim-small", "--rtl-folder", folder]
    run, _ = replay(image, *rtl)
    refused(run, str(library))
    assert "make rtl-simulations" in run.stderr and "merapi-device" not in run.stderr
    command = [binary("merapi-device"), *rtl, "--socket", folder / "s"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    refused(run, str(library))


@pytest.mark.parametrize("program", ["merapi-strip", "merapi-age"])
def test_copies_replace_no_device_or_pipe(program, folder):
    image, _ = save(folder, 6)
    node, pipe, copy = folder / "node", folder / "pipe", folder / "copy"
    node.symlink_to("/dev/null")
    os.mkfifo(pipe)
    for target in (copy, node):
        subprocess.run([binary(program), image, target], check=True, capture_output=True, timeout=120)
    assert node.is_symlink() and node.is_char_device()
    with open(folder / "read", "wb") as read, subprocess.Popen(["cat", pipe], stdout=read) as reader:
        try:
            subprocess.run([binary(program), image, pipe], check=True, capture_output=True, timeout=120)
            assert pipe.is_fifo()
            assert reader.wait(60) == 0
        finally:
            reader.kill()
    assert (folder / "read").stat().st_size == copy.stat().st_size
    run, result = replay(folder / "read", "--check", "--json")
    assert run.returncode == 0 and result["checked"], run


@pytest.mark.parametrize("program", ["merapi-strip", "merapi-age"])
@pytest.mark.parametrize("to", ["pipe", "file"])
def test_a_copy_on_standard_output_is_a_copy_alone(program, to, folder):
    image, _ = save(folder, 6)
    subprocess.run([binary(program), image, folder / "copy"], check=True, capture_output=True, timeout=120)
    script = {"pipe": '"$0" "$1" /dev/stdout | cat > "$2"', "file": '"$0" "$1" /dev/stdout > "$2"'}[to]
    command = ["sh", "-c", script, binary(program), image, folder / "read"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run
    assert (folder / "read").stat().st_size == (folder / "copy").stat().st_size
    assert "live" in run.stderr
    run, result = replay(folder / "read", "--check", "--json")
    assert run.returncode == 0 and result["checked"], run


@pytest.mark.parametrize("program", ["merapi-strip", "merapi-age"])
def test_a_copy_on_standard_output_joins_what_stands_there(program, folder):
    image, _ = save(folder, 6)
    script = 'echo before > "$2"; { "$0" "$1" - && echo after; } >> "$2"; "$0" "$1" - >&-'
    command = ["sh", "-c", script, binary(program), image, folder / "all"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 3 and "expected /dev/stdout to be open for writing" in run.stderr, run
    written = (folder / "all").read_bytes()
    assert written.startswith(b"before\n") and written.endswith(b"after\n")
    (folder / "copy").write_bytes(written[7:-6])
    run, result = replay(folder / "copy", "--check", "--json")
    assert run.returncode == 0 and result["checked"], run


@pytest.mark.parametrize("program", ["merapi-strip", "merapi-age"])
def test_a_copy_does_not_replace_its_image(program, folder):
    image, _ = save(folder, 6)
    content = image.read_bytes()
    link, other = folder / "link", folder / "other"
    link.symlink_to(image)
    os.link(image, other)
    for one, two in ((image, image), (image, link), (link, image), (other, link), (image, f"{folder}/./{image.name}")):
        run = subprocess.run([binary(program), one, two], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and f"found {two}; choose another" in run.stderr, run
        assert image.read_bytes() == content and link.is_symlink()


@pytest.mark.parametrize("program", ["merapi-strip", "merapi-age"])
def test_an_image_that_is_not_there(program, folder):
    for missing in (folder / "missing", folder):
        run = subprocess.run([binary(program), missing, folder / "copy"], capture_output=True, text=True, timeout=60)
        refused(run, f"expected a saved window at {missing}, found")
    for arguments in (["", folder / "copy"], [folder / "missing", ""]):
        run = subprocess.run([binary(program), *arguments], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and "expected a path or a name, found nothing" in run.stderr, run


def test_a_waveform_does_not_replace_the_image(folder):
    """Also where there is no simulated tracer."""
    image, _ = save(folder, 6)
    link = folder / "link"
    os.link(image, link)
    content = image.read_bytes()
    for file in (image, link):
        run, _ = replay(image, "--rtl", "--preset", "sim-small", "--trace-waves", file)
        assert run.returncode == 2 and f"found {file}; choose another" in run.stderr, run
        assert image.read_bytes() == content


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_export_to_standard_output_is_a_dump_alone(options, folder):
    image, _ = save(folder, 6)
    command = [binary("merapi"), "export", image]
    subprocess.run([*command, folder / "dump"], check=True, capture_output=True, timeout=120)
    shell = ["sh", "-c", '"$@" | cat', "sh", *command, "/dev/stdout", *options]
    run = subprocess.run(shell, capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout == (folder / "dump").read_bytes()
    assert b"objects" in run.stderr


@pytest.mark.parametrize("program", ["merapi-replay", "merapi-strip", "merapi-age"])
def test_an_image_that_becomes_smaller_is_told(program, folder):
    """Stopped once it has mapped the image; when that was too late for the program to meet the end, once more."""
    for _ in range(20):
        image = saved_windows.unpack("javac", folder)
        copy = [folder / "copy"] if program != "merapi-replay" else []
        process = subprocess.Popen(
            [binary(program), image, *copy], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            while process.poll() is None and str(image) not in maps(process):
                pass
            if process.poll() is None:
                stop_process(process.pid)
                os.truncate(image, 4096)
                process.send_signal(signal.SIGCONT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            break
    assert process.returncode == 3, process.returncode
    assert err.startswith(f"{program}: expected memory behind what is mapped"), err


def maps(process):
    try:
        with open(f"/proc/{process.pid}/maps") as file:
            return file.read()
    except ProcessLookupError:
        return ""


@pytest.mark.parametrize("patience", ["0", "604800000001", "18446744073709551"])
def test_a_patience_that_means_nothing_is_refused(patience, folder):
    image, _ = save(folder, 8)
    run, _ = replay(image, "--patience-us", patience)
    assert run.returncode == 2 and "--patience-us" in run.stderr, run
    run, _ = replay(image, "--patience-us", 604800000000)
    assert run.returncode == 0, run


def test_a_name_that_is_no_text(folder, start):
    image, _ = save(folder, 8)
    device = start("--socket", folder / "s", "--name", os.fsdecode(b"dev\xff"))
    device.wait_event("ready")
    run, result = replay(image, "--socket", folder / "s", "--json")
    assert run.returncode == 0 and result["device"] == "dev\ufffd", run


@pytest.mark.parametrize(
    "command",
    [["merapi-replay", "--pauses", "-1"], ["merapi-replay", "--patience-us", "-7"], ["merapi-age", "--seed", "-1"]],
)
def test_negative_numbers_are_refused(command, folder):
    image, _ = save(folder, 8)
    program, *options = command
    target = [folder / "aged"] if program == "merapi-age" else []
    run = subprocess.run([binary(program), image, *target, *options], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert f"expected a number of at least 0, found {options[1]}" in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["merapi-replay", "--pauses", "18446744073709551616"],
        ["merapi-age", "--seed", "99999999999999999999"],
        ["merapi-age", "--seed", "1k"],
        ["merapi-age", "--seed", "0x"],
    ],
)
def test_what_is_no_number_is_refused(command, folder):
    image, _ = save(folder, 8)
    program, *options = command
    target = [folder / "aged"] if program == "merapi-age" else []
    run = subprocess.run([binary(program), image, *target, *options], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and not run.stdout, run
    assert f"{options[0]}: expected a number" in run.stderr and f"found {options[1]}" in run.stderr


def test_a_seed_is_decimal_or_with_0x(folder):
    image, _ = save(folder, 8)
    for seed in ("10", "010", "0xa"):
        subprocess.run([binary("merapi-age"), image, folder / seed, "--seed", seed], check=True, timeout=60)
        told = subprocess.run([binary("merapi"), "info", folder / seed, "--json"], capture_output=True, timeout=60)
        assert json.loads(told.stdout)["text"]["aged_seed"] == 10, seed


@pytest.mark.parametrize("flag", ["--model=false", "--rtl=true", "--check=0", "--json=yes"])
def test_flags_have_no_value(flag, folder):
    image, _ = save(folder, 8)
    run, _ = replay(image, flag)
    assert run.returncode == 2 and f"{flag.partition('=')[0]}: expected no value" in run.stderr, run


@pytest.mark.parametrize("option", ["--preset", "--memory", "--rtl-folder", "--trace-waves"])
def test_nothing_is_no_name(option, folder):
    image, _ = save(folder, 8)
    run, _ = replay(image, "--rtl", option, "")
    assert run.returncode == 2 and f"{option}: expected a path or a name, found nothing" in run.stderr, run


def test_an_empty_socket_is_no_model(folder):
    image, _ = save(folder, 8)
    run, _ = replay(image, "--socket", "")
    assert run.returncode == 2 and "expected a path" in run.stderr
    run, _ = replay(image, "--socket=", "/nowhere/socket")
    assert run.returncode == 2 and "--socket=: expected a value after it, found nothing" in run.stderr
