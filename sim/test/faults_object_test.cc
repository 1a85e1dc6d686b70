// SPDX-License-Identifier: Apache-2.0
//
// Faults of objects, shapes and memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "sim/test/faults_fixture.h"

namespace merapi::sim::test {
namespace {

// An object in the middle of its scan begins again, with the blocks of the shape as it is then.
TEST_F(Faults, AnObjectWhoseShapeIsReplacedInAPause) {
  constexpr uint32_t kLarge = 0x5000, kWords = 100'000;
  for (const bool fits : {true, false}) {
    build({}, true);
    merapi_shape s{};
    s.klass_word = kLarge;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kWords;
    window_->put_shape(s, {{16, 2 * kWords - 1000}, {8 * kWords - 800, 4}});
    klass(0, kLarge);
    ASSERT_NO_FATAL_FAILURE(pause_in_the_first_object());
    const uint64_t read = machine_->counter(MERAPI_COUNTER_REFERENCES_READ);
    EXPECT_LT(read, 2 * kWords - 1000);
    s.size_words = fits ? kWords : 0xffff'fff0;
    window_->put_shape(
        s, {{16, 4}, fits ? merapi_ref_block{8 * kWords - 400, 8} : merapi_ref_block{0xf000'0000, 1 << 24}});
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    machine_->trace(0, 16);
    machine_->resume();
    steps(2000);
    if (fits) {
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
      machine_->complete();
      EXPECT_TRUE(machine_->idle());
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFERENCES_READ), read + 4 + 8);
    } else {
      expect_fault(MERAPI_FAULT_BAD_OBJECT, address(0), 0xffff'fff0);
    }
  }
}

TEST_F(Faults, MisalignedReference) {
  WindowShape shape;
  shape.narrow_shift = 0;
  shape.heap_base = 0x10000000;
  build(shape);
  klass(4096, kKlass);
  u32(4096 + 12, 0x10000000 + 4);
  trace_from(4096);
  expect_fault(MERAPI_FAULT_BAD_REFERENCE, address(4), address(4096));

  build(shape);
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  machine_->grey({address(12)});
  steps(3);
  expect_fault(MERAPI_FAULT_BAD_REFERENCE, address(12), 0);
}

TEST_F(Faults, MisalignedReferenceOutsideTheHeapIsOutside) {
  WindowShape shape;
  shape.narrow_shift = 0;
  shape.heap_base = 0x10000000;
  build(shape);
  klass(4096, kKlass);
  u32(4096 + 12, 0x10000000 - 3);
  trace_from(4096);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFS_OUTSIDE), 1u);
}

TEST_F(Faults, KlassWordZero) {
  trace_from(128);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(128), 0);
}

TEST_F(Faults, ObjectEndsBeyondTheHeap) {
  uint64_t last = window_->heap_bytes() - 24;
  klass(last, kKlass);  // 32 bytes
  trace_from(last);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(last), 4);
}

TEST_F(Faults, ArrayEndsBeyondTheHeap) {
  for (uint32_t word : {kArray, kBytes}) {
    build({});
    uint64_t last = window_->heap_bytes() - 64;
    klass(last, word);
    u32(last + 12, 49);
    trace_from(last);
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
    EXPECT_EQ(record().address, address(last));
  }
}

// Where the heap ends with the window, a read beyond it would end the process.
TEST_F(Faults, NothingIsReadBeyondTheHeap) {
  for (uint8_t klass_bytes : {uint8_t(4), uint8_t(8)}) {
    for (bool strict : {false, true}) {
      for (int way = 0; way < 3; way++) {
        // No object has 8 bytes alone; an array of 16 has its length behind a wide klass word.
        for (uint64_t bytes : {8, 16}) {
          for (uint32_t word : {kArray, kBytes}) {
            SCOPED_TRACE(testing::Message() << int{klass_bytes} << ", " << bytes << " bytes, way " << way);
            WindowShape shape;
            shape.klass_bytes = klass_bytes;
            shape.regions = 32;
            build(shape, strict);
            const merapi_area_desc& heap = window_->layout.area[MERAPI_AREA_HEAP];
            ASSERT_EQ(heap.offset + window_->heap_bytes(), window_->bytes);
            uint8_t* end = window_->base + window_->bytes;
            void* beyond = mmap(end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            window_->put_object_array(kArray, 24);
            merapi_shape s{};
            s.klass_word = kBytes;
            s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
            s.header_bytes = 24;
            window_->put_shape(s);
            window_->put_instance(kKlass, 4, {{16, 2}});
            const uint64_t last = window_->heap_bytes() - bytes;
            if (bytes == 16) klass(last, word);
            if (way == 0) {
              trace_from(last);
            } else {
              klass(64, kKlass);
              if (way == 1) reference(64 + 16, last);
              trace_from(64);
              if (way == 2) machine_->grey({address(last)});
              steps();
            }
            EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
            EXPECT_EQ(record().address, address(last));
            if (bytes == 8 || klass_bytes == 8) {
              EXPECT_EQ(record().detail, 0u);
            }
            if (beyond != MAP_FAILED) munmap(beyond, 4096);
          }
        }
      }
    }
  }
}

TEST_F(Faults, NegativeArrayLength) {
  for (uint32_t word : {kArray, kBytes}) {
    for (uint32_t length : {0xFFFFFFFFu, 0x80000000u, 0xFFFFFFF0u}) {
      build({});
      klass(0, word);
      u32(12, length);
      trace_from(0);
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT)) << length;
    }
  }
}

TEST_F(Faults, EmptyMirror) {
  klass(0, kMirror);
  trace_from(0);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(0), 0);
}

TEST_F(Faults, MirrorAtTheEndOfTheHeap) {
  uint64_t last = window_->heap_bytes() - 16;
  klass(last, kMirror);  // its size field would lie behind the heap
  trace_from(last);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
}

TEST_F(Faults, BadShapes) {
  struct Case {
    const char* name;
    merapi_shape shape;
    std::vector<merapi_ref_block> blocks;
  };
  auto shape = [](uint8_t kind, uint32_t words, uint32_t header = 0, uint8_t log2 = 0) {
    merapi_shape s{};
    s.kind = kind;
    s.size_words = words;
    s.header_bytes = header;
    s.element_log2 = log2;
    return s;
  };
  const Case cases[] = {
      {"no kind", shape(MERAPI_SHAPE_KIND_NONE, 4), {}},
      {"unknown kind", shape(77, 4), {}},
      {"block behind the object", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{24, 3}}},
      {"block offset wraps", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{0xFFFFFFFC, 2}}},
      {"block count wraps", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{12, 0xFFFFFFFF}}},
      {"block over the header", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{8, 1}}},
      {"block misaligned", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{14, 1}}},
      {"more blocks than fields", shape(MERAPI_SHAPE_KIND_INSTANCE, 2), std::vector<merapi_ref_block>(5, {12, 1})},
      {"array header over the length", shape(MERAPI_SHAPE_KIND_OBJ_ARRAY, 0, 12, 2), {}},
      {"object array with elements of another width", shape(MERAPI_SHAPE_KIND_OBJ_ARRAY, 0, 16, 3), {}},
      {"elements of 16 bytes", shape(MERAPI_SHAPE_KIND_PRIM_ARRAY, 0, 16, 4), {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    build({});
    merapi_shape s = c.shape;
    s.klass_word = 0x9000;
    window_->put_shape(s, c.blocks);
    klass(0, 0x9000);
    trace_from(0);
    expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, c.shape.kind);
  }
}

TEST_F(Faults, BlocksOutsideTheExtension) {
  merapi_shape s{};
  s.klass_word = 0x9000;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 400;
  window_->put_shape(s, std::vector<merapi_ref_block>(8, {16, 1}));
  auto* table = reinterpret_cast<merapi_shape*>(window_->area(MERAPI_AREA_SHAPES));
  uint64_t slots = window_->layout.area[MERAPI_AREA_SHAPES].size / 64;
  for (uint64_t i = 0; i < slots; i++) {
    if (table[i].klass_word == 0x9000) table[i].extension = window_->layout.area[MERAPI_AREA_SHAPE_EXTENSION].size;
  }
  klass(0, 0x9000);
  trace_from(0);
  expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
}

// One of more than the model looks at before it scans.
TEST_F(Faults, ABadBlockAmongMany) {
  constexpr uint32_t kBlocks = 5000, kWords = kBlocks + 2;
  WindowShape shape;
  shape.shape_slots = 1 << 14;
  for (const merapi_ref_block bad : {merapi_ref_block{8 * kWords - 4, 2}, merapi_ref_block{8, 1},
                                     merapi_ref_block{14, 1}, merapi_ref_block{0xFFFFFFFC, 0xFFFFFFFF}}) {
    SCOPED_TRACE(testing::Message() << bad.count << " references at " << bad.offset);
    build(shape);
    std::vector<merapi_ref_block> blocks(kBlocks, {16, 1});
    blocks[kBlocks - 10] = bad;
    window_->put_instance(0x9000, kWords, blocks);
    klass(0, 0x9000);
    trace_from(0);
    steps(1000);
    expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
  }
}

// A host that writes over the blocks of an object while it is scanned.
TEST_F(Faults, ABlockThatChanges) {
  constexpr uint32_t kBlocks = 100'000, kWords = 2 + kBlocks / 2;
  WindowShape shape;
  shape.shape_slots = 1 << 18;
  build(shape, true);
  window_->put_instance(0x9000, kWords, std::vector<merapi_ref_block>(kBlocks, {16, 1}));
  klass(0, 0x9000);
  ASSERT_NO_FATAL_FAILURE(pause_in_the_first_object());
  EXPECT_LT(machine_->counter(MERAPI_COUNTER_REFERENCES_READ), kBlocks);
  auto* blocks = reinterpret_cast<merapi_ref_block*>(window_->area(MERAPI_AREA_SHAPE_EXTENSION));
  blocks[kBlocks - 1] = {0xF000'0000, 1 << 24};
  machine_->resume();
  steps(2000);
  expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
}

TEST_F(Faults, StrictModeFindsAMarkAboveALimit) {
  build({}, true);
  klass(0, kKlass);
  window_->limits()[0] = 64;
  window_->mark(0, 4096);
  trace_from(0);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_INTERNAL));
  EXPECT_EQ(record().detail, uint64_t(kMarkedAboveLimit));
}

TEST_F(Faults, StrictModeFindsAWrongLiveTable) {
  build({}, true);
  ASSERT_NO_FATAL_FAILURE(begin_with_two_objects());
  machine_->trace(0, 16);
  for (int i = 0; i < 200 && !machine_->idle(); i++) {
    machine_->step();
    window_->live()[3] = 1;  // nobody but the device may
  }
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_INTERNAL));
  EXPECT_EQ(record().detail, uint64_t(kLiveBalance));
}

TEST_F(Faults, MemoryErrorsEndTheContext) {
  for (uint32_t code : {uint32_t(MERAPI_FAULT_TRUNCATED), uint32_t(MERAPI_FAULT_MEMORY)}) {
    build({});
    ASSERT_TRUE(machine_->attach());
    machine_->begin(0);
    steps(3);
    machine_->memory_fault = code;
    machine_->memory_fault_offset = 0x5000;
    EXPECT_EQ(machine_->step().next, Step::kEnded);
    EXPECT_EQ(record().code, code);
    EXPECT_EQ(record().address, 0x5000u);
  }
}

}  // namespace
}  // namespace merapi::sim::test
