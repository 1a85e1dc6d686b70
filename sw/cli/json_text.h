// SPDX-License-Identifier: Apache-2.0
// JSON out of files that anybody may have written.
#ifndef MERAPI_CLI_JSON_TEXT_H_
#define MERAPI_CLI_JSON_TEXT_H_

#include <nlohmann/json.hpp>

namespace merapi::cli {

// Printing and copying a value takes the stack of as many calls as it is deep.
inline constexpr int kDeepestJson = 100;

// The value; a discarded one where the text is no JSON, or deeper than anything that people write.
inline nlohmann::json parse_json(const char* text) {
  bool deep = false;
  const auto bound = [&deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep |= depth > kDeepestJson;
    return !deep;
  };
  nlohmann::json value = nlohmann::json::parse(text, bound, false);
  if (deep) return nlohmann::json(nlohmann::json::value_t::discarded);
  return value;
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_JSON_TEXT_H_
