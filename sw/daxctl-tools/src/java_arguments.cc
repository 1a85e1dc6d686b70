// SPDX-License-Identifier: Apache-2.0
#include "java_arguments.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "cli.h"

namespace merapi::cli {
namespace {

bool has_separate_value(const std::string& option) {
  static const std::set<std::string> all = {"-cp",
                                            "-classpath",
                                            "--class-path",
                                            "-p",
                                            "--module-path",
                                            "--upgrade-module-path",
                                            "--add-modules",
                                            "--limit-modules",
                                            "--enable-native-access",
                                            "--add-exports",
                                            "--add-opens",
                                            "--add-reads",
                                            "--patch-module",
                                            "-d",
                                            "--describe-module",
                                            "--source"};
  return all.count(option) != 0;
}

// As the launcher splits a file of arguments: blanks part, quotes group, # begins a comment.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  const auto end = [&] {
    if (inside) words.push_back(word);
    word.clear();
    inside = false;
  };
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (quote == 0 && std::string(" \t\n\r\f").find(c) != std::string::npos) {
      end();
    } else if (quote == 0 && c == '#') {
      i = std::min(text.find('\n', i), text.size());
      end();
    } else if (c == quote || (quote == 0 && (c == '"' || c == '\''))) {
      quote = quote == 0 ? c : 0;
      inside = true;
    } else {
      if (c == '\\' && quote != 0 && i + 1 < text.size()) i++;
      word += text[i];
      inside = true;
    }
  }
  end();
  return words;
}

// JLI_PreprocessArg and checkArg of the launcher (libjli/args.c).
class Arguments {
 public:
  void add(const std::string& word, bool of_file) {
    std::string text;
    std::error_code error;
    // Reading a pipe would take from the program what it is to read.
    if (!of_file && files_ && word.size() > 1 && word[0] == '@' && word[1] != '@' &&
        std::filesystem::is_regular_file(word.substr(1), error) && read_text(word.substr(1), &text)) {
      for (const std::string& inner : words_of(text))
        if (!main_) add(inner, true);
      return;
    }
    found_.push_back(word);
    const bool option = word.rfind("-", 0) == 0;
    main_ = word.rfind("--module=", 0) == 0 || (!option && !value_);
    value_ = option && has_separate_value(word);
    if (word == "--disable-@files") files_ = false;
  }
  bool main() const { return main_; }  // named
  const std::vector<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> found_;
  bool main_ = false, value_ = false, files_ = true;
};

}  // namespace

std::vector<std::string> launcher_arguments(const std::vector<std::string>& command) {
  Arguments arguments;
  for (size_t i = 1; i < command.size() && !arguments.main(); i++) arguments.add(command[i], false);
  return arguments.found();
}

}  // namespace merapi::cli
