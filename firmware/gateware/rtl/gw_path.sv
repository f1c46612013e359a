// What both directions have around their engine: a frame is stored, read, classified, coded if it
// is to be, finished, and sent.
//
//   s_axis ─┬─► ring ─────────────────────────────────────► sender ─► m_axis
//           │     └─► feeder ─► (engine) ─► collector ─► ring ┘ ▲
//           └─► parser ─► (classifier) ─► plans ─► finish ───────────┘
//
// Enters: frames on s_axis. The classifier and the engine are outside: gw_ingress.sv and
// gw_egress.sv connect them.
// Leaves: frames on m_axis, in their order, and a verdict for each, in the order of the frames.
module gw_path #(
    parameter bit EGRESS = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    input  gw_nic_pkg::config_t cfg,
    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic [7:0]   s_axis_tuser,
    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output gw_nic_pkg::verdict_t verdict,
    // The classifier.
    output gw_nic_pkg::record_t record,
    output logic [319:0] options,
    output logic         record_valid,
    input  logic         record_ready,   // taken
    output logic         plans_low,      // the classifier may take no more
    input  gw_nic_pkg::plan_t plan,
    input  logic         plan_valid,
    // The engine.
    output logic [255:0] in_tdata,
    output logic [31:0]  in_tkeep,
    output logic         in_tvalid,
    input  logic         in_tready,
    output logic         in_tlast,
    output logic [47:0]  in_tuser,
    input  logic [255:0] out_tdata,
    input  logic [31:0]  out_tkeep,
    input  logic         out_tvalid,
    output logic         out_tready,
    input  logic         out_tlast,
    input  logic         out_tuser
);
  localparam int BITS = gw_nic_pkg::RING_BITS;
  localparam int RECORD = gw_nic_pkg::RECORD_W + (EGRESS ? 320 : 0);

  // `rst` reaches all of the chip, so it has a clock for the way. Meanwhile nothing may enter or
  // leave; what is between is reset a clock later than these two, which wait for it.
  logic rst_late, rst_border;
  (* keep *) always_ff @(posedge clk) rst_late <= rst;
  assign rst_border = rst || rst_late;

  logic write, valid, first, last, oversize;
  logic [BITS-1:0] write_at;
  logic [8:0] beat, beats;
  logic [5:0] bytes;
  logic [9:0] start;
  logic [255:0] data;
  logic [7:0] user;
  logic [1:0] tags;
  logic [BITS:0] free;
  logic [4:0] records_room;
  gw_store store (
      .clk, .rst(rst_border), .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .s_axis_tuser,
      .records_low(records_room < 5'd14), .free, .write, .write_at,
      .valid, .first, .last, .beat, .bytes, .data, .user, .tags, .oversize, .beats, .start);

  logic parsed, unused_ready;
  gw_nic_pkg::record_t parsed_record;
  logic [319:0] parsed_options;
  gw_parser parser (
      .clk, .rst(rst_late), .cfg, .valid, .first, .last, .beat, .bytes, .data, .user, .tags, .oversize, .beats, .start,
      .done(parsed), .record(parsed_record), .options(parsed_options));

  generate
    if (EGRESS) begin : g_options
      gw_stream_fifo #(.W(RECORD), .BITS(4)) records (
          .clk, .rst(rst_late), .in_data({parsed_options, parsed_record}), .in_valid(parsed), .in_ready(unused_ready),
          .room(records_room), .out_data({options, record}), .out_valid(record_valid), .out_ready(record_ready));
    end else begin : g_no_options
      logic [319:0] unused_options;
      assign unused_options = parsed_options;
      assign options = '0;
      gw_stream_fifo #(.W(RECORD), .BITS(4)) records (
          .clk, .rst(rst_late), .in_data(parsed_record), .in_valid(parsed), .in_ready(unused_ready),
          .room(records_room), .out_data(record), .out_valid(record_valid), .out_ready(record_ready));
    end
  endgenerate

  // Plans: of every frame for gw_finish, of those to be coded for the feeder.
  gw_nic_pkg::plan_t work, plan_out;
  logic work_valid, work_ready, plan_out_valid, plan_out_ready;
  logic [4:0] works_room, plans_room;
  logic unused_works, unused_plans;
  always_ff @(posedge clk) plans_low <= works_room < 5'd6 || plans_room < 5'd6;
  gw_stream_fifo #(.W(gw_nic_pkg::PLAN_W), .BITS(4)) plans (
      .clk, .rst(rst_late), .in_data(plan), .in_valid(plan_valid), .in_ready(unused_plans), .room(plans_room),
      .out_data(plan_out), .out_valid(plan_out_valid), .out_ready(plan_out_ready));
  gw_stream_fifo #(.W(gw_nic_pkg::PLAN_W), .BITS(4)) works (
      .clk, .rst(rst_late), .in_data(plan), .in_valid(plan_valid && plan.coded), .in_ready(unused_works), .room(works_room),
      .out_data(work), .out_valid(work_valid), .out_ready(work_ready));

  // The frames as they came: one memory for the feeder, one for the sender.
  logic [BITS-1:0] feed_at, send_at, coded_at, coded_write_at;
  logic [255:0] feed_data, send_data, coded_data, coded_write_data;
  logic coded_write;
  logic [BITS:0] coded_free;
  gw_ram #(.W(256), .BITS(BITS)) feeder_ring (
      .clk, .write, .write_at, .write_data(data), .read_at(feed_at), .read_data(feed_data));
  gw_ram #(.W(256), .BITS(BITS)) sender_ring (
      .clk, .write, .write_at, .write_data(data), .read_at(send_at), .read_data(send_data));
  gw_ram #(.W(256), .BITS(BITS)) coded_ring (
      .clk, .write(coded_write), .write_at(coded_write_at), .write_data(coded_write_data),
      .read_at(coded_at), .read_data(coded_data));

  logic spans_room, work_out_ready;
  assign work_ready = work_out_ready && spans_room;
  gw_feeder #(.CUT(!EGRESS)) feeder (
      .clk, .rst(rst_late), .plan(work), .plan_valid(work_valid && spans_room), .plan_ready(work_out_ready),
      .read_at(feed_at), .read_data(feed_data),
      .m_axis_tdata(in_tdata), .m_axis_tkeep(in_tkeep), .m_axis_tvalid(in_tvalid), .m_axis_tready(in_tready),
      .m_axis_tlast(in_tlast), .m_axis_tuser(in_tuser));

  // Where the sums of the frames in the engine are taken.
  logic [6:0] span_from;
  logic [16:0] span_until;
  logic spans_next, unused_span_valid;
  logic [4:0] unused_spans_room;
  gw_stream_fifo #(.W(24), .BITS(4)) spans (
      .clk, .rst(rst_late), .in_data({work.l4_at, EGRESS ? 17'h1ffff : work.expected}), .in_valid(work_valid && work_out_ready),
      .in_ready(spans_room), .room(unused_spans_room),
      .out_data({span_from, span_until}), .out_valid(unused_span_valid), .out_ready(spans_next));

  gw_nic_pkg::outcome_t outcome;
  logic outcome_valid, outcome_ready;
  gw_collector collector (
      .clk, .rst(rst_late), .s_axis_tdata(out_tdata), .s_axis_tkeep(out_tkeep), .s_axis_tvalid(out_tvalid),
      .s_axis_tready(out_tready), .s_axis_tlast(out_tlast), .s_axis_tuser(out_tuser),
      .l4_at(span_from), .until_(span_until), .next(spans_next), .free(coded_free),
      .write(coded_write), .write_at(coded_write_at), .write_data(coded_write_data),
      .outcome, .outcome_valid, .outcome_ready);

  gw_nic_pkg::order_t order, order_out;
  logic order_valid, order_ready, order_out_valid, order_out_ready;
  logic [2:0] unused_orders_room;
  gw_finish #(.EGRESS(EGRESS)) finish (
      .clk, .rst(rst_late), .plan(plan_out), .plan_valid(plan_out_valid), .plan_ready(plan_out_ready),
      .outcome, .outcome_valid, .outcome_ready, .order, .order_valid, .order_ready, .verdict);
  gw_stream_fifo #(.W(gw_nic_pkg::ORDER_W), .BITS(2)) orders (
      .clk, .rst(rst_late), .in_data(order), .in_valid(order_valid), .in_ready(order_ready), .room(unused_orders_room),
      .out_data(order_out), .out_valid(order_out_valid), .out_ready(order_out_ready));

  gw_sender sender (
      .clk, .rst(rst_border), .order(order_out), .order_valid(order_out_valid), .order_ready(order_out_ready),
      .read_at(send_at), .read_data(send_data), .coded_at, .coded_data, .free, .coded_free,
      .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast);
endmodule
