# SPDX-License-Identifier: Apache-2.0
"""Every verb and every option is in --help, in a man page and in the completion; usage errors are told apart."""

import json
import os
import re
import shlex
import subprocess

import pytest
from cli_harness import OK, ROOT, USAGE, binary, merapi
from native_fixtures import wait_until

TOOLS = ROOT / "sw/daxctl-tools"
VERBS = sorted(path.stem.removeprefix("merapi-") for path in (TOOLS / "man").glob("merapi-*.1"))


def options_of(text):
    return set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help"}


def test_verbs_are_those_of_the_manual():
    done = merapi("--help")
    assert done.status == OK
    listed = re.findall(r"^  ([a-z][a-z-]+) {2,}", done.out.partition("Subcommands:")[2], re.M)
    assert sorted(listed) == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_documented(verb):
    done = merapi(verb, "--help")
    assert done.status == OK
    offered = set(re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]+)", done.out, re.M)) - {"--help"}
    manual = (TOOLS / f"man/merapi-{verb}.1").read_text().replace("\\-", "-")
    section = manual.partition(".SH OPTIONS")[2].partition(".SH ")[0]
    documented = set(re.findall(r"^\\fB(--[a-z-]+)", section, re.M))
    assert documented == offered
    line = next(
        line for line in (TOOLS / "completion/merapi").read_text().splitlines() if line.strip().startswith(f"{verb})")
    )
    assert options_of(line) == offered


def complete_lines(*words, **more):
    script = f'source {TOOLS}/completion/merapi; COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words)}; '
    done = subprocess.run(
        ["bash", "-c", script + '_merapi; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, **more
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def complete(*words):
    return [word for line in complete_lines(*words) for word in line.split()]


def test_completion_offers_verbs_and_values():
    assert set(VERBS) <= set(complete("merapi"))
    assert complete("merapi", "replay", "--device") == ["model", "rtl"]
    assert "ls" in complete("merapi", "run", "--")
    assert "--socket" not in complete("merapi", "run", "--", "java")


HOSTILE = "a window $(touch proof) `touch proof`; touch proof #\\'\""


@pytest.fixture
def of_hostile_windows(folder):
    """Arguments for processes in a folder where `merapi list` tells of windows with these names."""
    names = [f"file:/tmp/{HOSTILE}", "file:/tmp/\x1b[31m", "file:/tmp/last"]
    (folder / "listing").write_text(json.dumps({"windows": [{"window": name} for name in names]}, indent=1))
    (folder / "merapi").write_text(f"#!/bin/sh\ncat {folder}/listing\n")
    (folder / "merapi").chmod(0o755)
    (folder / "empty").mkdir()
    return {"cwd": folder / "empty", "env": {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}}


def test_names_of_windows_are_completed_and_not_executed(of_hostile_windows):
    """TAB behind `merapi top` expanded what another user had called a window."""
    offered = complete_lines("merapi", "top", **of_hostile_windows)
    assert [shlex.split(line) for line in offered] == [[f"file:/tmp/{HOSTILE}"], ["file:/tmp/last"]]
    (of_hostile_windows["cwd"] / "a file").touch()
    offered = complete_lines("merapi", "top", **of_hostile_windows)
    assert offered == ["a file", f"file:/tmp/{HOSTILE}", "file:/tmp/last"]
    (of_hostile_windows["cwd"] / "a file").unlink()
    assert os.listdir(of_hostile_windows["cwd"]) == []


def test_a_completed_name_is_quoted(of_hostile_windows, folder):
    """As a person has it: a line of an interactive shell, and TAB in it."""
    (folder / "listing").write_text(json.dumps({"windows": [{"window": HOSTILE}]}, indent=1))
    ours, theirs = os.openpty()
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, **of_hostile_windows
    ) as bash:
        try:
            source = f"source {TOOLS}/completion/merapi; says() {{ printf '%s|' \"$@\" > ../said; }}"
            os.write(ours, f"{source}; complete -o filenames -F _merapi says\nsays top \t\n".encode())
            wait_until(lambda: (folder / "said").exists() and (folder / "said").read_text().endswith("|"), 20)
        finally:
            bash.kill()
            os.close(theirs)
            os.close(ours)
    assert (folder / "said").read_text() == f"top|{HOSTILE}|"
    assert os.listdir(of_hostile_windows["cwd"]) == []


def test_windows_in_use_are_completed(device, folder, start):
    probe = start(binary("device_probe"), f"device:{device.socket}", "--hold")
    probe.wait_line("tracing")
    env = {**os.environ, "PATH": f"{os.path.dirname(binary('merapi'))}:{os.environ['PATH']}"}
    found = merapi("list", "--json").json()["windows"]
    assert found
    assert {window["window"] for window in found} <= set(complete_lines("merapi", "top", cwd=folder, env=env))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-verb"],
        ["info"],
        ["list", "--no-such-option"],
        ["run"],
        ["run", "--socket", "", "--", "java"],
        ["run", "--window", "", "--", "java"],
        ["run", "--window", "file:/w", "--socket", "/s", "--", "java"],
        ["replay", "/dev/null", "--socket", ""],
        ["replay", ""],
        ["verify", ""],
        ["load", "", "/w"],
        ["destroy-window", ""],
        ["top", ""],
    ],
)
def test_usage_errors(arguments):
    done = merapi(*arguments)
    assert done.status == USAGE
    assert done.out == ""


def test_version():
    done = merapi("--version")
    assert done.status == OK
    assert re.match(r"merapi \d+\.\d+\.\d+ \(libmerapi ", done.out)
