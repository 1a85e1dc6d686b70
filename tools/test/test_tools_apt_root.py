# SPDX-License-Identifier: Apache-2.0
"""Command line of apt_root.py, as the JDK's build and the guest's set-up write it."""

import apt_root


def test_packages_behind_options():
    args = apt_root.arguments(["source", "--suite", "bookworm", "--dest", "folder", "name=1.0"])
    assert (args.verb, args.suite, str(args.dest), args.packages) == ("source", "bookworm", "folder", ["name=1.0"])


def test_packages_before_options_and_none():
    assert apt_root.arguments(["fetch", "a", "b", "--suite", "trixie"]).packages == ["a", "b"]
    assert apt_root.arguments(["index", "--suite", "trixie"]).packages == []
