// SPDX-License-Identifier: Apache-2.0
// MarkBank of a parameter set for proofs over a bitmap of four lines, pairs of which share a place of its cache, with three
// bits in use each (two of one word, one of another); one mark bit to watch, any one; a memory that answers in any order
// and at any time; a store that takes a grey or does not, or is full; background and ordered write-back; lines dropped
// when everything is clean, whereupon the bitmap may be another (a pause, a new cycle).
//
// Proved: every reference to the watched object ends once, as newly marked, found marked, dropped or refused, and none is
// left when the bank is quiet; it is newly marked at most once and not when its bit was set (so it is counted once), found
// marked only when it was, dropped or refused only when it was not and the store is full; the host's references alone get
// an answer, each one; a line in write-back is neither fetched nor written again, a tag is used by one request; when all
// is written back memory holds what was there and what was marked, nothing else; and MarkBank's own assertions.
//
// FAIR: a memory that takes a request at the second time and answers by the cycle after the next, a store that takes
// a grey or is full at the second time. Then also: while a reference is under way or waits to be let in, or a write-back that the
// host ordered is not over, a reference ends, a line is asked for, written or comes in every `STILL` cycles. So the bank
// does not stop, and does not go round with itself.
// Numbers of its lines: with several banks those of the first (Bank.of).
`ifdef LANES_4
`define LINE(x) {x, x}
`else
`define LINE(x) {2'b0, x}
`endif

module mark_bank #(
    parameter FAIR = 0,
    parameter STILL = 16
) (
    input clock,
    input give,
    input [3:0] ref_of,
    input ref_host,
    input ref_flag,
    input [3:0] watch_of,
    input [11:0] contents,
    input grey_ready_in,
    input grey_full_in,
    input fill_ready_in,
    input fill_answer_in,
    input fill_tag_in,
    input write_ready_in,
    input write_done_in,
    input [2:0] write_tag_in,
    input clean,
    input clean_early,
    input invalidate_in
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  // Bits of a line by their number here; the third is of another word.
  function [36:0] object(input [3:0] x);
    object = {24'b0, `LINE(x[3:2]), 2'b0, x[1], 5'b0, x[1] ? 1'b0 : x[0]};
  endfunction
  function [511:0] line_of(input [2:0] bits);
    line_of = {447'b0, bits[2], 62'b0, bits[1:0]};
  endfunction
  function bit_of(input [11:0] all, input [3:0] x);
    bit_of = |(all & (12'b1 << (3 * x[3:2] + (x[1] ? 2 : x[0]))));
  endfunction

  reg  [ 3:0] watch;
  reg  [11:0] memory;
  reg was_set, marked;
  wire now_set = bit_of(memory, watch);

  wire in_ready, grey_valid, drop_valid, answer_valid, refused, fill_valid, write_valid, quiet, cleaned, sweeping, already;
  wire newly;
  wire [36:0] grey_obj;
  wire [35:0] fill_line, write_line;
  wire [3:0] fill_asks, write_asks;
  wire [511:0] write_data;
  wire in = give && started;

  // What the memory owes, and since when.
  reg [1:0] fills = 0;
  reg [1:0] fill_of[0:1];
  reg [1:0] fill_age[0:1];
  reg [7:0] writes = 0;
  reg [1:0] write_of[0:7];
  reg [2:0] write_bits[0:7];
  reg [1:0] write_age[0:7];
  reg [1:0] refusals = 0;
  reg waits = 0;

  // In the cycle after the next at the latest, when FAIR: one request is taken in a cycle, so one is late at a time.
  wire fill_late = FAIR && (fills[0] && |fill_age[0] || fills[1] && |fill_age[1]);
  wire fill_tag = fill_late ? fills[1] && |fill_age[1] : fill_tag_in;
  wire fill_answer = (fill_answer_in || fill_late) && fills[fill_tag] && started;
  reg [2:0] late_write;
  reg write_late;
  integer i;
  always @* begin
    late_write = 0;
    write_late = 0;
    for (i = 0; i < 8; i = i + 1)
    if (FAIR && writes[i] && |write_age[i]) begin
      late_write = i;
      write_late = 1;
    end
  end
  wire [2:0] write_tag = write_late ? late_write : write_tag_in;
  wire write_done = (write_done_in || write_late) && writes[write_tag] && started;
  wire fill_ready = fill_ready_in || FAIR && refusals[0];
  wire write_ready = write_ready_in || FAIR && refusals[1];
  // A store that neither takes a grey nor is full writes a line of its own.
  wire grey_full = grey_full_in || FAIR && !grey_ready_in && waits;
  wire grey_ready = grey_ready_in && !grey_full;
  wire invalidate = invalidate_in && cleaned && started;

  MarkBank bank (
      .clock(clock),
      .reset(reset),
      .io_powerUp(reset),
      .io_config_bitmap(36'd0),
      .io_config_alignmentLog2(4'd3),
      .io_in_ready(in_ready),
      .io_in_valid(in),
      .io_in_bits_bit(object(ref_of)),
      .io_in_bits_host(ref_host),
      .io_in_bits_flag(ref_flag),
      .io_grey_ready(grey_ready),
      .io_grey_valid(grey_valid),
      .io_grey_bits_obj(grey_obj),
      .io_greyFull(grey_full),
      .io_drop_valid(drop_valid),
      .io_answer_valid(answer_valid),
      .io_answer_bits(refused),
      .io_fill_request_ready(fill_ready),
      .io_fill_request_valid(fill_valid),
      .io_fill_request_bits_line(fill_line),
      .io_fill_request_bits_tag(fill_asks),
      .io_fill_response_valid(fill_answer),
      .io_fill_response_bits_tag({3'b0, fill_tag}),
      .io_fill_response_bits_data(line_of(memory[3*fill_of[fill_tag]+:3])),
      .io_writeBack_request_ready(write_ready),
      .io_writeBack_request_valid(write_valid),
      .io_writeBack_request_bits_line(write_line),
      .io_writeBack_request_bits_data(write_data),
      .io_writeBack_request_bits_tag(write_asks),
      .io_writeBack_done_valid(write_done),
      .io_writeBack_done_bits({1'b0, write_tag}),
      .io_clean(clean),
      .io_cleanEarly(clean_early),
      .io_invalidate(invalidate),
      .io_quiet(quiet),
      .io_cleaned(cleaned),
      .io_sweeping(sweeping),
      .io_marked(newly),
      .io_already(already)
  );

  // How references end; whose it is shows beside the grey whether one is offered or not.
  wire marks = grey_valid && grey_ready;
  wire turned_away = answer_valid && refused;
  wire ends = marks || already || drop_valid || turned_away;
  wire mine = grey_obj == object(watch);
  wire in_mine = in && in_ready && object(ref_of) == object(watch);
  reg [3:0] all_open = 0, mine_open = 0, host_open = 0;
  reg [4:0] still = 0;
  wire waiting = all_open != 0 || in && !in_ready && !sweeping || clean && !cleaned && !in;
  wire moves = ends || fill_valid && fill_ready || fill_answer || write_valid && write_ready || write_done;

  reg in_write, twice;
  always @* begin
    in_write = 0;
    twice = 0;
    for (i = 0; i < 8; i = i + 1) begin
      if (writes[i] && write_of[i] == fill_line[1:0]) in_write = 1;
      if (writes[i] && write_of[i] == write_line[1:0]) twice = 1;
    end
  end

  always @(posedge clock) begin
    if (reset) watch <= watch_of;
    if (reset || invalidate) begin
      memory  <= contents;
      was_set <= bit_of(contents, reset ? watch_of : watch);
      marked  <= 0;
    end
    if (started) begin
      all_open <= all_open + (in && in_ready) - ends;
      mine_open <= mine_open + in_mine - (ends && mine);
      host_open <= host_open + (in && in_ready && ref_host) - answer_valid;
      if (fill_valid) refusals[0] <= !fill_ready;
      if (write_valid) refusals[1] <= !write_ready;
      if (grey_valid) waits <= !grey_ready && !grey_full;
      for (i = 0; i < 2; i = i + 1) fill_age[i] <= fill_age[i] + !(&fill_age[i]);
      for (i = 0; i < 8; i = i + 1) write_age[i] <= write_age[i] + !(&write_age[i]);
      if (fill_valid && fill_ready) begin
        fills[fill_asks[0]] <= 1;
        fill_of[fill_asks[0]] <= fill_line[1:0];
        fill_age[fill_asks[0]] <= 0;
      end
      if (fill_answer) fills[fill_tag] <= 0;
      if (write_valid && write_ready) begin
        writes[write_asks[2:0]] <= 1;
        write_of[write_asks[2:0]] <= write_line[1:0];
        write_bits[write_asks[2:0]] <= {write_data[64], write_data[1:0]};
        write_age[write_asks[2:0]] <= 0;
      end
      if (write_done) begin
        writes[write_tag] <= 0;
        memory[3*write_of[write_tag]+:3] <= write_bits[write_tag];
      end
      if (marks && mine) marked <= 1;
      still <= waiting && !moves ? still + 1 : 0;

      one_end : assert (marks + already + drop_valid + turned_away <= 1 && newly == marks);
      began : assert (!ends || all_open != 0);
      began_too : assert (!(ends && mine) || mine_open != 0);
      if (quiet) none_left : assert (all_open == 0 && mine_open == 0 && host_open == 0);
      if (marks && mine) counted_once : assert (!marked && !was_set);
      if (already && mine) found_set : assert (marked || was_set);
      if (drop_valid || turned_away) only_full : assert (grey_full);
      if ((drop_valid || turned_away) && mine) only_unset : assert (!marked && !was_set);
      if (answer_valid) host_waits : assert (host_open != 0 && ends && !drop_valid);
      if (fill_valid)
        fill_apart : assert (!in_write && !fills[fill_asks[0]] && fill_asks < 2 && fill_line == `LINE(fill_line[1:0]) && !(fills[!fill_asks[0]] && fill_of[!fill_asks[0]] == fill_line[1:0]));
      if (write_valid) write_apart : assert (!twice && !writes[write_asks[2:0]] && write_asks < 8 && write_line == `LINE(write_line[1:0]));
      if (write_valid) nothing_else : assert ((write_data & ~line_of(3'b111)) == 0);
      if (cleaned) kept : assert (now_set == (was_set | marked));
      if (FAIR) goes_on : assert (still < STILL);
    end
  end

`ifdef GOAL
  // Reached: a line left for another and came again; the watched bit was marked and found marked, a reference was dropped
  // and one refused, and all was written back.
  reg evicted = 0, dropped = 0, refused_one = 0, found = 0;
  always @(posedge clock) begin
    if (write_done && !clean && !clean_early) evicted <= 1;
    if (drop_valid) dropped <= 1;
    if (turned_away) refused_one <= 1;
    if (already && mine && marked) found <= 1;
    goal : assert (!(evicted && dropped && refused_one && found && cleaned && marked));
  end
`endif
endmodule

module mark_bank_goes_on (
    input clock,
    input give,
    input [3:0] ref_of,
    input ref_host,
    input [11:0] contents,
    input grey_ready,
    input grey_full,
    input fill_ready,
    input fill_answer,
    input fill_tag,
    input write_ready,
    input write_done,
    input [2:0] write_tag,
    input stop
);
  // At some time the host wants all of it written back, and nothing comes any more.
  reg stopped = 0;
  always @(posedge clock) stopped <= stopped || stop;

  mark_bank #(
      .FAIR(1)
  ) fair (
      .clock(clock),
      .give(give && !stopped),
      .ref_of(ref_of),
      .ref_host(ref_host),
      .ref_flag(1'b0),
      .watch_of(4'b0),
      .contents(contents),
      .grey_ready_in(grey_ready),
      .grey_full_in(grey_full),
      .fill_ready_in(fill_ready),
      .fill_answer_in(fill_answer),
      .fill_tag_in(fill_tag),
      .write_ready_in(write_ready),
      .write_done_in(write_done),
      .write_tag_in(write_tag),
      .clean(stopped),
      .invalidate_in(1'b0)
  );
endmodule
