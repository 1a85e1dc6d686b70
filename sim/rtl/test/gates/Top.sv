// SPDX-License-Identifier: Apache-2.0
// A bit of everything that Verilator writes in its own way: delayed registers, memories, wide words, a path from input to
// output, and parts that are at rest for long.
module Queue(input clock, reset, push, pop, input [71:0] in, output [71:0] out, output full, empty);
  reg [71:0] memory [0:7];
  reg [3:0] head, tail;
  assign full = head - tail == 4'd8;
  assign empty = head == tail;
  assign out = memory[tail[2:0]];
  always @(posedge clock)
    if (reset) begin
      head <= 4'd0;
      tail <= 4'd0;
    end else begin
      if (push && !full) begin
        memory[head[2:0]] <= in;
        head <= head + 4'd1;
      end
      if (pop && !empty) tail <= tail + 4'd1;
    end
endmodule

module Top(input clock, reset, input [3:0] valid, input [15:0] in, output [15:0] out, output ready);
  reg [511:0] line;
  reg [40:0] sum, earlier, least;
  reg [7:0] table_ [0:15];
  reg [2:0] state;
  reg [9:0] rare;
  reg seldom;
  reg [30:0] spin;
  reg [7:0] late [0:5];
  reg [11:0] slow0, slow1, slow2;
  reg [95:0] wide0, wide1;
  wire [71:0] first;
  wire full, empty;
  Queue queue(clock, reset, valid[0], valid[1] && state[0], {in, sum[39:0], in}, first, full, empty);
  wire [127:0] product = {line[63:0] ^ first[63:0], line[511:448] + {48'd0, in}};
  wire [15:0] folded = product[15:0] ^ product[47:32] ^ product[127:112];
  // Reads nothing but itself.
  always @(posedge clock) spin <= reset ? 31'd1 : {spin[29:0], spin[30] ^ spin[27]};
  // Each reads what the one before it held.
  always @(posedge clock) begin
    late[0] <= in[7:0] ^ spin[7:0];
    late[1] <= late[0] | {8{reset}};
    late[2] <= late[1] + 8'd3;
    late[3] <= late[2] ^ spin[15:8];
    late[4] <= late[3];
    late[5] <= late[4] & {4'd15, valid};
    slow0 <= seldom ? in[11:0] : slow0;
    slow1 <= slow0 + {8'd0, state, 1'b1};
    slow2 <= slow1 ^ slow2;
  end
  always @(posedge clock) begin
    seldom <= &rare[6:0];
    earlier <= sum;
    if (reset) begin
      line <= {16{32'h12345678}};
      sum <= 41'd0;
      least <= ~41'd0;
      state <= 3'd1;
      rare <= 10'd0;
    end else begin
      rare <= rare + 10'd1;
      if (valid[2]) sum <= sum + {25'd0, in};
      if (sum < earlier) least <= sum;
      if (seldom) begin
        line <= {line[479:0], line[511:480] ^ sum[31:0]};
        table_[in[3:0]] <= folded[7:0];
        state <= {state[1:0], state[2]};
      end else if (valid[3]) line[63:32] <= {in, folded};
      if (!empty && state[1]) table_[first[3:0]] <= first[11:4];
    end
  end
  // Wide ones that are worked out by calls, each from what the other held.
  always @(posedge clock)
    if (reset) begin
      wide0 <= 96'd1;
      wide1 <= 96'd2;
    end else if (seldom || valid == 4'd9) begin
      wide0 <= wide0 + wide1;
      wide1 <= wide1 - (wide0 ^ {6{in}});
    end
  assign ready = !full && (valid[3] ^ state[2]);
  assign out = (state[0] ? folded : least[15:0]) ^ {8'd0, table_[in[3:0]]} ^ {15'd0, valid[0] && empty}
    ^ {late[5], slow2[7:0]} ^ wide0[79:64] ^ wide1[95:80];
endmodule
