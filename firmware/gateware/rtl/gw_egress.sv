// From the host to the wire: tagged frames of values are compressed, others leave as they came.
// Both framings, by rule; frames are stored and forwarded, in their order.
//
// Enters: s_axis, frames without FCS, all beats but the last full; `cfg`, which may change between
// frames. s_axis_tuser counts with a frame's first beat, and for TCP alone: what the owner of its
// flow knows (gw_egress_classifier.sv). 0 means that nobody knows the flow, and the segment leaves
// as it came. UDP needs nothing.
// Leaves: m_axis, frames for the wire, none longer than it came; a verdict for each frame
// (gw_nic_pkg.sv), in their order.
// Latency: of a frame that leaves as it came, its beats and 21 clocks; of a compressed one,
// gw_compressor's and the compressed frame's beats on top. A beat a clock; the engine takes one
// more clock a frame.
// Follows: dataplane/src/engine/egress.rs, Egress::process, with codec 1, `handshake = "off"` and
// `heuristic = "off"`. The flow table is not here, and neither are capability options on SYNs.
module gw_egress (
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
    output gw_nic_pkg::verdict_t verdict
);
  // As in gw_path.sv: what is inside is reset a clock later.
  logic rst_late, rst_engine;
  (* keep *) always_ff @(posedge clk) {rst_late, rst_engine} <= {2{rst}};

  gw_nic_pkg::record_t record;
  gw_nic_pkg::plan_t plan;
  logic record_valid, record_ready, plans_low, plan_valid;
  logic [319:0] options;
  gw_egress_classifier classifier (
      .clk, .rst(rst_late), .mark(cfg.mark[7:2]), .record, .options, .record_valid, .record_ready, .plans_low, .plan, .plan_valid);

  logic [255:0] in_tdata, out_tdata;
  logic [31:0] in_tkeep, out_tkeep;
  logic in_tvalid, in_tready, in_tlast, out_tvalid, out_tready, out_tlast;
  logic [47:0] in_tuser;
  gw_path #(.EGRESS(1'b1)) path (
      .clk, .rst, .cfg, .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .s_axis_tuser,
      .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast, .verdict,
      .record, .options, .record_valid, .record_ready, .plans_low, .plan, .plan_valid,
      .in_tdata, .in_tkeep, .in_tvalid, .in_tready, .in_tlast, .in_tuser,
      .out_tdata, .out_tkeep, .out_tvalid, .out_tready, .out_tlast, .out_tuser(1'b0));

  gw_compressor engine (
      .clk, .rst(rst_engine), .s_axis_tdata(in_tdata), .s_axis_tkeep(in_tkeep), .s_axis_tvalid(in_tvalid), .s_axis_tready(in_tready),
      .s_axis_tlast(in_tlast), .s_axis_tuser(in_tuser),
      .m_axis_tdata(out_tdata), .m_axis_tkeep(out_tkeep), .m_axis_tvalid(out_tvalid), .m_axis_tready(out_tready),
      .m_axis_tlast(out_tlast));
endmodule
