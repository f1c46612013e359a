// gw_nic for the driver: stream 0 in and out is the host's, stream 1 the wire's. The register bus
// becomes AXI4-Lite, with a master that gives what it writes a clock behind the address and takes
// answers a clock late.

/* verilator lint_off UNUSEDSIGNAL */
module gw_nic_sim (
    `include "ports.svh"
);

  assign {m0_tuser, m1_tuser} = '0;

  logic awvalid, awready, wvalid, wready, bvalid, arvalid, arready, rvalid, sent, late, taken;
  logic [1:0] unused_bresp, unused_rresp;
  assign awvalid = reg_valid && reg_write && !sent;
  assign arvalid = reg_valid && !reg_write && !sent;
  assign wvalid = awvalid && late;
  assign reg_ready = taken && (bvalid || rvalid);
  always_ff @(posedge clk) begin
    late <= awvalid;
    taken <= (bvalid || rvalid) && !taken;
    if (rst || reg_ready) sent <= 1'b0;
    else if (awready || arready) sent <= 1'b1;
  end

  gw_nic nic (
      .clk, .rst,
      .s_axis_host_tdata(s0_tdata), .s_axis_host_tkeep(s0_tkeep), .s_axis_host_tvalid(s0_tvalid),
      .s_axis_host_tready(s0_tready), .s_axis_host_tlast(s0_tlast), .s_axis_host_tuser(s0_tuser[7:0]),
      .m_axis_host_tdata(m0_tdata), .m_axis_host_tkeep(m0_tkeep), .m_axis_host_tvalid(m0_tvalid),
      .m_axis_host_tready(m0_tready), .m_axis_host_tlast(m0_tlast),
      .s_axis_wire_tdata(s1_tdata), .s_axis_wire_tkeep(s1_tkeep), .s_axis_wire_tvalid(s1_tvalid),
      .s_axis_wire_tready(s1_tready), .s_axis_wire_tlast(s1_tlast),
      .m_axis_wire_tdata(m1_tdata), .m_axis_wire_tkeep(m1_tkeep), .m_axis_wire_tvalid(m1_tvalid),
      .m_axis_wire_tready(m1_tready), .m_axis_wire_tlast(m1_tlast),
      .s_axil_awaddr(reg_addr[11:0]), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
      .s_axil_wdata(reg_wdata), .s_axil_wstrb(4'b1111), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
      .s_axil_bresp(unused_bresp), .s_axil_bvalid(bvalid), .s_axil_bready(taken),
      .s_axil_araddr(reg_addr[11:0]), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
      .s_axil_rdata(reg_rdata), .s_axil_rresp(unused_rresp), .s_axil_rvalid(rvalid), .s_axil_rready(taken));

endmodule
