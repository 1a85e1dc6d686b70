// SPDX-License-Identifier: Apache-2.0
//
// The part of a java command that its launcher reads.
#ifndef MERAPI_DAXCTL_TOOLS_JAVA_ARGUMENTS_H_
#define MERAPI_DAXCTL_TOOLS_JAVA_ARGUMENTS_H_

#include <string>
#include <vector>

namespace merapi::cli {

// The words after `java` up to the main class, jar, module or source file, those of files of arguments in place of the
// files: what comes then is the program's.
std::vector<std::string> launcher_arguments(const std::vector<std::string>& command);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_JAVA_ARGUMENTS_H_
