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
#include "classfile/classLoaderData.inline.hpp"
#include "classfile/classLoaderDataGraph.inline.hpp"
#include "classfile/javaClasses.inline.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiDecimal.hpp"
#include "gc/g1/merapi/g1MerapiImage.hpp"
#include "gc/g1/merapi/g1MerapiMark.hpp"
#include "gc/shared/gcId.hpp"
#include "jvm_io.h"
#include "logging/log.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/access.inline.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/abstract_vm_version.hpp"
#include "runtime/arguments.hpp"
#include "runtime/os.hpp"
#include "runtime/vmThread.hpp"
#include "utilities/growableArray.hpp"

uint G1MerapiImage::_cycles = 0;
uint G1MerapiImage::_gc_id = UINT_MAX;

// Room for the text that replaces the blanks when marking has ended.
static const size_t TextBytes = 1024;

// What the host would answer, in the layout of merapi_answers.
class G1MerapiAnswers : public StackObj {
  GrowableArrayCHeap<uint64_t, mtGC> _key;
  GrowableArrayCHeap<uint8_t, mtGC>  _is_klass;
  GrowableArrayCHeap<uint64_t, mtGC> _first;
  GrowableArrayCHeap<uint64_t, mtGC> _reference;

public:
  void begin(uint64_t key, bool is_klass) {
    _key.append(key);
    _is_klass.append(is_klass ? 1 : 0);
    _first.append(_reference.length());
  }
  void add(oop obj) {
    if (obj != NULL) {
      _reference.append((uint64_t)cast_from_oop<uintptr_t>(obj));
    }
  }
  void finish(merapi_answers* answers) {
    _first.append(_reference.length());
    answers->count = _key.length();
    answers->key = _key.adr_at(0);
    answers->is_klass = _is_klass.adr_at(0);
    answers->first = _first.adr_at(0);
    answers->reference = _reference.is_empty() ? NULL : _reference.adr_at(0);
  }
};

class G1MerapiAnswerFields : public BasicOopIterateClosure {
  G1MerapiAnswers* _answers;
public:
  G1MerapiAnswerFields(G1MerapiAnswers* answers) : _answers(answers) { }
  virtual ReferenceIterationMode reference_iteration_mode() { return DO_FIELDS_EXCEPT_REFERENT; }
  template <class T> void do_oop_work(T* p) { _answers->add(RawAccess<MO_RELAXED>::oop_load(p)); }
  virtual void do_oop(oop* p)       { do_oop_work(p); }
  virtual void do_oop(narrowOop* p) { do_oop_work(p); }
};

class G1MerapiAnswerObjects : public ObjectClosure {
  G1MerapiAnswers*     _answers;
  G1MerapiAnswerFields _fields;

  void add_loader_data(ClassLoaderData* cld) {
    if (cld != NULL) {
      cld->oops_do(&_fields, ClassLoaderData::_claim_none);
    }
  }

public:
  G1MerapiAnswerObjects(G1MerapiAnswers* answers) : _answers(answers), _fields(answers) { }

  virtual void do_object(oop obj) {
    Klass* klass = obj->klass();
    if (!klass->is_instance_klass()) {
      return;
    }
    InstanceKlass* ik = InstanceKlass::cast(klass);
    if (!ik->is_reference_instance_klass() && !ik->is_mirror_instance_klass() && !ik->is_class_loader_instance_klass()) {
      return;
    }
    HeapRegion* region = G1CollectedHeap::heap()->heap_region_containing(obj);
    if (region->obj_allocated_since_next_marking(obj)) {
      return;
    }
    _answers->begin((uint64_t)cast_from_oop<uintptr_t>(obj), false);
    obj->oop_iterate(&_fields);
    if (ik->is_mirror_instance_klass()) {
      Klass* mirrored = java_lang_Class::as_Klass(obj);
      if (mirrored != NULL) {
        ClassLoaderData* cld = mirrored->class_loader_data();
        if (cld != NULL && cld->has_class_mirror_holder()) {
          add_loader_data(cld);
        } else if (cld != NULL) {
          _answers->add(cld->holder_no_keepalive());
        }
      }
    } else if (ik->is_class_loader_instance_klass()) {
      add_loader_data(java_lang_ClassLoader::loader_data_acquire(obj));
    }
  }
};

// Regions with something below the limit only: others hold no object that a
// device could defer, and eden's TLABs cannot be walked now.
class G1MerapiAnswerRegions : public HeapRegionClosure {
  G1MerapiAnswerObjects _objects;
public:
  G1MerapiAnswerRegions(G1MerapiAnswers* answers) : _objects(answers) { }
  virtual bool do_heap_region(HeapRegion* region) {
    if (region->next_top_at_mark_start() > region->bottom() && !region->is_continues_humongous()) {
      region->object_iterate(&_objects);
    }
    return false;
  }
};

class G1MerapiAnswerKlass : public KlassClosure {
  G1MerapiAnswers* _answers;
public:
  G1MerapiAnswerKlass(G1MerapiAnswers* answers) : _answers(answers) { }
  virtual void do_klass(Klass* klass) {
    if (klass->is_typeArray_klass() || (klass->is_instance_klass() && !InstanceKlass::cast(klass)->is_loaded())) {
      return;
    }
    _answers->begin(G1MerapiShapes::klass_word(klass), true);
    _answers->add(klass->class_loader_data()->holder_no_keepalive());
  }
};

class G1MerapiAnswerLoader : public CLDClosure {
  G1MerapiAnswerKlass _klass_cl;
public:
  G1MerapiAnswerLoader(G1MerapiAnswers* answers) : _klass_cl(answers) { }
  virtual void do_cld(ClassLoaderData* cld) { cld->classes_do(&_klass_cl); }
};

class VM_G1MerapiSaveImage : public VM_Operation {
  bool _saved;

public:
  VM_G1MerapiSaveImage() : _saved(false) { }
  virtual VMOp_Type type() const { return VMOp_G1MerapiSaveImage; }
  bool saved() const { return _saved; }

  virtual void doit() {
    G1CollectedHeap* g1h = G1CollectedHeap::heap();
    merapi_error error;
    error.message[0] = '\0';
    if (!G1MerapiMark::instance()->prepare_image(&error)) {
      log_warning(gc, merapi)("Cannot save %s: %s", MerapiSaveImage, error.message);
      return;
    }
    G1MerapiAnswers answers;
    G1MerapiAnswerRegions regions(&answers);
    g1h->heap_region_iterate(&regions);
    G1MerapiAnswerLoader loaders(&answers);
    ClassLoaderDataGraph::cld_do(&loaders);
    merapi_answers table;
    answers.finish(&table);
    char text[TextBytes];
    memset(text, ' ', sizeof(text));
    text[0] = '{';
    text[1] = '}';
    text[sizeof(text) - 1] = '\0';
    int result = G1MerapiLibrary::image_save(G1MerapiWindow::instance()->handle(), MerapiSaveImage,
                                             (uint32_t)G1MerapiMark::instance()->next_bitmap(), &table, text, &error);
    if (result != 0) {
      log_warning(gc, merapi)("Cannot save %s: %s", MerapiSaveImage, error.message);
      return;
    }
    _saved = true;
    log_info(gc, merapi)("Saved the window to %s with " UINT64_FORMAT " answers", MerapiSaveImage, table.count);
  }
};

G1MerapiImage::G1MerapiImage(G1ConcurrentMark* cm) : _cm(cm), _saved(false), _start_nanos(0) {
  if (MerapiSaveImage == NULL || G1MerapiMark::instance() == NULL || _gc_id == GCId::current()) {
    return;  // a cycle whose remark had no room in the mark stack marks again: it is the same one
  }
  _gc_id = GCId::current();
  if (++_cycles != MerapiSaveImageCycle) {
    return;
  }
  VM_G1MerapiSaveImage op;
  VMThread::execute(&op);
  _saved = op.saved() && !cm->has_aborted();
  _start_nanos = os::javaTimeNanos();
}

G1MerapiImage::~G1MerapiImage() {
  if (!_saved) {
    return;
  }
  jlong nanos = os::javaTimeNanos() - _start_nanos;
  if (_cm->has_aborted()) {
    log_warning(gc, merapi)("The saved cycle was aborted: %s has no time to compare with", MerapiSaveImage);
    return;
  }
  char json[TextBytes];
  jio_snprintf(json, sizeof(json),
               "{\"g1_mark_ms\":%s,\"g1_threads\":%u,\"gc_id\":%u,\"vm\":\"%s\",\"processors\":%d,"
               "\"oop_bytes\":%d,\"klass_bytes\":%d}",
               G1MerapiDecimal::millis(nanos).text(), ConcGCThreads, GCId::current_or_undefined(),
               Abstract_VM_Version::vm_release(), os::processor_count(), heapOopSize, UseCompressedClassPointers ? 4 : 8);
  merapi_error error;
  if (G1MerapiLibrary::image_annotate(MerapiSaveImage, json, &error) != 0) {
    log_warning(gc, merapi)("Cannot write the time into %s: %s", MerapiSaveImage, error.message);
    return;
  }
  log_info(gc, merapi)("Marking the saved cycle on the CPU took %s ms with %u threads",
                       G1MerapiDecimal::millis(nanos).text(), ConcGCThreads);
}

void G1MerapiImage::report_if_unsaved() {
  if (MerapiSaveImage != NULL && G1MerapiMark::instance() != NULL && _cycles < MerapiSaveImageCycle) {
    log_warning(gc, merapi)("Cannot save %s: expected marking cycle %u (MerapiSaveImageCycle), the program ended after %u",
                            MerapiSaveImage, MerapiSaveImageCycle, _cycles);
  }
}
