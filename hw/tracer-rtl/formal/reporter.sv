// SPDX-License-Identifier: Apache-2.0
// Reporter of one lane with a completion ring of four entries, a host that reads them when it likes, and one object and
// one klass word to watch among others that are alike.
//
// Proved: no entry is written over one that the host has not read, each goes to its own slot with its own sequence
// number, one at a time; `written` counts entries whose write was answered and made, which alone are published, and
// the next entry takes the place of one that was not; as long as none failed, the watched object is reported
// once, in order behind it the control unit's entry; when nothing waits, nothing is held; and in a pause nothing is
// written.
module reporter (
    input clock,
    input seen,
    input seen_watched,
    input defer,
    input defer_watched,
    input defer_unsized,
    input entry,
    input flush,
    input write_ready,
    input answer,
    input failed,
    input pause,
    input read
);
  reg started = 0;
  always @(posedge clock) started <= 1;
  wire reset = !started;

  reg [5:0] consumed = 0;
  reg writes = 0, counts = 0, spoilt = 0;
  reg object_in = 0, object_out = 0, klass_in = 0, klass_out = 0;
  reg unsized = 0;
  reg entry_in = 0, entry_out = 0;
  wire seen_ready, defer_ready, entry_ready, write_valid, empty, full;
  wire [63:0] written, produced;
  wire [35:0] line;
  wire [511:0] data;
  wire done = answer && writes && started;

  // As the control unit: a pause is decided when nothing is left, the control unit's own entry included, or the ring is
  // full, and holds two cycles later; meanwhile nothing comes, and the host was not looked at nor another pause ended just
  // before.
  reg deciding = 0, hold = 0, looked = 0;
  wire decides = pause && (empty || full) && !hold && !deciding && !looked && started;
  wire still = decides || deciding;
  always @(posedge clock) begin
    deciding <= decides;
    looked   <= read || hold;
    hold     <= deciding || (hold && pause);
  end
  wire gives = started && !still;
  wire gives_object = defer && defer_watched && !object_in && gives;
  wire gives_klass = seen && seen_watched && gives;
  // One entry of the control unit, after the watched object was given.
  wire gives_entry = entry && object_in && !entry_in && gives;

  Reporter reporter (
      .clock(clock),
      .reset(reset),
      .io_config_heapBase(64'd0),
      .io_cycle(32'd7),
      .io_ring(36'd16),
      .io_ringLog2(5'd2),
      .io_consumed({58'b0, consumed}),
      .io_seen_0_ready(seen_ready),
      .io_seen_0_valid(seen && gives),
      .io_seen_0_bits({62'd1, gives_klass, 1'b0}),
      .io_deferred_0_ready(defer_ready),
      .io_deferred_0_valid(defer && gives),
      .io_deferred_0_bits_obj({36'd1, gives_object}),
      .io_deferred_0_bits_unsized(defer_unsized),
      .io_control_ready(entry_ready),
      .io_control_valid(gives_entry),
      .io_control_bits_kind(8'd1),
      .io_control_bits_arg(32'd5),
      .io_control_bits_payload_0(64'd0),
      .io_control_bits_payload_1(64'd0),
      .io_control_bits_payload_2(64'd0),
      .io_control_bits_cycle(32'd9),
      .io_flush(flush),
      .io_hold(hold),
      .io_restart(1'b0),
      .io_drop(1'b0),
      .io_forget(1'b0),
      .io_failed(failed),
      .io_written(written),
      .io_produced(produced),
      .io_empty(empty),
      .io_full(full),
      .io_write_request_ready(write_ready),
      .io_write_request_valid(write_valid),
      .io_write_request_bits_line(line),
      .io_write_request_bits_data(data),
      .io_write_done_valid(done)
  );

  reg counts_before = 0, failed_before = 0, failed_then = 0;
  reg [63:0] written_before = 0;
  always @(posedge clock) begin
    counts_before  <= counts && started;
    failed_before  <= failed;
    failed_then    <= failed_before;
    written_before <= written;
  end
  wire fire = write_valid && write_ready && started;
  wire [2:0] count = data[18:16];
  wire [5:0] has_object, has_klass;
  genvar i;
  generate
    for (i = 0; i < 6; i = i + 1) begin : word
      assign has_object[i] = data[7:0] == 2 && i < count && data[64+64*i+3];
      assign has_klass[i]  = data[7:0] == 3 && i < count && data[64+64*i+1];
    end
  endgenerate
  wire one_object = has_object != 0;
  wire one_klass = has_klass != 0;

  always @(posedge clock)
    if (started) begin
      if (gives_object && defer_ready) begin
        object_in <= 1;
        unsized   <= defer_unsized;
      end
      if (gives_klass && seen_ready) klass_in <= 1;
      if (gives_entry && entry_ready) entry_in <= 1;
      if (fire) begin
        writes <= 1;
        if (one_object) object_out <= 1;
        if (one_klass) klass_out <= 1;
        if (data[7:0] == 1) entry_out <= 1;
      end
      if (done) writes <= 0;
      counts <= done;
      if (done && failed) spoilt <= 1;
      if (read && !still && consumed < written[5:0]) consumed <= consumed + 1;

      if (hold) paused : assert (!write_valid);
      if (write_valid) begin
        room : assert (produced - {58'b0, consumed} < 4 && !writes && !counts);
        slot : assert (line == 16 + {34'b0, produced[1:0]});
        numbered : assert (data[479:448] == produced[31:0] + 1);
        cycle : assert (data[511:480] == (data[7:0] == 1 ? 9 : 7));
        some : assert (data[7:0] == 1 || (count >= 1 && count <= 6));
        object_once : assert (spoilt || !one_object || (object_in && !object_out && (has_object & (has_object - 1)) == 0 && data[8] == unsized));
        klass_known : assert (!one_klass || klass_in);
        entry_behind : assert (spoilt || data[7:0] != 1 || (entry_in && !entry_out && object_out));
      end
      counted : assert (written <= produced && produced - written == {63'b0, writes || counts});
      if (counts_before) counted_if_good : assert (written == written_before + {63'b0, !failed_then});
      if (empty) none_lost : assert (object_in == object_out && klass_in == klass_out && entry_in == entry_out);
    end

`ifdef GOAL
  // Reached: the watched object left in a full ring's next entry.
  reg was_full = 0;
  always @(posedge clock) begin
    if (full) was_full <= 1;
    goal : assert (!(was_full && !spoilt && object_out && klass_out && entry_out && empty));
  end
`endif
endmodule
