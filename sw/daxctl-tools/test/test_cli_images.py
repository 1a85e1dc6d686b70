# SPDX-License-Identifier: Apache-2.0
"""merapi save, load, replay, verify, trace and reset; what save and export have in common."""

import json
import os
import resource
import stat
import struct
import subprocess
import tempfile

import pytest
from cli_harness import (
    ABSENT,
    BUSY,
    FOUND,
    OK,
    SYSTEM,
    USAGE,
    binary,
    compile_java,
    merapi,
    patched_jdk,
)
from native_fixtures import stop_process, wait_until


def test_save_and_info(image):
    info = merapi("info", image, "--json").json()
    assert info["kind"] == "image"
    assert info["bitmap"] == 0
    assert info["heap_bytes"] >= 24 << 18
    assert info["text"]["note"] == "half"
    assert info["file_bytes"] < info["window_bytes"]


def test_note_is_text(window_file, folder):
    done = merapi("save", window_file, folder / "image", "--note", b"\xff".decode(errors="surrogateescape"))
    assert done.status == USAGE
    assert "--note in UTF-8" in done.err
    assert not (folder / "image").exists()


def checksum(data):
    """As sw/libmerapi/src/image.h has it."""
    prime, lanes = 0x100000001B3, [0xCBF29CE484222325] * 8
    for i in range(0, len(data), 8):
        lanes[i // 8 % 8] = (lanes[i // 8 % 8] ^ int.from_bytes(data[i : i + 8], "little")) * prime % 2**64
    result = 0xCBF29CE484222325
    for word in (*lanes, len(data)):
        result = (result ^ word) * prime % 2**64
    return result


def test_text_that_is_not_utf8(image):
    data = bytearray(image.read_bytes())
    at = data.index(b"half")
    data[at : at + 4] = b"h\xff\xfef"
    extents, _, answers, references, text = struct.unpack_from("<5Q", data, 24)
    end = 128 + 16 * extents + 8 * answers + 8 * (answers + 1) + 8 * references + answers + text
    struct.pack_into("<Q", data, 72, checksum(data[128 : -(-end // 4096) * 4096]))
    struct.pack_into("<Q", data, 120, checksum(data[:120]))
    image.write_bytes(data)
    done = merapi("info", image)
    assert done.status == OK, done.err
    assert "h\ufffd\ufffdf" in done.out
    assert "h\ufffd\ufffdf" in str(merapi("info", image, "--json").json()["text"])


def replace_text(image, text):
    """Give an image another text, bytes that end in a zero."""
    data = image.read_bytes()
    extents, _, answers, references, old = struct.unpack_from("<5Q", data, 24)
    at = 128 + 16 * extents + 8 * answers + 8 * (answers + 1) + 8 * references + answers
    tables = data[128:at] + text
    tables += bytes(-(128 + len(tables)) % 4096)
    header = bytearray(data[:128])
    struct.pack_into("<Q", header, 56, len(text))
    struct.pack_into("<Q", header, 72, checksum(tables))
    struct.pack_into("<Q", header, 120, checksum(header[:120]))
    image.write_bytes(header + tables + data[-(-(at + old) // 4096) * 4096 :])


def test_text_that_is_too_deep(image, folder):
    """What prints it calls itself for each level, and ran out of stack."""
    text = b'{"a": ' + b"[" * 100000 + b"]" * 100000 + b"}\0"
    replace_text(image, text)
    done = merapi("info", image, "--json")
    assert done.status == OK, done.err
    assert done.json()["text"] == {"text": text[:-1].decode()}
    assert merapi("info", image).status == OK
    aged = subprocess.run([binary("merapi-age"), image, folder / "aged"], capture_output=True, text=True, timeout=60)
    assert aged.returncode == 0, aged.stderr


@pytest.mark.parametrize("is_json", [True, False])
def test_text_is_no_command_for_a_terminal(image, is_json):
    """It is whoever's who made the image, its keys too: whoever looked at it had them carried out."""
    said = "\u00e9\x7f \u009b2K\u009d0;title\x1b[31m"
    text = {said: [said]}
    replace_text(image, (json.dumps(text, ensure_ascii=False) if is_json else said).encode() + b"\0")
    done = merapi("info", image)
    assert done.status == OK, done.err
    assert not set(done.out) & {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\n"}, done.out
    assert done.out.count("\u00e9" + r"\x7f \x9b2K\x9d0;title\u001b[31m") == (2 if is_json else 1)
    assert merapi("info", image, "--json").json()["text"] == (text if is_json else {"text": said})


def test_verify_agrees_with_the_model(image, device):
    done = merapi("verify", image, "--socket", device.socket, "--repeat", "2", "--json")
    assert done.status == OK, done.err
    runs = done.json()["runs"]
    assert len(runs) == 2
    for run in runs:
        assert run["verify"]["same"]
        assert run["verify"]["expected_objects"] > 0
        assert run["objects"] == run["verify"]["expected_objects"]
        assert run["kind"] == "model"


@pytest.mark.parametrize("verb", ["replay", "verify"])
def test_another_kind_of_device_than_asked_for_is_told(verb, image, device):
    """A model that ran at the socket traced, and its result was told as the simulated tracer's."""
    done = merapi(verb, image, "--socket", device.socket, "--device", "rtl")
    assert done.status == ABSENT and done.out == "", done
    assert "expected the simulated tracer (--device rtl)" in done.err and "found a device of kind model" in done.err


def test_replay_starts_a_device_and_ends_it(image, folder):
    env = {"MERAPI_SOCKET": str(folder / "own" / "device.sock")}
    done = merapi("replay", image, env=env)
    assert done.status == OK, done.err
    assert "model" in done.out
    assert not os.path.exists(env["MERAPI_SOCKET"])
    assert not os.path.exists(env["MERAPI_SOCKET"] + ".runs/devices")


def test_damaged_image(image, device):
    with open(image, "r+b") as file:
        file.seek(os.path.getsize(image) - 100)
        file.write(b"damage")
    done = merapi("replay", image, "--socket", device.socket)
    assert done.status == ABSENT
    assert "damaged" in done.err


@pytest.mark.parametrize("verb", [["load"], ["load", "--create"], ["replay", "--window"]])
def test_damaged_image_leaves_a_window_as_it_was(image, window_file, verb):
    with open(image, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-100, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    before = window_file.read_bytes()
    if verb[0] == "load":
        done = merapi(verb[0], image, window_file, *verb[1:])
    else:
        done = merapi(verb[0], image, *verb[1:], window_file)
    assert done.status == ABSENT
    assert "the payload is damaged" in done.err
    assert window_file.read_bytes() == before


def test_damaged_image_makes_no_window(image, folder):
    with open(image, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"damage")
    assert merapi("load", image, folder / "made", "--create").status == ABSENT
    assert not (folder / "made").exists()


def test_truncated_image(image, device):
    os.truncate(image, os.path.getsize(image) // 2)
    done = merapi("info", image)
    assert done.status == ABSENT
    assert "expected" in done.err


def test_load_into_a_file_and_trace_by_hand(image, folder, start):
    path = folder / "again"
    assert merapi("load", image, f"file:{path}").status != OK, "made a file without --create"
    assert merapi("load", image, f"file:{path}", "--create").status == OK
    served = start(binary("merapi-device"), "--model", "--window", path)
    served.wait_line("ready")
    done = merapi("trace", path, "--bitmap", "0", "--json")
    assert done.status == OK, done.err
    assert done.json()["objects"] > 0
    # Everything is marked now: a second trace finds nothing new.
    assert merapi("trace", path, "--bitmap", "0", "--json").json()["objects"] == 0
    done = merapi("reset", path, "--json")
    assert done.status == OK, done.err
    assert done.json()["device"]["state"] == "ready"


def test_a_fresh_window_is_an_empty_heap(folder, start, device):
    """Its limits were no limits of its regions: a device refused it, and what was saved of it could not be used."""
    path, image = folder / "fresh", folder / "image"
    assert merapi("create-window", f"file:{path}", "--heap", "64M").status == OK
    served = start(binary("merapi-device"), "--model", "--strict", "--window", path)
    served.wait_line("ready")
    done = merapi("trace", path)
    assert done.status == OK, done.err
    assert "0 objects" in done.out
    served.end()
    assert merapi("save", path, image).status == OK
    assert merapi("verify", image, "--socket", device.socket).status == OK
    for program in ("merapi-strip", "merapi-age"):
        done = merapi(image, folder / program, program=binary(program))
        assert done.status == OK, done.err
        assert merapi("verify", folder / program, "--socket", device.socket).status == OK


def test_trace_without_a_device(window_file):
    done = merapi("trace", window_file)
    assert done.status == ABSENT
    assert "merapi-device" in done.err


def test_trace_of_regions_that_are_not_there(window_file, folder, start):
    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    assert merapi("trace", window_file, "--region", "99").status == USAGE


def test_load_says_where_the_greys_are(image, window_file, folder):
    """Whoever saves the other bitmap saves none of them."""
    assert merapi("save", window_file, folder / "second", "--bitmap", "1").status == OK
    for name, said in ((image, ""), (folder / "second", "--bitmap 1 with save, trace and export")):
        done = merapi("load", name, folder / "again", "--create")
        assert done.status == OK, done.err
        assert said in done.err and bool(said) == bool(done.err)


def test_load_into_a_window_in_use(image, folder, start):
    path = folder / "used"
    served = start(binary("merapi-device"), "--model", "--window", path, "--size", "64M")
    served.wait_line("ready")
    probe = start(binary("device_probe"), f"file:{path}", "--hold")
    probe.wait_line("tracing")
    for command in (("load", image, path), ("save", path, folder / "x"), ("trace", path), ("reset", path)):
        done = merapi(*command)
        assert done.status == BUSY, (command, done.err)
    assert not (folder / "x").exists()
    assert probe.process.poll() is None


def test_verbs_of_windows_that_stay_refuse_a_socket(image, device, folder):
    """By its path alone, too: load wrote into a window that was gone when it ended, and said that all was well."""
    for socket in (f"device:{device.socket}", device.socket):
        for command in (
            ("load", image, socket),
            ("load", image, socket, "--create"),
            ("save", socket, folder / "saved"),
            ("trace", socket),
            ("reset", socket),
            ("export", socket, folder / "dump"),
        ):
            done = merapi(*command)
            assert done.status == USAGE, command
            assert "expected a window that stays (file:PATH, dax:PATH)" in done.err and str(socket) in done.err
    assert device.socket.is_socket()
    assert not (folder / "saved").exists() and not (folder / "dump").exists()


@pytest.mark.parametrize("verb", ["save", "export"])
def test_the_source_is_not_replaced(verb, window_file, image, folder):
    source = window_file if verb == "save" else image
    (folder / "link").symlink_to(source)
    content = source.read_bytes()
    names = (source, f"file:{source}") if verb == "save" else (source,)
    for name in names:
        for output in (source, folder / "link"):
            done = merapi(verb, name, output)
            assert done.status == USAGE
            assert "expected another file" in done.err and str(output) in done.err
    assert source.read_bytes() == content


@pytest.mark.parametrize("verb", ["save", "export"])
def test_what_is_no_file_is_written_in_place(verb, window_file, image, folder):
    source = window_file if verb == "save" else image
    plain, pipe, node = folder / "plain", folder / "pipe", folder / "node"
    assert merapi(verb, source, plain).status == OK
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    os.mkfifo(pipe)
    with open(folder / "read", "wb") as read, subprocess.Popen(["cat", pipe], stdout=read) as reader:
        try:
            done = merapi(verb, source, pipe)
            assert done.status == OK, done.err
            assert pipe.is_fifo()
            assert reader.wait(60) == 0
        finally:
            reader.kill()
    assert (folder / "read").read_bytes() == plain.read_bytes()
    if os.geteuid() == 0:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        node.symlink_to("/dev/null")
    assert merapi(verb, source, node).status == OK
    assert node.is_char_device()
    (folder / "nowhere").mkdir()
    done = merapi(verb, source, folder / "nowhere")
    assert done.status == USAGE and "found a folder" in done.err


def test_files_of_others_are_left_alone(image, folder):
    """Names that an export once took for itself."""
    for suffix in (".part", ".tmp"):
        (folder / f"dump{suffix}").symlink_to(folder / "precious")
    (folder / "precious").write_text("mine")
    assert merapi("export", image, folder / "dump").status == OK
    assert (folder / "precious").read_text() == "mine"
    assert sorted(p.name for p in folder.iterdir() if p.name.endswith((".tmp", ".part"))) == ["dump.part", "dump.tmp"]


@pytest.mark.parametrize("verb", ["load", "export", "save"])
def test_larger_than_files_may_be(verb, image, window_file, folder):
    """As `ulimit -f` has it; what was there stays, and nothing is left beside it."""
    target = folder / "target"
    target.write_text("before")
    before = sorted(folder.iterdir())
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))}
    words = {
        "load": (image, f"file:{folder}/made", "--create"),
        "export": (image, target),
        "save": (window_file, target),
    }[verb]
    done = merapi(verb, *words, **limit)
    assert done.status > 0 and "File too large" in done.err, (done.status, done.err)
    assert verb == "export" or str(words[1]).removeprefix("file:") in done.err
    assert sorted(folder.iterdir()) == before
    assert target.read_text() == "before"


@pytest.mark.parametrize("verb", ["save", "export"])
def test_a_full_disk_is_the_system_s(verb, image, window_file):
    """And no window that is too small."""
    done = merapi(verb, window_file if verb == "save" else image, "/dev/full")
    assert done.status == SYSTEM and "No space left on device" in done.err, done


@pytest.mark.parametrize("verb", ["save", "export"])
@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_keeps_what_stands_there(verb, name, image, window_file, folder):
    """A new file took the place of the one behind it; one without a name was refused."""
    source = window_file if verb == "save" else image
    assert merapi(verb, source, folder / "alone").status == OK
    alone = (folder / "alone").read_bytes()
    with open(folder / "named", "a+b") as named, tempfile.TemporaryFile() as nameless:
        for out in (named, nameless):
            out.write(b"before")
            out.flush()
            assert subprocess.run([binary("merapi"), verb, source, name], stdout=out, timeout=60).returncode == OK
            out.seek(0, os.SEEK_END)
            out.write(b"after")
            out.seek(0)
            assert out.read() == b"before" + alone + b"after"


@pytest.mark.parametrize("verb", ["save", "export"])
def test_a_standard_output_that_is_closed_or_read_takes_nothing(verb, image, window_file, folder):
    """What was to be written went to /dev/null, and all was well."""
    source = window_file if verb == "save" else image
    for redirection in (">&-", "1< /dev/null"):
        command = ["sh", "-c", f'"$@" {redirection}', "sh", binary("merapi"), verb, source, "-"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == SYSTEM and "expected /dev/stdout to be open for writing" in done.stderr, done


@pytest.mark.parametrize("verb", ["replay", "verify"])
def test_a_trace_that_does_not_end_in_time(verb, image, folder, start):
    """A device that acknowledges and gets no further: nobody else uses it."""
    socket = folder / "r.sock"
    start(binary("merapi-rogue"), "--socket", socket, "--mode", "stuck", "--times", "-1", "--after-us", "0")
    wait_until(socket.exists)
    done = merapi(verb, image, "--socket", socket, "--timeout", "0.05")
    assert done.status == FOUND and "expected the trace to end within 0.05 s" in done.err, done


def test_a_device_that_does_not_answer_in_time(folder, start):
    window = f"file:{folder}/w"
    assert merapi("create-window", window, "--heap", "64M").status == OK
    served = start(binary("merapi-device"), "--model", "--window", folder / "w")
    served.wait_line("ready")
    stop_process(served.process.pid)
    done = merapi("reset", window, "--timeout", "0.2")
    assert done.status == FOUND and "is it stopped?" in done.err, done


def test_a_trace_without_a_limit(image, device):
    assert merapi("replay", image, "--socket", device.socket, "--timeout", "0").status == OK


def test_verify_finds_a_difference(image, folder, start):
    """A device that says it is idle while greys are left."""
    rogue = start(
        binary("merapi-rogue"),
        "--socket",
        folder / "r.sock",
        "--mode",
        "idle-early",
        "--times",
        "-1",
        "--after-us",
        "0",
    )
    wait_until(lambda: (folder / "r.sock").exists())
    done = merapi("verify", image, "--socket", folder / "r.sock", "--json")
    assert rogue.process.poll() is None
    assert done.status == FOUND, done.err
    assert "reachable and not marked" in done.err
    assert not done.json()["runs"][0]["verify"]["same"]


def test_answers_of_the_image_are_used(folder, device):
    """An image with what its host would answer: the closure is larger than without."""
    image = folder / "answered"
    probe = subprocess.run(
        [binary("device_probe"), f"file:{folder}/w", "--seed", "3", "--save", image], timeout=120, check=False
    )
    assert probe.returncode == 0
    answers = merapi("info", image, "--json").json()["answers"]
    assert answers["objects"] > 0 and answers["klasses"] > 0 and answers["references"] > 0
    done = merapi("verify", image, "--socket", device.socket, "--json")
    assert done.status == OK, done.err
    run = done.json()["runs"][0]
    assert run["answers"] > 0
    assert run["objects"] == run["verify"]["expected_objects"] > 0


def test_image_of_a_jvm(folder, device, tmp_path):
    """A heap as a program left it, narrow references and all: saved by the JVM, traced again, exported."""
    compile_java(
        tmp_path,
        "Keep",
        "public class Keep { public static void main(String[] a) { Object[] keep = new Object[50000]; "
        'for (int i = 0; i < keep.length; i++) keep[i] = new Object[] {new int[4], "s" + i}; '
        "System.gc(); System.out.println(keep.length); } }",
    )
    image = folder / "jvm"
    flags = ["-Xmx64m", "-XX:+ExplicitGCInvokesConcurrent", f"-XX:MerapiSaveImage={image}", "-cp", tmp_path]
    done = merapi("run", "--socket", device.socket, "--jdk", patched_jdk(), "--", "java", *flags, "Keep", timeout=300)
    assert done.status == 0, done.err
    info = merapi("info", image, "--json").json()
    assert info["text"]["oop_bytes"] == 4
    assert info["text"]["g1_mark_ms"] > 0
    done = merapi("verify", image, "--socket", device.socket, "--json")
    assert done.status == OK, done.err
    # The JDK's own objects at least; what the program just made lies above the limits.
    assert done.json()["runs"][0]["objects"] > 10000
    done = merapi("export", image, folder / "dump", "--json")
    assert done.status == OK, done.err
    assert done.json()["scale"] == 2
    assert done.json()["objects"] > done.json()["roots"] > 0
