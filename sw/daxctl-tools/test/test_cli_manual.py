# SPDX-License-Identifier: Apache-2.0
"""Every verb and every option is in --help, in a man page and in the completion; usage errors are told apart."""

import re
import subprocess

import pytest
from cli_harness import OK, ROOT, USAGE, merapi

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


def complete(*words):
    script = f'source {TOOLS}/completion/merapi; COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words)}; '
    done = subprocess.run(
        ["bash", "-c", script + '_merapi; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_completion_offers_verbs_and_values():
    assert set(VERBS) <= set(complete("merapi"))
    assert complete("merapi", "replay", "--device") == ["model", "rtl"]
    assert "ls" in complete("merapi", "run", "--")
    assert "--socket" not in complete("merapi", "run", "--", "java")


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
