// gw_ingress with its registers, as the driver wants it. On the second stream out there is a frame
// of one byte for each verdict: the outcome.
module gw_ingress_sim (
    `include "ports.svh"
);
  gw_nic_pkg::config_t cfg;
  gw_nic_pkg::verdict_t verdict;
  gw_regs regs (
      .clk, .rst, .reg_valid, .reg_write, .reg_addr(reg_addr[11:0]), .reg_wdata, .reg_ready, .reg_rdata, .cfg,
      .ingress(verdict), .egress('0));
  gw_ingress ingress (
      .clk, .rst, .cfg, .s_axis_tdata(s0_tdata), .s_axis_tkeep(s0_tkeep), .s_axis_tvalid(s0_tvalid),
      .s_axis_tready(s0_tready), .s_axis_tlast(s0_tlast), .m_axis_tdata(m0_tdata), .m_axis_tkeep(m0_tkeep),
      .m_axis_tvalid(m0_tvalid), .m_axis_tready(m0_tready), .m_axis_tlast(m0_tlast), .verdict);

  // Deep enough for all that a batch makes while the driver's sink pauses.
  logic [5:0] outcome;
  logic unused_ready;
  logic [12:0] unused_room;
  gw_stream_fifo #(.W(6), .BITS(12)) verdicts (
      .clk, .rst, .in_data(verdict.outcome), .in_valid(verdict.valid), .in_ready(unused_ready), .room(unused_room),
      .out_data(outcome), .out_valid(m1_tvalid), .out_ready(m1_tready));
  assign m1_tdata = {250'b0, outcome};
  assign m1_tkeep = 32'd1;
  assign m1_tlast = 1'b1;
  assign m1_tuser = '0;
  assign m0_tuser = '0;
  assign s1_tready = 1'b0;
  logic unused;
  assign unused = ^{s0_tuser, s1_tdata, s1_tkeep, s1_tvalid, s1_tlast, s1_tuser, reg_addr[15:12]};
endmodule
