// SPDX-License-Identifier: Apache-2.0
//
// merapi run: a Java program with its heap in a window. Passes signals and the exit status through.
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "child.h"
#include "cli.h"
#include "cli/standard_streams.h"
#include "device_process.h"
#include "java_arguments.h"
#include "machine.h"
#include "options.h"
#include "processes.h"

namespace merapi::cli {
namespace {

// As env(1) and timeout(1) have it: the program's own status lies below. A command line that is wrong is kUsage, as it
// is for every verb.
enum RunExit { kOwnFailure = 125, kCannotExecute = 126, kNotFound = 127 };

struct Options {
  std::string device = "model";
  std::string socket;
  std::string window;
  std::string jdk;
  bool verify = false;
  bool dry_run = false;
  std::vector<std::string> command;
};

// What is run, and the variables that are set for it.
struct Plan {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
};

bool starts_with(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_java(const std::string& program) { return base_name(program) == "java"; }

constexpr char kNameAnother[] = "; name another with --jdk or MERAPI_JDK";

// Why this java has no -XX:MerapiWindow; empty when it has, or when it is not of a JDK's folder, which nobody can tell.
std::string why_unpatched(const std::string& java) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(java == "java" ? find_in_path(java) : java, error);
  const std::filesystem::path lib = real.parent_path().parent_path() / "lib";
  if (error || !std::filesystem::exists(lib / "server/libjvm.so", error) ||
      std::filesystem::exists(lib / "libmerapi.so", error))
    return {};
  return "expected a JDK with Merapi's patches for '" + base_name(java) + "', found " + real.string() + " without " +
         (lib / "libmerapi.so").string();
}

// The JDK to use for a bare `java`: --jdk, $MERAPI_JDK, or the one built in the same tree as this program.
std::string java_of(const Options& o) {
  std::string folder = o.jdk;
  if (folder.empty())
    if (const char* given = getenv("MERAPI_JDK"); given != nullptr) folder = given;
  if (!folder.empty()) {
    // From every folder: a program may change its own.
    const std::string java = (std::filesystem::path(absolute_path(folder)) / "bin/java").string();
    if (access(java.c_str(), X_OK) != 0)
      throw Failure(kOwnFailure, "expected a JDK with bin/java at " + folder + ", found none");
    return java;
  }
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string built = (own / "../../jdk/image/bin/java").lexically_normal().string();
  return !error && access(built.c_str(), X_OK) == 0 ? built : "java";
}

// Does this text have such an option, or a file of arguments that it names?
bool has_option(const std::string& text, const std::regex& option, int files_deep = 2) {
  if (std::regex_search(text, option)) return true;
  std::istringstream words(text);
  for (std::string word; files_deep > 0 && words >> word;)
    for (const char* before_path : {"@", "-XX:VMOptionsFile=", "-XX:Flags="}) {
      if (!starts_with(word, before_path)) continue;
      const std::string path = word.substr(strlen(before_path));
      std::error_code error;
      std::string inside;
      // Reading a pipe would take from the program what it is to read.
      if (std::filesystem::is_regular_file(path, error) && read_text(path, &inside) &&
          has_option(inside, option, files_deep - 1))
        return true;
    }
  return false;
}

bool variable_has_option(const char* variable, const std::regex& option) {
  const char* options = getenv(variable);
  return options != nullptr && has_option(std::string(options), option);
}

// What may hold options of the JVM: of a java command not the program's own arguments.
std::vector<std::string> words_for_jvm(const Options& o) {
  return is_java(o.command.front()) ? launcher_arguments(o.command) : o.command;
}

// One too many found does no harm: the JVM then chooses by itself. Two that are named end a JVM ("Multiple garbage
// collectors selected").
bool collector_is_named(const Options& o) {
  static const std::regex collector("[+]Use(Serial|Parallel|Z|Shenandoah|Epsilon|G1)GC");
  for (const char* variable : {"JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"})
    if (variable_has_option(variable, collector)) return true;
  const std::vector<std::string> words = words_for_jvm(o);
  return std::any_of(words.begin(), words.end(), [](const auto& word) { return has_option(word, collector); });
}

// What a JVM reads after the flags that it is given here would have the last word. (JAVA_TOOL_OPTIONS and
// JDK_JAVA_OPTIONS, which a run within a run has, come before them.)
void require_no_other_window(const Options& o) {
  static const std::regex window("-XX:MerapiWindow=");
  const auto names_one = [](const std::string& word) {  // not the text of a script (sh -c)
    return word.find_first_of(" \t\n") == word.npos && has_option(word, window);
  };
  const std::vector<std::string> words = words_for_jvm(o);
  const char* where = std::any_of(words.begin(), words.end(), names_one) ? "in it"
                      : variable_has_option("_JAVA_OPTIONS", window)     ? "in _JAVA_OPTIONS"
                                                                         : nullptr;
  if (where != nullptr)
    throw Failure(kOwnFailure, std::string("expected a command without -XX:MerapiWindow, found one ") + where +
                                   "; use --window instead");
}

// The file of a JDK's tool that starts a JVM (javac, jshell), or nothing: its launcher takes the JVM's options with -J,
// and reads no variable. `java` is the JDK's that is to be used.
std::string jdk_tool(const std::string& name, const std::string& java) {
  std::error_code error;
  std::string file = name;
  if (name.find('/') == name.npos) {
    const auto beside = std::filesystem::path(java).parent_path() / name;
    file = java != "java" && access(beside.c_str(), X_OK) == 0 ? beside.string() : find_in_path(name);
  }
  const auto real = std::filesystem::canonical(file, error);
  if (error || !std::filesystem::exists(real.parent_path().parent_path() / "lib/libjli.so", error)) return {};
  // A script beside the tools starts java itself.
  std::ifstream program(real, std::ios::binary);
  constexpr char kElf[] = {0x7f, 'E', 'L', 'F'};
  char magic[sizeof kElf] = {};
  program.read(magic, sizeof magic);
  return memcmp(magic, kElf, sizeof kElf) == 0 ? file : "";
}

// A JVM chooses G1 by itself on what is_server_class_machine (runtime/os.cpp) takes for a server.
bool jvm_chooses_g1() {
  constexpr uint64_t kServerMemory = uint64_t{1792} << 20;
  return usable_processors() >= 2 && usable_memory() >= kServerMemory;
}

// `launcher`: the command is a JDK's. What a script gives its JVM is not known here, so that a collector is named only
// where there is need.
std::vector<std::string> jvm_flags(const Options& o, const std::string& window, bool launcher) {
  std::vector<std::string> flags;
  if (!collector_is_named(o) && (launcher || !jvm_chooses_g1())) flags.push_back("-XX:+UseG1GC");
  flags.push_back("-XX:MerapiWindow=" + window);
  if (o.verify) flags.push_back("-XX:+MerapiVerify");
  return flags;
}

int execute(const Plan& plan) {
  for (const auto& [name, value] : plan.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& a : plan.command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  forget_children();
  execvp(arguments[0], arguments.data());
  const int code = errno;
  const std::string text = "merapi: cannot run " + plan.command.front() + ": " + strerror(code) + "\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
  return code == ENOENT ? kNotFound : kCannotExecute;
}

// One option as JDK_JAVA_OPTIONS takes it: quotes group, and nothing escapes them (JLI_AddArgsFromEnvVar).
std::string quoted(const std::string& option) {
  if (option.find_first_of(" \t\n\v\f\r\"'") == std::string::npos) return option;
  std::string text = "\"";
  for (const char c : option) text += c == '"' ? std::string("\"'\"'\"") : std::string(1, c);
  return text + "\"";
}

// The same window from every folder: a program may change its own.
std::string absolute_window(const std::string& window) {
  for (const std::string kind : {"file:", "dax:", "device:", "pci:"}) {
    if (!starts_with(window, kind)) continue;
    const std::string path = window.substr(kind.size());
    if (path.empty()) return window;
    if (kind == "device:") return kind + absolute_socket(path);
    if (kind != "pci:") return kind + absolute_path(path);
    const size_t comma = path.find(',');
    if (comma == path.npos || comma == 0 || comma + 1 == path.size()) return window;
    return kind + absolute_path(path.substr(0, comma)) + "," + absolute_path(path.substr(comma + 1));
  }
  std::error_code error;
  return std::filesystem::is_socket(window, error) ? absolute_socket(window) : absolute_path(window);
}

Plan complete(const Options& o, const std::string& window) {
  Plan plan{o.command, {}};
  std::vector<std::string>& command = plan.command;
  require_no_other_window(o);
  const std::string name = command.front(), java = is_java(name) && name != "java" ? name : java_of(o);
  const std::string tool = is_java(name) ? "" : jdk_tool(name, java);
  std::vector<std::string> flags = jvm_flags(o, window, is_java(name) || !tool.empty());
  if (is_java(name) || !tool.empty()) {
    if (name == "java") command.front() = java;
    if (!tool.empty()) {
      command.front() = tool;
      for (std::string& flag : flags) flag.insert(0, "-J");
    }
    if (const std::string why = why_unpatched(command.front()); !why.empty())
      throw Failure(kOwnFailure,
                    why + (name.find('/') == name.npos ? kNameAnother : "; name one that has them, or no path"));
    command.insert(command.begin() + 1, flags.begin(), flags.end());
    return plan;
  }
  // Not java itself: a script, a build tool. The java launcher that it starts reads JDK_JAVA_OPTIONS.
  std::string options;
  if (const char* before = getenv("JDK_JAVA_OPTIONS"); before != nullptr) options = before;
  for (const std::string& flag : flags) options += (options.empty() ? "" : " ") + quoted(flag);
  plan.environment["JDK_JAVA_OPTIONS"] = options;
  if (const std::string why = why_unpatched(java); !why.empty())
    say(why + kNameAnother + ". A JVM that " + command.front() + " starts may not know -XX:MerapiWindow");
  if (java != "java") {
    const std::string folder = std::filesystem::path(java).parent_path().string();
    const char* path = getenv("PATH");
    plan.environment["PATH"] = folder + ":" + (path == nullptr ? "/usr/bin:/bin" : path);
    plan.environment["JAVA_HOME"] = std::filesystem::path(folder).parent_path().string();
  }
  return plan;
}

int run_inside(const Options& o) {
  const bool own_window = o.window.empty();
  const std::string socket = o.socket.empty() ? default_socket() : absolute_socket(o.socket);
  const std::string window = own_window ? "device:" + socket : absolute_window(o.window);
  const Plan plan = complete(o, window);
  if (o.dry_run) {
    json shown = {{"window", window}, {"command", plan.command}, {"environment", plan.environment}};
    if (own_window) shown["device_runs"] = socket_answers(socket);
    print(shown);
    return flush_output() ? int(kOk) : kOwnFailure;  // other codes could be a program's
  }
  const auto program = [&plan] { return execute(plan); };
  const int status = own_window ? run_beside_device(socket, o.device, program) : SignalGate().run(program);
  if (WIFSIGNALED(status)) die_of(WTERMSIG(status));
  return WEXITSTATUS(status);
}

int run(const Options& o) {
  try {
    return run_inside(o);
  } catch (const Interrupted& e) {
    say(e.what());
    die_of(e.signal_number);
  } catch (const std::exception& e) {
    say(e.what());
    return kOwnFailure;
  }
}

}  // namespace

void add_run(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb =
      cli.verb("run", "Run a Java program with its heap in a window, with a device beside it", [o] { return run(*o); });
  const Option device =
      verb.option("--device", o->device, "what traces when no device runs yet").with_default().one_of({"model", "rtl"});
  const Option socket =
      verb.option("--socket", o->socket, "socket of the device process (default: the user's own)").not_empty();
  verb.option("--window", o->window, "use this window (dax:PATH, pci:TRACER,PATH, file:PATH) and start no device")
      .not_empty()
      .excludes(socket)
      .excludes(device);
  verb.option("--jdk", o->jdk, "JDK to use for 'java' (default: $MERAPI_JDK, the tree's own, PATH)").not_empty();
  verb.flag("--verify", o->verify, "let the JVM check every marking cycle (-XX:+MerapiVerify)");
  verb.flag("--dry-run", o->dry_run, "print what would be run as JSON");
  verb.option("command", o->command, "after '--': java and its arguments").required();
  verb.positionals_at_end();
}

}  // namespace merapi::cli
