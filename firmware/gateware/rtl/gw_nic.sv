// A bump in the wire: both directions of a network card's path, their rules and their counters.
//
// Enters and leaves: towards the host s_axis_host and m_axis_host, towards the wire s_axis_wire and
// m_axis_wire, frames without FCS; s_axil, the registers (README.md). s_axis_host_tuser is what the
// owner of a TCP flow knows (gw_egress.sv); 0 if nobody does.
// Latency: that of gw_egress and gw_ingress. One clock for all of it, 100 MHz at least.
// Follows: dataplane/src/forward.rs, Forwarder: a port to each side, an engine for each direction.
module gw_nic (
    input  logic         clk,
    input  logic         rst,
    // The host.
    input  logic [255:0] s_axis_host_tdata,
    input  logic [31:0]  s_axis_host_tkeep,
    input  logic         s_axis_host_tvalid,
    output logic         s_axis_host_tready,
    input  logic         s_axis_host_tlast,
    input  logic [7:0]   s_axis_host_tuser,
    output logic [255:0] m_axis_host_tdata,
    output logic [31:0]  m_axis_host_tkeep,
    output logic         m_axis_host_tvalid,
    input  logic         m_axis_host_tready,
    output logic         m_axis_host_tlast,
    // The wire.
    input  logic [255:0] s_axis_wire_tdata,
    input  logic [31:0]  s_axis_wire_tkeep,
    input  logic         s_axis_wire_tvalid,
    output logic         s_axis_wire_tready,
    input  logic         s_axis_wire_tlast,
    output logic [255:0] m_axis_wire_tdata,
    output logic [31:0]  m_axis_wire_tkeep,
    output logic         m_axis_wire_tvalid,
    input  logic         m_axis_wire_tready,
    output logic         m_axis_wire_tlast,
    // Registers.
    input  logic [11:0]  s_axil_awaddr,
    input  logic [2:0]   s_axil_awprot,
    input  logic         s_axil_awvalid,
    output logic         s_axil_awready,
    input  logic [31:0]  s_axil_wdata,
    input  logic [3:0]   s_axil_wstrb,
    input  logic         s_axil_wvalid,
    output logic         s_axil_wready,
    output logic [1:0]   s_axil_bresp,
    output logic         s_axil_bvalid,
    input  logic         s_axil_bready,
    input  logic [11:0]  s_axil_araddr,
    input  logic [2:0]   s_axil_arprot,
    input  logic         s_axil_arvalid,
    output logic         s_axil_arready,
    output logic [31:0]  s_axil_rdata,
    output logic [1:0]   s_axil_rresp,
    output logic         s_axil_rvalid,
    input  logic         s_axil_rready
);
  gw_nic_pkg::config_t cfg;
  gw_nic_pkg::verdict_t egress_verdict, ingress_verdict;
  logic reg_valid, reg_write, reg_ready;
  logic [11:0] reg_addr;
  logic [31:0] reg_wdata, reg_rdata;

  gw_axil axil (
      .clk, .rst,
      .s_axil_awaddr, .s_axil_awprot, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid,
      .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arprot, .s_axil_arvalid,
      .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
      .reg_valid, .reg_write, .reg_addr, .reg_wdata, .reg_ready, .reg_rdata);
  // As in gw_path.sv: a clock for the way. No access is that far so soon.
  logic rst_late;
  (* keep *) always_ff @(posedge clk) rst_late <= rst;
  gw_regs regs (
      .clk, .rst(rst_late), .reg_valid, .reg_write, .reg_addr, .reg_wdata, .reg_ready, .reg_rdata, .cfg,
      .egress(egress_verdict), .ingress(ingress_verdict));

  gw_egress egress (
      .clk, .rst, .cfg,
      .s_axis_tdata(s_axis_host_tdata), .s_axis_tkeep(s_axis_host_tkeep), .s_axis_tvalid(s_axis_host_tvalid),
      .s_axis_tready(s_axis_host_tready), .s_axis_tlast(s_axis_host_tlast), .s_axis_tuser(s_axis_host_tuser),
      .m_axis_tdata(m_axis_wire_tdata), .m_axis_tkeep(m_axis_wire_tkeep), .m_axis_tvalid(m_axis_wire_tvalid),
      .m_axis_tready(m_axis_wire_tready), .m_axis_tlast(m_axis_wire_tlast), .verdict(egress_verdict));
  gw_ingress ingress (
      .clk, .rst, .cfg,
      .s_axis_tdata(s_axis_wire_tdata), .s_axis_tkeep(s_axis_wire_tkeep), .s_axis_tvalid(s_axis_wire_tvalid),
      .s_axis_tready(s_axis_wire_tready), .s_axis_tlast(s_axis_wire_tlast),
      .m_axis_tdata(m_axis_host_tdata), .m_axis_tkeep(m_axis_host_tkeep), .m_axis_tvalid(m_axis_host_tvalid),
      .m_axis_tready(m_axis_host_tready), .m_axis_tlast(m_axis_host_tlast), .verdict(ingress_verdict));
endmodule
