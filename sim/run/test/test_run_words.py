# SPDX-License-Identifier: Apache-2.0
"""Which of java's words are options: a collector is named by the run where nobody else names one."""

import os
import subprocess
from pathlib import Path

import java_words
import pytest
import run

JAVA = Path(__file__).resolve().parents[3] / "build/jdk/image/bin/java"
SERIAL = "-XX:+UseSerialGC"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No variables of whoever runs the test; files that java reads lie in the folder."""
    for variable in java_words.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "serial": f"# a comment\n-Dx='a b'\n{SERIAL} # another one\n",
        "program": f"-cp cls\nMain {SERIAL}\n",
        "open": f"{SERIAL} -Dx='a\n",
        "comment": f"-Dx=1 # {SERIAL}\n",
        "flags": "+UseSerialGC\n",
        "vm": f"{SERIAL}\n",
    }.items():
        Path(name).write_text(text)


def names_g1(*words):
    return "-XX:+UseG1GC" in run.own_flags("/s", "log", list(words))


@pytest.mark.parametrize(
    "words",
    [
        f"-cp cls Main args {SERIAL}",
        f"-jar a.jar {SERIAL}",
        f"-m m/Main {SERIAL}",
        f"--module m/Main {SERIAL}",
        f"--module=m/Main {SERIAL}",
        f"-Dx=1 Main.java {SERIAL}",
        f"-cp {SERIAL} Main",
        f"-p mods --add-modules a --add-opens a/b=c -m m/Main {SERIAL}",
        "Main @serial",
        "@program",
        f"@program {SERIAL}",
        "@comment Main",
        "@@serial",
        "@missing Main",
        "-XX:+UseAdaptiveSizePolicyWithSystemGC Main",
        "-XX:-UseSerialGC Main",
        "-Dx=-XX:+UseSerialGC Main",
        "",
    ],
)
def test_g1_is_named_where_nothing_else_is(words):
    assert names_g1(*words.split())


@pytest.mark.parametrize(
    "words",
    [
        f"{SERIAL} -cp cls Main",
        f"-cp cls {SERIAL} Main",
        f"-p mods --add-modules a {SERIAL} -m m/Main",
        f"--class-path=cls {SERIAL} -jar a.jar",
        "@serial Main",
        "-cp cls @serial Main",
        "@open Main",
        "-XX:VMOptionsFile=vm Main",
        "-XX:Flags=flags Main",
        "-XX:+UseG1GC Main",
        "-XX:+UseZGC Main",
    ],
)
def test_a_collector_that_is_named_stays_alone(words):
    assert not names_g1(*words.split())


@pytest.mark.parametrize("variable", java_words.VARIABLES)
@pytest.mark.parametrize("value", [SERIAL, f"-Dx='a b' {SERIAL}", "-XX:VMOptionsFile=vm"])
def test_a_collector_of_a_variable_stays_alone(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert not names_g1("Main")


def test_a_file_of_a_variable(monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "@serial")
    assert not names_g1("Main")


def test_a_pipe_is_left_to_java():
    os.mkfifo("pipe")
    assert names_g1("@pipe", "Main")


@pytest.mark.parametrize("words", [["@serial"], ["-XX:VMOptionsFile=vm"], [f"-Dx={SERIAL}"], ["-cp", "x"]])
@pytest.mark.parametrize("variable", [None, "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_java_agrees(monkeypatch, words, variable):
    """One collector at most is chosen: the JVM starts."""
    assert JAVA.exists(), f"expected {JAVA}, found nothing; run 'make jdk'"
    if variable:
        monkeypatch.setenv(variable, SERIAL)
    g1 = ["-XX:+UseG1GC"] if names_g1(*words, "-version") else []
    done = subprocess.run([JAVA, *g1, *words, "-version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
