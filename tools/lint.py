#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the tree's style: formatting, lints, generated files, and words that do not belong in it.

Every check runs; the status is 1 when one of them failed. With --fix the
formatters rewrite files instead.
"""

import argparse
import re
import subprocess
import sys

from common import BUILD, ROOT, fail

# What must not be in the tree, and why. Patch files quote other people's lines and are left out.
FORBIDDEN = {
    "a path of one person's machine": r"/(?:root|work|home/[a-z]\w*)/",
    "a host name of a package registry (clients are used as the machine configures them)": (
        r"\b(?:deb\.debian\.org|pypi\.org|files\.pythonhosted\.org|repo1?\.maven\.(?:org|apache\.org)|crates\.io|"
        r"registry\.npmjs\.org|proxy\.golang\.org|ghcr\.io|docker\.io)\b"
    ),
    "a commit (say what was different)": r"`(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,40}`",
    "an unfinished place": r"\b(?:T[O]DO|F[I]XME)\b",
}
SPDX = re.compile(r"SPDX-License-Identifier: |DO NOT ALTER OR REMOVE COPYRIGHT NOTICES")
LICENSED = (".c", ".cc", ".cpp", ".h", ".hpp", ".java", ".py", ".scala", ".sh", ".mk", ".cmake", "Makefile", "build.sc")
LICENSED += (".toml", ".conf", ".script", ".clang-format", ".sv", ".in", ".xml", ".proto", "CMakeLists.txt", "Kbuild")


def files():
    """Files that are or could be committed, as paths relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        fail(f"expected a git work tree at {ROOT}, found: {done.stderr.strip()}")
    found = sorted(name for name in set(done.stdout.splitlines()) if (ROOT / name).is_file())
    if not found:
        fail(f"expected files of a git work tree in {ROOT}, found none; is it a folder that an outer one ignores?")
    return found


def run(title, command):
    """Run one tool in the root; its output is shown when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"{title}: failed\n{done.stdout}{done.stderr}".rstrip(), file=sys.stderr)
    return done.returncode == 0


def installed(name):
    """Path of a tool of tools/requirements.txt."""
    path = BUILD / "venv/bin" / name
    if not path.exists():
        fail(f"expected {name} at {path}, found nothing; run 'make setup'")
    return path


def clang_format(fix):
    """C and C++ of ours; the JDK overlay follows HotSpot's style, the contract's header is generated."""
    names = [
        name
        for name in files()
        if name.endswith((".c", ".cc", ".cpp", ".h", ".hpp"))
        and not name.startswith("sw/jvm-patch/")
        and name != "sw/libmerapi/include/merapi/contract.h"
    ]
    if not names:
        return True
    # Releases of clang-format differ in what they make of the same style file.
    tool = installed("clang-format")
    if fix:
        return run("clang-format", [tool, "-i", *names])
    command = [tool, "--dry-run", "-Werror", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    places = {}
    for match in re.finditer(r"^(\S+?:\d+):\d+: error", done.stderr, re.M):
        places.setdefault(match[1].rpartition(":")[0], match[1])
    if places:
        print(
            f"clang-format: run 'make format'; first place in each file: {' '.join(places.values())}", file=sys.stderr
        )
    elif done.returncode:
        print(f"clang-format: failed\n{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def python(fix):
    ruff = installed("ruff")
    good = run("ruff check", [ruff, "check", "--quiet", *(["--fix"] if fix else []), "."])
    return run("ruff format", [ruff, "format", "--quiet", *([] if fix else ["--check"]), "."]) and good


def shell(_fix):
    names = [
        n for n in files() if n.endswith(".sh") or (ROOT / n).read_bytes()[:20].startswith((b"#!/bin/sh", b"#!/bin/b"))
    ]
    return run("shellcheck", ["shellcheck", *names]) if names else True


def contract(fix):
    return run("contract", [sys.executable, "tools/gen_contract.py", *([] if fix else ["--check"])])


def words(_fix):
    good = True
    for name in files():
        data = (ROOT / name).read_bytes()
        if name.endswith(".patch") or b"\0" in data or name.startswith("LICENSE"):
            continue
        text = data.decode(errors="replace")
        for what, pattern in FORBIDDEN.items():
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                print(f"{name}:{line}: expected nothing of the kind, found {what}: {match[0]}", file=sys.stderr)
                good = False
        if name.endswith(LICENSED) and not SPDX.search(text[:3000]):
            print(
                f"{name}: expected a licence in the head of the file (SPDX-License-Identifier), found none",
                file=sys.stderr,
            )
            good = False
    return good


CHECKS = {"clang-format": clang_format, "python": python, "shell": shell, "contract": contract, "words": words}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="let the formatters rewrite files")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; all by default")
    args = parser.parse_args()
    unknown = [name for name in args.checks if name not in CHECKS]
    if unknown:
        fail(f"expected checks of {', '.join(CHECKS)}, found {', '.join(unknown)}")
    failed = [name for name in args.checks or CHECKS if not CHECKS[name](args.fix)]
    if failed:
        fail(f"failed: {', '.join(failed)}")
    print("style: ok")


if __name__ == "__main__":
    main()
