// SPDX-License-Identifier: Apache-2.0
// Several lanes with variables and memories of every width that vector_instances.py knows, a bank beside each, and a module
// that it must leave alone. The same ports as Top.sv.
`ifndef LANES
`define LANES 4
`endif

module ScanLane(input clock, input reset, input io_valid, input [15:0] io_in, input [511:0] io_line, input [36:0] io_all,
                input [3:0] io_at, output [511:0] io_out, output reg [63:0] io_sum, output io_full);
  reg [586:0] rows[0:31];
  reg [84:0] thin[0:35];
  reg [63:0] quads[0:15];
  reg [511:0] lines[0:7];
  reg [11:0] halves[0:63];
  reg flags[0:127];
  reg [586:0] row;
  reg [511:0] held, piece;
  reg [84:0] three;
  reg [36:0] sum;
  reg [15:0] short;
  reg [31:0] word;
  reg [5:0] at;
  reg [2:0] state;
  wire [36:0] shifted = sum << io_in[5:0];
  wire [63:0] back = io_sum >> io_in[6:0];
  wire [31:0] turned = (word << at) | (word >> (6'd32 - at));
  wire both = io_valid && (short > io_in || io_all[3:0] == io_at);
  wire [84:0] asked = at < 6'd36 ? thin[at] : 85'd5;
  assign io_out = state[1] ? held ^ piece : held;
  assign io_full = &sum[4:0] | flags[io_in[6:0]];
  always @(posedge clock) begin
    row <= rows[io_in[4:0]];
    three <= asked;
    piece <= lines[io_in[2:0]];
    if (reset) begin
      sum <= 37'd1;
      short <= 16'd0;
      word <= {28'd12345, io_at};
      at <= 6'd0;
      state <= 3'd1;
      io_sum <= 64'd0;
    end else begin
      at <= at + {4'd0, io_in[1:0]};
      state <= {state[1:0], state[2] ^ both};
      word <= turned + {16'd0, io_in} * 32'h9e3779b1;
      short <= both ? io_in : short - 16'd3;
      sum <= state[0] ? shifted + {21'd0, short} : sum ^ {5'd0, word};
      if (both) begin
        held <= io_line;
        rows[at[4:0]] <= {io_sum[62:0], io_in[11:0], io_line};
        io_sum <= io_sum + quads[io_in[3:0]];
        if (at < 6'd36) thin[at] <= {sum, back[47:0]};
      end else if (io_valid) begin
        held <= row[511:0];
        io_sum <= {io_sum[62:0], row[586]} ^ {52'd0, halves[io_in[5:0]]};
        lines[at[2:0]] <= held ^ {16{word}};
        halves[word[5:0]] <= three[84:73] + sum[11:0];
      end else begin
        case (io_in[2:0])
          3'd0: io_sum <= {three[63:0]};
          3'd1: io_sum[31:0] <= back[31:0];
          3'd2: quads[at[3:0]] <= io_sum ^ {27'd0, io_all};
          3'd3: begin flags[word[6:0]] <= both | word[3]; sum[36:5] <= word; end
          3'd4: held[127:64] <= io_sum;
          default: if (io_full) short <= {short[7:0], at, 2'd1};
        endcase
      end
      if (io_in == 16'd77) flags[io_in[6:0]] <= 1'b0;
    end
  end
endmodule

module MarkBank(input clock, input reset, input io_valid, input [63:0] io_sum, input [511:0] io_line, output reg [31:0] io_count);
  wire [31:0] picked = io_line[{io_sum[3:0], 5'd0} +: 32]; // a word by a number that changes: left alone
  always @(posedge clock)
    if (reset) io_count <= 32'd0;
    else if (io_valid) io_count <= io_count + picked;
endmodule

module LiveMerge(input clock, input reset, input io_valid, input [63:0] io_sum, output reg [31:0] io_most);
  always @(posedge clock)
    if (reset) io_most <= 32'd0;
    else if (io_valid && io_most < io_sum[31:0]) io_most <= io_sum[31:0];
    else if (!io_valid) io_most <= io_most - 32'd1;
endmodule

module Top(input clock, input reset, input [3:0] valid, input [15:0] in, output [3:0] ready, output [15:0] out);
  wire [511:0] outs[0:`LANES-1];
  wire [63:0] sums[0:`LANES-1];
  wire [31:0] counts[0:`LANES-1], mosts[0:`LANES-1];
  wire full[0:`LANES-1];
  reg [511:0] line;
  reg [36:0] all;
  reg [15:0] mixed;
  always @(posedge clock) begin
    line <= reset ? 512'd1 : {line[495:0], in} ^ outs[`LANES-1];
    all <= reset ? 37'd0 : {all[20:0], in};
  end
  for (genvar i = 0; i < `LANES; i = i + 1) begin : lanes
    ScanLane lane(clock, reset, valid[i % 4] ^ full[(i + 1) % `LANES], in ^ i, line, all, i, outs[i], sums[i], full[i]);
    MarkBank bank(clock, reset, valid[i % 4], sums[i], outs[i], counts[i]);
    LiveMerge merge(clock, reset, full[i], sums[i], mosts[i]);
  end
  always @(*) begin
    mixed = 0;
    for (int i = 0; i < `LANES; i = i + 1)
      mixed = {mixed[14:0], mixed[15]} ^ sums[i][15:0] ^ sums[i][63:48] ^ counts[i][15:0] ^ mosts[i][15:0] ^ outs[i][511:496] ^ outs[i][15:0];
  end
  assign ready = {full[0], full[1], full[`LANES-1], |counts[0]};
  assign out = mixed;
endmodule
