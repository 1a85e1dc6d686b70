# SPDX-License-Identifier: Apache-2.0
"""The tree's style checks as tests, and that they do find something."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import lint
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(lint.CHECKS))
def test_style(name, capsys):
    assert lint.CHECKS[name](False), capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["/" + "root/x", "/" + "home/somebody/x", "see deb.debian" + ".org", "# TO" + "DO: later", "as of `bdd" + "8528`"],
)
def test_words_are_found(text, tmp_path, monkeypatch, capsys):
    (tmp_path / "page.md").write_text(f"first\n{text}\n")
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "files", lambda: ["page.md"])
    assert not lint.words(False)
    assert "page.md:2" in capsys.readouterr().err


def test_a_tree_without_files_is_not_right(tmp_path, monkeypatch, capsys):
    """An export inside a folder that an outer work tree ignores."""
    tree = tmp_path / "build/export"
    tree.mkdir(parents=True)
    (tree / "tool.py").touch()
    (tmp_path / ".gitignore").write_text("build/\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(lint, "ROOT", tree)
    for check in (lint.clang_format, lint.words):
        with pytest.raises(SystemExit):
            check(False)
        assert f"expected files of a git work tree in {tree}, found none" in capsys.readouterr().err
    (tmp_path / ".gitignore").unlink()
    assert lint.files() == ["tool.py"]


def test_the_notice_names_all_that_is_not_under_the_apache_licence():
    exceptions = (ROOT / "NOTICE").read_text().split("\n\n")[2]
    paths = re.findall(r"\b(?:sw|sim|hw|tools|qemu-cxl)/[\w./-]+\w", exceptions)
    assert all((ROOT / path).exists() for path in paths)
    for name in lint.files():
        head = (ROOT / name).read_bytes()[:3000].decode(errors="replace")
        found = re.search(r"SPDX-License-Identifier: (.*?)(?: \*/| -->)?$", head, re.M)
        if found and not name.startswith("tools/"):
            excepted = any(name == path or name.startswith(f"{path}/") for path in paths)
            assert excepted == (found[1] != "Apache-2.0"), f"{name}: {found[1]}"


@pytest.mark.parametrize(
    "name", ["tool.py", "inputs.toml", ".clang-format", ".scalafmt.conf", "abc.script", "block.sv", "CMakeLists.txt"]
)
def test_a_missing_licence_is_found(name, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_text("text\n")
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "files", lambda: [name])
    assert not lint.words(False)
    assert f"{name}: expected a licence" in capsys.readouterr().err
    (tmp_path / name).write_text("# SPDX-License-Identifier: Apache-2.0\n")
    assert lint.words(False)


def test_a_wrong_format_is_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.c").write_text("int  main( void ){return 0;}\n")
    (tmp_path / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "files", lambda: ["a.c"])
    assert not lint.clang_format(False)
    assert "a.c:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "target, text, message",
    [
        ("lint-rtl", "class X {\n  val x = 3\n}\n", None),
        ("lint-rtl", "class X   {\n  val x=3\n}\n", "expected scalafmt's style"),
        ("lint-rtl", "class X {\n  val = = 3\n", "expected Scala that scalafmt can read"),
        ("format-rtl", "class X {\n  val = = 3\n", "expected Scala that scalafmt can read"),
    ],
)
def test_chisel_is_checked(target, text, message, tmp_path):
    done = check_chisel(tmp_path, target, text)
    assert (done.returncode == 0) == (message is None), done.stdout + done.stderr
    if message:
        assert message in done.stderr and "X.scala" in done.stdout


def test_a_scalafmt_that_does_not_run_says_nothing_of_style(tmp_path):
    done = check_chisel(tmp_path, "lint-rtl", "class X   {\n  val x=3\n}\n", classpath="/nonexistent")
    assert done.returncode != 0 and "ClassNotFoundException" in done.stdout
    assert "expected scalafmt to run" in done.stderr and "style" not in done.stderr


def check_chisel(folder, target, text, classpath=None):
    """In a tree of its own with one source, by the scalafmt that was fetched for this one."""
    path = "build/rtl-tools/scalafmt/classpath"
    subprocess.run(["make", "-s", "-o", "setup", ROOT / path], cwd=ROOT, check=True)
    source = "hw/tracer-rtl/src/X.scala"
    for name in ("Makefile", "build.sc", "hw/tracer-rtl/rtl.mk", "hw/tracer-rtl/.scalafmt.conf", path):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    if classpath:
        (folder / path).write_text(classpath)
    (folder / source).parent.mkdir()
    (folder / source).write_text("package merapi\n\n" + text)
    return subprocess.run(["make", "-s", "-o", "setup", target], cwd=folder, capture_output=True, text=True)


def test_make_alone_lists_the_targets():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    for target in ("run", "test", "test-jdk", "bench-jvm", "where-jdk", "where-device", "clean"):
        assert any(line.split()[:1] == [target] for line in done.stdout.splitlines()), target
    (rewritten,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["format"]]
    assert "C, C++, Python and Scala" in rewritten


def test_make_clean_leaves_nothing_that_is_built(tmp_path):
    """Ignored folders of the tree's root are those that builds make."""
    built = re.findall(r"^/(\w+)/$", (ROOT / ".gitignore").read_text(), re.M)
    assert built
    for name in built:
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").touch()
    done = subprocess.run(["make", "-C", tmp_path, "-f", ROOT / "Makefile", "clean"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_readme_has_every_flag_of_the_jvm():
    patches = "".join(path.read_text() for path in sorted((ROOT / "sw/jvm-patch/patches").glob("*.patch")))
    flags = re.findall(r"^\+  product\(\w+, (Merapi\w+),", patches, re.M)
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `-XX:")]
    assert flags
    for flag in flags:
        assert any(re.match(rf"\| `-XX:\+?{flag}\b", line) for line in table), flag


def test_docs_have_every_field_of_the_log():
    """The tables of docs/log.md and what the JVM prints: names, both ways."""
    overlay = ROOT / "sw/jvm-patch/overlay/src/hotspot/share/gc/g1/merapi"
    code = "".join(path.read_text() for path in sorted(overlay.glob("*.cpp")))
    document = (ROOT / "docs/log.md").read_text()
    for record in ("Trace", "Verify", "Fallback"):
        (printed,) = re.findall(rf'"{record} {{(.*?)}}"', code, re.S)
        section = document.split(f"### {record}\n")[1].split("| reason |")[0].split("\n#")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.M) == re.findall(r'\\"(\w+)\\":', printed), record
    reasons = {
        *re.findall(r'(?:fail|report_fallback)\("([a-z ]+)"', code),
        *re.findall(r' : "([a-z ]+)", "an? (?:abort|pause)', code),
    }
    listed = document.split("| reason |")[1].split("\n#")[0]
    # A JVM that exits tells nobody.
    assert {*re.findall(r"^\| `([a-z ]+)` \|", listed, re.M)} == reasons - {"exit"}
    event = re.findall(
        r"^\+    <Field .*? name=\"(\w+)\"",
        "".join(path.read_text() for path in sorted((ROOT / "sw/jvm-patch/patches").glob("0001*.patch"))),
        re.M,
    )
    assert event and all(f"`{name}`" in document.split("## JFR")[1] for name in event)


@pytest.mark.parametrize(
    "tool",
    ["tools/setup.py", "tools/build_jdk.py", "tools/build_apps.py", "tools/lint.py", "sim/run/run.py"]
    + ["sim/bench/bench_jvm.py", "tools/apt_root.py", "tools/gen_contract.py"],
)
def test_tools_have_help(tool):
    done = subprocess.run([sys.executable, ROOT / tool, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout
