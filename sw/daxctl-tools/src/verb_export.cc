// SPDX-License-Identifier: Apache-2.0
//
// merapi export: the object graph of an image in other people's formats.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli.h"
#include "graph/closure.h"
#include "heapdump.pb.h"
#include "options.h"
#include "window.h"

namespace merapi::cli {
namespace {

constexpr unsigned kNotSaid = ~0u;

struct Options {
  std::string from, to;
  std::string format = "heapdump";
  unsigned bitmap = kNotSaid;
  bool as_json = false;
};

// Where the dump's heap starts: bits 41 to 43 of an address tell hwgc-soft the space, and 1 is the ordinary one.
constexpr uint64_t kBase = UINT64_C(1) << 41;
// The reader's objects: mark word, klass, then fields of eight bytes; arrays have their length at 16, elements at 24.
constexpr uint64_t kArrayHeader = 24;
constexpr uint64_t kWord = 8;

// Writes the fields of a HeapDump one by one: repeated fields may come in any order and number, so that a dump of any
// size needs the memory of one object.
class DumpWriter {
 public:
  explicit DumpWriter(const std::string& path) : path_(path) {
    merapi_error error{};
    const int status = merapi_output_open(path.c_str(), &output_, &error);
    if (status < 0) throw Failure(exit_of_output(status), error.message);
    out_ = fdopen(dup(merapi_output_fd(output_)), "wbe");
    if (out_ == nullptr) {
      merapi_output_abandon(output_);
      throw system_failure(errno, "cannot write " + path_);
    }
  }
  ~DumpWriter() {
    if (out_ != nullptr) fclose(out_);
    merapi_output_abandon(output_);
  }
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  void add(heapdump::HeapDump* one) {
    if (!one->SerializeToString(&buffer_)) throw Failure(kSystem, "an object does not fit into a message");
    one->Clear();
    if (fwrite(buffer_.data(), 1, buffer_.size(), out_) != buffer_.size())
      throw system_failure(errno, "cannot write " + path_);
    bytes_ += buffer_.size();
  }
  // The dump is complete: it replaces what was at `path`.
  void commit() {
    FILE* const out = std::exchange(out_, nullptr);
    if (fclose(out) != 0) throw system_failure(errno, "cannot write " + path_);
    merapi_error error{};
    const int status = merapi_output_commit(std::exchange(output_, nullptr), &error);
    if (status < 0) throw Failure(exit_of_output(status), error.message);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_, buffer_;
  merapi_output* output_ = nullptr;
  FILE* out_ = nullptr;
  uint64_t bytes_ = 0;
};

class Exporter {
 public:
  Exporter(const graph::ObjectGraph& heap, const graph::Answers& answers, uint32_t bitmap, DumpWriter* out)
      : heap_(heap), answers_(answers), bitmap_(bitmap), out_(*out) {
    // With references and klass words of eight bytes the fields are where the reader wants them. Otherwise every
    // distance is doubled, which makes room for wide references and keeps objects in their order and neighbourhood.
    const bool wide = heap.config().oop_bytes == 8 && heap.config().klass_bytes == 8;
    scale_ = wide ? 1 : 2;
    side_ = kBase + scale_ * heap.heap_bytes();
    side_start_ = side_;
  }

  json run() {
    const graph::Closure closure = graph::close_over(
        heap_, bitmap_, answers_,
        [this](uint64_t offset, uint64_t klass, const graph::Shape* shape) { object(offset, klass, shape); });
    roots(closure);
    space("immix", kBase, side_start_);
    if (side_ > side_start_) space("side", side_start_, (side_ + 4095) / 4096 * 4096);
    return {{"objects", objects_}, {"edges", edges_}, {"edges_above_limit", untraced_},
            {"roots", roots_},     {"scale", scale_}, {"bytes", out_.bytes()}};
  }

 private:
  uint64_t place(uint64_t offset) const { return kBase + scale_ * offset; }

  // What a reference becomes: 0 for null and for what no trace follows (outside the heap, at or above a limit).
  uint64_t target(uint64_t address) {
    uint64_t offset;
    if (address == 0) return 0;
    if (heap_.traced(address, &offset)) return place(offset);
    untraced_++;
    return 0;
  }

  void edge(heapdump::HeapObject* o, uint64_t slot, uint64_t address) {
    heapdump::NormalEdge* e = o->add_edges();
    e->set_slot(slot);
    e->set_objref(target(address));
    edges_++;
  }

  void object(uint64_t offset, uint64_t klass, const graph::Shape* shape) {
    heapdump::HeapObject* o = message_.add_objects();
    o->set_start(place(offset));
    o->set_klass(klass);
    o->set_size(scale_ * (shape == nullptr ? 2 * kWord : heap_.bytes(offset, *shape)));
    if (graph::ObjectGraph::deferred(shape)) {
      deferred(offset, o);
    } else if (shape->shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
      uint64_t slot = place(offset) + kArrayHeader;
      heap_.fields(offset, *shape, [&](uint64_t field) {
        edge(o, slot, heap_.reference(field));
        slot += kWord;
      });
      o->set_objarray_length(heap_.array_length(offset));
      // Arrays of narrow references double; the reader's header may still be larger than twice ours.
      o->set_size(std::max<uint64_t>(o->size(), slot - place(offset)));
    } else {
      heap_.fields(offset, *shape,
                   [&](uint64_t field) { edge(o, place(offset) + scale_ * (field - offset), heap_.reference(field)); });
    }
    objects_++;
    out_.add(&message_);
  }

  // What the host scans has references that no shape tells: they go into a run of slots beside the heap, as the
  // reader has it for the static fields of class mirrors.
  void deferred(uint64_t offset, heapdump::HeapObject* o) {
    const graph::Answers::Range references = answers_.of(heap_.config().heap_base + offset, false);
    if (references.size() == 0) return;
    o->set_instance_mirror_start(side_);
    o->set_instance_mirror_count(references.size());
    for (const uint64_t address : references) {
      edge(o, side_, address);
      side_ += kWord;
    }
  }

  void root(uint64_t address) {
    const uint64_t to = target(address);
    if (to == 0) return;
    message_.add_roots()->set_objref(to);
    out_.add(&message_);
    roots_++;
  }

  // The host's greys, and what keeps the klasses alive of which objects were found.
  void roots(const graph::Closure& closure) {
    closure.greys.each([this](uint64_t unit) { root(heap_.config().heap_base + heap_.offset_of_unit(unit)); });
    for (const uint64_t klass : closure.klasses)
      for (const uint64_t address : answers_.of(klass, true)) root(address);
  }

  void space(const char* name, uint64_t start, uint64_t end) {
    heapdump::Space* s = message_.add_spaces();
    s->set_name(name);
    s->set_start(start);
    s->set_end(end);
    out_.add(&message_);
  }

  const graph::ObjectGraph& heap_;
  const graph::Answers& answers_;
  const uint32_t bitmap_;
  DumpWriter& out_;
  heapdump::HeapDump message_;
  uint64_t scale_ = 1, side_ = 0, side_start_ = 0;
  uint64_t objects_ = 0, edges_ = 0, untraced_ = 0, roots_ = 0;
};

int run_export(const Options& o) {
  std::error_code absent;
  if (std::filesystem::equivalent(path_of(o.from), o.to, absent))
    throw Failure(kUsage, "expected another file than what is exported, found " + o.to + "; choose another");
  std::optional<Image> image;
  std::optional<Window> window;
  graph::Answers answers;
  uint32_t bitmap = o.bitmap == kNotSaid ? 0 : o.bitmap;
  if (is_image(o.from)) {
    if (o.bitmap != kNotSaid)
      throw Failure(kUsage, "expected --bitmap with a window alone, found the image " + o.from +
                                ", which says it itself; leave it away");
    image.emplace(o.from);
    answers = graph::Answers(image->answers());
    bitmap = image->bitmap();
    window.emplace(unpack(*image));
  } else {
    // With the host's lock: nobody changes the heap meanwhile.
    window.emplace(window_that_stays(o.from), nullptr, 0);
  }
  const graph::ObjectGraph heap(*window);
  // Behind a dump on standard output the summary would be a part of it.
  const bool apart = merapi_output_is(o.to.c_str(), STDOUT_FILENO);
  DumpWriter out(o.to);
  const json result = Exporter(heap, answers, bitmap, &out).run();
  out.commit();
  if (o.as_json && apart) {
    std::cerr << result.dump(1) << "\n";
  } else if (o.as_json) {
    print(result);
  } else {
    fprintf(apart ? stderr : stdout, "%s: %s objects, %s edges, %s roots, %s\n", o.to.c_str(),
            human_count(result["objects"]).c_str(), human_count(result["edges"]).c_str(),
            human_count(result["roots"]).c_str(), human_bytes(result["bytes"]).c_str());
  }
  return kOk;
}

}  // namespace

void add_export(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("export", "Write the object graph of an image (or of a window that no host uses)",
                       [o] { return run_export(*o); });
  verb.option("from", o->from, "image or window").required();
  verb.option("to", o->to, "file to write, replaced when it is complete; - for standard output").required().output();
  verb.option("--format", o->format, "format").with_default().one_of({"heapdump"});
  verb.option("--bitmap", o->bitmap, "windows: mark bitmap that holds the greys (default 0)").between(0, 1);
  verb.flag("--json", o->as_json, "print a summary as JSON");
}

}  // namespace merapi::cli
