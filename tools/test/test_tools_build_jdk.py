# SPDX-License-Identifier: Apache-2.0
"""What one clone has compiled of the JDK another one does not compile again."""

import os
import re
import subprocess
from types import SimpleNamespace

import build_jdk


def misses(cache):
    printed = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True, check=True, env=cache).stdout
    return int(re.search(r"^cache_miss\s+(\d+)$", printed, re.M).group(1))


def compile_in(clone, cache):
    """A file with a generated header, as JDK's make compiles it: in the sources, the output beside them."""
    tree = SimpleNamespace(dir=clone, src=clone / "src")
    (clone / "src").mkdir(parents=True)
    (clone / "out/gensrc").mkdir(parents=True)
    (clone / "out/gensrc/generated.h").write_text("enum { generated = 17 };\n")
    (clone / "src/file.cpp").write_text('#include "generated.h"\nint file() { return generated; }\n')
    spec = clone / "out/spec.gmk"
    spec.write_text(f"CXX := CCACHE_COMPRESS=1  CCACHE_BASEDIR={tree.src} ccache  g++\n")
    build_jdk.share_compiler_cache(tree)
    compiler = spec.read_text().partition(":=")[2].strip()
    command = f"{compiler} -fmacro-prefix-map={tree.src}/= -I{clone}/out/gensrc -c -o ../out/file.o file.cpp"
    subprocess.run(command, shell=True, check=True, cwd=tree.src, env=cache, timeout=120)
    assert (clone / "out/file.o").exists()


def test_clones_share_what_is_compiled(tmp_path):
    """They did not: folders of what is generated were another one's in each."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
    cache = {**others, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_NOHASHDIR": "1"}
    compile_in(tmp_path / "one", cache)
    assert misses(cache) == 1
    compile_in(tmp_path / "two", cache)
    assert misses(cache) == 1


def test_a_configuration_without_the_setting_is_told(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/spec.gmk").write_text("CXX := g++\n")
    build_jdk.share_compiler_cache(SimpleNamespace(dir=tmp_path, src=tmp_path / "src"))
    assert "found none; other clones will compile everything again" in "".join(capsys.readouterr())
    assert (tmp_path / "out/spec.gmk").read_text() == "CXX := g++\n"
