// SPDX-License-Identifier: Apache-2.0
#include "sim/device/simulated_tracer.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

#include "sim/device/memory_configuration.h"

namespace merapi::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "merapi-rtl-";

fs::path find_folder(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  // In the build tree: build/native/bin and build/rtl/lib.
  fs::path built = (program / "../../rtl/lib").lexically_normal();
  return fs::exists(built, error) ? built : (program / "../lib/merapi/rtl").lexically_normal();
}

// Names of what is in a folder, without prefix and suffix.
std::string list(const fs::path& folder, const std::string& prefix, const std::string& suffix) {
  std::string names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    names += (names.empty() ? "" : ", ") + name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  }
  return names.empty() ? "none" : names;
}

std::string memory_of(const std::string& preset) {
  if (preset.starts_with("ddr4")) return "ddr4-2400";
  if (preset.starts_with("hbm2")) return "hbm2";
  return "ideal";
}

template <typename F>
F symbol(void* library, const char* name, const std::string& path) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    throw std::runtime_error("expected a simulated tracer at " + path + ", found no " + name +
                             " in it; run: make rtl-simulations");
  }
  return reinterpret_cast<F>(found);
}

// The shared object stays loaded until the process ends; loading it again costs nothing.
rtl::PluginMake load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("cannot load the simulated tracer: ") + dlerror() +
                             "; run: make rtl-simulations");
  }
  if (symbol<rtl::PluginTag>(library, rtl::kPluginTagSymbol, path)() != rtl::kPluginTag) {
    throw std::runtime_error("expected a simulated tracer of this build at " + path +
                             ", found one of another; run: make rtl-simulations");
  }
  return symbol<rtl::PluginMake>(library, rtl::kPluginMakeSymbol, path);
}

// From a memory's name to the file that describes it.
void find_memory(const fs::path& folder, RtlChoice* choice) {
  std::error_code error;
  fs::path known = folder / "memory" / (choice->memory + ".ini");
  if (fs::exists(known, error)) {
    choice->memory = known.string();
  } else if (!fs::exists(choice->memory, error)) {
    throw std::runtime_error("expected a memory of ideal, " + list(folder / "memory", "", ".ini") +
                             ", or the path of a DRAMsim3 configuration, found '" + choice->memory + "'");
  }
  check_memory_configuration(choice->memory);
}

}  // namespace

std::string wave_file(const std::string& file, uint64_t window) {
  if (file.empty() || window <= 1) return file;
  const fs::path path = file;
  const std::string name = path.stem().string() + "-" + std::to_string(window) + path.extension().string();
  return (path.parent_path() / name).string();
}

RtlChoice choose_rtl(const RtlOptions& o) {
  fs::path folder = find_folder(o.folder);
  RtlChoice choice;
  choice.preset = o.preset;
  std::string kind = o.waves.file.empty() ? "" : "-waves";
  choice.library = (folder / (kPrefix + o.preset + kind + ".so")).string();
  std::error_code error;
  if (!fs::exists(choice.library, error)) {
    throw std::runtime_error("expected the simulated tracer " + choice.library + ", found " +
                             list(folder, kPrefix, ".so") + "; run: make rtl-simulations RTL_SIMULATIONS=" + o.preset +
                             ":" + (kind.empty() ? "fast" : "waves"));
  }
  choice.memory_name = choice.memory = o.memory.empty() ? memory_of(o.preset) : o.memory;
  if (choice.memory != "ideal") find_memory(folder, &choice);
  load(choice.library);
  return choice;
}

std::unique_ptr<Engine> make_rtl_engine(const RtlOptions& options, const EngineOptions& common,
                                        const WindowMemory& memory, EngineHost* host) {
  RtlChoice choice = choose_rtl(options);
  rtl::PluginMake make = load(choice.library);
  rtl::PluginRequest request;
  request.common = common;
  if (common.name.empty()) request.common.name = "merapi-rtl " + choice.preset;
  request.memory = choice.memory;
  request.clock_mhz = kClockMhz;
  request.waves = options.waves;
  return std::unique_ptr<Engine>(make(memory, host, request));
}

}  // namespace merapi::sim
