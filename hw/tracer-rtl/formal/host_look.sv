// SPDX-License-Identifier: Apache-2.0
// HostLook with a host that writes anything into indexes of six bits and generations of two, and completions of which there are ever more (until a handshake).
//
// Proved: from a handshake on, as long as the host's lines are looked at as ours (attached, the same generation), what
// the host is believed to have read never goes back and is never more than was written, whatever stands in its line; an
// index of which that is not true is reported and changes nothing; a look asks for one line after the other and ends;
// each request goes out with nothing outstanding.
module host_look (
    input clock,
    input start,
    input restart,
    input [1:0] more,
    input attached,
    input [1:0] ours,
    input read_ready,
    input answer,
    input [5:0] index,
    input [1:0] theirs
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  reg [5:0] produced = 0;
  reg [63:0] earlier = 0;
  wire [63:0] generation = {62'b0, ours};
  wire [511:0] data = {320'b0, 58'b0, index, 64'b0, 62'b0, theirs};
  reg waits = 0, first = 1, restarted = 0, busy = 0, mine = 0;
  wire done, overrun, read_valid;
  wire [63:0] taken;
  wire [35:0] read_line;
  wire answered = answer && waits && started;
  // A handshake happens between two looks.
  wire again = restart && !busy && started;

  HostLook look (
      .clock(clock),
      .reset(reset),
      .io_start(start && started),
      .io_done(done),
      .io_restart(again),
      .io_produced({58'b0, produced}),
      .io_attached(attached),
      .io_generation(generation),
      .io_overrun_valid(overrun),
      .io_taken(taken),
      .io_read_request_ready(read_ready),
      .io_read_request_valid(read_valid),
      .io_read_request_bits_line(read_line),
      .io_read_response_valid(answered),
      .io_read_response_bits_data(data)
  );

  always @(posedge clock)
    if (started) begin
      produced <= again ? 6'd0 : produced < 60 ? produced + more : produced;
      earlier <= taken;
      busy <= busy ? !done : start;
      restarted <= again;
      if (read_valid && read_ready) waits <= 1;
      if (again) mine <= 1;
      else if (answered && first && !(attached && data[63:0] == generation)) mine <= 0;
      if (answered) begin
        waits <= 0;
        first <= !first;
      end
      if (mine) bounded : assert (taken <= produced);
      if (mine && !restarted) forward : assert (taken >= earlier);
      if (overrun) wrong : assert (answered && first && attached && data[63:0] == generation && (data[191:128] < taken || data[191:128] > produced));
      if (read_valid) alone : assert (!waits && read_line == (first ? 8 : 9));
      if (done) both : assert (answered && !first);
      if (!busy) rest : assert (!waits && first);
    end

`ifdef GOAL
  // Reached: an index that was taken, then one that went back.
  reg good = 0;
  always @(posedge clock) begin
    if (taken == 3) good <= 1;
    goal : assert (!(good && overrun));
  end
`endif
endmodule
