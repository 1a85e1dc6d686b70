/*
 * Copyright (c) 2026, the Merapi authors. All rights reserved.
 * DO NOT ALTER OR REMOVE COPYRIGHT NOTICES OR THIS FILE HEADER.
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * as provided in the LICENSE file that accompanies OpenJDK.
 *
 * This code is distributed in the hope that it will be useful, but WITHOUT
 * ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
 * FITNESS FOR A PARTICULAR PURPOSE.  See the GNU General Public License
 * version 2 for more details.
 */

#include "precompiled.hpp"
#include "classfile/classLoaderData.hpp"
#include "classfile/classLoaderDataGraph.inline.hpp"
#include "gc/g1/merapi/g1MerapiShapes.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "logging/log.hpp"
#include "memory/metaspace.hpp"
#include "memory/resourceArea.hpp"
#include "oops/arrayKlass.hpp"
#include "oops/arrayOop.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/instanceKlass.inline.hpp"
#include "oops/klass.inline.hpp"
#include "oops/objArrayOop.hpp"
#include "runtime/orderAccess.hpp"
#include "runtime/os.hpp"

G1MerapiShapes::G1MerapiShapes(merapi_window* window) :
  _window(window),
  _instance_classes(0),
  _array_classes(0),
  _complete(false),
  _unloaded(false),
  _freed(0),
  _may_yield(false),
  _made_way(0),
  _published(0),
  _rejected(0),
  _told_no_room(false),
  _known() { }

uint64_t G1MerapiShapes::klass_word(Klass* klass) {
  return UseCompressedClassPointers ? (uint64_t)CompressedKlassPointers::encode_not_null(klass)
                                    : (uint64_t)(uintptr_t)klass;
}

Klass* G1MerapiShapes::klass_of(uint64_t word) const {
  merapi_shape shape;
  if (G1MerapiLibrary::shape_get(_window, word, &shape, NULL, 0) != 0) {
    return NULL;
  }
  return UseCompressedClassPointers ? CompressedKlassPointers::decode_not_null((narrowKlass)word)
                                    : (Klass*)(uintptr_t)word;
}

// As Klass::is_valid, which takes a lock to walk the loaders, and in addition among the classes of its loader.
bool G1MerapiShapes::find_class(Klass* klass) const {
  if (!is_aligned(klass, sizeof(MetaWord)) || !Metaspace::contains(klass) || !os::is_readable_range(klass, klass + 1)) {
    return false;
  }
  ClassLoaderData* owner = klass->class_loader_data();
  ClassLoaderData* cld = NULL;
  do {
    cld = ClassLoaderDataGraph::next_after(cld);
  } while (cld != NULL && cld != owner);
  if (cld == NULL && owner != ClassLoaderData::the_null_class_loader_data()) {
    return false;
  }
  Klass* found = owner->klasses();
  OrderAccess::acquire();  // its fields after its place in the list
  while (found != NULL && found != klass) {
    found = found->next_link();
  }
  return found != NULL;
}

bool G1MerapiShapes::is_class(Klass* klass) {
  // Where the table has no room these are asked for once for each object.
  Klass** known = &_known[((uintptr_t)klass >> LogKlassAlignmentInBytes) & right_n_bits(LogKnown)];
  if (*known != klass) {
    if (!find_class(klass)) {
      return false;
    }
    *known = klass;
  }
  return true;
}

void G1MerapiShapes::publish_klass(Klass* klass) {
  // Only these two are ever published, and an instance class only once its oop
  // maps are there (they are copied before the class becomes loaded).
  if (klass->is_instance_klass() && !InstanceKlass::cast(klass)->is_loaded()) {
    _complete = false;
    return;
  }
  merapi_shape shape;
  memset(&shape, 0, sizeof(shape));
  shape.klass_word = klass_word(klass);

  merapi_ref_block* blocks = NULL;
  ResourceMark rm;
  jint helper = klass->layout_helper();
  if (klass->is_instance_klass()) {
    InstanceKlass* ik = InstanceKlass::cast(klass);
    // The helper's low bit only says that allocation takes the slow path.
    shape.size_words = (uint32_t)Klass::layout_helper_to_size_helper(helper);
    if (ik->is_reference_instance_klass()) {
      shape.kind = MERAPI_SHAPE_KIND_REFERENCE;
    } else if (ik->is_mirror_instance_klass()) {
      shape.kind = MERAPI_SHAPE_KIND_MIRROR;
    } else if (ik->is_class_loader_instance_klass()) {
      shape.kind = MERAPI_SHAPE_KIND_LOADER;
    } else {
      shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
      uint count = ik->nonstatic_oop_map_count();
      blocks = NEW_RESOURCE_ARRAY(merapi_ref_block, MAX2(count, 1u));
      OopMapBlock* map = ik->start_of_nonstatic_oop_maps();
      uint used = 0;
      for (uint i = 0; i < count; i++) {
        if (map[i].count() > 0) {
          blocks[used].offset = (uint32_t)map[i].offset();
          blocks[used].count = map[i].count();
          used++;
        }
      }
      shape.block_count = used;
    }
  } else if (klass->is_objArray_klass()) {
    shape.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
    shape.header_bytes = (uint32_t)Klass::layout_helper_header_size(helper);
    shape.element_log2 = (uint8_t)Klass::layout_helper_log2_element_size(helper);
  } else if (klass->is_typeArray_klass()) {
    shape.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    shape.flags = 1u << MERAPI_SHAPE_FLAG_QUIET;  // the boot loader's, always alive
    shape.header_bytes = (uint32_t)Klass::layout_helper_header_size(helper);
    shape.element_log2 = (uint8_t)Klass::layout_helper_log2_element_size(helper);
  } else {
    return;
  }
  if (G1MerapiLibrary::shape_put(_window, &shape, blocks) == 0) {
    _published++;
  } else {
    _rejected++;
  }
}

bool G1MerapiShapes::make_way() {
  if (!_may_yield || !SuspendibleThreadSet::should_yield()) {
    return true;
  }
  uint freed = _freed;
  SuspendibleThreadSet::yield();
  _made_way++;
  return freed == _freed;
}

bool G1MerapiShapes::publish_loader(ClassLoaderData* cld) {
  Klass* klass = cld->klasses();
  OrderAccess::acquire();  // its fields after its place in the list
  for (; klass != NULL; klass = klass->next_link()) {
    publish_klass(klass);
    if (!make_way()) {
      return false;
    }
  }
  return make_way();  // loaders without classes, too, can be many
}

bool G1MerapiShapes::publish_all() {
  // Counts before the walk: what is added meanwhile is found the next time.
  _instance_classes = ClassLoaderDataGraph::num_instance_classes();
  _array_classes = ClassLoaderDataGraph::num_array_classes();
  _complete = true;
  // First those of the boot loader: they are in every program's inner loops, and
  // the graph has them last, when a program with very many classes has left no room.
  if (!publish_loader(ClassLoaderData::the_null_class_loader_data())) {
    return false;
  }
  _published = 0;
  _rejected = 0;
  // Without keeping loaders alive: publishing is no use of a class.
  ClassLoaderData* cld = NULL;
  while ((cld = ClassLoaderDataGraph::next_after(cld)) != NULL) {
    if (!publish_loader(cld)) {
      return false;
    }
  }
  return true;
}

void G1MerapiShapes::publish(bool may_yield) {
  if (!_unloaded && _complete &&
      _instance_classes == ClassLoaderDataGraph::num_instance_classes() &&
      _array_classes == ClassLoaderDataGraph::num_array_classes()) {
    return;
  }
  _made_way = 0;
  uint walks = 0;
  do {
    // A program that makes and frees classes all the time must not keep marking from its start.
    _may_yield = may_yield && walks < MaxInterruptedWalks;
    walks++;
    if (_unloaded) {
      _unloaded = false;
      G1MerapiLibrary::shape_clear(_window);
    }
  } while (!publish_all());
  log_debug(gc, merapi)("Published %u shapes (%u found no room), walks: %u, made way for %u safepoints", _published,
                        _rejected, walks, _made_way);
  if (_rejected > 0 && !_told_no_room) {
    _told_no_room = true;
    log_warning(gc, merapi)("The shape table has no room for %u of %u classes: the host scans their objects",
                            _rejected, _published + _rejected);
  }
}
