#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the regression over the tracer (rtl_test) with all that it takes from the environment said here: which tests
and seeds are run, on which preset, and what becomes of them. What the caller's own environment says of it is for runs
by hand, and is left out.

    regression.py NAME=VALUE ... -- PROGRAM ARGUMENT ...
"""

import argparse
import os
import re
import sys

CHOICES = re.compile(
    r"MERAPI_(SEED|FIRST_SEED|SEEDS|PRESET|PORTS|RECORDS|RECORD_WORK|RECORD_PORTS|MUTANT|COVERAGE|REACHED|WAVES\w*)"
    r"|GTEST_.*"
)


def environment(**said):
    """The caller's environment with these choices and no others."""
    return {name: value for name, value in os.environ.items() if not CHOICES.fullmatch(name)} | said


def choice(text):
    name, equals, value = text.partition("=")
    if not equals or not CHOICES.fullmatch(name):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE of what the regression takes, found '{text}'")
    return name, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choices", type=choice, nargs="*", metavar="NAME=VALUE")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, command = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    if not command:
        parser.error("expected '--' and a program, found none")
    try:
        os.execvpe(command[0], command, environment(**dict(given.choices)))
    except OSError as error:
        parser.error(f"expected a program that can be run, found {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
