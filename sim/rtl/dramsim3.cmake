# SPDX-License-Identifier: Apache-2.0
# DRAMsim3 as a static library, and the memory configurations that the simulations use.

# Its statistics are counters found by name, several look-ups per clock, and most of its time; nobody reads them here. They
# are left out of a copy of the sources, and so is what dramsim3.patch says. What decides about time is untouched.
# With PRISTINE the library is of the sources as they are, statistics and all, for comparison.
function(merapi_add_dramsim3 target from)
  cmake_parse_arguments(DRAMSIM3 "PRISTINE" "" "" ${ARGN})
  set(copy "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  set(patched "${CMAKE_CURRENT_BINARY_DIR}/${target}.new")
  set(patch "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/dramsim3.patch")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${patch}")
  file(REMOVE_RECURSE "${patched}")
  file(MAKE_DIRECTORY "${patched}")
  file(GLOB files "${from}/src/*.cc" "${from}/src/*.h")
  file(COPY ${files} DESTINATION "${patched}")
  if(NOT DRAMSIM3_PRISTINE)
    execute_process(COMMAND patch -p1 --batch --quiet --no-backup-if-mismatch -F0 -i "${patch}"
                    WORKING_DIRECTORY "${patched}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status STREQUAL "0")
      message(FATAL_ERROR "expected DRAMsim3's sources in ${from} to take ${patch}, found:\n${output}")
    endif()
    foreach(unit controller command_queue dram_system)
      # A list would lose the semicolons of the text.
      file(READ "${patched}/${unit}.cc" text)
      string(REGEX REPLACE "simple_stats_\\.(Increment|IncrementVec|AddValue)\\([^;]*\\);" "{}" text "${text}")
      string(REPLACE "for (const auto q : queues_)" "for (const auto& q : queues_)" text "${text}")
      string(REPLACE "if (clk_ % config_.epoch_period == 0) {\n        PrintEpochStats();\n    }" "" text "${text}")
      file(WRITE "${patched}/${unit}.cc" "${text}")
    endforeach()
  endif()
  # Written where they differ: what did not change is not compiled again.
  foreach(file ${files})
    get_filename_component(name "${file}" NAME)
    configure_file("${patched}/${name}" "${copy}/${name}" COPYONLY)
  endforeach()
  set(sources "")
  # As its own build lists them.
  foreach(unit bankstate channel_state command_queue common configuration controller dram_system hmc refresh
               simple_stats timing memory_system)
    list(APPEND sources "${copy}/${unit}.cc")
  endforeach()
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} SYSTEM PUBLIC "${copy}" "${from}/ext/headers" "${from}/ext/fmt/include")
  target_compile_definitions(${target} PUBLIC FMT_HEADER_ONLY=1)
  target_compile_options(${target} PRIVATE -w -O3 -march=native)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 17 UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE 0) # inlined across its files
endfunction()

# One channel each, for one port of the tracer. The lowest address bits choose the bank group, as memory controllers do:
# with columns there (DRAMsim3's own order), lines in sequence meet tCCD_L and reach two thirds of the bus.
function(merapi_memory_configurations from to)
  file(MAKE_DIRECTORY "${to}")
  foreach(pair "ddr4-2400:DDR4_8Gb_x8_2400" "hbm2:HBM2_8Gb_x128")
    string(REPLACE ":" ";" pair "${pair}")
    list(GET pair 0 name)
    list(GET pair 1 base)
    file(READ "${from}/configs/${base}.ini" text)
    string(REGEX REPLACE "address_mapping = [a-z]+" "address_mapping = rorabacobgch" text "${text}")
    string(REGEX REPLACE "channels = [0-9]+" "channels = 1" text "${text}")
    string(REGEX REPLACE "output_level = [0-9]+" "output_level = 0" text "${text}")
    string(PREPEND text "; Made from DRAMsim3's ${base}.ini by sim/rtl/dramsim3.cmake.\n")
    file(WRITE "${to}/${name}.ini" "${text}")
  endforeach()
endfunction()
