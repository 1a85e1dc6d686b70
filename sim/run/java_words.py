# SPDX-License-Identifier: Apache-2.0
"""What stands after `java`, as its launcher reads it: which words are options, and whether they name a collector."""

import os
import re
import shlex
from pathlib import Path

# Options of the launcher whose value is the next word (IsWhiteSpaceOption in OpenJDK's java.c). What follows `-jar`
# and `-m` is what is run, as a main class is.
WITH_VALUE = {"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules"} | {
    *("--limit-modules", "--add-reads", "--add-exports", "--add-opens", "--patch-module", "--enable-native-access"),
    *("--describe-module", "-d", "--source"),
}
COLLECTOR = re.compile(r"[+]Use(Serial|Parallel|Z|Shenandoah|Epsilon|G1)GC\b")
FILE_OF_FLAGS = re.compile(r"-XX:(?:VMOptionsFile|Flags)=(.+)")
# The launcher reads the first of them, the JVM the others.
VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def text_of(path):
    """Of a file that java reads. Not of a pipe: java would not get any more what was read here."""
    try:
        return Path(path).read_text(errors="replace") if Path(path).is_file() else ""
    except OSError:
        return ""


def split(text, comments=False):
    try:
        return shlex.split(text, comments=comments)
    except ValueError:  # a quote that is not closed
        return text.split()


def expanded(words):
    """These words with those of the files that `@FILE` names in their place."""
    for word in words:
        if re.match("@[^@]", word):
            yield from split(text_of(word[1:]), comments=True)
        else:
            yield word


def options(words):
    """Those of java's words that stand before what it runs, without values that stand by themselves."""
    words = expanded(words)
    for word in words:
        if word in WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return
        else:
            yield word
            if word.startswith("--module="):
                return


def names_collector(words):
    """Is there an option that chooses a collector, in these words or in what java reads besides? Two of them end a JVM
    ("Multiple garbage collectors selected")."""
    found = list(options(words))
    for variable in VARIABLES:
        found += options(split(os.environ.get(variable, "")))
    files = [match[1] for word in found if (match := FILE_OF_FLAGS.match(word))]
    return any(COLLECTOR.search(text) for text in [*(w for w in found if w.startswith("-XX:+")), *map(text_of, files)])
