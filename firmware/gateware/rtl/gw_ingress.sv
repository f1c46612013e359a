// From the wire to the host: compressed frames are restored, others pass, and what is compressed
// and cannot be restored is dropped. Both framings, told apart by the mark and by the rules; frames
// are stored and forwarded, in their order.
//
// Enters: s_axis, frames without FCS, all beats but the last full; `cfg`, which may change between
// frames.
// Leaves: m_axis, frames as the host gets them; a verdict for each frame that entered
// (gw_nic_pkg.sv), in their order.
// Latency: of a frame that passes, its beats and 20 clocks; of a restored one, gw_decompressor's
// and the restored frame's beats on top. A beat a clock; the engine takes one more clock a frame.
// Follows: dataplane/src/engine/ingress.rs, Ingress::process, with codec 1 and `handshake = "off"`.
module gw_ingress (
    input  logic         clk,
    input  logic         rst,
    input  gw_nic_pkg::config_t cfg,
    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
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
  logic [319:0] unused_options;
  assign record_ready = !plans_low;
  gw_ingress_classifier classifier (
      .clk, .rst(rst_late), .mark(cfg.mark[7:2]), .mtu(cfg.mtu), .next_record(record), .next_valid(record_valid && record_ready), .plan, .plan_valid);

  logic [255:0] in_tdata, out_tdata;
  logic [31:0] in_tkeep, out_tkeep;
  logic in_tvalid, in_tready, in_tlast, out_tvalid, out_tready, out_tlast, out_tuser;
  logic [47:0] in_tuser;
  gw_path #(.EGRESS(1'b0)) path (
      .clk, .rst, .cfg, .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast, .s_axis_tuser(8'd0),
      .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast, .verdict,
      .record, .options(unused_options), .record_valid, .record_ready, .plans_low, .plan, .plan_valid,
      .in_tdata, .in_tkeep, .in_tvalid, .in_tready, .in_tlast, .in_tuser,
      .out_tdata, .out_tkeep, .out_tvalid, .out_tready, .out_tlast, .out_tuser);

  gw_decompressor engine (
      .clk, .rst(rst_engine), .s_axis_tdata(in_tdata), .s_axis_tkeep(in_tkeep), .s_axis_tvalid(in_tvalid), .s_axis_tready(in_tready),
      .s_axis_tlast(in_tlast), .s_axis_tuser(in_tuser),
      .m_axis_tdata(out_tdata), .m_axis_tkeep(out_tkeep), .m_axis_tvalid(out_tvalid), .m_axis_tready(out_tready),
      .m_axis_tlast(out_tlast), .m_axis_tuser(out_tuser));
endmodule
