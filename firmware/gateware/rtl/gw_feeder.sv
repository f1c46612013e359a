// Brings frames from the ring to an engine.
//
// Enters: `plan` of a frame to be coded; the ring's memory answers `read_at` a clock later.
// Leaves: m_axis, the frame as the engine wants it, `m_axis_tuser` with every beat; `started` for a clock when a plan was taken.
// Latency: six clocks. A beat a clock, from frame to frame too.
module gw_feeder #(
    parameter bit CUT = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    /* verilator lint_off UNUSEDSIGNAL */  // plans are handed on whole
    input  gw_nic_pkg::plan_t plan,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic         plan_valid,
    output logic         plan_ready,
    output logic [gw_nic_pkg::RING_BITS-1:0] read_at,
    input  logic [255:0] read_data,
    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic [47:0]  m_axis_tuser
);
  // What goes with a frame behind the reading.
  typedef struct packed {
    logic        splice;
    logic [7:0]  hole;
    logic [63:0] put;
    logic [8:0]  beats;
    logic [5:0]  last_bytes;
    logic [47:0] layout;
  } work_t;

  logic [13:0] out_len;
  work_t work_in, queued, work;
  logic work_room, queued_valid, queued_ready, work_valid, work_next;
  always_comb begin
    if (!plan.splice) out_len = plan.in_len;
    else if (CUT) out_len = plan.in_len - 14'd8;
    else out_len = plan.in_len + 14'd8;
    work_in.splice = plan.splice;
    work_in.hole = plan.payload_at;
    work_in.put = plan.segment;
    work_in.beats = gw_nic_pkg::beats_of(out_len);
    work_in.last_bytes = out_len[4:0] == 5'd0 ? 6'd32 : {1'b0, out_len[4:0]};
    work_in.layout = plan.layout;
  end

  // Reading: a plan waits here while its beats are asked for.
  logic busy, ask, asked, asked_last, final_ask;
  logic [gw_nic_pkg::RING_BITS-1:0] at;
  logic [8:0] left;
  logic [3:0] room;
  logic beat_valid, beat_ready, beat_last, kept_valid, kept_ready;
  logic [255:0] beat_data;
  logic [256:0] kept;
  logic unused_ready;
  logic [2:0] unused_work_room;
  assign read_at = at;
  assign ask = busy && room > {3'b0, asked};
  assign final_ask = ask && left == 9'd1;
  assign plan_ready = (!busy || final_ask) && work_room;

  always_ff @(posedge clk) begin
    if (ask) begin
      at <= at + 1'b1;
      left <= left - 9'd1;
    end
    asked_last <= final_ask;
    if (plan_valid && plan_ready) begin
      at <= plan.start;
      left <= gw_nic_pkg::beats_of(plan.in_len);
    end
    if (rst) begin
      busy <= 1'b0;
      asked <= 1'b0;
    end else begin
      asked <= ask;
      if (plan_valid && plan_ready) busy <= 1'b1;
      else if (final_ask) busy <= 1'b0;
    end
  end

  gw_stream_fifo #(.W(257), .BITS(3)) beats (
      .clk, .rst, .in_data({asked_last, read_data}), .in_valid(asked), .in_ready(unused_ready), .room,
      .out_data(kept), .out_valid(kept_valid), .out_ready(kept_ready));
  gw_stream_fifo #(.W(136), .BITS(2)) works (
      .clk, .rst, .in_data(work_in), .in_valid(plan_valid && plan_ready), .in_ready(work_room), .room(unused_work_room),
      .out_data(queued), .out_valid(queued_valid), .out_ready(queued_ready));
  // Out of the memories into registers, in step: what the splice does with them takes a clock of its own.
  gw_slice #(.WIDTH(257)) beat_slice (
      .clk, .rst, .s_axis(kept), .s_axis_tvalid(kept_valid), .s_axis_tready(kept_ready),
      .m_axis({beat_last, beat_data}), .m_axis_tvalid(beat_valid), .m_axis_tready(beat_ready));
  gw_slice #(.WIDTH(136)) work_slice (
      .clk, .rst, .s_axis(queued), .s_axis_tvalid(queued_valid), .s_axis_tready(queued_ready),
      .m_axis(work), .m_axis_tvalid(work_valid), .m_axis_tready(work_next));

  logic first;
  logic [5:0] last_bytes;
  logic [47:0] layout;
  gw_splice #(.CUT(CUT)) splice (
      .clk, .rst, .on(work.splice), .hole(work.hole), .put(work.put), .beats(work.beats), .next(work_next),
      .s_axis_tdata(beat_data), .s_axis_tvalid(beat_valid), .s_axis_tready(beat_ready), .s_axis_tlast(beat_last),
      .m_axis_tdata, .m_axis_tvalid, .m_axis_tready, .m_axis_tfirst(first), .m_axis_tlast);

  // In step with the splice's register.
  always_ff @(posedge clk) begin
    if (!m_axis_tvalid || m_axis_tready) begin
      last_bytes <= work.last_bytes;
      layout <= work.layout;
    end
  end
  assign m_axis_tkeep = m_axis_tlast ? gw_nic_pkg::keep_of(last_bytes) : '1;
  assign m_axis_tuser = first ? layout : '0;
  logic unused_valid;
  assign unused_valid = work_valid;
endmodule
