// SPDX-License-Identifier: Apache-2.0
// The tracer with one AXI port under the names of the specification, as models of AXI look for them, and the rules that
// those models do not check: what was offered stays offered unchanged, no two transactions of one id are outstanding,
// and every one is a single line.
//
// `wrong` breaks one rule on the way out (0: none), so that the checks can be seen to fail; without `checks` only the
// models' own are left.
module TracerAxi #(
    parameter int READ_ID  = 1,
    parameter int WRITE_ID = 1,
    parameter int ADDRESS  = 42
) (
    input logic clock,
    input logic reset,
    input logic [63:0] window_bytes,
    input logic [3:0] wrong,
    input logic checks,

    output logic [READ_ID-1:0] axi_arid,
    output logic [ADDRESS-1:0] axi_araddr,
    output logic [7:0] axi_arlen,
    output logic [2:0] axi_arsize,
    output logic [1:0] axi_arburst,
    output logic axi_arvalid,
    input logic axi_arready,
    input logic [READ_ID-1:0] axi_rid,
    input logic [511:0] axi_rdata,
    input logic [1:0] axi_rresp,
    input logic axi_rlast,
    input logic axi_rvalid,
    output logic axi_rready,
    output logic [WRITE_ID-1:0] axi_awid,
    output logic [ADDRESS-1:0] axi_awaddr,
    output logic [7:0] axi_awlen,
    output logic [2:0] axi_awsize,
    output logic [1:0] axi_awburst,
    output logic axi_awvalid,
    input logic axi_awready,
    output logic [511:0] axi_wdata,
    output logic [63:0] axi_wstrb,
    output logic axi_wlast,
    output logic axi_wvalid,
    input logic axi_wready,
    input logic [WRITE_ID-1:0] axi_bid,
    input logic [1:0] axi_bresp,
    input logic axi_bvalid,
    output logic axi_bready
);
  logic [READ_ID-1:0] true_arid;
  logic [ADDRESS-1:0] true_araddr;
  logic [7:0] true_arlen;
  logic true_arvalid;
  logic [WRITE_ID-1:0] true_awid;
  logic [ADDRESS-1:0] true_awaddr;
  logic true_awvalid;
  logic [511:0] true_wdata;
  logic true_wlast;

  Tracer tracer (
      .clock(clock),
      .reset(reset),
      .io_windowBytes(window_bytes),
      .io_who_kind(8'd2),
      .io_who_coherence(8'd1),
      .io_who_patienceUs(32'd0),
      .io_who_pid(64'd0),
      .io_who_name(192'd0),
      .io_axi_0_ar_valid(true_arvalid),
      .io_axi_0_ar_ready(axi_arready),
      .io_axi_0_ar_bits_id(true_arid),
      .io_axi_0_ar_bits_addr(true_araddr),
      .io_axi_0_ar_bits_len(true_arlen),
      .io_axi_0_ar_bits_size(axi_arsize),
      .io_axi_0_ar_bits_burst(axi_arburst),
      .io_axi_0_r_valid(axi_rvalid),
      .io_axi_0_r_ready(axi_rready),
      .io_axi_0_r_bits_id(axi_rid),
      .io_axi_0_r_bits_data(axi_rdata),
      .io_axi_0_r_bits_resp(axi_rresp),
      .io_axi_0_r_bits_last(axi_rlast),
      .io_axi_0_aw_valid(true_awvalid),
      .io_axi_0_aw_ready(axi_awready),
      .io_axi_0_aw_bits_id(true_awid),
      .io_axi_0_aw_bits_addr(true_awaddr),
      .io_axi_0_aw_bits_len(axi_awlen),
      .io_axi_0_aw_bits_size(axi_awsize),
      .io_axi_0_aw_bits_burst(axi_awburst),
      .io_axi_0_w_valid(axi_wvalid),
      .io_axi_0_w_ready(axi_wready),
      .io_axi_0_w_bits_data(true_wdata),
      .io_axi_0_w_bits_strb(axi_wstrb),
      .io_axi_0_w_bits_last(true_wlast),
      .io_axi_0_b_valid(axi_bvalid),
      .io_axi_0_b_ready(axi_bready),
      .io_axi_0_b_bits_id(axi_bid),
      .io_axi_0_b_bits_resp(axi_bresp),
      .io_status_sleeping(),
      .io_status_state(),
      .io_status_cycle(),
      .io_status_step(),
      .io_status_moving()
  );

  // Channels whose master the tracer is. One cycle late: what was offered and not taken.
  logic ar_held, aw_held, w_held;
  logic [READ_ID+ADDRESS+12:0] ar_was;
  logic [WRITE_ID+ADDRESS+12:0] aw_was;
  logic [576:0] w_was;
  wire [READ_ID+ADDRESS+12:0] ar_is = {axi_arid, axi_araddr, axi_arlen, axi_arsize, axi_arburst};
  wire [WRITE_ID+ADDRESS+12:0] aw_is = {axi_awid, axi_awaddr, axi_awlen, axi_awsize, axi_awburst};
  wire [576:0] w_is = {axi_wdata, axi_wstrb, axi_wlast};

  logic [2**READ_ID-1:0] reading;
  logic [2**WRITE_ID-1:0] writing;
  logic [READ_ID-1:0] last_arid;
  logic [WRITE_ID-1:0] last_awid;
  assign axi_arid    = wrong == 2 && reading[last_arid] ? last_arid : true_arid;
  assign axi_araddr  = wrong == 1 && ar_held ? true_araddr ^ 'h40 : true_araddr;
  assign axi_arlen   = wrong == 9 ? 8'd127 : true_arlen;
  assign axi_arvalid = true_arvalid && !(wrong == 3 && ar_held);
  assign axi_awid    = wrong == 5 && writing[last_awid] ? last_awid : true_awid;
  assign axi_awaddr  = wrong == 4 && aw_held ? true_awaddr ^ 'h40 : wrong == 7 ? true_awaddr | 'h8 : true_awaddr;
  assign axi_awvalid = true_awvalid && !(wrong == 6 && aw_held);
  assign axi_wdata   = wrong == 8 && w_held ? ~true_wdata : true_wdata;
  assign axi_wlast   = true_wlast && wrong != 10;

  always_ff @(posedge clock) begin
    ar_held <= !reset && axi_arvalid && !axi_arready;
    aw_held <= !reset && axi_awvalid && !axi_awready;
    w_held  <= !reset && axi_wvalid && !axi_wready;
    if (axi_arvalid && axi_arready) last_arid <= axi_arid;
    if (axi_awvalid && axi_awready) last_awid <= axi_awid;
    ar_was <= ar_is;
    aw_was  <= aw_is;
    w_was   <= w_is;
    if (reset) begin
      reading <= '0;
      writing <= '0;
    end else begin
      if (axi_rvalid && axi_rready && axi_rlast) reading[axi_rid] <= 1'b0;
      if (axi_arvalid && axi_arready) reading[axi_arid] <= 1'b1;
      if (axi_bvalid && axi_bready) writing[axi_bid] <= 1'b0;
      if (axi_awvalid && axi_awready) writing[axi_awid] <= 1'b1;
      if (checks) begin
        assert (!ar_held || axi_arvalid) else $fatal(1, "an offered read address was withdrawn");
        assert (!ar_held || ar_is == ar_was) else $fatal(1, "an offered read address changed");
        assert (!aw_held || axi_awvalid) else $fatal(1, "an offered write address was withdrawn");
        assert (!aw_held || aw_is == aw_was) else $fatal(1, "an offered write address changed");
        assert (!w_held || (axi_wvalid && w_is == w_was)) else $fatal(1, "offered write data changed");
        assert (!(axi_arvalid && axi_arready && reading[axi_arid])) else $fatal(1, "a read id is used twice");
        assert (!(axi_awvalid && axi_awready && writing[axi_awid])) else $fatal(1, "a write id is used twice");
        assert (!axi_arvalid || (axi_arlen == 0 && axi_arsize == 6 && axi_arburst == 1 && axi_araddr[5:0] == 0))
        else $fatal(1, "a read of something else than one line");
        assert (!axi_awvalid || (axi_awlen == 0 && axi_awsize == 6 && axi_awburst == 1 && axi_awaddr[5:0] == 0))
        else $fatal(1, "a write of something else than one line");
      end
    end
  end
endmodule
