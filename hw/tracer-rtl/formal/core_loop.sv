// SPDX-License-Identifier: Apache-2.0
// TracerCore of the parameter set `proof`, whole: store, lane, filters, bank, live table, limits, shapes. A heap of three
// objects with two references each, to any of them or null; two of their mark bits in one line, the third in a line for
// the same place of the cache or for another; any of them marked before; a host that gives two references to any of them, one after the
// other; a memory that takes one request of each reader and writer at a time and answers within two cycles, each as it
// likes. When nothing is left the host writes everything back.
//
// Proved: as long as the memory owes nothing and the core is not empty, something moves within `QUIET` cycles; all is over
// after `END` cycles; whenever the core says that it is empty and the host's references have ended, as many objects were
// marked as can be reached, and their words counted, once; at the end the bits of exactly those are set and each region's
// live words are theirs; no fault, no drop, nothing refused; and the blocks' own assertions.
module core_loop #(
    parameter QUIET = 40,
    parameter END = 280,
    parameter STEADY = 0
) (
    input clock,
    input apart,
    input [2:0] marked_before,
    input [1:0] grey_0,
    input [1:0] grey_1,
    input [17:0] references,
    input offer,
    input [7:0] answers,
    input [1:0] done,
    output reg finished
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  // Whether a reader's or writer's answer comes in the cycle after its request or one later.
  reg [9:0] steady;
  always @(posedge clock) if (reset) steady <= {done, answers};
  wire [7:0] fast = STEADY ? steady[7:0] : answers;
  wire [1:0] fast_done = STEADY ? steady[9:8] : done;

  localparam [31:0] KLASS = 32'h1000;

  reg far;
  always @(posedge clock) if (reset) far <= apart;

  // Objects 0 and 1 lie beside each other, object 2 in the next region; 3 is null.
  function [31:0] address(input [1:0] x);
    address = x == 0 ? 32'h100040 : x == 1 ? 32'h100080 : x == 2 ? (far ? 32'h111040 : 32'h110040) : 32'h0;
  endfunction
  reg [2:0] before_, memory_bits;
  reg [1:0] refs[0:5];
  reg [1:0] greys[0:1];
  integer i;
  always @(posedge clock)
    if (reset) begin
      before_  <= marked_before;
      greys[0] <= grey_0;
      greys[1] <= grey_1;
      for (i = 0; i < 6; i = i + 1) refs[i] <= references[3*i+:2];
    end

  function [511:0] heap_line(input [35:0] line);
    heap_line = line == 1 ? {352'b0, address(refs[1]), address(refs[0]), KLASS, 64'b0}
        : line == 2 ? {352'b0, address(refs[3]), address(refs[2]), KLASS, 64'b0}
        : line == (far ? 36'h441 : 36'h401) ? {352'b0, address(refs[5]), address(refs[4]), KLASS, 64'b0}
        : 512'b0;
  endfunction
  function [511:0] bitmap_line(input [35:0] line);
    bitmap_line = line == 0 ? {495'b0, memory_bits[1], 7'b0, memory_bits[0], 8'b0} : {503'b0, memory_bits[2], 8'b0};
  endfunction
  // Instance of three words with a block of two references at 12.
  wire [511:0] shape = {192'b0, 32'd2, 32'd12, 64'b0, 32'd1, 32'd3, 32'b0, 32'b1, 32'b0, KLASS};
  // 32-byte half of the line: blocks; before it: extension, count and size, header bytes, kind, key.
  wire [511:0] limits = {
    64'h80000, 64'h70000, 64'h60000, 64'h50000, 64'h40000, 64'h30000, 64'h20000, 64'h10000
  };
  reg [63:0] live[0:1];

  // One request of each reader and writer at a time.
  wire [7:0] asks;
  wire [287:0] ask_line;
  wire [31:0] ask_tag;
  reg [7:0] owes = 0, old = 0;
  reg [35:0] line[0:7];
  reg [3:0] tag[0:7];
  wire [7:0] came = started ? owes & (fast | old) : 0;
  wire [3:0] puts;
  wire [143:0] put_line;
  wire [511:0] put_bitmap, put_live;
  wire [15:0] put_tag;
  reg [3:0] putting = 0, put_old = 0;
  reg [3:0] done_tag[0:3];
  wire [3:0] ended = started ? putting & ({1'b0, fast_done[1], 1'b0, fast_done[0]} | put_old) : 0;

  reg [1:0] given = 0, over = 0;
  reg holds = 0, flushes = 0;
  initial finished = 0;
  wire grey_ready, empty, quiet, cleaned, live_flushed, sweeping, refused, fault, seen, deferred;
  wire [2:0] grey_ends;
  wire grey_valid = started && given < 2 && (offer || STEADY) && !sweeping;
  wire [40:0] newly, scanned, found, words, dropped, stale;

  TracerCore core (
      .clock(clock),
      .reset(reset),
      .io_powerUp(reset),
      .io_config_heapBase(64'h100000),
      .io_config_fromNarrow(-64'sh100000),
      .io_config_fromWide(-64'sh100000),
      .io_config_narrowShift(4'd0),
      .io_config_wideOops(1'b0),
      .io_config_wideKlass(1'b0),
      .io_config_alignmentLog2(4'd3),
      .io_config_regionLog2(6'd16),
      .io_config_mirrorOffset(32'd16),
      .io_config_heapBytes(41'h40000),
      .io_config_regionCount(25'd4),
      .io_config_flagShift(5'd1),
      .io_config_flagUnits(5'd1),
      .io_config_heap(36'd0),
      .io_config_limits(36'd0),
      .io_config_live(36'd0),
      .io_config_bitmap(36'd0),
      .io_config_shapes(36'd0),
      .io_config_shapesLog2(5'd0),
      .io_config_extension(36'd0),
      .io_config_extensionLines(36'd0),
      .io_config_spill(36'd0),
      .io_config_spillPerLane(36'd0),
      .io_orders_hold(holds),
      .io_orders_pausing(holds),
      .io_orders_drain(holds),
      .io_orders_flush(flushes),
      .io_orders_invalidate(1'b0),
      .io_orders_forget(1'b0),
      .io_orders_redefined(1'b0),
      .io_orders_settled(1'b0),
      .io_orders_dropShapes(1'b0),
      .io_orders_unflag_valid(1'b0),
      .io_orders_unflag_bits(1'b0),
      .io_status_quiet(quiet),
      .io_status_empty(empty),
      .io_status_cleaned(cleaned),
      .io_status_liveFlushed(live_flushed),
      .io_status_sweeping(sweeping),
      .io_slice_valid(1'b0),
      .io_slice_bits_first(25'd0),
      .io_slice_bits_count(25'd0),
      .io_clear_valid(1'b0),
      .io_clear_bits_first(36'd0),
      .io_clear_bits_count(36'd0),
      .io_grey_ready(grey_ready),
      .io_grey_valid(grey_valid),
      .io_grey_bits_value({32'b0, address(greys[given[0]])}),
      .io_greyEnds_count(grey_ends),
      .io_greyEnds_refused(refused),
      .io_seen_0_ready(1'b1),
      .io_seen_0_valid(seen),
      .io_deferred_0_ready(1'b1),
      .io_deferred_0_valid(deferred),
      .io_reads_0_request_ready(!owes[0]),
      .io_reads_0_request_valid(asks[0]),
      .io_reads_0_request_bits_line(ask_line[36*0+:36]),
      .io_reads_0_request_bits_tag(ask_tag[4*0+:4]),
      .io_reads_0_response_valid(came[0]),
      .io_reads_0_response_bits_tag(tag[0]),
      .io_reads_0_response_bits_data(heap_line(line[0])),
      .io_reads_1_request_ready(!owes[1]),
      .io_reads_1_request_valid(asks[1]),
      .io_reads_1_request_bits_line(ask_line[36*1+:36]),
      .io_reads_1_request_bits_tag(ask_tag[4*1+:4]),
      .io_reads_1_response_valid(came[1]),
      .io_reads_1_response_bits_tag(tag[1]),
      .io_reads_1_response_bits_data(bitmap_line(line[1])),
      .io_reads_2_request_ready(!owes[2]),
      .io_reads_2_request_valid(asks[2]),
      .io_reads_2_response_valid(came[2]),
      .io_reads_2_response_bits_data(512'b0),
      .io_reads_3_request_ready(!owes[3]),
      .io_reads_3_request_valid(asks[3]),
      .io_reads_3_request_bits_tag(ask_tag[4*3+:4]),
      .io_reads_3_response_valid(came[3]),
      .io_reads_3_response_bits_tag(tag[3]),
      .io_reads_3_response_bits_data(shape),
      .io_reads_4_request_ready(!owes[4]),
      .io_reads_4_request_valid(asks[4]),
      .io_reads_4_request_bits_line(ask_line[36*4+:36]),
      .io_reads_4_request_bits_tag(ask_tag[4*4+:4]),
      .io_reads_4_response_valid(came[4]),
      .io_reads_4_response_bits_tag(tag[4]),
      .io_reads_4_response_bits_data({384'b0, live[1], live[0]}),
      .io_reads_5_request_ready(!owes[5]),
      .io_reads_5_request_valid(asks[5]),
      .io_reads_5_response_valid(came[5]),
      .io_reads_5_response_bits_tag(4'd0),
      .io_reads_5_response_bits_data(512'b0),
      .io_reads_6_request_ready(!owes[6]),
      .io_reads_6_request_valid(asks[6]),
      .io_reads_6_response_valid(came[6]),
      .io_reads_6_response_bits_data(limits),
      .io_reads_7_request_ready(!owes[7]),
      .io_reads_7_request_valid(asks[7]),
      .io_reads_7_request_bits_line(ask_line[36*7+:36]),
      .io_reads_7_request_bits_tag(ask_tag[4*7+:4]),
      .io_reads_7_response_valid(came[7]),
      .io_reads_7_response_bits_tag(tag[7]),
      .io_reads_7_response_bits_data(heap_line(line[7])),
      .io_writes_0_request_ready(!putting[0]),
      .io_writes_0_request_valid(puts[0]),
      .io_writes_0_request_bits_line(put_line[36*0+:36]),
      .io_writes_0_request_bits_data(put_bitmap),
      .io_writes_0_request_bits_tag(put_tag[4*0+:4]),
      .io_writes_0_done_valid(ended[0]),
      .io_writes_0_done_bits(done_tag[0]),
      .io_writes_1_request_ready(1'b0),
      .io_writes_1_request_valid(puts[1]),
      .io_writes_1_done_valid(1'b0),
      .io_writes_2_request_ready(!putting[2]),
      .io_writes_2_request_valid(puts[2]),
      .io_writes_2_request_bits_line(put_line[36*2+:36]),
      .io_writes_2_request_bits_data(put_live),
      .io_writes_2_request_bits_tag(put_tag[4*2+:4]),
      .io_writes_2_done_valid(ended[2]),
      .io_writes_2_done_bits(done_tag[2]),
      .io_writes_3_request_ready(1'b0),
      .io_writes_3_request_valid(puts[3]),
      .io_writes_3_done_valid(1'b0),
      .io_writes_3_done_bits(4'd0),
      .io_fault_valid(fault),
      .io_events_add_3(newly),
      .io_events_add_4(scanned),
      .io_events_add_9(found),
      .io_events_add_11(words),
      .io_events_add_21(dropped),
      .io_events_add_24(stale)
  );

  // What can be reached through objects that were not marked before.
  function [2:0] bit_of(input [1:0] x);
    bit_of = x == 3 ? 3'b0 : 3'b1 << x;
  endfunction
  function [2:0] further(input [2:0] from);
    further = (from | (from[0] ? bit_of(refs[0]) | bit_of(refs[1]) : 3'b0) | (from[1] ? bit_of(refs[2]) | bit_of(refs[3]) : 3'b0) |
               (from[2] ? bit_of(refs[4]) | bit_of(refs[5]) : 3'b0)) & ~before_;
  endfunction
  wire [2:0] reached = further(further((bit_of(greys[0]) | bit_of(greys[1])) & ~before_));
  wire [1:0] size = reached[0] + reached[1] + reached[2];

  reg [2:0] marks = 0;
  reg [4:0] counted = 0;
  reg [9:0] cycle = 0;
  reg [4:0] still = 0;
  reg was_empty = 0;
  wire [7:0] taken = asks & ~owes;
  wire moves = |taken || |came || |(puts & ~putting) || |ended || grey_valid && grey_ready || |grey_ends || |newly || |scanned ||
      |found || |words || sweeping || seen;
  wire rests = empty && over == 2;

  always @(posedge clock) begin
    if (reset) memory_bits <= marked_before;
    if (reset) live[0] <= 0;
    if (reset) live[1] <= 0;
    if (started) begin
      owes <= (owes & ~came) | taken;
      old  <= (owes & ~came);
      putting <= (putting & ~ended) | (puts & ~putting & 4'b0101);
      put_old <= putting & ~ended;
      for (i = 0; i < 8; i = i + 1)
      if (taken[i]) begin
        line[i] <= ask_line[36*i+:36];
        tag[i] <= ask_tag[4*i+:4];
      end
      for (i = 0; i < 4; i = i + 1) if (puts[i] && !putting[i]) done_tag[i] <= put_tag[4*i+:4];
      if (puts[0] && !putting[0]) begin
        if (put_line[35:0] == 0) memory_bits[1:0] <= {put_bitmap[16], put_bitmap[8]};
        else memory_bits[2] <= put_bitmap[8];
      end
      if (puts[2] && !putting[2]) begin
        live[0] <= put_live[63:0];
        live[1] <= put_live[127:64];
      end
      given <= given + (grey_valid && grey_ready);
      over <= over + grey_ends;
      marks <= marks + newly[2:0];
      counted <= counted + words[4:0];
      cycle <= cycle + 1;
      still <= moves || |owes || |putting || (empty && over == given) ? 0 : still + 1;
      was_empty <= rests;
      if (rests && was_empty) holds <= 1;
      if (holds && quiet) flushes <= 1;
      if (flushes && cleaned && live_flushed && !finished) finished <= 1;

      goes_on : assert (still < QUIET);
      comes_to_an_end : assert (cycle < END || finished);
      if (rests && was_empty) all_marked : assert (marks == size);
      if (finished) all_counted : assert (counted == 3 * size);
      if (finished) bits : assert (memory_bits == (before_ | reached));
      if (finished) live_words : assert (live[0] == 3 * (reached[0] + reached[1]) && live[1] == 3 * reached[2]);
      never_more : assert (marks <= size && counted <= 3 * size);
      sound : assert (!fault && !dropped && !stale && !refused && !deferred && !puts[1] && !puts[3] && !asks[2] && !asks[5]);
      in_area : assert (!(puts[0] && put_line[35:0] != 0 && put_line[35:0] != (far ? 17 : 16)) && !(puts[2] && put_line[107:72] != 0));
      tags_apart : assert (over <= 2 && !(|grey_ends && given == 0));
    end
  end

`ifdef GOAL
  // Reached: all three objects, from one grey, none of them marked before, written back.
  always @(posedge clock) goal : assert (!(finished && reached == 7 && before_ == 0 && bit_of(greys[1]) == 0 && bit_of(greys[0]) == 1));
`endif
endmodule

// The same, each reader and writer as fast every time, and a host that offers at once: few enough ways that whole traces,
// to the last write, are within reach.
module core_loop_steady (
    input clock,
    input apart,
    input [2:0] marked_before,
    input [1:0] grey_0,
    input [1:0] grey_1,
    input [17:0] references,
    input [7:0] fast,
    input [1:0] fast_done,
    output finished
);
  core_loop #(
      .STEADY(1)
  ) loop (
      .clock(clock),
      .apart(apart),
      .marked_before(marked_before),
      .grey_0(grey_0),
      .grey_1(grey_1),
      .references(references),
      .offer(1'b1),
      .answers(fast),
      .done(fast_done),
      .finished(finished)
  );
endmodule

`ifdef GOAL
// One trace, so that the goal, which is deep, is found at once: object 0 leads to 1 and that to 2.
module core_loop_goal (
    input clock
);
  core_loop course (
      .clock(clock),
      .apart(1'b0),
      .marked_before(3'b0),
      .grey_0(2'd0),
      .grey_1(2'd3),
      .references({3'd3, 3'd0, 3'd2, 3'd3, 3'd1, 3'd0}),
      .offer(1'b1),
      .answers(8'hff),
      .done(2'b11)
  );
endmodule
`endif
