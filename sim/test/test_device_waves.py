# SPDX-License-Identifier: Apache-2.0
"""Where the device process writes the waveforms of simulated tracers."""

import subprocess
from pathlib import Path

import pytest
from device_processes import run

ROOT = Path(__file__).resolve().parents[2]
# A simulated tracer that writes its waveform and ends.
WAVES = """
#include <fstream>
#include <stdexcept>
#include "sim/rtl/plugin.h"
using namespace merapi::sim;
extern "C" {
uint32_t merapi_rtl_tag() { return rtl::kPluginTag; }
Engine* merapi_rtl_make(const WindowMemory&, EngineHost*, const rtl::PluginRequest& request) {
  std::ofstream(request.waves.file) << "waves";
  throw std::runtime_error("written");
}
}
"""


@pytest.fixture
def waves(folder):
    """Arguments of a device with a simulated tracer, up to the file of its waveform."""
    (folder / "plugin.cc").write_text(WAVES)
    library = folder / "merapi-rtl-none-waves.so"
    include = ["-I", ROOT, "-I", ROOT / "sw/libmerapi/include"]
    command = ["c++", "-std=c++20", "-shared", "-fPIC", *include, folder / "plugin.cc", "-o", library]
    subprocess.run(command, check=True, timeout=120)
    return ["--rtl", "--preset", "none", "--rtl-folder", folder, "--size", "64M", "--trace-waves"]


def test_each_window_has_a_waveform(waves, folder):
    """All wrote into one file."""
    windows = [word for name in "abc" for word in ("--window", folder / name)]
    result = run(*waves, folder / "w.vcd", *windows)
    assert result.returncode == 4, result
    for file in ("w.vcd", "w-2.vcd", "w-3.vcd"):
        assert (folder / file).read_text() == "waves"
        assert f"waveform in {folder}/{file}" in result.stderr


def test_a_waveform_replaces_no_window(waves, folder):
    window, further, link = folder / "w", folder / "v-2", folder / "link"
    link.symlink_to(window)
    for file in (window, link, folder / "v"):
        further.write_bytes(b"")
        window.write_bytes(bytes(1 << 20))
        result = run(*waves, file, "--window", f"{window}@0+1048576", "--window", further)
        assert result.returncode == 2 and "expected another file" in result.stderr, result
        assert window.stat().st_size == 1 << 20
    memory = folder / "memory.ini"
    memory.write_text("[timing]")
    result = run(*waves, memory, "--window", window, "--memory", memory)
    assert result.returncode == 2 and memory.read_text() == "[timing]", result
