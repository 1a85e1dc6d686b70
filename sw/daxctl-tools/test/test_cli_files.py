# SPDX-License-Identifier: Apache-2.0
"""Windows in files: what is not laid out, file systems without room, and wrong numbers."""

import json
import os
import re
import subprocess

import pytest
from cli_harness import ABSENT, BUSY, FOUND, OK, SYSTEM, USAGE, binary, merapi
from native_fixtures import OWN_MOUNTS

SMALL = ("--heap", "64M")


@pytest.fixture
def image(window_file, folder):
    path = folder / "image"
    assert merapi("save", window_file, path).status == OK
    return path


def test_only_windows_and_new_files_are_laid_out(image, folder):
    source, data, late, empty, zeros = (folder / name for name in ("U.java", "data", "late", "empty", "zeros"))
    source.write_text("public class U {}\n")
    data.write_bytes(os.urandom(1 << 20))
    with open(late, "wb") as file:  # a hole, zeros, then data, as in an image of a CD
        file.seek(16 << 10)
        file.write(bytes(16 << 10) + b"CD001")
    for path, found in ((source, "other data"), (data, "other data"), (late, "other data"), (image, "a saved window")):
        content = path.read_bytes()
        for command in (
            ("create-window", f"file:{path}", *SMALL),
            ("load", image, path),
            ("load", image, f"file:{path}", "--create"),
        ):
            done = merapi(*command)
            assert done.status == ABSENT, command
            assert f"found {found}" in done.err and "choose another path" in done.err
            assert path.read_bytes() == content, command
    empty.write_bytes(b"")
    zeros.write_bytes(bytes(1 << 20))
    for path in (empty, zeros, folder / "new"):
        for _ in range(2):  # the second time it is a window
            assert merapi("create-window", f"file:{path}", *SMALL).status == OK
        assert merapi("load", image, path, "--create").status == OK


def test_nothing_is_left_of_a_window_that_could_not_be_made(folder):
    done = merapi("create-window", f"file:{folder}/w", "--heap", "99T", "--region", "1G")
    assert done.status != OK
    assert not (folder / "w").exists()


def test_errors_name_commands(folder):
    done = merapi("info", f"file:{folder}/w")
    assert done.status == ABSENT and "merapi create-window" in done.err
    (folder / "zeros").write_bytes(bytes(1 << 20))
    done = merapi("info", f"file:{folder}/zeros")
    assert done.status == ABSENT and "merapi create-window" in done.err
    done = merapi("create-window", f"file:{folder}/no/w", *SMALL)
    assert done.status == ABSENT and "folder" in done.err and "create-window" not in done.err


def test_a_link_is_not_the_window(window_file, folder):
    link = folder / "link"
    link.symlink_to(window_file)
    for name in (link, f"file:{link}"):
        done = merapi("destroy-window", name)
        assert done.status == ABSENT
        assert f"found a link to {window_file}" in done.err
        assert link.is_symlink() and window_file.exists()
    assert merapi("destroy-window", window_file).status == OK
    assert not window_file.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("dax0.0", *SMALL),
        ("dax:/dev/dax0.0", *SMALL),
        ("dax0.0", "--size", "4G", "--region", "2M"),
        ("file:w", *SMALL, "--size", "4G"),
        ("file:w", *SMALL, "--shrink", "dax0.0"),
        ("w", *SMALL, "--size", "4G", "--shrink", "dax0.0"),
    ],
)
def test_files_and_dax_devices_are_not_mixed(folder, arguments):
    done = merapi("create-window", *arguments, cwd=folder)
    assert done.status == USAGE, done
    assert ("--heap or --region" if "dax" in arguments[0] else "--size or --shrink") in done.err
    assert not list(folder.iterdir())


def test_file_with_the_name_of_a_dax_device(folder):
    assert merapi("create-window", "file:dax0.0", *SMALL, cwd=folder).status == OK
    assert (folder / "dax0.0").exists()


def test_names_that_lead_nowhere(folder):
    (folder / "loop").symlink_to("loop")
    for name in ("loop", "n" * 300):
        assert merapi("info", folder / name).status == ABSENT, name
        assert merapi("info", f"file:{folder / name}").status == ABSENT, name
    assert merapi("reset", f"file:{folder}").status == ABSENT


@pytest.fixture
def on_tmpfs(folder):
    """on_tmpfs(size, script): runs shell with a tmpfs of that size at $T, $M being the command."""
    probe = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", folder]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a tmpfs")

    def run(size, script):
        mount = folder / "tmpfs"
        mount.mkdir(exist_ok=True)
        text = f'mount -t tmpfs -o size={size} none "$T" && {script}'
        env = {**os.environ, "T": str(mount), "M": binary("merapi"), "D": binary("merapi-device")}
        return subprocess.run([*OWN_MOUNTS, "sh", "-c", text], capture_output=True, text=True, timeout=60, env=env)

    return run


def test_tmpfs_smaller_than_the_window(on_tmpfs):
    for command in (
        '"$M" create-window file:"$T"/w --heap 64M',
        # A file that somebody made as large as it takes.
        'truncate -s 128M "$T"/w && "$M" create-window file:"$T"/w --heap 64M; status=$?; rm "$T"/w; (exit $status)',
        '"$D" --model --window "$T"/w --size 64M',
    ):
        done = on_tmpfs("16M", f'{command}; echo "status $?"; ls "$T"')
        assert done.stdout == "status 3\n", done
        assert "found a tmpfs of 16777216" in done.stderr, done


def test_full_tmpfs(on_tmpfs, image):
    """Room for the whole window, were it not for what else is there."""
    fill = 'dd if=/dev/zero of="$T"/other bs=1M count=126 2> /dev/null'
    for command in ('"$M" create-window file:"$T"/w --heap 64M', f'"$M" load {image} file:"$T"/w --create'):
        for room in ("", '; dd if=/dev/zero of="$T"/rest bs=4k 2> /dev/null'):
            done = on_tmpfs("128M", f'{fill}{room}; {command}; echo "status $?"; ls "$T"/w')
            assert done.stdout == "status 3\n", done
            assert "No space left on device" in done.stderr, done
            assert "became smaller" not in done.stderr
    # Once there is room, the same command does it.
    done = on_tmpfs("128M", '"$M" create-window file:"$T"/w --heap 64M')
    assert done.returncode == 0, done


def test_export_without_a_folder_to_unpack_in(on_tmpfs, image, tmp_path):
    script = f'cp {image} "$T" && mount -o remount,ro "$T" && mount -t tmpfs -o size=1M none /dev/shm'
    plain, copy = tmp_path / "plain", tmp_path / "copy"
    assert merapi("export", image, plain).status == OK
    # Where this process may not see /dev/shm any more.
    moved = f'mkdir {tmp_path}/t && T={tmp_path}/t && mount -t tmpfs none "$T" && {script}'
    done = on_tmpfs("1M", f'{moved} && "$M" export "$T"/image {copy}')
    assert done.returncode == 0, done
    assert copy.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ("create-window", "file:/nowhere/w", "--heap", "-1"),
        ("create-window", "file:/nowhere/w", "--heap", "64M", "--region", "-2M"),
        ("trace", "file:/nowhere/w", "--region", "-1"),
        ("replay", "/nowhere/image", "--repeat", "-1"),
    ],
)
def test_negative_numbers(arguments):
    done = merapi(*arguments)
    assert done.status == USAGE
    assert "expected a number of at least 0, found -" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trace", "/nowhere/w", "--region", "4294967296"), "--region: expected a smaller number, found 4294967296"),
        (("replay", "/nowhere/i", "--repeat", "0"), "--repeat: expected a number from 1 to 100000, found 0"),
        (("top", "--interval", "soon"), "--interval: expected a number from 0.01 to 3600, found soon"),
    ],
)
def test_numbers_out_of_range(arguments, said):
    done = merapi(*arguments)
    assert done.status == USAGE and said in done.err, done
    if low_and_high := re.search("from (\\S+) to (\\S+),", said):
        assert "[{} - {}]".format(*low_and_high.groups()) in merapi(arguments[0], "--help").out


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "0x10000000000000000", "1x", "0x", "+1", "1.5", "one", " 1"]
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("create-window", "file:/nowhere/w", "--heap"),
        ("trace", "file:/nowhere/w", "--grey"),
        ("trace", "file:/nowhere/w", "--count"),
        ("replay", "/nowhere/image", "--repeat"),
    ],
)
def test_what_is_no_number(arguments, number):
    """Too large a number was taken as the largest."""
    done = merapi(*arguments, number)
    assert done.status == USAGE, done
    assert arguments[-1] in done.err and f"found {number}" in done.err


@pytest.mark.parametrize("size", ["16777216T", "16E", "64X", "M", "0x40M", "1.5G", "64M64"])
def test_what_is_no_size(size):
    done = merapi("create-window", "file:/nowhere/w", "--heap", size)
    assert done.status == USAGE, done
    assert "--heap" in done.err and f"found {size}" in done.err


@pytest.mark.parametrize("option", ["--heap", "--region", "--size"])
def test_a_size_of_nothing(option):
    """It was taken for one that was not given."""
    done = merapi("create-window", "file:/nowhere/w", option, "0M")
    assert done.status == USAGE
    assert option in done.err and "expected more than 0, found 0" in done.err


def test_numbers_are_decimal_or_with_0x(folder):
    for size in ("010M", "10M", "10 MiB", "10mb", "10485760", "0xa00000"):
        path = folder / "w"
        assert merapi("create-window", f"file:{path}", "--heap", size).status == OK, size
        config = merapi("info", path, "--json").json()["config"]
        assert config["region_count"] * config["region_bytes"] == 10 << 20, size
        path.unlink()
    assert merapi("trace", folder / "w", "--count", "08", "--grey", "0x8", "--grey", "09").status == ABSENT


@pytest.mark.parametrize("seconds", ["1e30", "1e400", "inf", "nan", "-nan", "-1", "soon"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("reset", "file:/nowhere/w", "--timeout"),
        ("trace", "file:/nowhere/w", "--timeout"),
        ("replay", "/nowhere/image", "--timeout"),
        ("verify", "/nowhere/image", "--timeout"),
        ("top", "--interval"),
        ("provision", "--patience"),
    ],
)
def test_times_without_sense(arguments, seconds):
    done = merapi(*arguments, seconds, timeout=20)
    assert done.status == USAGE, done
    assert arguments[-1] in done.err and seconds.lstrip("-") in done.err


def test_nan_is_called_by_its_name():
    done = merapi("reset", "file:/nowhere/w", "--timeout", "nan")
    assert "expected a number, found nan" in done.err


# "--window=$DEVICE" with nothing in the variable: the next word is not its value.
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--window=", "java", "Main"),
        ("run", "--window=", "--", "java", "Main"),
        ("run", "--socket", "s", "--window=", "java"),
        ("create-window", "file:/nowhere/w", "--heap=", "64M"),
        ("info", "file:/nowhere/w", "--json="),
    ],
)
def test_option_without_its_value(arguments):
    done = merapi(*arguments)
    assert done.status == USAGE
    assert "=: expected a value after it, found nothing" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("load", "/nowhere/image", "/nowhere/w", "--create=false"),
        ("run", "--dry-run=no", "java"),
        ("list", "--json=true"),
        ("--version=0",),
    ],
)
def test_flags_have_no_value(arguments):
    done = merapi(*arguments)
    assert done.status == USAGE and done.out == "", done
    assert "expected no value, found '" in done.err and "leave it out" in done.err


@pytest.mark.parametrize("verb", [("run", "--", "true"), ("replay", "image"), ("verify", "image")])
@pytest.mark.parametrize("other", [("--device", "rtl"), ("--socket", "s")])
def test_a_window_has_its_device(verb, other):
    """What was asked for was left out, and something else traced."""
    done = merapi(verb[0], "--window", "file:w", *other, *verb[1:])
    assert done.status in (USAGE, 125), done
    assert f"expected {other[0]} or --window" in done.err or "excludes" in done.err


@pytest.mark.parametrize("arguments", [("save", "w", ""), ("export", "w", ""), ("create-window", "w", "--shrink", "")])
def test_empty_names(arguments):
    done = merapi(*arguments)
    assert done.status == USAGE
    assert "expected a path or a name, found nothing" in done.err


def test_options_of_the_command_are_its_own():
    done = merapi("run", "--dry-run", "java", "--window=", "Main")
    assert done.status == 0, done
    assert json.loads(done.out)["command"][-2:] == ["--window=", "Main"]


def to_full(*command):
    """Run it with a standard output that has no room."""
    env = {**os.environ, "MERAPI_DEVICE_PROGRAM": binary("merapi-device")}
    with open("/dev/full", "w") as full:
        return subprocess.run([*map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=env)


LOST = "expected to write to standard output, found: No space left on device"


def test_lost_output_is_failure(image, window_file, device, folder):
    made = f"file:{folder}/made"
    for arguments in (
        ("--help",),
        ("--version",),
        ("info", "--help"),
        ("info", image),
        ("info", image, "--json"),
        ("info", window_file),
        ("list", "--json"),
        ("top", "--once", "--interval", "0.01"),
        ("top", "--interval", "0.01"),
        ("top", "--interval", "0.01", "--json"),
        ("create-window", made, *SMALL),
        ("create-window", made, *SMALL, "--json"),
        ("destroy-window", made, "--json"),
        ("export", image, folder / "e.hprof", "--json"),
        ("replay", image, "--socket", device.socket),
        ("verify", image, "--socket", device.socket, "--json"),
        ("run", "--dry-run", "java", "Main"),
    ):
        done = to_full(binary("merapi"), *arguments)
        # All other codes of run are the program's.
        assert done.returncode == (125 if arguments[0] == "run" else SYSTEM), (arguments, done)
        assert done.stderr.splitlines().count(f"merapi: {LOST}") == 1, (arguments, done)


def test_lost_output_hides_no_other_failure(folder):
    done = to_full(binary("merapi"), "info", folder / "none", "--json")
    assert done.returncode == ABSENT and LOST not in done.stderr, done
    done = to_full(binary("merapi"), "doctor")
    assert done.returncode in (FOUND, SYSTEM), done
    assert LOST in done.stderr


@pytest.mark.parametrize("program", ["merapi-replay", "merapi-strip", "merapi-age"])
def test_lost_output_of_programs(image, folder, program):
    copy = () if program == "merapi-replay" else (folder / "copy",)
    for arguments in ((image, *copy), ("--help",), ("--version",)):
        done = to_full(binary(program), *arguments)
        assert done.returncode == 3, (arguments, done)
        assert done.stderr.splitlines().count(f"{program}: {LOST}") == 1, (arguments, done)


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", ">&-"])
def test_closed_streams_are_not_the_window(start, folder, window_file, streams):
    start(binary("merapi-device"), "--model", "--window", window_file).wait_line("ready")
    identity = window_file.read_bytes()[:16]
    for verb in ("trace", "reset"):
        command = ["sh", "-c", f'exec "$@" {streams}', "sh", binary("merapi"), verb, window_file, "--json"]
        status = subprocess.run(command, timeout=60).returncode
        assert window_file.read_bytes()[:16] == identity, verb
        assert status == SYSTEM, verb
    assert merapi("save", window_file, folder / "copy").status == OK


def test_output_to_a_closed_stream_is_lost(image):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", binary("merapi"), "info", image], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == SYSTEM, done
    assert "expected to write to standard output, found: Bad file descriptor" in done.stderr


def test_wrong_verb():
    done = merapi("frobnicate", "--now")
    assert done.status == USAGE
    assert "expected a verb, found 'frobnicate'" in done.err


@pytest.mark.parametrize("option", ["--foo", "-x", "--json", "--versions", "--"])
def test_option_in_the_place_of_a_verb(option):
    for more in ([], ["list"]):
        done = merapi(option, *more)
        assert done.status == USAGE
        assert f"expected a verb, found '{option}'" in done.err


def test_messages_do_not_send_a_terminal_what_others_are_called(window_file, folder):
    """The list escaped it; messages told of a process by the name that it gave itself."""
    command = ["sleep\x1b]0;title\x07\nmerapi: all is well", "60"]
    with open(window_file) as held:
        user = subprocess.Popen(command, executable="/bin/sleep", stdin=held)
    with user:
        try:
            done = merapi("destroy-window", window_file)
        finally:
            user.kill()
    assert done.status == BUSY
    assert f"found sleep\\x1b]0;title\\x07\\x0amerapi: all is well({user.pid}); end it first" in done.err
    assert len(done.err.splitlines()) == 1 and "\x1b" not in done.err
    (folder / "link").symlink_to("to\x1b[31m")
    done = merapi("destroy-window", folder / "link")
    assert done.status == ABSENT and "found a link to to\\x1b[31m;" in done.err
    # Whatever else a message has, as the name that was given.
    done = merapi("info", folder / "a\x1b[31m\u009b31m")
    assert done.status == ABSENT and "a\\x1b[31m\\x9b31m" in done.err
