# SPDX-License-Identifier: Apache-2.0
# What builds around Verilator's output share; included after project().
#   MERAPI_VERILATOR  Verilator's folder (its include/)
# Sets MERAPI_ROOT, the language, and the build type where none was chosen (MERAPI_BUILD_TYPE, or RelWithDebInfo).
if(NOT CMAKE_BUILD_TYPE)
  if(NOT MERAPI_BUILD_TYPE)
    set(MERAPI_BUILD_TYPE RelWithDebInfo)
  endif()
  set(CMAKE_BUILD_TYPE ${MERAPI_BUILD_TYPE} CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
get_filename_component(MERAPI_ROOT "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
find_package(Threads REQUIRED)

# Headers of Verilator and of the folders (its output) for a target; they are not held to our warnings.
function(merapi_include_verilated target)
  target_include_directories(${target} SYSTEM PRIVATE ${ARGN} "${MERAPI_VERILATOR}/include"
                                                      "${MERAPI_VERILATOR}/include/vltstd")
endfunction()

# A library of the regression: the tracers of MERAPI_PRESET_INCLUDES, MERAPI_PRESET_MAKERS and MERAPI_CONTEXTS_MAKERS.
#   NAME  merapi_rtl, when it is not given     FOLDERS  Verilator's output     ARCHIVES  its libraries (clang's want atomic)
function(merapi_add_rtl)
  cmake_parse_arguments(RTL "" "NAME" "FOLDERS;ARCHIVES" ${ARGN})
  if(NOT RTL_NAME)
    set(RTL_NAME merapi_rtl)
  endif()
  set(rtl "${MERAPI_ROOT}/sim/rtl")
  configure_file("${rtl}/presets.cc.in" ${RTL_NAME}_presets.cc @ONLY)
  add_library(${RTL_NAME} STATIC "${rtl}/rtl_engine.cc" "${rtl}/timing.cc" "${CMAKE_CURRENT_BINARY_DIR}/${RTL_NAME}_presets.cc")
  merapi_include_verilated(${RTL_NAME} ${RTL_FOLDERS})
  target_link_libraries(${RTL_NAME} PUBLIC merapi_sim_options merapi_static ${RTL_ARCHIVES} Threads::Threads atomic)
endfunction()
