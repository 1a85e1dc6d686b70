// SPDX-License-Identifier: Apache-2.0
// MemoryPorts of one AXI port: reader 0 and writer 0 to watch, which use a tag again only when its answer came, all
// other clients doing whatever they like; a memory that answers what was asked in any order, with errors; grants of
// which the areas are the host's choice and do not change.
//
// Proved: every answer belongs to a request, each request of reader 0 gets one answer under its own tag and that answer
// is the memory's or zero; what is offered to the memory stays offered until it is taken; no read leaves the window, no
// write leaves the granted lines; address and data of a write leave in pairs; an error of the memory is a
// fault in the cycle in which its answer is given, without its data; and when it is quiet, nothing of the watched clients
// is outstanding.
module memory_ports (
    input clock,
    input ask,
    input [3:0] ask_tag,
    input [2:0] ask_line,
    input put,
    input [3:0] put_tag,
    input [2:0] put_line,
    input ar_ready,
    input r_valid,
    input [7:0] r_id,
    input [1:0] r_resp,
    input aw_ready,
    input w_ready,
    input b_valid,
    input [6:0] b_id,
    input [1:0] b_resp,
    input suppress,
    input block,
    input [35:0] first,
    input [36:0] last,
    input granted
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  // A window of seven lines; one grant within it, chosen at the start.
  wire [36:0] lines = 37'd7;
  reg [35:0] grant_first;
  reg [36:0] grant_end;
  reg grant;
  always @(posedge clock)
    if (reset) begin
      grant_first <= first;
      grant_end   <= last;
      grant       <= granted;
    end

  reg [15:0] asked = 0, stored = 0;
  reg [255:0] reading = 0;
  reg [127:0] writing = 0;
  reg asking = 0, putting = 0;
  reg [3:0] asks, puts;
  reg [2:0] asks_line, puts_line;
  wire ask_ready, put_ready, answer, done, ar_valid, aw_valid, w_valid, fault, quiet;
  wire [3:0] answer_tag, done_tag, code;
  wire [511:0] data, w_data;
  wire [7:0] ar_id;
  wire [6:0] aw_id;
  wire [41:0] ar_addr, aw_addr;
  wire r_fire = r_valid && reading[r_id] && started;
  wire b_fire = b_valid && writing[b_id] && started;
  // The memory takes one request of an id at a time.
  wire ar_take = ar_ready && !reading[ar_id];
  wire aw_take = aw_ready && !writing[aw_id];

  MemoryPorts ports (
      .clock(clock),
      .reset(reset),
      .io_reads_0_request_ready(ask_ready),
      .io_reads_0_request_valid(asking),
      .io_reads_0_request_bits_line({33'b0, asks_line}),
      .io_reads_0_request_bits_tag(asks),
      .io_reads_0_response_valid(answer),
      .io_reads_0_response_bits_tag(answer_tag),
      .io_reads_0_response_bits_data(data),
      .io_writes_0_request_ready(put_ready),
      .io_writes_0_request_valid(putting),
      .io_writes_0_request_bits_line({33'b0, puts_line}),
      .io_writes_0_request_bits_tag(puts),
      .io_writes_0_done_valid(done),
      .io_writes_0_done_bits(done_tag),
      .io_axi_0_ar_ready(ar_take),
      .io_axi_0_ar_valid(ar_valid),
      .io_axi_0_ar_bits_id(ar_id),
      .io_axi_0_ar_bits_addr(ar_addr),
      .io_axi_0_r_valid(r_fire),
      .io_axi_0_r_bits_id(r_id),
      .io_axi_0_r_bits_data({503'b0, 1'b1, r_id}),
      .io_axi_0_r_bits_resp(r_resp),
      .io_axi_0_aw_ready(aw_take),
      .io_axi_0_aw_valid(aw_valid),
      .io_axi_0_aw_bits_id(aw_id),
      .io_axi_0_aw_bits_addr(aw_addr),
      .io_axi_0_w_ready(w_ready),
      .io_axi_0_w_valid(w_valid),
      .io_axi_0_w_bits_data(w_data),
      .io_axi_0_b_valid(b_fire),
      .io_axi_0_b_bits_id(b_id),
      .io_axi_0_b_bits_resp(b_resp),
      .io_windowLines(lines),
      .io_grants_0_valid(1'b0),
      .io_grants_1_valid(grant),
      .io_grants_1_first(grant_first),
      .io_grants_1_end(grant_end),
      .io_grants_2_valid(1'b0),
      .io_grants_3_valid(1'b0),
      .io_grants_4_valid(1'b0),
      .io_grants_5_valid(1'b0),
      .io_suppress(suppress),
      .io_block(block),
      .io_fault_valid(fault),
      .io_fault_bits_code(code),
      .io_quiet(quiet)
  );

  reg ar_held = 0, aw_held = 0, w_held = 0;
  reg [7:0] ar_id_was;
  reg [6:0] aw_id_was;
  reg [41:0] ar_was, aw_was;
  reg [511:0] w_was;
  reg wrong = 0, wrong_data = 0;  // an error came in the cycle before
  reg [1:0] ahead = 0;  // writes whose address left, less those whose data left; from one
  wire [35:0] aw_line = aw_addr[41:6];
  wire aw_fire = aw_valid && aw_take;
  wire w_fire = w_valid && w_ready;
  always @(posedge clock)
    if (started) begin
      if (!asking || ask_ready) begin
        asking <= ask && !asked[ask_tag] && !(asking && asks == ask_tag);
        asks <= ask_tag;
        asks_line <= ask_line;
      end
      if (asking && ask_ready) asked[asks] <= 1;
      if (answer) asked[answer_tag] <= 0;
      if (!putting || put_ready) begin
        putting <= put && !stored[put_tag] && !(putting && puts == put_tag);
        puts <= put_tag;
        puts_line <= put_line;
      end
      if (putting && put_ready) stored[puts] <= 1;
      if (done) stored[done_tag] <= 0;
      if (r_fire) reading[r_id] <= 0;
      if (ar_valid && ar_take) reading[ar_id] <= 1;
      if (b_fire) writing[b_id] <= 0;
      if (aw_fire) writing[aw_id] <= 1;
      ahead <= ahead + aw_fire - w_fire;

      ar_held <= ar_valid && !ar_take;
      ar_id_was <= ar_id;
      ar_was <= ar_addr;
      aw_held <= aw_valid && !aw_take;
      aw_id_was <= aw_id;
      aw_was <= aw_addr;
      w_held <= w_valid && !w_ready;
      w_was <= w_data;
      wrong_data <= r_fire && r_resp[1];
      wrong <= (r_fire && r_resp[1]) || (b_fire && b_resp[1]);

      if (answer) asked_for : assert (asked[answer_tag] && (data == 0 || data == {503'b0, 1'b1, 4'b0, answer_tag}));
      if (done) stored_before : assert (stored[done_tag]);
      if (ar_valid) reads_inside : assert (ar_addr[41:6] < 7);
      if (aw_valid) writes_granted : assert (aw_line < 7 && grant && aw_line >= grant_first && {1'b0, aw_line} < grant_end);
      if (ar_held) ar_stays : assert (ar_valid && ar_addr == ar_was && ar_id == ar_id_was);
      if (aw_held) aw_stays : assert (aw_valid && aw_addr == aw_was && aw_id == aw_id_was);
      if (w_held) w_stays : assert (w_valid && w_data == w_was);
      if (wrong) told : assert (fault);
      if (answer && wrong_data) nothing_of_it : assert (data == 0);
      pairs : assert (ahead != 2);
      if (quiet) nothing_left : assert (asked == 0 && stored == 0);
    end

`ifdef GOAL
  // Reached: reader 0 got the memory's answer, and a write was denied: the guard's fault.
  reg came = 0, guard = 0;
  always @(posedge clock) begin
    if (answer && data != 0) came <= 1;
    if (fault && code == 11) guard <= 1;
    goal : assert (!(came && guard && started));
  end
`endif
endmodule
