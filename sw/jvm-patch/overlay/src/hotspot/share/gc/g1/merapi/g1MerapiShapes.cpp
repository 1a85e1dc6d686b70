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
#include "memory/iterator.hpp"
#include "memory/resourceArea.hpp"
#include "oops/arrayKlass.hpp"
#include "oops/arrayOop.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/instanceKlass.inline.hpp"
#include "oops/klass.inline.hpp"
#include "oops/objArrayOop.hpp"

G1MerapiShapes::G1MerapiShapes(merapi_window* window) :
  _window(window),
  _instance_classes(0),
  _array_classes(0),
  _complete(false),
  _unloaded(false),
  _published(0),
  _rejected(0),
  _told_no_room(false) { }

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

class G1MerapiPublishKlass : public KlassClosure {
  G1MerapiShapes* _shapes;
public:
  G1MerapiPublishKlass(G1MerapiShapes* shapes) : _shapes(shapes) { }
  void do_klass(Klass* klass) { _shapes->publish_klass(klass); }
};

// Walks the loaders without keeping them alive: publishing is no use of a class.
class G1MerapiPublishLoader : public CLDClosure {
  G1MerapiPublishKlass _klass_cl;
public:
  G1MerapiPublishLoader(G1MerapiShapes* shapes) : _klass_cl(shapes) { }
  void do_cld(ClassLoaderData* cld) { cld->classes_do(&_klass_cl); }
};

void G1MerapiShapes::publish_all() {
  // Counts before the walk: what is added meanwhile is found the next time.
  _instance_classes = ClassLoaderDataGraph::num_instance_classes();
  _array_classes = ClassLoaderDataGraph::num_array_classes();
  _complete = true;
  // First those of the boot loader: they are in every program's inner loops, and
  // the graph has them last, when a program with very many classes has left no room.
  G1MerapiPublishLoader loader_cl(this);
  loader_cl.do_cld(ClassLoaderData::the_null_class_loader_data());
  _published = 0;
  _rejected = 0;
  ClassLoaderDataGraph::cld_do(&loader_cl);
}

void G1MerapiShapes::publish() {
  if (_unloaded) {
    _unloaded = false;
    G1MerapiLibrary::shape_clear(_window);
  } else if (_complete &&
             _instance_classes == ClassLoaderDataGraph::num_instance_classes() &&
             _array_classes == ClassLoaderDataGraph::num_array_classes()) {
    return;
  }
  publish_all();
  log_debug(gc, merapi)("Published %u shapes (%u found no room)", _published, _rejected);
  if (_rejected > 0 && !_told_no_room) {
    _told_no_room = true;
    log_warning(gc, merapi)("The shape table has no room for %u of %u classes: the host scans their objects",
                            _rejected, _published + _rejected);
  }
}
