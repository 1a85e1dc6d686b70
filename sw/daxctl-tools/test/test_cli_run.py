# SPDX-License-Identifier: Apache-2.0
"""merapi run: the window, the JDK and the flags that a command gets, signals and the exit status."""

import json
import os
import shutil
import signal
import socket as sockets
import subprocess

import pytest
from cli_harness import (
    alive,
    binary,
    compile_java,
    device_of,
    devices_at,
    merapi,
    patched_jdk,
)


def test_gives_the_window_and_ends_the_device(java, env):
    done = merapi("run", "--", java, "-cp", "x", "Main", env=env)
    assert done.status == 0, done.err
    words = done.out.split()
    assert words[1] == "-XX:+UseG1GC"
    assert words[2] == f"-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}"
    assert words[-3:] == ["-cp", "x", "Main"]
    assert device_of(env) is None
    assert not os.path.exists(env["MERAPI_SOCKET"])


def test_exit_status_passes_through(java, env):
    assert merapi("run", "--", java, env={**env, "MODE": "status"}).status == 42


def test_death_by_signal_passes_through(java, env):
    assert merapi("run", "--", java, env={**env, "MODE": "signal"}).status == -signal.SIGSEGV


def test_signal_is_passed_on_and_the_device_ended(java, env, start):
    run = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"})
    run.wait_line("waiting")
    device = device_of(env)
    assert alive(device)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(30) == 7
    assert not alive(device)


def test_program_that_is_not_there(env):
    done = merapi("run", "--", "/nowhere/java", env=env)
    assert done.status == 127
    assert "/nowhere/java" in done.err
    assert device_of(env) is None


@pytest.mark.parametrize("name", ["Serial", "Parallel", "Z", "Shenandoah", "Epsilon", "G1"])
def test_own_collector_is_left(java, env, name):
    done = merapi("run", "--dry-run", "--", java, f"-XX:+Use{name}GC", env=env)
    assert done.json()["command"][1].startswith("-XX:MerapiWindow=")


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"])
def test_collector_of_the_environment_is_left(java, env, variable):
    done = merapi("run", "--", java, "Main", env={**env, variable: "-Xmx1g -XX:+UseSerialGC"})
    assert done.status == 0 and "UseG1GC" not in done.out
    done = merapi("run", "--", java, "Main", env={**env, variable: "-XX:+UseStringDeduplication"})
    assert "-XX:+UseG1GC" in done.out


@pytest.mark.parametrize("word", ["@{}", "-XX:VMOptionsFile={}", "-XX:Flags={}"])
def test_collector_of_a_file_of_arguments_is_left(java, env, folder, word):
    (folder / "args").write_text('-Xmx1g\n"-XX:+UseParallelGC"\n' if "Flags" not in word else "+UseParallelGC\n")
    (folder / "outer").write_text(f"-Xmx1g {word.format(folder / 'args')}\n")
    named = word.format(folder / "args")
    assert "UseG1GC" not in merapi("run", "--dry-run", "--", java, named, "Main", env=env).out
    assert "UseG1GC" not in merapi("run", "--dry-run", "--", java, f"@{folder / 'outer'}", "Main", env=env).out
    options = {**env, "JDK_JAVA_OPTIONS": f"-Xmx1g {named}"}
    assert "UseG1GC" not in merapi("run", "--dry-run", "--", java, "Main", env=options).out


def test_file_of_arguments_that_is_none_is_left_to_java(java, env, folder):
    os.mkfifo(folder / "pipe")
    for name in ("missing", "pipe", "."):
        done = merapi("run", "--", java, f"@{folder / name}", "Main", env=env)
        assert done.status == 0, done.err
        assert "-XX:+UseG1GC" in done.out and f"@{folder / name} Main" in done.out


MAIN = {
    "class": ["-cp", "x", "Main"],
    "jar": ["-Xmx1g", "-jar", "x.jar"],
    "module": ["-p", "x", "-m", "m/M"],
    "module, long": ["--module-path", "x", "--module=m/M"],
    "source": ["--source", "17", "--add-modules", "m", "Main.java"],
    "file": ["@{}"],
}


@pytest.mark.parametrize("main", MAIN.values(), ids=MAIN)
def test_arguments_of_the_program_are_its_own(java, env, folder, main):
    """A collector or window there is no flag of the JVM, which read them as one."""
    (folder / "main").write_text("-cp 'a b' # a comment\nMain\n-XX:+UseSerialGC")
    main = [word.format(folder / "main") for word in main]
    arguments = ["-XX:+UseSerialGC", "-XX:MerapiWindow=zz", "-cp", f"@{folder / 'main'}"]
    done = merapi("run", "--dry-run", "--", java, *main, *arguments, env=env)
    assert done.status == 0, done.err
    assert done.json()["command"][1] == "-XX:+UseG1GC"
    assert done.json()["command"][3:] == [*main, *arguments]


@pytest.mark.parametrize("option", ["-cp", "-p", "--add-modules", "--source", "-d", "--upgrade-module-path"])
def test_the_value_of_an_option_is_no_main_class(java, env, folder, option):
    (folder / "arguments").write_text(f'{option} "a b"\n-XX:+UseSerialGC')
    for words in (
        [option, "x", "-XX:+UseSerialGC"],
        [f"@{folder / 'arguments'}"],
        [option, "x", f"@{folder}/arguments"],
    ):
        done = merapi("run", "--dry-run", "--", java, *words, "Main", env=env)
        assert "UseG1GC" not in done.out, words
    done = merapi("run", "--", java, option, "x", "-XX:MerapiWindow=zz", "Main", env=env)
    assert done.status == 125 and "found one in it" in done.err


@pytest.fixture
def script(folder):
    path = folder / "tool"
    path.write_text('#!/bin/sh\necho "$JDK_JAVA_OPTIONS"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("way", ["argument", "file of arguments", "variable"])
def test_a_window_that_would_have_the_last_word(java, env, folder, way):
    other = "-XX:MerapiWindow=device:/tmp/other"
    (folder / "arguments").write_text(f"-Xmx1g {other}")
    word, more = {
        "argument": (other, {}),
        "file of arguments": (f"@{folder / 'arguments'}", {}),
        "variable": ("x", {"_JAVA_OPTIONS": f"-Xmx1g {other}"}),
    }[way]
    done = merapi("run", "--", java, word, env={**env, **more})
    assert done.status == 125 and "expected a command without -XX:MerapiWindow, found one in" in done.err
    assert "use --window instead" in done.err
    assert not devices_at(env["MERAPI_SOCKET"])


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_window_that_has_not(java, env, variable):
    """A run within a run has one in JDK_JAVA_OPTIONS."""
    done = merapi("run", "--", java, env={**env, variable: "-XX:MerapiWindow=device:/tmp/other"})
    assert done.status == 0, done.err


def test_tools_of_a_jdk_get_the_window(env, folder):
    """They read no variable: -J is for the JVM that they start."""

    def plan(*command):
        return merapi("run", "--jdk", jdk, "--dry-run", "--", *command, env=env).json()

    jdk = folder / "jdk"
    (jdk / "bin").mkdir(parents=True)
    (jdk / "lib").mkdir()
    (jdk / "lib/libjli.so").write_text("")
    for name in ("java", "javac"):
        shutil.copy("/bin/true", jdk / "bin" / name)
    (jdk / "bin/app").write_text("#!/bin/sh\nexec java Main\n")
    (jdk / "bin/app").chmod(0o755)
    window = f"-J-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}"
    for name in ("javac", jdk / "bin/javac"):
        found = plan(name, "Main.java")
        assert found["command"] == [str(jdk / "bin/javac"), "-J-XX:+UseG1GC", window, "Main.java"]
        assert found["environment"] == {}
    # A script that jlink has made starts java itself.
    found = plan(jdk / "bin/app")
    assert found["command"] == [str(jdk / "bin/app")]
    assert "MerapiWindow" in found["environment"]["JDK_JAVA_OPTIONS"]


def test_a_compiler_in_a_window(env, folder):
    (folder / "Empty.java").write_text("class Empty {}")
    jdk = patched_jdk()
    compiler = jdk / "bin/javac"
    if not compiler.exists():
        pytest.skip("this JDK has no javac")
    done = merapi("run", "--", compiler, "-J-Xlog:gc+merapi", "-d", folder, folder / "Empty.java", env=env)
    assert done.status == 0, done.err
    assert f"Window device:{env['MERAPI_SOCKET']}" in done.out


def test_script_gets_java_options(env, script):
    done = merapi("run", "--", script, env={**env, "JDK_JAVA_OPTIONS": "-Xmx1g"})
    assert done.out.split()[0] == "-Xmx1g"
    assert f"-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}" in done.out


@pytest.fixture
def groups(folder):
    """groups(lines, files): variables for a process of these control groups."""

    def make(lines="", files=()):
        for name, text in {
            "proc/self/cgroup": lines,
            **{f"sys/fs/cgroup/{n}": t for n, t in dict(files).items()},
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
        return {"MERAPI_PROC_ROOT": str(folder / "proc"), "MERAPI_SYSFS_ROOT": str(folder / "sys")}

    return make


def test_script_gets_a_collector_where_the_jvm_does_not_choose_g1(env, script, groups):
    env = {**env, **groups()}
    processors = os.sched_getaffinity(0)
    server = len(processors) >= 2 and os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") >= 1792 << 20
    assert ("UseG1GC" in merapi("run", "--", script, env=env).out) == (not server)

    def on_one():
        os.sched_setaffinity(0, {min(processors)})

    assert "-XX:+UseG1GC " in merapi("run", "--", script, env=env, preexec_fn=on_one).out
    named = {**env, "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC"}
    assert "UseG1GC" not in merapi("run", "--", script, env=named, preexec_fn=on_one).out
    assert "UseG1GC" not in merapi("run", "--", script, "-XX:+UseZGC", env=env, preexec_fn=on_one).out


V1 = "4:memory:/pod/own\n3:cpuset:/\n2:cpu,cpuacct:/pod/own"
LIMITED = {
    "one processor": ("0::/", {"cpu.max": "100000 100000"}),
    "part of one": ("0::/pod/own", {"pod/own/cpu.max": "20000 100000"}),
    "of a group above": ("0::/pod/own", {"pod/own/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}),
    "memory": ("0::/", {"cpu.max": "max 100000", "memory.max": f"{1791 << 20}"}),
    "path of another namespace": ("0::/not/here", {"memory.max": f"{1791 << 20}"}),
    "v1, processors": (
        V1,
        {"cpu,cpuacct/pod/own/cpu.cfs_quota_us": 99999, "cpu,cpuacct/pod/own/cpu.cfs_period_us": 100000},
    ),
    "v1, named by one": (V1, {"cpu/cpu.cfs_quota_us": 99999, "cpu/cpu.cfs_period_us": 100000}),
    "v1, memory": (V1, {"memory/pod/memory.limit_in_bytes": 1 << 30}),
}
AMPLE = {
    "rounded up": ("0::/", {"cpu.max": "100001 100000", "memory.max": f"{1792 << 20}"}),
    "no bounds": ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}),
    "no number": ("0::/", {"cpu.max": "", "memory.max": "many"}),
    "another's": ("0::/own", {"other/cpu.max": "1 100000", "other/memory.max": 1}),
    "v1": (
        V1,
        {
            "cpu/pod/own/cpu.cfs_quota_us": -1,
            "cpu/pod/own/cpu.cfs_period_us": 100000,
            "memory/memory.limit_in_bytes": 9223372036854771712,
            "cpuset/memory.limit_in_bytes": 1,
        },
    ),
}


@pytest.mark.parametrize("lines, files", LIMITED.values(), ids=LIMITED)
def test_script_gets_a_collector_in_a_limited_group(env, script, groups, lines, files):
    assert "-XX:+UseG1GC " in merapi("run", "--dry-run", "--", script, env={**env, **groups(lines, files)}).out


@pytest.mark.parametrize("lines, files", AMPLE.values(), ids=AMPLE)
def test_script_gets_none_in_a_group_with_enough(env, script, groups, lines, files):
    if len(os.sched_getaffinity(0)) < 2 or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") < 1792 << 20:
        pytest.skip("needs 2 processors and 1792 MB")
    assert "UseG1GC" not in merapi("run", "--dry-run", "--", script, env={**env, **groups(lines, files)}).out


@pytest.mark.parametrize("name, written", [("a b", "a b"), ("a\"b'", "a\"'\"'\"b'")])
def test_script_gets_quoted_options(env, script, folder, name, written):
    os.mkdir(folder / name)
    done = merapi("run", "--socket", folder / name / "s", "--", script, env=env)
    assert done.status == 0, done.err
    assert done.out.endswith(f'"-XX:MerapiWindow=device:{folder}/{written}/s"\n')


def test_relative_names_are_made_absolute(java, env, folder):
    def window(*options, **more):
        plan = merapi("run", "--dry-run", *options, "--", java, "Main", env={**env, **more}, cwd=folder).json()
        assert f"-XX:MerapiWindow={plan['window']}" in plan["command"]
        return plan["window"]

    assert window("--socket", "o/s.sock") == f"device:{folder}/o/s.sock"
    assert window(MERAPI_SOCKET="s.sock") == f"device:{folder}/s.sock"
    for kind in ("file", "dax", "device"):
        assert window("--window", f"{kind}:o/w") == f"{kind}:{folder}/o/w"
    assert window("--window", "o/w") == f"{folder}/o/w"
    assert window("--window", "pci:merapi0,o/dax0.0") == f"pci:{folder}/merapi0,{folder}/o/dax0.0"
    assert window("--window", "pci:/dev/merapi0,dax0.0") == f"pci:/dev/merapi0,{folder}/dax0.0"
    for name in ("file:/o/w", "/o/w", "pci:/dev/merapi0,/dev/dax0.0", "file:", "pci:", "pci:merapi0", "pci:,dax0.0"):
        assert window("--window", name) == name
    plan = merapi("run", "--dry-run", "--window", "file:/o/w", "--", java, env=env).json()
    assert "device_runs" not in plan  # nobody has looked
    # A socket's name has room for 107 bytes; a longer one would find no device from any folder.
    deep = folder / ("d" * 100)
    deep.mkdir()
    plan = merapi("run", "--dry-run", "--socket", "s.sock", "--", java, env=env, cwd=deep).json()
    assert plan["window"] == "device:s.sock"
    for name in ("s.sock", "device:s.sock"):
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as other:
            other.bind(f"{folder}/s.sock")
        (folder / "s.sock").rename(deep / "s.sock")
        plan = merapi("run", "--dry-run", "--window", name, "--", java, env=env, cwd=deep).json()
        assert plan["window"] == name


def test_a_relative_jdk_is_found_from_every_folder(java, script, env, folder):
    (folder / "jdk/bin").mkdir(parents=True)
    shutil.copy(java, folder / "jdk/bin/java")
    for options, more in ((["--jdk", "jdk"], {}), ([], {"MERAPI_JDK": "jdk/"})):

        def plan(*command, options=options, more=more):
            return merapi("run", "--dry-run", *options, "--", *command, env={**env, **more}, cwd=folder).json()

        assert plan("java", "Main")["command"][0] == f"{folder}/jdk/bin/java"
        shown = plan(script)["environment"]
        assert shown["PATH"].split(":")[0] == f"{folder}/jdk/bin"
        assert shown["JAVA_HOME"] == f"{folder}/jdk"


def test_a_jdk_without_the_patches_is_told(script, env, folder):
    """The JVM would only say that it knows no such option; with a script, each JVM would."""
    home = folder / "stock"
    for path in ("bin/java", "lib/server/libjvm.so"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("#!/bin/sh\necho started\n")
        (home / path).chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin/java").symlink_to(home / "bin/java")
    alone = shutil.copy(binary("merapi"), folder / "merapi")  # with no JDK of its tree
    paths = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "MERAPI_JDK": ""}
    told = f"expected a JDK with Merapi's patches for 'java', found {home}/bin/java without {home}/lib/libmerapi.so"
    named = {"MERAPI_JDK": str(home)}

    def run(*command, **more):
        command = [alone, "run", "--window", "file:w", "--", *command]
        return subprocess.run(
            command, cwd=folder, env={**os.environ, **env, **more}, capture_output=True, text=True, timeout=60
        )

    for more in (paths, named):
        done = run("java", "Main", **more)
        assert (done.returncode, done.stdout) == (125, ""), done
        assert told in done.stderr
        done = run(script, **more)
        assert done.returncode == 0 and told in done.stderr, done
    for path in (folder / "bin/java", home / "bin/java"):  # by its path
        done = run(path, "Main")
        assert (done.returncode, done.stdout) == (125, ""), done
        assert told in done.stderr and "name one that has them" in done.stderr
    (home / "lib/libmerapi.so").touch()
    for more in (paths, named):
        done = run("java", "Main", **more)
        assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", ""), done
    assert run(home / "bin/java", "Main").stdout == "started\n"


def test_dry_run_starts_nothing(java, env):
    done = merapi("run", "--dry-run", "--", java, "Main", env=env)
    plan = json.loads(done.out)
    assert plan["command"][-1] == "Main"
    assert not os.path.exists(env["MERAPI_SOCKET"])


def test_dry_run_shows_the_environment(java, env, script, folder):
    def plan(*command, **more):
        return merapi("run", "--dry-run", *command, env={**env, **more}).json()

    assert plan("--", java, "Main")["environment"] == {}
    (folder / "jdk/bin").mkdir(parents=True)
    shutil.copy(java, folder / "jdk/bin/java")
    shown = plan("--jdk", folder / "jdk", "--", script, JDK_JAVA_OPTIONS="-Xmx1g")["environment"]
    assert shown["JDK_JAVA_OPTIONS"].split()[0] == "-Xmx1g"
    assert shown["JDK_JAVA_OPTIONS"].endswith(f"-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}")
    assert shown["JAVA_HOME"] == str(folder / "jdk")
    assert shown["PATH"] == f"{folder}/jdk/bin:{os.environ['PATH']}"
    # They are what the program finds.
    script.write_text('#!/bin/sh\necho "$JDK_JAVA_OPTIONS"; echo "$JAVA_HOME"; echo "$PATH"\n')
    done = merapi("run", "--jdk", folder / "jdk", "--", script, env={**env, "JDK_JAVA_OPTIONS": "-Xmx1g"})
    assert done.out.splitlines() == [shown["JDK_JAVA_OPTIONS"], shown["JAVA_HOME"], shown["PATH"]]


def test_real_jvm_is_not_stopped_by_options(env, folder):
    """Collectors that are named twice and options that are not quoted end it."""
    (folder / "args").write_text("-XX:+UseParallelGC\n")
    (folder / "a b").mkdir()
    jdk, blank = patched_jdk(), ["--socket", folder / "a b/s"]
    for options, more, command in (
        ([], {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC"}, ["java", "-version"]),
        ([], {"JAVA_TOOL_OPTIONS": "-XX:+UseParallelGC"}, ["java", "-version"]),
        ([], {}, ["java", f"@{folder}/args", "-version"]),
        ([], {}, ["sh", "-c", "java -XX:+UseParallelGC -version"]),
        (blank, {}, ["sh", "-c", "cd /; java -Xlog:gc+merapi:stderr -version 2>&1 | grep 'Window device:.*a b/s:'"]),
    ):
        done = merapi("run", *options, "--jdk", jdk, "--", *command, env={**env, **more})
        assert done.status == 0, f"{more} {command}: {done.out}{done.err}"


def test_real_jvm_traces(env, tmp_path):
    compile_java(
        tmp_path,
        "Collect",
        "public class Collect { public static void main(String[] a) { "
        "Object[] keep = new Object[100000]; for (int i = 0; i < keep.length; i++) keep[i] = new int[8]; "
        "System.gc(); System.gc(); System.out.println(keep.length); } }",
    )
    flags = ["-Xmx64m", "-XX:+ExplicitGCInvokesConcurrent", "-Xlog:gc+merapi=info", "-cp", tmp_path]
    done = merapi("run", "--verify", "--jdk", patched_jdk(), "--", "java", *flags, "Collect", env=env, timeout=300)
    assert done.status == 0, done.err
    assert "100000" in done.out
    assert "Trace {" in done.out
    assert "Fallback" not in done.out
    assert device_of(env) is None
