// SPDX-License-Identifier: Apache-2.0
//
// The merapi command. See man/merapi.1 and a page for each verb.
#include "cli.h"
#include "window.h"

int main(int argc, char** argv) {
  using namespace merapi::cli;
  catch_truncation();
  Cli cli;
  add_run(cli);
  add_info(cli);
  add_list(cli);
  add_top(cli);
  add_replay(cli);
  return cli.main(argc, argv);
}
