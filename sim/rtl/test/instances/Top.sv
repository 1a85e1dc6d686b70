// SPDX-License-Identifier: Apache-2.0
// Four lanes in a ring and four banks, under the tracer's names: what instances.vlt keeps apart, small enough to be compiled
// in seconds.
module Fifo(input clock, input reset, input put, input [15:0] in, input take, output some, output room, output [15:0] out);
  reg [15:0] ram[0:3];
  reg [2:0] enqAt, deqAt;
  assign some = enqAt != deqAt;
  assign room = (enqAt ^ 3'd4) != deqAt;
  assign out = ram[deqAt[1:0]];
  always @(posedge clock) begin
    if (reset) begin
      enqAt <= 3'd0;
      deqAt <= 3'd0;
    end else begin
      if (put & room) enqAt <= enqAt + 3'd1;
      if (take & some) deqAt <= deqAt + 3'd1;
    end
    if (put & room) ram[enqAt[1:0]] <= in;
  end
endmodule

module ScanLane(input clock, input reset, input io_valid, input [15:0] io_in, output io_ready, input io_nextReady,
                output io_outValid, output [15:0] io_out, output [15:0] io_sum);
  reg [15:0] sum, held;
  reg [3:0] state;
  wire someA, roomA, someB, roomB, someC, roomC;
  wire [15:0] outA, outB, outC;
  Fifo a(clock, reset, io_valid, io_in, roomB, someA, roomA, outA);
  Fifo b(clock, reset, someA, outA + sum, roomC & state[0], someB, roomB, outB);
  Fifo c(clock, reset, someB & state[0], outB ^ held, io_nextReady, someC, roomC, outC);
  assign io_ready = roomA;
  assign io_outValid = someC;
  assign io_out = outC;
  assign io_sum = sum;
  always @(posedge clock) begin
    if (reset) begin
      sum <= 16'd0;
      held <= 16'd0;
      state <= 4'd1;
    end else begin
      if (someC & io_nextReady) sum <= sum + outC;
      if (someA & roomB) held <= outA;
      state <= {state[2:0], state[3] ^ state[1] ^ someB};
    end
  end
endmodule

module MarkBank(input clock, input reset, input io_valid, input [15:0] io_in, output [15:0] io_count);
  reg [15:0] count, last;
  assign io_count = count;
  always @(posedge clock) begin
    if (reset) begin
      count <= 16'd0;
      last <= 16'd0;
    end else if (io_valid) begin
      last <= io_in;
      count <= count + {15'd0, last != io_in};
    end
  end
endmodule

module Top(input clock, input reset, input [3:0] valid, input [15:0] in, output [3:0] ready, output [15:0] out);
  wire [3:0] outValid, nextReady;
  wire [15:0] outs[0:3];
  wire [15:0] sums[0:3];
  wire [15:0] counts[0:3];
  wire [3:0] roomAt;
  for (genvar i = 0; i < 4; i = i + 1) begin : lanes
    wire fromLast = outValid[(i + 3) % 4] & outs[(i + 3) % 4][0];
    ScanLane lane(clock, reset, valid[i] | fromLast, valid[i] ? in ^ i : outs[(i + 3) % 4], roomAt[i],
                  ~outs[i][0] | (roomAt[(i + 1) % 4] & ~valid[(i + 1) % 4]), outValid[i], outs[i], sums[i]);
    MarkBank bank(clock, reset, outValid[i], outs[i], counts[i]);
  end
  assign ready = roomAt;
  assign out = (sums[0] ^ (sums[1] << 1)) + (sums[2] ^ (sums[3] << 3)) + counts[0] + (counts[1] << 2) + (counts[2] << 5) + (counts[3] << 7);
endmodule
