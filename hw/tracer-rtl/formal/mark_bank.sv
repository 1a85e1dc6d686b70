// SPDX-License-Identifier: Apache-2.0
// MarkBank over a bitmap of four lines (pairs of which share an index of its cache) with two bits each, and one mark bit to
// watch; a memory that answers in any order and at any time; a store that takes a grey or not. The sweep after power-up is
// reduced to its last step (proofs.json): memories start at zero here, and a tag of epoch 0 is nobody's.
//
// Proved: the watched bit becomes a grey at most once, and not when it was set before (so an object is counted once);
// when everything is written back, memory holds what was there and what became grey, nothing else (so no mark is lost
// and none invented); a line in write-back is neither fetched nor written again; and MarkBank's own assertions.
module mark_bank (
    input clock,
    input ref,
    input [2:0] ref_bit,
    input ref_host,
    input [2:0] watch_bit,
    input grey_ready,
    input grey_full,
    input fill_ready,
    input fill_answer,
    input [1:0] fill_tag,
    input write_ready,
    input write_done,
    input [2:0] write_tag,
    input clean,
    input invalidate
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  // Line: bits 5 and 0 of its number; bit: bit 0 within the line.
  function [36:0] object(input [2:0] x);
    object = {22'b0, x[2], 4'b0, x[1], 8'b0, x[0]};
  endfunction
  function [1:0] which(input [35:0] line);
    which = {line[5], line[0]};
  endfunction

  reg [2:0] watch;
  always @(posedge clock) if (reset) watch <= watch_bit;

  reg [1:0] memory[0:3];
  reg [3:0] fills = 0;
  reg [1:0] fill_of[0:3];
  reg [7:0] writes = 0;
  reg [1:0] write_of[0:7];
  reg [1:0] write_data[0:7];
  reg was_set, first = 1, greyed = 0;
  reg swept_late = 1;  // a cycle late: what sweeps depends on being dropped

  wire [1:0] watched_line = memory[watch[2:1]];
  wire now_set = watch[0] ? watched_line[1] : watched_line[0];
  wire ref_ready, grey_valid, fill_valid, write_valid, cleaned, sweeping;
  wire [36:0] grey_obj;
  wire [35:0] fill_line, write_line;
  wire [511:0] data;
  wire [3:0] fill_asks, write_asks;
  wire answered = fill_answer && fills[fill_tag] && started;
  wire done = write_done && writes[write_tag] && started;

  MarkBank bank (
      .clock(clock),
      .reset(reset),
      .io_config_bitmap(36'd0),
      .io_config_alignmentLog2(4'd3),
      .io_in_ready(ref_ready),
      .io_in_valid(ref && started),
      .io_in_bits_obj(object(ref_bit)),
      .io_in_bits_host(ref_host),
      .io_in_bits_flag(8'd0),
      .io_grey_ready(grey_ready),
      .io_grey_valid(grey_valid),
      .io_grey_bits_obj(grey_obj),
      .io_greyFull(grey_full),
      .io_fill_request_ready(fill_ready),
      .io_fill_request_valid(fill_valid),
      .io_fill_request_bits_line(fill_line),
      .io_fill_request_bits_tag(fill_asks),
      .io_fill_response_valid(answered),
      .io_fill_response_bits_tag({2'b0, fill_tag}),
      .io_fill_response_bits_data({510'b0, memory[fill_of[fill_tag]]}),
      .io_writeBack_request_ready(write_ready),
      .io_writeBack_request_valid(write_valid),
      .io_writeBack_request_bits_line(write_line),
      .io_writeBack_request_bits_data(data),
      .io_writeBack_request_bits_tag(write_asks),
      .io_writeBack_done_valid(done),
      .io_writeBack_done_bits({1'b0, write_tag}),
      .io_powerUp(reset),
      .io_clean(clean),
      .io_invalidate(invalidate && cleaned && !swept_late && !ref && started),
      .io_cleaned(cleaned),
      .io_sweeping(sweeping)
  );

  wire watched = {grey_obj[14], grey_obj[9], grey_obj[0]} == watch;
  wire in_write = |(writes & {write_of[7] == which(fill_line), write_of[6] == which(fill_line), write_of[5] == which(fill_line),
                              write_of[4] == which(fill_line), write_of[3] == which(fill_line), write_of[2] == which(fill_line),
                              write_of[1] == which(fill_line), write_of[0] == which(fill_line)});
  wire twice = |(writes & {write_of[7] == which(write_line), write_of[6] == which(write_line), write_of[5] == which(write_line),
                           write_of[4] == which(write_line), write_of[3] == which(write_line), write_of[2] == which(write_line),
                           write_of[1] == which(write_line), write_of[0] == which(write_line)});

  always @(posedge clock)
    if (started) begin
      first <= 0;
      swept_late <= sweeping;
      if (first) was_set <= now_set;
      if (fill_valid && fill_ready) begin
        fills[fill_asks[1:0]] <= 1;
        fill_of[fill_asks[1:0]] <= which(fill_line);
      end
      if (answered) fills[fill_tag] <= 0;
      if (write_valid && write_ready) begin
        writes[write_asks[2:0]] <= 1;
        write_of[write_asks[2:0]] <= which(write_line);
        write_data[write_asks[2:0]] <= data[1:0];
      end
      if (done) begin
        writes[write_tag] <= 0;
        memory[write_of[write_tag]] <= write_data[write_tag];
      end
      if (grey_valid && grey_ready && watched) begin
        greyed <= 1;
        counted_once : assert (!greyed && !first && !was_set);
      end
      if (fill_valid) fill_apart : assert (!in_write && !fills[fill_asks[1:0]]);
      if (write_valid) write_apart : assert (!twice && !writes[write_asks[2:0]]);
      if (cleaned && !first) kept : assert (now_set == (was_set | greyed));
    end

`ifdef GOAL
  // Reached: the watched bit became a grey and was written back.
  always @(posedge clock) goal : assert (!(started && !first && !was_set && greyed && cleaned));
`endif
endmodule
