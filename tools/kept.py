# SPDX-License-Identifier: Apache-2.0
"""What takes minutes to make, kept in the cache under the digest of what it was made from: the same sources in another
clone take it from there. Several processes, and users, may share a cache."""

import contextlib
import hashlib
import json
import os
import secrets
import shutil

from common import CACHE, ROOT, say, sha256

DIGESTS = "digests.json"  # SHA-256 of each file, by its path in the folder


def key_of(said, files):
    """The digest of what something is made from: `said` are texts, `files` paths with the names by which they count."""
    return hashlib.sha256(repr((*said, sorted((name, sha256(path)) for name, path in files))).encode()).hexdigest()


def key_of_sources(said, sources):
    """The same for files of the tree, which count by their paths in it."""
    return key_of(said, [(str(path.resolve().relative_to(ROOT)), path) for path in sources])


class Kept:
    """Folders CACHE/KIND/KEY; the `most` that were used last stay."""

    def __init__(self, kind, most):
        self.folder, self.most = CACHE / kind, most

    def find(self, key):
        """The folder of this key, or None. What was damaged is told and not used."""
        folder = self.folder / key
        if not folder.exists():
            return None
        if not is_whole(folder):
            say(f"expected what was put into {folder}, found it damaged; it is made again")
            return None
        with contextlib.suppress(OSError):  # for prune() alone: what another user of the cache made can be used
            os.utime(folder)
        return folder

    @contextlib.contextmanager
    def made(self, key):
        """An empty folder to fill, which is kept unless the block ends by an exception."""
        # Not by the process's number alone: in another container somebody else has the same.
        part = self.folder / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
        part.mkdir(parents=True)
        try:
            yield part
            files = [path for path in sorted(part.rglob("*")) if path.is_file()]
            digests = {str(path.relative_to(part)): sha256(path) for path in files}
            (part / DIGESTS).write_text(json.dumps(digests))
            shutil.rmtree(self.folder / key, ignore_errors=True)
            try:
                part.rename(self.folder / key)
            except OSError:
                # Another process was faster, and its folder has the same.
                if not is_whole(self.folder / key):
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.prune()

    def prune(self):
        by_use = sorted((path for path in self.folder.iterdir() if path.is_dir()), key=last_use)
        for path in by_use[: -self.most]:
            shutil.rmtree(path, ignore_errors=True)


def last_use(path):
    """Zero where another process takes it away meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0


def is_whole(folder):
    """Is what lies in this folder of the cache what was put there?"""
    try:
        digests = json.loads((folder / DIGESTS).read_text())
        return bool(digests) and all(sha256(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, AttributeError):
        return False
