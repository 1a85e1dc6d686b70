// SPDX-License-Identifier: Apache-2.0
//
// merapi save and merapi load: windows to images and back.
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "child.h"
#include "cli.h"
#include "options.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct SaveOptions {
  std::string window, image, note;
  unsigned bitmap = 0;
};

struct LoadOptions {
  std::string image, window;
  bool create = false;
};

std::string encoded(const json& text) {
  try {
    return text.dump();
  } catch (const json::type_error&) {
    throw Failure(kUsage, "expected --note in UTF-8, found other bytes");
  }
}

int save(const SaveOptions& o) {
  // The host's lock: a heap that a program goes on changing makes no image. Opening ends a generation that a dead host
  // left behind, which is what a device of it is waiting for.
  const Window window(window_that_stays(o.window), nullptr, 0);
  json text = {{"saved_by", "merapi save"}};
  if (!o.note.empty()) text["note"] = o.note;
  const std::string note = encoded(text);
  try {
    graph::save(window, o.image, o.bitmap, nullptr, note);
  } catch (const graph::Error& e) {
    throw Failure(exit_of_output(e.code), e.what());
  }
  return kOk;
}

int load_into(const LoadOptions& o, const Image& image, bool made) {
  const merapi_geometry geometry = image.geometry();
  const Window window(o.window, &geometry, MERAPI_OPEN_FORMAT | (o.create ? uint32_t(MERAPI_OPEN_CREATE) : 0));
  try {
    window.load(image);
  } catch (...) {
    if (made) unlink(path_of(o.window).c_str());
    throw;
  }
  // A window does not say it, and who takes the other bitmap saves or traces no grey at all.
  if (image.bitmap() != 0)
    fprintf(stderr,
            "merapi: the greys are in bitmap %" PRIu32 ": use --bitmap %" PRIu32 " with save, trace and export\n",
            image.bitmap(), image.bitmap());
  return kOk;
}

int load(const LoadOptions& o) {
  const Image image(o.image);
  const std::string path = path_of(window_that_stays(o.window));
  image.check();  // before anything of the window is laid out anew
  if (!o.create || access(path.c_str(), F_OK) == 0) return load_into(o, image, false);
  // What is made goes again when a signal ends the load; who stays beside it sees to that.
  int status = 0;
  try {
    status = SignalGate().run([&] { return load_into(o, image, true); });
  } catch (const Interrupted& e) {
    say(e.what());
    die_of(e.signal_number);
  }
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  unlink(path.c_str());
  die_of(WTERMSIG(status));
}

}  // namespace

void add_save(Cli& cli) {
  auto o = std::make_shared<SaveOptions>();
  Verb verb = cli.verb("save", "Save a window that no host uses as an image", [o] { return save(*o); });
  verb.option("window", o->window, "window (file:PATH, dax:PATH or a path)").required();
  verb.option("image", o->image, "file to write, replaced when it is complete; - for standard output")
      .required()
      .output();
  verb.option("--bitmap", o->bitmap, "mark bitmap that holds the greys").with_default().between(0, 1);
  verb.option("--note", o->note, "text to keep in the image");
}

void add_load(Cli& cli) {
  auto o = std::make_shared<LoadOptions>();
  Verb verb = cli.verb("load", "Write an image into a window, replacing what was there", [o] { return load(*o); });
  verb.option("image", o->image, "saved window").required().not_empty();
  verb.option("window", o->window, "window (file:PATH, dax:PATH or a path)").required();
  verb.flag("--create", o->create, "make the window's file, or make it larger, when needed");
}

}  // namespace merapi::cli
