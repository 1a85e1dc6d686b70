# SPDX-License-Identifier: Apache-2.0
# DRAMsim3 as a static library, and the memory configurations that the simulations use.

# Its statistics are counters found by name, several look-ups per clock, and most of its time; nobody reads them here.
# They are left out of a copy of the sources, and a loop that copied every queue goes by reference. What decides about
# time is untouched.
function(merapi_add_dramsim3 from)
  set(copy "${CMAKE_CURRENT_BINARY_DIR}/dramsim3")
  set(sources "")
  file(GLOB files "${from}/src/*.cc" "${from}/src/*.h")
  foreach(file ${files})
    get_filename_component(name "${file}" NAME)
    configure_file("${file}" "${copy}/${name}" COPYONLY)
  endforeach()
  foreach(unit controller command_queue dram_system)
    # A list would lose the semicolons of the text.
    file(READ "${from}/src/${unit}.cc" text)
    string(REGEX REPLACE "simple_stats_\\.(Increment|IncrementVec|AddValue)\\([^;]*\\);" "{}" text "${text}")
    string(REPLACE "for (const auto q : queues_)" "for (const auto& q : queues_)" text "${text}")
    string(REPLACE "if (clk_ % config_.epoch_period == 0) {\n        PrintEpochStats();\n    }" "" text "${text}")
    file(WRITE "${copy}/${unit}.cc.new" "${text}")
    configure_file("${copy}/${unit}.cc.new" "${copy}/${unit}.cc" COPYONLY)
  endforeach()
  # As its own build lists them.
  foreach(unit bankstate channel_state command_queue common configuration controller dram_system hmc refresh
               simple_stats timing memory_system)
    list(APPEND sources "${copy}/${unit}.cc")
  endforeach()
  add_library(dramsim3 STATIC ${sources})
  target_include_directories(dramsim3 SYSTEM PUBLIC "${copy}" "${from}/ext/headers" "${from}/ext/fmt/include")
  target_compile_definitions(dramsim3 PUBLIC FMT_HEADER_ONLY=1)
  target_compile_options(dramsim3 PRIVATE -w -O3 -march=native)
  set_target_properties(dramsim3 PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 17)
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
