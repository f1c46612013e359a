// gw_decompressor for the driver: stream 0, groups to values; bit 0 of `m0_tuser` says that a frame
// was refused.

/* verilator lint_off UNUSEDSIGNAL */
module gw_decompressor_sim (
    `include "ports.svh"
);

  gw_decompressor engine (
      .clk(clk),
      .rst(rst),
      .s_axis_tdata(s0_tdata),
      .s_axis_tkeep(s0_tkeep),
      .s_axis_tvalid(s0_tvalid),
      .s_axis_tready(s0_tready),
      .s_axis_tlast(s0_tlast),
      .s_axis_tuser(s0_tuser[47:0]),
      .m_axis_tdata(m0_tdata),
      .m_axis_tkeep(m0_tkeep),
      .m_axis_tvalid(m0_tvalid),
      .m_axis_tready(m0_tready),
      .m_axis_tuser(m0_tuser[0]),
      .m_axis_tlast(m0_tlast)
  );

  assign m0_tuser[63:1] = '0;
  assign s1_tready = 1'b0;
  assign {m1_tdata, m1_tkeep, m1_tvalid, m1_tlast, m1_tuser} = '0;
  assign {reg_ready, reg_rdata} = '0;

endmodule
