// SPDX-License-Identifier: Apache-2.0
//
// A variable of all instances of a module at once, one in each element of a vector: what vector_instances.py writes for
// a Verilated model is made of these. Included by one generated file at a time, which says how many instances there
// are: MERAPI_INSTANCES. For clang (ext_vector_type); what the processor has no vectors for becomes several
// instructions.
//
// Variables of 32 bits and less are uint32_t in memory, as are words of wide ones; words stand one after the other,
// each with those of all instances. Sixteen words that begin at a multiple of sixteen stand in the order 0, 4, 8, 12,
// 1, ..., which is that of a transposition without its last step (`slot` in vector_instances.py). Memories keep each
// instance's elements together.
#ifndef MERAPI_SIM_RTL_INSTANCE_VECTORS_H_
#define MERAPI_SIM_RTL_INSTANCE_VECTORS_H_

#include <cstdint>

namespace merapi::instances {

// Of fewer than 32 bits; what does not fit is cut off, as in a variable of that type.
template <typename T>
struct Cell {
  uint32_t value;
  operator uint32_t() const { return value; }
  Cell& operator=(uint32_t x) {
    value = static_cast<T>(x);
    return *this;
  }
};

}  // namespace merapi::instances

#endif  // MERAPI_SIM_RTL_INSTANCE_VECTORS_H_

#if defined(MERAPI_INSTANCES) && !defined(MERAPI_SIM_RTL_INSTANCE_VECTORS_CODE)
#define MERAPI_SIM_RTL_INSTANCE_VECTORS_CODE
// Everything here is inlined: no vector is ever handed to a function in the way that other options would change.
#pragma clang diagnostic ignored "-Wpsabi"
#define MERAPI_INLINE static inline __attribute__((always_inline, unused))

namespace merapi::instances {

constexpr int kCount = MERAPI_INSTANCES;
using Words = uint32_t __attribute__((ext_vector_type(kCount)));
using Quads = uint64_t __attribute__((ext_vector_type(kCount)));
using Mask = int32_t __attribute__((ext_vector_type(kCount)));  // all bits of an element, or none
using WideMask = int64_t __attribute__((ext_vector_type(kCount)));
// In memory vectors of more than 64 bytes begin at a multiple of 64, as what holds them does.
constexpr int aligned(int bytes) { return bytes < 64 ? bytes : 64; }
typedef Words StoredWords __attribute__((aligned(aligned(sizeof(Words)))));
typedef Quads StoredQuads __attribute__((aligned(aligned(sizeof(Quads)))));
// Sixteen words of one instance, or four of four, wherever they are.
typedef uint32_t Line __attribute__((ext_vector_type(16), aligned(4)));
using LineMask = int32_t __attribute__((ext_vector_type(16)));

MERAPI_INLINE Words words(const void* from) { return *static_cast<const StoredWords*>(from); }
MERAPI_INLINE Quads quads(const void* from) { return *static_cast<const StoredQuads*>(from); }
MERAPI_INLINE void put(void* to, Words x) { *static_cast<StoredWords*>(to) = x; }
MERAPI_INLINE void put(void* to, Quads x) { *static_cast<StoredQuads*>(to) = x; }
MERAPI_INLINE Words all(uint32_t x) { return (Words)(x); }
MERAPI_INLINE Quads all_quads(uint64_t x) { return (Quads)(x); }
MERAPI_INLINE Words low(Quads x) { return __builtin_convertvector(x, Words); }
MERAPI_INLINE Quads wide(Words x) { return __builtin_convertvector(x, Quads); }
MERAPI_INLINE WideMask wide(Mask x) { return __builtin_convertvector(x, WideMask); }
MERAPI_INLINE Mask narrow(WideMask x) { return __builtin_convertvector(x, Mask); }
MERAPI_INLINE Words ones(Mask x) { return (Words)(x)&1U; }
MERAPI_INLINE Quads ones(WideMask x) { return (Quads)(x)&1ULL; }

MERAPI_INLINE bool any(Mask x) {
  int32_t found = 0;
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; i++) found |= x[i];
  return found != 0;
}

// Verilator's VL_SHIFT*: a number of bits that is too large gives 0.
MERAPI_INLINE Words shift_left(Words x, Words by) { return by < 32U ? x << (by & 31U) : all(0); }
MERAPI_INLINE Words shift_right(Words x, Words by) { return by < 32U ? x >> (by & 31U) : all(0); }
MERAPI_INLINE Quads shift_left(Quads x, Quads by) { return by < 64ULL ? x << (by & 63ULL) : all_quads(0); }
MERAPI_INLINE Quads shift_right(Quads x, Quads by) { return by < 64ULL ? x >> (by & 63ULL) : all_quads(0); }

// Verilator's VL_REDXOR_*: the sum of all bits, without carries.
MERAPI_INLINE Words parity(Words x) {
  for (uint32_t by = 16; by != 0; by /= 2) x ^= x >> by;
  return x & 1U;
}

// Elements of memories: [instance][element], of wide elements [instance][element][word].
template <typename V, typename T, int kDepth>
MERAPI_INLINE V fetch(const T (&memory)[kCount][kDepth], Words at) {
  V found;
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; i++) found[i] = memory[i][at[i]];
  return found;
}
template <int kDepth, int kWords>
MERAPI_INLINE Words fetch_word(const uint32_t (&memory)[kCount][kDepth][kWords], Words at, int word) {
  Words found;
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; i++) found[i] = memory[i][at[i]][word];
  return found;
}
template <typename V, typename T, int kDepth>
MERAPI_INLINE void store(T (&memory)[kCount][kDepth], Words at, V x, Mask where) {
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; i++)
    if (where[i]) memory[i][at[i]] = T(x[i]);
}
template <int kDepth, int kWords>
MERAPI_INLINE void store_word(uint32_t (&memory)[kCount][kDepth][kWords], Words at, int word, Words x, Mask where) {
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; i++)
    if (where[i]) memory[i][at[i]][word] = x[i];
}

// Sixteen words of a wide variable.
MERAPI_INLINE Line line(const void* from) { return *static_cast<const Line*>(from); }
MERAPI_INLINE void put_line(void* to, Line x) { *static_cast<Line*>(to) = x; }
MERAPI_INLINE constexpr int slot(int word) { return 4 * (word % 4) + word / 4; }

MERAPI_INLINE void copy_line(uint32_t* to, const uint32_t* from, Mask where) {
  if constexpr (kCount == 4) {
    const LineMask mask = __builtin_shufflevector(where, where, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    for (int i = 0; i < 64; i += 16) put_line(to + i, mask ? line(from + i) : line(to + i));
  } else {
    for (int i = 0; i < 16 * kCount; i += kCount) put(to + i, where ? words(from + i) : words(to + i));
  }
}
MERAPI_INLINE void copy_line(uint32_t* to, const uint32_t* from) {
  for (int i = 0; i < 16 * kCount; i += 16) put_line(to + i, line(from + i));
}
// One line, the same for all instances.
MERAPI_INLINE void spread_line(uint32_t* to, const uint32_t* from) {
  if constexpr (kCount == 4) {
    const Line x = line(from);
    put_line(to, __builtin_shufflevector(x, x, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    put_line(to + 16, __builtin_shufflevector(x, x, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13));
    put_line(to + 32, __builtin_shufflevector(x, x, 2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14));
    put_line(to + 48, __builtin_shufflevector(x, x, 3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15));
  } else {
    for (int w = 0; w < 16; w++) put(to + kCount * slot(w), all(from[w]));
  }
}
// Sixteen words from kFirst on of a memory's elements.
template <int kFirst, int kDepth, int kWords>
MERAPI_INLINE void fetch_line(uint32_t* to, const uint32_t (&memory)[kCount][kDepth][kWords], Words at) {
  static_assert(kFirst + 16 <= kWords);
  if constexpr (kCount == 4) {
    const Line x0 = line(&memory[0][at[0]][kFirst]), x1 = line(&memory[1][at[1]][kFirst]);
    const Line x2 = line(&memory[2][at[2]][kFirst]), x3 = line(&memory[3][at[3]][kFirst]);
    const Line a = __builtin_shufflevector(x0, x1, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    const Line b = __builtin_shufflevector(x0, x1, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    const Line c = __builtin_shufflevector(x2, x3, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    const Line d = __builtin_shufflevector(x2, x3, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    put_line(to, __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29));
    put_line(to + 16, __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    put_line(to + 32, __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29));
    put_line(to + 48, __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  } else {
    for (int w = 0; w < 16; w++) put(to + kCount * slot(w), fetch_word(memory, at, kFirst + w));
  }
}
template <int kFirst, int kDepth, int kWords>
MERAPI_INLINE void fetch_line(uint32_t* to, const uint32_t (&memory)[kCount][kDepth][kWords], Words at, Mask where) {
  alignas(64) uint32_t found[16 * kCount];
  fetch_line<kFirst>(found, memory, at);
  copy_line(to, found, where);
}
template <int kFirst, int kDepth, int kWords>
MERAPI_INLINE void store_line(uint32_t (&memory)[kCount][kDepth][kWords], Words at, const uint32_t* from, Mask where) {
  static_assert(kFirst + 16 <= kWords);
  if constexpr (kCount == 4) {
    const Line a = line(from), b = line(from + 16), c = line(from + 32), d = line(from + 48);
    const Line e = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    const Line f = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    const Line g = __builtin_shufflevector(c, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    const Line h = __builtin_shufflevector(c, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    const Line x[4] = {__builtin_shufflevector(e, g, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30),
                       __builtin_shufflevector(e, g, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31),
                       __builtin_shufflevector(f, h, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30),
                       __builtin_shufflevector(f, h, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31)};
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++)
      if (where[i]) put_line(&memory[i][at[i]][kFirst], x[i]);
  } else {
    for (int w = 0; w < 16; w++) store_word(memory, at, kFirst + w, words(from + kCount * slot(w)), where);
  }
}

}  // namespace merapi::instances

#endif  // MERAPI_SIM_RTL_INSTANCE_VECTORS_CODE
