#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A private apt root: packages of any Debian suite without touching the system.

The archive addresses, keys and client settings are those of the machine's own
apt; only suites, state and caches are private (below ~/.cache/merapi/apt).
Every file taken is appended to a record (name, version, SHA-256), so that what
went into a build can be named later.

  apt_root.py source  --suite bookworm --dest DIR PACKAGE=VERSION
  apt_root.py fetch   --suite trixie-backports --dest DIR PACKAGE...
  apt_root.py unpack  --suite trixie-backports --dest DIR PACKAGE...
  apt_root.py policy  --suite trixie PACKAGE...
  apt_root.py index   --suite bookworm            (the suite's package index, on stdout)
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from common import CACHE, CACHE_LOCKS, exclusive, sha256, write_whole


def fail(message):
    """Print one error and exit; nothing that was fetched before is removed."""
    print(f"apt_root: {message}", file=sys.stderr)
    sys.exit(1)


def sources_of_machine(folder):
    """(uri, signed-by, suites) of each source of binary packages with the component main below apt's `folder`."""
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources":
            for stanza in re.split(r"\n\s*\n", path.read_text()):
                fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.M))
                on = fields.get("Enabled", "yes").strip().lower() not in ("no", "false", "without", "off", "disable")
                if on and "deb" in fields.get("Types", "").split() and "main" in fields.get("Components", "").split():
                    for uri in fields.get("URIs", "").split():
                        yield uri, fields.get("Signed-By", "").strip(), fields.get("Suites", "").split()
        elif path.suffix == ".list" and path.exists():
            for line in path.read_text().splitlines():
                m = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line)
                if m and "main" in m.group(4).split():
                    key = re.search(r"signed-by=(\S+)", m.group(1) or "")
                    yield m.group(2), key.group(1) if key else "", [m.group(3)]


def machine_archives(folder=Path("/etc/apt")):
    """(uri, signed-by or None, is_security) of each Debian archive in the machine's apt configuration. Archives of
    others name their suites after Debian's: where some are known by keyring or address, those alone are taken."""
    archives = []
    for uri, key, names in sources_of_machine(folder):
        debian = [
            s
            for s in names
            if re.fullmatch(r"(bookworm|trixie|stable|oldstable)([-/](updates|security|backports))*", s)
        ]
        if debian and not any(a[0] == uri for a in archives):
            # A key that stands in the file itself cannot be named in a line.
            path = key if key.startswith("/") else None
            archives.append((uri, path, all("security" in s for s in debian)))
    known = [a for a in archives if "debian-archive" in (a[1] or "") or re.search(r"/debian(-security)?/?$", a[0])]
    archives = known or archives
    if not archives:
        fail(
            "expected a Debian archive in /etc/apt/sources.list or /etc/apt/sources.list.d, "
            "found none; add one and run again"
        )
    return archives


def keyring():
    """The keyring that signs every Debian suite; Debian's own package brings it."""
    path = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    return str(path) if path.exists() else None


class AptRoot:
    """One private apt root for one suite (state, lists and cache of its own), of all clones that share the cache: apt
    refuses the second of two processes in one root, so each command waits for those of others."""

    def __init__(self, suite):
        self.suite = suite
        self.dir = CACHE / "apt" / suite
        for sub in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (self.dir / sub).mkdir(parents=True, exist_ok=True)
        (self.dir / "state/status").touch()
        self.sources = self.dir / "etc/sources.list"
        lines = []
        base = suite.removesuffix("-backports")
        for uri, key, security in machine_archives():
            option = f"[signed-by={key or keyring()}] " if (key or keyring()) else ""
            suites = [f"{base}-security"] if security else [base]
            if not security and suite != base:
                suites.append(suite)
            for name in suites:
                lines.append(f"deb {option}{uri} {name} main")
                lines.append(f"deb-src {option}{uri} {name} main")
        text = "\n".join(lines) + "\n"
        with self.alone():
            stale = not self.sources.exists() or self.sources.read_text() != text
            if stale or not any((self.dir / "state/lists").glob("*Packages*")):
                # Known by their name when their lists are there.
                part = self.sources.with_name("sources.part")
                part.write_text(text)
                self.execute("apt-get", "update", "-q", sources=part)
                part.rename(self.sources)

    def alone(self):
        return exclusive(f"apt-{self.suite}", CACHE_LOCKS)

    def options(self, sources):
        pairs = {
            "Dir::State": self.dir / "state",
            "Dir::State::status": self.dir / "state/status",
            "Dir::Cache": self.dir / "cache",
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": self.dir / "etc/preferences.d",
            "Dir::Etc::preferences": "/dev/null",
            # Empty: that of the machine names a suite that is not here.
            "APT::Default-Release": "",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        return [x for k, v in pairs.items() for x in ("-o", f"{k}={v}")]

    def run(self, tool, *args, cwd=None):
        """Run an apt tool on this root; once more after an update when a version vanished."""
        with self.alone():
            return self.execute(tool, *args, cwd=cwd)

    def execute(self, tool, *args, cwd=None, retry=True, sources=None):
        """As `run`, of a process that is alone."""
        command = [tool, *self.options(sources or self.sources), *args]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        if done.returncode and retry and args[0] != "update":
            self.execute("apt-get", "update", "-q")
            return self.execute(tool, *args, cwd=cwd, retry=False)
        if done.returncode:
            fail(
                f"'{tool} {' '.join(args)}' on suite {self.suite} failed; "
                f"check the network and the machine's apt configuration\n{done.stderr.strip()}"
            )
        return done.stdout

    def closure(self, packages):
        """Every package that `packages` need, so that an unpacked folder is complete."""
        target = ["-t", self.suite] if self.suite.endswith("-backports") else []
        out = self.run("apt-get", *target, "install", "--simulate", "--no-install-recommends", *packages)
        return [f"{n}={v}" for n, v in re.findall(r"^Inst (\S+) \((\S+)", out, re.M)]


def record(path, files, suite):
    """Append what was taken to the JSON record at `path` (replacing older entries of the name). It is for people to
    read: one that cannot be read begins anew."""
    new = {file.name: {"from": f"debian {suite}", "sha256": sha256(file)} for file in files}
    with exclusive("record", CACHE_LOCKS):
        try:
            entries = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            entries = {}
        write_whole(path, (json.dumps(entries | new, indent=1, sort_keys=True) + "\n").encode())


def arguments(words=None):
    """The parsed command line; packages may stand behind options, as every caller writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("verb", choices=["source", "fetch", "unpack", "policy", "index"])
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--dest", type=Path, default=Path("."))
    parser.add_argument("--record", type=Path, default=CACHE / "inputs.json")
    parser.add_argument("--with-dependencies", action="store_true", help="fetch or unpack the closure")
    return parser.parse_intermixed_args(words)


def main():
    args = arguments()

    root = AptRoot(args.suite)
    if args.verb == "index":
        sys.stdout.write(root.run("apt-cache", "dumpavail"))
        return
    if not args.packages:
        fail(f"{args.verb}: expected package names, found none")
    if args.verb == "policy":
        print(root.run("apt-cache", "policy", *args.packages))
        return
    args.dest.mkdir(parents=True, exist_ok=True)
    target = ["-t", args.suite] if args.suite.endswith("-backports") else []
    if args.verb == "source":
        before = set(args.dest.iterdir())
        root.run("apt-get", *target, "source", "--download-only", "-q", *args.packages, cwd=args.dest)
        record(args.record, sorted(f for f in args.dest.iterdir() if f not in before), args.suite)
        return
    packages = root.closure(args.packages) if args.with_dependencies else args.packages
    debs = root.dir / "cache" / "debs"
    debs.mkdir(exist_ok=True)
    have = {f for f in debs.iterdir()}
    root.run("apt-get", *target, "download", "-q", *packages, cwd=debs)
    names = [p.split("=")[0].split(":")[0] for p in packages]
    files = []
    for name in names:
        newest = sorted(debs.glob(f"{name}_*.deb"), key=lambda f: f.stat().st_mtime)
        if not newest:
            fail(f"expected {name} in suite {args.suite}, found nothing; look at 'apt_root.py policy'")
        files.append(newest[-1])
    record(args.record, files, args.suite)
    for file in files:
        if args.verb == "unpack":
            subprocess.run(["dpkg", "-x", file, args.dest], check=True)
        else:
            write_whole(args.dest / file.name, file.read_bytes())
    print(f"{len(files)} package(s) of {args.suite} in {args.dest} ({len(set(debs.iterdir()) - have)} new)")


if __name__ == "__main__":
    main()
