# SPDX-License-Identifier: Apache-2.0
"""The root Makefile: what it says of variables, paths and of another make in the same clone."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys

import lint
import pytest
from common import ROOT

OWN = "tools/test/test_tools_make.py"
LONG = {"synth": "synth", "formal": "formal", "mutate-rtl": "mutation", "cover-rtl": "coverage"}


def make(*words, cwd=ROOT, **variables):
    others = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MERAPI_ONCE", "MERAPI_FULL")
    env = {name: value for name, value in os.environ.items() if name not in others}
    return subprocess.Popen(
        ["make", *words], cwd=cwd, env={**env, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["native"], "native"),
        (["rtl"], "rtl"),
        (["rtl-simulations", "RTL_SIMULATIONS=sim-small:fast"], "rtl"),
        # Of these the recipes alone.
        *((["-n", target], step) for target, step in LONG.items()),
    ],
)
def test_a_second_make_waits(words, step):
    (ROOT / "build/locks").mkdir(parents=True, exist_ok=True)
    with open(ROOT / "build/locks" / step, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = make(*words)
        try:
            said = next(line for line in second.stderr if "waiting" in line)
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            second.communicate(timeout=600)
    assert said == f"waiting for another process in '{step}'\n"
    assert second.returncode == 0


@pytest.mark.parametrize(
    "name",
    ["a clone", " ", "10%", "a:b", "it's", 'a"b', "a&b", "a;b", "a$b", "a$$b", "a#b", "(a)", "a)", "a(", "{a}", "[a]"]
    + ["a|b", "a<b", "a>b", "a*b", "a?b", "a!b", "a`b", "a^b", "a=b", "a,b", "a\\b", "a\tb", "z\u00fcrich"],
)
def test_paths_that_make_cannot_take(name, tmp_path):
    (tmp_path / name).mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path / name)
    done = make("native", cwd=tmp_path / name)
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"found '{tmp_path / name}'; move it" in err
    assert sorted(file.name for file in tmp_path.rglob("*")) == sorted([name, "Makefile"])


def test_a_path_that_make_can_take(tmp_path):
    clone = tmp_path / "Clone-2_of.me@here+there~1"
    clone.mkdir()
    shutil.copy(ROOT / "Makefile", clone)
    out, err = make("-s", "where-native", "--eval=where-native: ; @echo $(CURDIR)", cwd=clone).communicate(timeout=60)
    assert (out, err) == (f"{clone}\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run-arguments", "DEVICE=rtl", "PRESET=nonsense"], "PRESET: expected one of ddr4-1ch, "),
        (["run-arguments", "DEVICE=model", "PRESET=hbm2"], "PRESET: expected with DEVICE=rtl alone"),
        (["run-arguments", "DEVICE=rtl", "MEMORY=nonsense"], "MEMORY: expected one of ideal, ddr4-2400, hbm2, or "),
        (["run-arguments", "DEVICE=rtl", "MEMORY=tools"], "MEMORY: expected one of ideal, "),
        (["qemu-arguments", "DEVICE=nonsense"], "DEVICE: expected one of "),
        (["qemu-arguments", "TOPOLOGY=nonsense"], "TOPOLOGY: expected one of one, two, pmem to run a program, found "),
        (["qemu-arguments", "DEVICE=rtl", "PRESET=nonsense"], "PRESET: expected one of ddr4-1ch, "),
    ],
)
def test_arguments_are_looked_at_first(words, expected):
    done = make("-s", *words)
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and expected in err


@pytest.mark.parametrize("target", ["run", "qemu", "qemu-shell"])
def test_arguments_come_before_builds(target):
    plan, _ = make("-n", target, "DEVICE=model").communicate(timeout=60)
    assert 0 < plan.index("--check") < plan.index("tools/setup.py"), plan


@pytest.mark.parametrize("words", [["test"], ["test-native"], ["rtl"], ["run", "DEVICE=rtl"]])
def test_what_only_root_installs_comes_before_builds(words):
    """Without cargo a user was told so when libjvm and the tracer's Verilog had been made, after half an hour."""
    plan, _ = make("-n", *words).communicate(timeout=60)
    assert 0 < plan.index("expected cargo") < plan.index("tools/setup.py"), plan


def test_a_plan_before_anything_is_fetched_says_nothing_but_the_plan(tmp_path):
    words = ["rtl-archives", "RTL_PRESETS=sim-small", f"RTL_VENV={tmp_path}/venv", f"RTL_BUILD={tmp_path}/rtl"]
    plan, err = make("-n", *words).communicate(timeout=60)
    assert "verilating sim-small" in plan and err == ""


@pytest.mark.parametrize("words", [["native"], ["test-jvm"], ["run", "DEVICE=model"], ["lint"]])
def test_what_needs_no_simulation_needs_no_cargo(words):
    plan, _ = make("-n", *words).communicate(timeout=60)
    assert "tools/setup.py" in plan and "cargo" not in plan


@pytest.mark.parametrize("name", ["JOBS", "RTL_JOBS"])
@pytest.mark.parametrize("jobs", ["abc", "0", "-1", "1 2", "5000", "%"])
def test_jobs_are_a_number(name, jobs):
    done = make("-s", "run-arguments", f"{name}={jobs}")
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"{name}: expected a number from 1 to 1024, found '{jobs}'" in err


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("formal/prove.py", ["--rtl", "x", "--seconds", "0"]),
        ("mutation/mutate.py", ["make", "--rtl", "x", "--out", "x", "--count", "0"]),
        ("mutation/mutate.py", ["hunt", "--test", "x", "--list", "x", "--jobs", "0"]),
        ("mutation/mutate.py", ["hunt", "--test", "x", "--list", "x", "--minutes", "0"]),
        ("mutation/mutate.py", ["hunt", "--test", "x", "--list", "x", "--least", "0"]),
        ("synth/synth.py", ["--rtl", "x", "--jobs", "0"]),
        ("synth/synth.py", ["--rtl", "x", "--timeout", "0"]),
    ],
)
def test_numbers_of_the_tools_that_judge_the_tracer(tool, words):
    """They work for minutes to hours; none of nothing would be a success."""
    done = subprocess.run(
        [sys.executable, ROOT / "hw/tracer-rtl" / tool, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and f"argument {words[-2]}: expected a " in done.stderr and "found '0'" in done.stderr


@pytest.mark.parametrize(("name", "usual"), [("RTL_JOBS", "2"), ("COVER_PIECE", "0 1 2 3 4 5")])
def test_an_empty_value_is_the_usual_one(name, usual):
    """An empty -j has no bound, and coverage of no piece would end without a report."""
    out, err = make("-s", f"--eval=shown: ; @echo '$({name})'", "shown", f"{name}=").communicate(timeout=60)
    assert out.strip() == usual, err


@pytest.mark.parametrize(
    ("target", "word", "expected"),
    [
        ("rtl-simulations", "RTL_SIMULATIONS=ddr4-1ch", "expected PRESET:KIND of sim-small:fast "),
        ("rtl-simulations", "RTL_SIMULATIONS=:slow", "expected PRESET:KIND of sim-small:fast "),
        ("rtl-simulations", "RTL_SIMULATIONS=sim-small:fast hbm3:fast", "expected PRESET:KIND of sim-small:fast "),
        ("rtl", "RTL_PRESETS=sim-small typo", "expected presets of sim-small "),
        ("synth", "SYNTH_PRESETS=typo", "expected presets of sim-small "),
        ("formal", "PROOFS=line-fetch typo", "expected names of line-fetch "),
        ("cover-rtl", "COVER_PIECE=9", "expected 'none' or pieces of 0 1 "),
        ("cover-rtl", "COVER_PIECE=none 2", "expected 'none' or pieces of 0 1 "),
        ("rtl-waves", "MERAPI_PRESET=sim-pair", "expected presets of one tracer of sim-small "),
        ("bench-rtl", "PRESET=abacus", "expected presets of one tracer of sim-small "),
        ("bench-rtl", "PRESET=sim-pair", "expected presets of one tracer of sim-small "),
        ("qemu", "APP=-cp classes Main", "expected nothing (a guest runs the program of 'make run'"),
        ("test", "MERAPI_FULL=yes", "expected 1 (all cases of the tests), 0 or nothing"),
        ("test", "MERAPI_FULL=1 0", "expected 1 (all cases of the tests), 0 or nothing"),
        ("test", "MERAPI_ONCE=no", "expected 0 (tests: simulations that passed before run again, too), 1 or nothing"),
    ],
)
def test_values_are_looked_at_first(target, word, expected):
    name, _, value = word.partition("=")
    done = make("-n", target, word)
    out, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"{name}: {expected}" in err and f", found '{value}'" in err, err
    assert out == ""


@pytest.mark.parametrize(
    "word",
    ["RTL_SIMULATIONS=hbm2:waves sim-small:fast", "RTL_PRESETS=hbm2 sim-pair", "SYNTH_PRESETS=ddr4-4ch"]
    + ["PROOFS=exhaust core-loop", "COVER_PIECE=2 3", "COVER_PIECE=none", "MERAPI_FULL=0", "RTL_JOBS=1024"],
)
def test_values_that_are_right_are_taken(word):
    name, _, value = word.partition("=")
    out, err = make("-s", f"--eval=shown: ; @echo '$({name})'", "shown", word).communicate(timeout=60)
    assert (out, err) == (f"{value}\n", "")


def test_a_preset_is_benched():
    out, err = make("-n", "-i", "bench-rtl", "PRESET=hbm2").communicate(timeout=60)
    assert "build/rtl/hbm2/fast" in out and 'bench_rtl.py --preset "$PRESET"' in out, err


def stand_in(folder, text):
    folder.mkdir()
    (folder / "python3").write_text(text)
    (folder / "python3").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


OLDER = f"""#!/bin/sh
shift  # -c
exec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 13, "final", 0); exec(sys.argv[1])' "$1"
"""


@pytest.mark.parametrize("target", ["run", "setup", "qemu", "contract"])
def test_an_older_python_is_told(target, tmp_path):
    done = make(target, PATH=stand_in(tmp_path / "bin", OLDER))
    out, err = done.communicate(timeout=60)
    assert done.returncode != 0 and "expected Python 3.11 or later, found 3.10 at " in err
    assert "Traceback" not in err


APT = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *install*) ln -s {python} {bin}/python3;; esac
exit {status}
"""


@pytest.mark.parametrize(("user", "status"), [(0, 0), (0, 1), (1000, 0)])
def test_a_machine_without_python_gets_it(user, status, tmp_path):
    """The smallest Debian has make after `apt-get install make`, and no Python; who may not install is told."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/apt_install.sh", tmp_path / "tools")
    tools, log = tmp_path / "bin", tmp_path / "apt"
    tools.mkdir()
    for name in ("sh", "make", "mkdir", "tail", "nproc", "seq", "ln", "date", "sleep"):
        (tools / name).symlink_to(shutil.which(name))
    for name, text in (("id", f"#!/bin/sh\necho {user}\n"), ("apt-get", "")):
        (tools / name).write_text(text or APT.format(log=log, python=sys.executable, bin=tools, status=status))
        (tools / name).chmod(0o755)
    done = make("python", cwd=tmp_path, PATH=str(tools))
    out, err = done.communicate(timeout=60)
    asked = log.read_text().splitlines() if log.exists() else []
    if user:
        assert done.returncode != 0 and asked == [] and "as root run: apt-get update && apt-get install" in err
    elif status:
        assert done.returncode != 0 and asked == ["update -q"]
    else:
        assert done.returncode == 0, err
        assert asked == ["update -q", "-o DPkg::Lock::Timeout=600 install -y --no-install-recommends python3-venv"]
        assert out == "installing Debian package(s): python3-venv\n"


@pytest.mark.usefixtures("nothing_ignored")
@pytest.mark.parametrize("name", ["setup", "apps"])
def test_tools_end_at_an_interrupt_without_a_trace(name):
    (ROOT / "build/locks").mkdir(parents=True, exist_ok=True)
    tool = {"setup": "setup.py", "apps": "build_apps.py"}[name]
    with open(ROOT / "build/locks" / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, ROOT / "tools" / tool]
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "waiting" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
    assert err == f"{tool}: stopped\n" and waiting.returncode == -signal.SIGINT


def simulations(*words, full=""):
    shown = "--eval=shown: ; @echo '$(RTL_SIMULATIONS)'"
    out, err = make("-s", "-o", "test", "-o", "test-qemu", shown, *words, MERAPI_FULL=full).communicate(timeout=60)
    assert err == ""
    return out.strip()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["DEVICE=rtl"], "sim-small:fast ddr4-1ch:fast"),
        (["DEVICE=rtl", "PRESET=sim-small"], "sim-small:fast ddr4-1ch:fast"),
        (["DEVICE=rtl", "PRESET=hbm2"], "hbm2:fast"),
        (["DEVICE=model", "PRESET=hbm2"], "sim-small:fast ddr4-1ch:fast"),
    ],
)
def test_a_run_has_the_simulation_of_its_preset(words, expected):
    assert simulations("shown", *words) == expected


@pytest.mark.parametrize("full", ["", "0", "1"])
def test_full_is_one(full):
    """The same for whoever reads it; make lets nothing else through."""
    both = "sim-small:fast ddr4-1ch:fast"
    assert simulations("test", "shown", full=full) == both
    assert simulations("test-qemu", "shown", full=full) == (both if full == "1" else "sim-small:fast")
    plan, err = make("-n", "test-rtl-wide", "MAKE=true", MERAPI_FULL=full).communicate(timeout=60)
    assert f"MERAPI_SEEDS=${{MERAPI_SEEDS:-{200 if full == '1' else 4}}}" in plan, err


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "1"), (["MERAPI_ONCE="], "1"), (["MERAPI_ONCE=0"], "0"), (["MERAPI_FULL=1"], "0")]
    + [(["MERAPI_FULL=0"], "1"), (["MERAPI_FULL=1", "MERAPI_ONCE=1"], "1")],
)
def test_all_tests_make_no_simulation_again_unless_told(words, said):
    plan, err = make("-n", "test", *words).communicate(timeout=60)
    assert re.findall(r"^MERAPI_ONCE=(.) build/venv/bin/python -m pytest", plan, re.M) == [said], err


@pytest.mark.parametrize("given", [{}, {"MERAPI_ONCE": ""}, {"MERAPI_ONCE": "1"}])
def test_whoever_names_tests_has_them_run(given):
    """make hands its variable to nothing that it starts unless it was given one."""
    out, err = make("-s", "--eval=shown: ; @echo $${MERAPI_ONCE:-unset}", "shown", **given).communicate(timeout=60)
    assert (out, err) == (f"{given.get('MERAPI_ONCE') or 'unset'}\n", "")


FULL_IS_READ = re.compile(r'env\S*get\("MERAPI_FULL"\).*|.*\$\(MERAPI_FULL\).*')
FULL_IS_ONE = re.compile(
    r'env\S*get\("MERAPI_FULL"\)( [!=]= "1"|\.contains\("1"\)).*|.*\$\(filter 1,\$\(MERAPI_FULL\)\).*'
)


def test_full_is_one_for_all_tests():
    names = [name for name in lint.files() if name.endswith((".py", ".scala", ".mk")) and name != OWN]
    found = [match[0] for name in names for match in FULL_IS_READ.finditer((ROOT / name).read_text())]
    assert len(found) >= 8
    assert [text for text in found if not FULL_IS_ONE.fullmatch(text)] == []


@pytest.mark.parametrize("value", ["", "somewhere", "~/some/where"])
def test_the_cache_is_one_place(value):
    plan, _ = make("-pn", "help", MERAPI_CACHE=value).communicate(timeout=60)
    (cache,) = [
        line.removeprefix("MERAPI_CACHE := ") for line in plan.splitlines() if line.startswith("MERAPI_CACHE :=")
    ]
    assert cache == str(ROOT / os.path.expanduser(value or "~/.cache/merapi"))
    assert f"CCACHE_DIR := {cache}/ccache" in plan


@pytest.mark.parametrize("value", ["/tmp/ca che", "/tmp/a:b", "/tmp/a#b", "/tmp/(a", "it's"])
def test_a_cache_that_tools_cannot_take_is_told_first(value):
    """The guest's QEMU and compiler run from there: they ended late, by messages of other programs."""
    done = make("-n", "setup", MERAPI_CACHE=value)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 2 and out == ""
    assert (
        f"MERAPI_CACHE: expected a folder whose path has only letters (a to z), digits and ._/+@-~, found '{value}'"
        in err
    )


BUSY = """#!/bin/sh
echo "$*" >> {log}
[ "$(grep -c . {log})" -gt {times} ] && exit 0
[ "$LC_ALL" = C ] && echo "E: {says}" || echo "E: Etwas ging schief"
exit 100
"""


@pytest.mark.parametrize(("says", "times", "asked"), [("Could not get lock /var", 2, 4), ("no such package", 9, 1)])
def test_another_apt_is_waited_for(says, times, asked, tmp_path):
    """That of a second clone, or the machine's daily one, in any language; what else goes wrong is told at once."""
    (tmp_path / "apt-get").write_text(BUSY.format(log=tmp_path / "log", says=says, times=times))
    (tmp_path / "apt-get").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "de_DE.UTF-8"}
    command = [ROOT / "tools/apt_install.sh", "one", "two"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == asked and lines[0] == "update -q"
    if times > asked:
        assert done.returncode == 1 and says in done.stdout
    else:
        assert done.returncode == 0 and lines[-1].endswith(" install -y --no-install-recommends one two")


@pytest.mark.parametrize(
    ("words", "unread"),
    [
        (["DEVCE=model", "PROGRAM:=x y"], "DEVCE PROGRAM"),
        (
            ["RTL_PRESET=x", "RTL_PRESTS=foo", "MERAPI_SEDS=3", "SYNTH_FLAGS="],
            "MERAPI_SEDS RTL_PRESET RTL_PRESTS SYNTH_FLAGS",
        ),
        (["RTL_PRESETS=sim-small", "MERAPI_SEED=3", "MERAPI_NATIVE=x", "PYTEST_ADDOPTS=-x", "NATIVE_FLAGS=x"], ""),
        (["APP=-cp x Main SIZE=3 a:b", "DEVICE:=rtl", "JOBS=1"], ""),
    ],
)
def test_a_variable_that_nothing_reads_is_told(words, unread):
    _, err = make("help", *words).communicate(timeout=60)
    assert sorted(err.partition("no target reads ")[2].partition(";")[0].split()) == unread.split(), err


def test_the_variables_of_the_list_are_read():
    """Each one that `make help` names, and it names all; what a target does not know is told above."""
    out, _ = make("help").communicate(timeout=60)
    names = set(re.findall(r"\b([A-Z][A-Z_]+)=", out))
    assert {"DEVICE", "UNIT", "MUTANTS", "MERAPI_SEEDS", "SYNTH_YOSYS", "MERAPI_FULL"} <= names
    known, _ = make("-s", "--eval=shown: ; @echo $(VARIABLES)", "shown").communicate(timeout=60)
    assert set(known.split()) == names
    _, err = make("help", *(f"{name}=" for name in names)).communicate(timeout=60)
    assert err == ""


@pytest.mark.parametrize("goal", ["run", "test", "rtl-simulations", "axi-rtl", "cover-rtl"])
def test_a_plan_of_a_clone_where_nothing_is_built(goal, tmp_path):
    """Lines that name MAKE are executed under -n, too: they ended with errors about folders that nobody had made."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
    for name in lint.files():
        if name == "Makefile" or name.endswith(".mk"):
            shutil.copy(ROOT / name, clone / name)
    done = make("-n", goal, "DEVICE=rtl", cwd=clone)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0 and "verilat" in out, err
    assert [path.name for path in clone.glob("build/*") if path.name != "locks"] == []


@pytest.mark.parametrize(("home", "passed"), [("gone", ""), ("", ""), ("jdk", "jdk")])
def test_a_stale_java_home_is_nobody_s(home, passed, tmp_path):
    (tmp_path / "jdk/bin").mkdir(parents=True)
    (tmp_path / "jdk/bin/java").symlink_to("/bin/true")
    value = str(tmp_path / home) if home else ""
    shown = '--eval=shown: ; @echo "[$${JAVA_HOME:-}]"'
    out, err = make("-s", shown, "shown", JAVA_HOME=value).communicate(timeout=60)
    assert out == f"[{tmp_path / passed if passed else ''}]\n", err


def test_targets_are_made_one_after_the_other():
    """With -j the compilers are many, not the targets, which would make the same files twice."""
    rules = ["--eval=one: ; @sleep 0.5; echo one", "--eval=two: ; @echo two", "--eval=both: one two"]
    out, err = make("-s", "-j4", *rules, "both").communicate(timeout=60)
    assert out == "one\ntwo\n", err
