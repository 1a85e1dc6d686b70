// SPDX-License-Identifier: Apache-2.0
// TracerCore of a parameter set for proofs, whole: stores, lanes, filters, banks, live table, limits, shapes. A heap of
// three objects with two references each, to any of them or null; two of their mark bits in one line, the third in another;
// any of them marked before; a host that gives two references to any of them, one after the other; a memory that takes one
// request of each reader and writer at a time and answers within two cycles, each as it likes. When nothing is left the
// host writes everything back.
//
// The third mark bit's line is one of two. With one lane, one that has the first line's place of the cache and one that has
// another; with more, one that another bank marks and, `apart`, one of the same bank for the same place.
//
// One lane, or as many as LANES_4 or LANES_8 says.
//
// Proved: as long as the memory owes nothing and the core is not empty, something moves within `QUIET` cycles; all is over
// after `END` cycles; whenever the core says that it is empty and the host's references have ended, as many objects were
// marked as can be reached, and their words counted, once; at the end the bits of exactly those are set and each region's
// live words are theirs; no fault, no drop, nothing refused; and the blocks' own assertions.
`ifdef LANES_8
`define LANES 8
`elsif LANES_4
`define LANES 4
`else
`define LANES 1
`endif

// Ports of the core, by their numbers (CorePorts); those of a spill area have no tags, clearing has no data.
`define READER(n) \
      .io_reads_``n``_request_ready(!owes[n]), \
      .io_reads_``n``_request_valid(asks[n]), \
      .io_reads_``n``_request_bits_line(ask_line[36*n+:36]), \
      .io_reads_``n``_request_bits_tag(ask_tag[4*n+:4]), \
      .io_reads_``n``_response_valid(came[n]), \
      .io_reads_``n``_response_bits_tag(tag[n]), \
      .io_reads_``n``_response_bits_data(data[512*n+:512])
`define SPILL_READER(n) \
      .io_reads_``n``_request_ready(!owes[n]), \
      .io_reads_``n``_request_valid(asks[n]), \
      .io_reads_``n``_response_valid(came[n]), \
      .io_reads_``n``_response_bits_data(data[512*n+:512])
`define WRITER(n) \
      .io_writes_``n``_request_ready(!putting[n] && WRITTEN[n]), \
      .io_writes_``n``_request_valid(puts[n]), \
      .io_writes_``n``_request_bits_line(put_line[36*n+:36]), \
      .io_writes_``n``_request_bits_data(put_data[512*n+:512]), \
      .io_writes_``n``_request_bits_tag(put_tag[4*n+:4]), \
      .io_writes_``n``_done_valid(ended[n]), \
      .io_writes_``n``_done_bits(done_tag[n])
`define SPILL_WRITER(n) \
      .io_writes_``n``_request_ready(1'b0), \
      .io_writes_``n``_request_valid(puts[n]), \
      .io_writes_``n``_done_valid(1'b0)
`define CLEARER(n) \
      `SPILL_WRITER(n), \
      .io_writes_``n``_done_bits(4'd0)
`define LANE(n, lines, bitmap, spill, marks, spills) \
      .io_seen_``n``_ready(1'b1), \
      .io_seen_``n``_valid(seen[n]), \
      .io_deferred_``n``_ready(1'b1), \
      .io_deferred_``n``_valid(deferred[n]), \
      `READER(lines), \
      `READER(bitmap), \
      `SPILL_READER(spill), \
      `WRITER(marks), \
      `SPILL_WRITER(spills)
`define SHARED(shapes, live, sweep, limits, chaser, counts, clears) \
      `READER(shapes), \
      `READER(live), \
      `READER(sweep), \
      `READER(limits), \
      `READER(chaser), \
      `WRITER(counts), \
      `CLEARER(clears)

module core_loop #(
    parameter QUIET = 40,
    parameter END = 280,
    parameter STEADY = 0,
    parameter LANES = `LANES,
    parameter READERS = 3 * LANES + 5,
    parameter WRITERS = 2 * LANES + 2
) (
    input clock,
    input apart,
    input [2:0] marked_before,
    input [1:0] grey_0,
    input [1:0] grey_1,
    input [17:0] references,
    input offer,
    input [READERS-1:0] answers,
    input [LANES:0] done,
    output reg finished
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  // Whether a reader's or writer's answer comes in the cycle after its request or one later.
  reg [READERS+LANES:0] steady;
  always @(posedge clock) if (reset) steady <= {done, answers};
  wire [READERS-1:0] fast = STEADY ? steady[READERS-1:0] : answers;
  wire [LANES:0] fast_done = STEADY ? steady[READERS+:LANES+1] : done;

  localparam [31:0] KLASS = 32'h1000;
  // Lines of the bitmap for the third object's bit.
  localparam [35:0] NEAR = 16, FAR = LANES == 8 ? 27 : 17;

  reg far;
  always @(posedge clock) if (reset) far <= apart;
  wire [35:0] third = far ? FAR : NEAR;

  // Objects 0 and 1 lie beside each other, object 2 in the next region; 3 is null.
  function [31:0] address(input [1:0] x);
    address = x == 0 ? 32'h100040 : x == 1 ? 32'h100080 : x == 2 ? 32'h100040 + (third << 12) : 32'h0;
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
        : line == (third << 6 | 1) ? {352'b0, address(refs[5]), address(refs[4]), KLASS, 64'b0}
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

  // One request of each reader and writer at a time; of a spill area, of a sweep and for clearing there is none.
  localparam [READERS-1:0] READ = {5'b11011, {LANES{3'b011}}};
  localparam [WRITERS-1:0] WRITTEN = {2'b01, {LANES{2'b01}}};
  wire [READERS-1:0] asks;
  wire [36*READERS-1:0] ask_line;
  wire [4*READERS-1:0] ask_tag;
  reg [READERS-1:0] owes = 0, old = 0;
  reg [35:0] line[0:READERS-1];
  reg [3:0] tag[0:READERS-1];
  wire [READERS-1:0] came = started ? owes & (fast | old) : 0;
  wire [512*READERS-1:0] data;
  wire [WRITERS-1:0] puts;
  wire [36*WRITERS-1:0] put_line;
  wire [512*WRITERS-1:0] put_data;
  wire [4*WRITERS-1:0] put_tag;
  reg [WRITERS-1:0] putting = 0, put_old = 0;
  reg [3:0] done_tag[0:WRITERS-1];
  wire [WRITERS-1:0] done_now, ended = started ? putting & (done_now | put_old) : 0;
  wire [WRITERS-1:0] begun = puts & ~putting & WRITTEN;
  wire [35:0] marked_line[0:LANES-1];
  wire [LANES-1:0] misplaced;
  genvar g;
  generate
    for (g = 0; g < LANES; g = g + 1) begin : of_lane
      assign data[512*3*g+:3*512] = {512'b0, bitmap_line(line[3*g+1]), heap_line(line[3*g])};
      assign done_now[2*g+:2] = {1'b0, fast_done[g]};
      assign marked_line[g] = put_line[36*2*g+:36];
      assign misplaced[g] = begun[2*g] && (marked_line[g] != 0 && marked_line[g] != third || bank_of(marked_line[g]) != g);
    end
  endgenerate
  assign data[512*3*LANES+:5*512] = {heap_line(line[READERS-1]), limits, 512'b0, 384'b0, live[1], live[0], shape};
  assign done_now[2*LANES+:2] = {1'b0, fast_done[LANES]};

  // Bank of a line of the bitmap (Bank.of).
  function [2:0] bank_of(input [35:0] x);
    bank_of = LANES == 8 ? x[2:0] ^ x[5:3] : LANES == 4 ? x[1:0] ^ x[3:2] ^ x[5:4] : 0;
  endfunction

  reg [1:0] given = 0, over = 0;
  reg holds = 0, flushes = 0;
  initial finished = 0;
  wire grey_ready, empty, quiet, cleaned, live_flushed, sweeping, refused, fault;
  wire [LANES-1:0] seen, deferred;
  wire [$clog2(LANES + 4)-1:0] grey_ends;
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
`ifdef LANES_8
      `LANE(0, 0, 1, 2, 0, 1),
      `LANE(1, 3, 4, 5, 2, 3),
      `LANE(2, 6, 7, 8, 4, 5),
      `LANE(3, 9, 10, 11, 6, 7),
      `LANE(4, 12, 13, 14, 8, 9),
      `LANE(5, 15, 16, 17, 10, 11),
      `LANE(6, 18, 19, 20, 12, 13),
      `LANE(7, 21, 22, 23, 14, 15),
      `SHARED(24, 25, 26, 27, 28, 16, 17),
`elsif LANES_4
      `LANE(0, 0, 1, 2, 0, 1),
      `LANE(1, 3, 4, 5, 2, 3),
      `LANE(2, 6, 7, 8, 4, 5),
      `LANE(3, 9, 10, 11, 6, 7),
      `SHARED(12, 13, 14, 15, 16, 8, 9),
`else
      `LANE(0, 0, 1, 2, 0, 1),
      `SHARED(3, 4, 5, 6, 7, 2, 3),
`endif
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
  wire [READERS-1:0] taken = asks & ~owes;
  wire moves = |taken || |came || |begun || |ended || grey_valid && grey_ready || |grey_ends || |newly || |scanned ||
      |found || |words || sweeping || |seen;
  wire rests = empty && over == 2;

  always @(posedge clock) begin
    if (reset) memory_bits <= marked_before;
    if (reset) live[0] <= 0;
    if (reset) live[1] <= 0;
    if (started) begin
      owes <= (owes & ~came) | taken;
      old  <= (owes & ~came);
      putting <= (putting & ~ended) | begun;
      put_old <= putting & ~ended;
      for (i = 0; i < READERS; i = i + 1)
      if (taken[i]) begin
        line[i] <= ask_line[36*i+:36];
        tag[i] <= ask_tag[4*i+:4];
      end
      for (i = 0; i < WRITERS; i = i + 1) if (begun[i]) done_tag[i] <= put_tag[4*i+:4];
      for (i = 0; i < LANES; i = i + 1)
      if (begun[2*i]) begin
        if (marked_line[i] == 0) memory_bits[1:0] <= {put_data[512*2*i+16], put_data[512*2*i+8]};
        else memory_bits[2] <= put_data[512*2*i+8];
      end
      if (begun[2*LANES]) begin
        live[0] <= put_data[512*2*LANES+:64];
        live[1] <= put_data[512*2*LANES+64+:64];
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
      sound : assert (!fault && !dropped && !stale && !refused && !(|deferred) && !(puts & ~WRITTEN) && !(asks & ~READ));
      in_area : assert (!(|misplaced) && !(begun[2*LANES] && put_line[36*2*LANES+:36] != 0));
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
    input [3*`LANES+4:0] fast,
    input [`LANES:0] fast_done,
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
      .answers(-1),
      .done(-1)
  );
endmodule
`endif
