// SPDX-License-Identifier: Apache-2.0
// SubmissionFetch with a ring of eight entries, a host that writes entries ahead of its index and reuses a slot only
// when its entry was handed out, and a memory that answers in any order. What stands in a slot is its entry's number.
//
// Proved: an entry is asked for only when the host's index covers it and its slot may not be written again yet; entries
// are handed out in order, each once, and are what the host wrote; after a restart (an abort: everything submitted is
// dropped) no entry from before it comes out.
module submission_fetch (
    input clock,
    input [3:0] publish,
    input entry_ready,
    input read_ready,
    input answer,
    input [1:0] answer_tag,
    input abort,
    input enabled
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  reg [5:0] submitted = 0, next = 0;
  reg [3:0] asked = 0;
  reg [5:0] entry_of[0:3];
  wire read_valid, entry_valid;
  wire [35:0] read_line;
  wire [3:0] read_tag;
  wire [511:0] entry;
  wire answered = answer && asked[answer_tag] && started;
  wire restart = abort && started;
  wire taken = entry_valid && entry_ready && started && !restart;

  SubmissionFetch fetch (
      .clock(clock),
      .reset(reset),
      .io_enabled(enabled),
      .io_ring(36'd16),
      .io_entries(36'd8),
      .io_submitted({58'b0, submitted}),
      .io_restart_valid(restart),
      .io_restart_bits({58'b0, submitted}),
      .io_entry_ready(taken || (entry_ready && !restart)),
      .io_entry_valid(entry_valid),
      .io_entry_bits(entry),
      .io_read_request_ready(read_ready),
      .io_read_request_valid(read_valid),
      .io_read_request_bits_line(read_line),
      .io_read_request_bits_tag(read_tag),
      .io_read_response_valid(answered),
      .io_read_response_bits_tag({2'b0, answer_tag}),
      .io_read_response_bits_data({506'b0, entry_of[answer_tag]})
  );

  // The entry that the slot holds: the one of the eight before `submitted` that lies in it.
  wire [2:0] slot = read_line[2:0];
  wire [5:0] newest = submitted - 6'd1;
  wire [2:0] back = newest[2:0] - slot;
  wire [5:0] holds = newest - {3'b0, back};
  wire fire = read_valid && read_ready && started;
  // Entries that are written and were not handed out.
  wire [5:0] left = submitted - next;

  always @(posedge clock)
    if (started) begin
      if ({2'b0, publish} <= 6'd8 - left && submitted + publish < 6'd60) submitted <= submitted + publish;
      if (fire) begin
        asked[read_tag[1:0]] <= 1;
        entry_of[read_tag[1:0]] <= holds;
      end
      if (answered) asked[answer_tag] <= 0;
      if (taken) next <= next + 1;
      if (restart) next <= submitted;
      if (read_valid) begin
        in_ring : assert (read_line >= 16 && read_line < 24);
        tag_free : assert (read_tag < 4 && !asked[read_tag[1:0]]);
        covered : assert (back < left);
      end
      if (taken) in_order : assert (entry[5:0] == next && left != 0);
    end

`ifdef GOAL
  // Reached: an answer from before an abort comes after it, then an entry of later is handed out.
  reg stale = 0, after = 0;
  always @(posedge clock) begin
    if (restart && asked != 0) stale <= 1;
    if (stale && taken) after <= 1;
    goal : assert (!(after && next > 10));
  end
`endif
endmodule
