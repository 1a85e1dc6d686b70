// SPDX-License-Identifier: Apache-2.0
// LineFetch with a memory that answers what was asked, in any order, and a lane with one request per slot.
//
// Proved: a request goes out under a tag that is free (so its answer has a place), every answer's place is there
// (LineFetch's own assertions), and a slot that asked gets one line, the one it asked for; and when it is quiet, every
// slot has got it. Two slots ask, for four lines, each two of which share an index of the cache.
module line_fetch (
    input clock,
    input req_valid,
    input req_slot_bit,
    input [1:0] req_line_bits,
    input prefetch_valid,
    input [1:0] prefetch_line_bits,
    input line_ready,
    input read_ready,
    input answer_valid,
    input [3:0] answer_tag,
    input invalidate
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  wire [2:0] req_slot = {2'b0, req_slot_bit};
  wire [2:0] req_line = {req_line_bits[1], 1'b0, req_line_bits[0]};
  wire [2:0] prefetch_line = {prefetch_line_bits[1], 1'b0, prefetch_line_bits[0]};

  // Bits 4, 1 and 0 of a line's number.
  function [35:0] number(input [2:0] which);
    number = {31'b0, which[2], 2'b0, which[1:0]};
  endfunction

  wire req_ready, line_valid, read_valid, quiet;
  wire [2:0] line_slot;
  wire [511:0] line_data;
  wire [35:0] read_line;
  wire [3:0] read_tag;
  wire [2:0] read_which = {read_line[4], read_line[1:0]};

  reg [11:0] asked = 0;  // tags that wait for the memory
  reg [2:0] which[0:15];
  reg [7:0] busy = 0;  // slots that wait for a line
  reg [2:0] wants[0:7];
  wire answer = answer_valid && answer_tag < 12 && asked[answer_tag];
  wire request = req_valid && !busy[req_slot] && started;

  // The lane's four places for lines, of which it takes one when it likes.
  reg [2:0] places = 0;
  wire place = places < 4;
  always @(posedge clock) places <= places + (line_valid && place) - (line_ready && places != 0);

  // Memories are clear at the beginning of a proof, so that nothing is to be swept.
  LineFetch fetch (
      .clock(clock),
      .reset(reset),
      .io_powerUp(1'b0),
      .io_rest(!request),
      .io_room(places <= 2),
      .io_request_ready(req_ready),
      .io_request_valid(request),
      .io_request_bits_slot(req_slot),
      .io_request_bits_line(number(req_line)),
      .io_prefetch_valid(prefetch_valid && started),
      .io_prefetch_bits(number(prefetch_line)),
      .io_line_ready(place),
      .io_line_valid(line_valid),
      .io_line_bits_slot(line_slot),
      .io_line_bits_data(line_data),
      .io_invalidate(invalidate && quiet && !request && !busy && !asked && started),
      .io_quiet(quiet),
      .io_read_request_ready(read_ready),
      .io_read_request_valid(read_valid),
      .io_read_request_bits_line(read_line),
      .io_read_request_bits_tag(read_tag),
      .io_read_response_valid(answer),
      .io_read_response_bits_tag(answer_tag),
      .io_read_response_bits_data({509'b0, which[answer_tag]})
  );

  always @(posedge clock)
    if (started) begin
      if (request && req_ready) begin
        busy[req_slot] <= 1;
        wants[req_slot] <= req_line;
      end
      if (line_valid && place) busy[line_slot] <= 0;
      if (answer) asked[answer_tag] <= 0;
      if (read_valid && read_ready) begin
        asked[read_tag] <= 1;
        which[read_tag] <= read_which;
      end
      if (read_valid) tag_free : assert (!asked[read_tag] && read_tag < 12);
      if (line_valid) line_wanted : assert (busy[line_slot] && line_data[2:0] == wants[line_slot]);
      if (quiet && !request) none_lost : assert (busy == 0);
    end

`ifdef GOAL
  // Reached: a second slot got a line that the first had asked for, from the cache, and a prefetched line came.
  reg [1:0] lines = 0;
  reg hit = 0, hinted = 0;
  always @(posedge clock) begin
    if (answer) lines <= lines + !(&lines);
    if (line_valid && place && lines == 1 && line_slot != 0) hit <= 1;
    if (answer && answer_tag >= 8) hinted <= 1;
    goal : assert (!(hit && hinted && busy == 0 && quiet));
  end
`endif
endmodule
