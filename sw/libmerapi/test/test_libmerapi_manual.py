# SPDX-License-Identifier: Apache-2.0
"""Every public function, structure and enumeration of merapi.h is in one page of the manual, as the header declares it,
and every function is explained there."""

import re
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[1]
PAGES = {path.name: path.read_text() for path in sorted((LIBRARY / "man").glob("*.3"))}


def declarations(text):
    """(name, declaration) of functions, and of structures and enumerations with contents."""
    functions = re.findall(r"^ *((?:const )?[\w ]+\**\s+\**(merapi_\w+)\([^;]*\);)", text, re.M)
    types = re.findall(r"((?:struct|enum) (merapi_\w+) \{.*?\};)", text, re.S)
    return [(name, " ".join(declared.split())) for declared, name in functions + types]


def header():
    text = re.sub(r"/\*.*?\*/", "", (LIBRARY / "include/merapi/merapi.h").read_text(), flags=re.S)
    found = declarations(text.replace("MERAPI_API ", ""))
    assert sum("{" not in declaration for _, declaration in found) == text.count("\nMERAPI_API ") > 0
    return found


def section(page, title):
    return PAGES[page].partition(f"\n.SH {title}\n")[2].partition("\n.SH ")[0]


def test_pages_declare_what_the_header_does():
    """Once each."""
    found = [entry for page in PAGES for entry in declarations(section(page, "SYNOPSIS"))]
    assert sorted(found) == sorted(header())


@pytest.mark.parametrize("page", PAGES)
def test_functions_are_named_and_explained(page):
    declared = {name for name, declaration in declarations(section(page, "SYNOPSIS")) if "{" not in declaration}
    named = set(re.findall(r"merapi_\w+", section(page, "NAME")))
    explained = set()
    for tag in re.findall(r"^\.TP\n\.BR (.*)$", section(page, "DESCRIPTION"), re.M):
        explained |= set(re.findall(r"(merapi_\w+)\b(?! \(\d\))", tag))
    assert declared == named == explained


@pytest.mark.parametrize("page", PAGES)
def test_other_pages_and_functions_exist(page):
    """Pages of this manual that are referred to, and functions that are mentioned."""
    referred = {f"{name}.3" for name in re.findall(r"^\.BR ((?:lib)?merapi\w*) \(3\)", PAGES[page], re.M)}
    assert referred <= set(PAGES)
    assert set(re.findall(r"\b(merapi_\w+)(?: |\")?\(\)", PAGES[page])) <= {name for name, _ in header()}
