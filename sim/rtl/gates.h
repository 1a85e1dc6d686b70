// SPDX-License-Identifier: Apache-2.0
//
// What the code of gate_model.py is made of: which variables of a model have changed.
#ifndef MERAPI_SIM_RTL_GATES_H_
#define MERAPI_SIM_RTL_GATES_H_

#include <verilated.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace merapi::gates {

// Not zero: they differ.
template <typename T>
inline uint64_t difference(const T& a, const T& b) {
  return uint64_t(a ^ b);
}
template <std::size_t N>
inline uint64_t difference(const VlWide<N>& a, const VlWide<N>& b) {
  uint32_t any = 0;
  for (std::size_t i = 0; i < N; i++) any |= a[i] ^ b[i];
  return any;
}
template <typename T, std::size_t N>
inline uint64_t difference(const VlUnpacked<T, N>& a, const VlUnpacked<T, N>& b) {
  return std::memcmp(&a, &b, sizeof a) != 0;
}

template <typename T>
struct Same {
  using Type = T;
};

// An assignment; `changed` is not zero any more if it changed the variable.
template <typename T>
inline void put(uint64_t& changed, T& variable, const typename Same<T>::Type& value) {
  changed |= difference(variable, value);
  variable = value;
}

// 64 bytes of variables that are looked at together.
typedef uint64_t Line __attribute__((vector_size(64), may_alias));

// Has any of them changed since this was last asked?
inline bool moved(const void* now, void* before) {
  const Line* const a = static_cast<const Line*>(now);
  Line* const b = static_cast<Line*>(before);
  const auto other = *a != *b;
  *b = *a;
  uint64_t any = 0;
  for (int i = 0; i < 8; i++) any |= uint64_t(other[i]);
  return any != 0;
}

}  // namespace merapi::gates

#endif  // MERAPI_SIM_RTL_GATES_H_
