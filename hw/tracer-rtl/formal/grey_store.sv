// SPDX-License-Identifier: Apache-2.0
// GreyStore with a spill area of two lines, a lane that holds at most twelve objects, and one object to watch.
//
// Proved: the watched object, pushed once by anybody, comes out at most once and with its count flag; when the store
// says that it is empty, nothing is in it; and nothing is pushed onto a full queue (GreyStore's own assertions), given
// back objects included. All other objects are alike: the store never looks at an object.
module grey_store (
    input clock,
    input give,
    input give_watched,
    input give_count,
    input mark,
    input mark_watched,
    input sweep,
    input sweep_watched,
    input take,
    input retire,
    input hold,
    input read_ready,
    input write_ready,
    input answer,
    input done
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  wire mark_ready, sweep_ready, take_valid, take_count, empty, read_valid, write_valid;
  wire [36:0] take_obj;
  wire [35:0] read_line, write_line;
  wire [511:0] write_data;

  reg [3:0] held = 0;  // objects of the lane
  reg pushed = 0, count = 0, taken = 0;
  wire giving = give && held != 0 && started;
  wire taking = take && held < 12 && started;
  wire gives = giving && give_watched && !pushed;
  wire marks = mark && started && mark_watched && !pushed && !gives;
  wire sweeps = sweep && started && sweep_watched && !pushed && !gives && !marks;

  // Two lines of thirteen greys; of each, the watched object and its flag.
  reg [12:0] spill_watched[0:1];
  reg [12:0] spill_count[0:1];
  reg reading = 0, writing = 0, at = 0;
  reg [12:0] new_watched, new_count;
  wire answered = answer && reading;
  wire ended = done && writing;
  wire [511:0] answer_data;
  wire [12:0] write_watched, write_count;
  genvar i;
  generate
    for (i = 0; i < 13; i = i + 1) begin : entry
      assign write_count[i] = write_data[38*i];
      assign write_watched[i] = write_data[38*i+1];
      assign answer_data[38*i+:38] = {36'b0, spill_watched[at][i], spill_count[at][i]};
    end
  endgenerate
  assign answer_data[511:494] = 0;

  GreyStore store (
      .clock(clock),
      .reset(reset),
      .io_spillFirst(36'd0),
      .io_spillLines(36'd2),
      .io_giveBack_valid(giving),
      .io_giveBack_bits_obj({36'b0, gives}),
      .io_giveBack_bits_count(give_count),
      .io_mark_ready(mark_ready),
      .io_mark_valid(mark && started),
      .io_mark_bits_obj({36'b0, marks}),
      .io_sweep_ready(sweep_ready),
      .io_sweep_valid(sweep && started),
      .io_sweep_bits_obj({36'b0, sweeps}),
      .io_take_ready(taking),
      .io_take_valid(take_valid),
      .io_take_bits_obj(take_obj),
      .io_take_bits_count(take_count),
      .io_regionLog2(6'd16),
      .io_hold(hold),
      .io_empty(empty),
      .io_read_request_ready(read_ready),
      .io_read_request_valid(read_valid),
      .io_read_request_bits_line(read_line),
      .io_read_response_valid(answered),
      .io_read_response_bits_data(answer_data),
      .io_write_request_ready(write_ready),
      .io_write_request_valid(write_valid),
      .io_write_request_bits_line(write_line),
      .io_write_request_bits_data(write_data),
      .io_write_done_valid(ended)
  );

  wire takes = take_valid && taking;
  always @(posedge clock)
    if (started) begin
      held <= held + takes - giving - (retire && held != 0 && !giving);
      if (gives || (marks && mark_ready) || (sweeps && sweep_ready)) begin
        pushed <= 1;
        count  <= gives ? give_count : marks;
      end
      if (takes && take_obj[0]) taken <= 1;
      if (read_valid && read_ready) begin
        reading <= 1;
        at <= read_line[0];
      end
      if (answered) reading <= 0;
      if (write_valid && write_ready) begin
        writing <= 1;
        at <= write_line[0];
        new_watched <= write_watched;
        new_count <= write_count;
      end
      if (ended) begin
        writing <= 0;
        spill_watched[at] <= new_watched;
        spill_count[at] <= new_count;
      end
      if (takes && take_obj[0]) once : assert (pushed && !taken && take_count == count || !pushed && (gives || marks || sweeps));
      if (empty) none_lost : assert (!pushed || taken);
      if (read_valid) in_area : assert (read_line < 2);
      if (write_valid) in_area_too : assert (write_line < 2);
    end

`ifdef GOAL
  // Reached: the watched object went through the spill area and came out.
  reg spilled = 0;
  always @(posedge clock) begin
    if (answered && spill_watched[at] != 0) spilled <= 1;
    goal : assert (!(spilled && taken));
  end
`endif
endmodule

`ifdef GOAL
// One course of events, so that the goal, which is deep, is found at once: marks fill the queue, then the lane takes all.
module grey_store_goal (
    input clock
);
  reg [9:0] cycle = 0;
  always @(posedge clock) cycle <= cycle + 1;
  grey_store course (
      .clock(clock),
      .give(1'b0),
      .give_watched(1'b0),
      .give_count(1'b0),
      .mark(cycle < 90),
      .mark_watched(cycle == 10),
      .sweep(1'b0),
      .sweep_watched(1'b0),
      .take(cycle >= 110),
      .retire(1'b1),
      .hold(1'b0),
      .read_ready(1'b1),
      .write_ready(1'b1),
      .answer(1'b1),
      .done(1'b1)
  );
endmodule
`endif
