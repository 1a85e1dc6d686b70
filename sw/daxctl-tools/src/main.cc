// SPDX-License-Identifier: Apache-2.0
//
// The merapi command. See man/merapi.1 and a page for each verb.
#include "child.h"
#include "cli.h"
#include "cli/short_memory.h"
#include "cli/standard_streams.h"
#include "cli/truncation.h"
#include "options.h"
#include "window.h"

int main(int argc, char** argv) {
  using namespace merapi::cli;
  hold_standard_streams();
  hear_of_children();
  catch_truncation("merapi", kAbsent);
  tell_short_memory();
  Cli cli;
  add_run(cli);
  add_info(cli);
  add_list(cli);
  add_top(cli);
  add_provision(cli);
  add_windows(cli);
  add_trace(cli);
  add_save(cli);
  add_load(cli);
  add_replay(cli);
  add_export(cli);
  add_reset(cli);
  add_doctor(cli);
  return written("merapi", cli.main(argc, argv), kSystem);
}
