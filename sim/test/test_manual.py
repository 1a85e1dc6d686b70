# SPDX-License-Identifier: Apache-2.0
"""Every option of the device process and of the programs for saved windows is in --help and in the page, and each page
has a name of its own."""

import re
import subprocess
from pathlib import Path

import pytest
from device_processes import binary

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    p
    for folder in ("sim", "sw", "qemu-cxl")
    for p in (ROOT / folder).rglob("*.[1-8]*")
    if p.suffix[1:].isalnum() and p.parent.name != "__pycache__"
)


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


@pytest.mark.parametrize(
    "page", ["device/merapi-device.1", "replay/merapi-replay.1sim", "replay/merapi-age.1", "replay/merapi-strip.1"]
)
def test_options_are_documented(page):
    path = ROOT / "sim" / page
    done = subprocess.run([binary(path.stem), "--help"], capture_output=True, text=True, check=True)
    offered = set(re.findall(r"^ +(?:-\w,)?(--[a-z][a-z-]+)", done.stdout, re.M))
    assert options_of(path.read_text().replace("\\-", "-")) == offered


MACRO = re.compile(r"[.](TH|SH|SS|TP|PP|P|RS|RE|IP|nf|fi|nh|br|B|I|R|BR|BI|IB|IR|RB|RI|\\\")(\s|$)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_text_is_taken_for_a_request(page):
    """A line that begins with a dot or an apostrophe, as a path may, and is none is not shown."""
    lines = [line for line in page.read_text().splitlines() if line[:1] in (".", "'")]
    assert [line for line in lines if not MACRO.match(line)] == []


def test_no_page_takes_the_place_of_another():
    """Installed, all lie in one folder."""
    assert len(PAGES) > 10
    assert len({p.name for p in PAGES}) == len(PAGES), PAGES
