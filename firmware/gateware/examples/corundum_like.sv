// gw_nic in a NIC's application block, between DMA and MAC, the way Corundum's `mqnic_app_block`
// has its streams: `tx` goes to the wire, `rx` comes from it, each with a stream in and a stream
// out, and an AXI4-Lite port of the host's driver.
//
// Widths are those of a 100G build at 256 bits. The MAC's clock has to be the application's: put
// asynchronous FIFOs in front if they differ. Corundum marks broken received frames with bit 0 of
// `tuser` on the last beat; give gw_nic frames that the MAC found whole. Timestamps and other
// sideband do not go through gw_nic, since frames come out of it changed or not at all. Not tried
// in Corundum: its sources are not on a registry that CI may use. Linted alone.
module corundum_like #(
    parameter int unsigned AXIS_DATA_WIDTH = 256,
    parameter int unsigned AXIS_KEEP_WIDTH = AXIS_DATA_WIDTH / 8,
    parameter int unsigned AXIL_ADDR_WIDTH = 16
) (
    input  logic                       clk,
    input  logic                       rst,
    // The driver.
    input  logic [AXIL_ADDR_WIDTH-1:0] s_axil_app_ctrl_awaddr,
    input  logic [2:0]                 s_axil_app_ctrl_awprot,
    input  logic                       s_axil_app_ctrl_awvalid,
    output logic                       s_axil_app_ctrl_awready,
    input  logic [31:0]                s_axil_app_ctrl_wdata,
    input  logic [3:0]                 s_axil_app_ctrl_wstrb,
    input  logic                       s_axil_app_ctrl_wvalid,
    output logic                       s_axil_app_ctrl_wready,
    output logic [1:0]                 s_axil_app_ctrl_bresp,
    output logic                       s_axil_app_ctrl_bvalid,
    input  logic                       s_axil_app_ctrl_bready,
    input  logic [AXIL_ADDR_WIDTH-1:0] s_axil_app_ctrl_araddr,
    input  logic [2:0]                 s_axil_app_ctrl_arprot,
    input  logic                       s_axil_app_ctrl_arvalid,
    output logic                       s_axil_app_ctrl_arready,
    output logic [31:0]                s_axil_app_ctrl_rdata,
    output logic [1:0]                 s_axil_app_ctrl_rresp,
    output logic                       s_axil_app_ctrl_rvalid,
    input  logic                       s_axil_app_ctrl_rready,
    // From the DMA engine, to the MAC.
    input  logic [AXIS_DATA_WIDTH-1:0] s_axis_direct_tx_tdata,
    input  logic [AXIS_KEEP_WIDTH-1:0] s_axis_direct_tx_tkeep,
    input  logic                       s_axis_direct_tx_tvalid,
    output logic                       s_axis_direct_tx_tready,
    input  logic                       s_axis_direct_tx_tlast,
    output logic [AXIS_DATA_WIDTH-1:0] m_axis_direct_tx_tdata,
    output logic [AXIS_KEEP_WIDTH-1:0] m_axis_direct_tx_tkeep,
    output logic                       m_axis_direct_tx_tvalid,
    input  logic                       m_axis_direct_tx_tready,
    output logic                       m_axis_direct_tx_tlast,
    // From the MAC, to the DMA engine.
    input  logic [AXIS_DATA_WIDTH-1:0] s_axis_direct_rx_tdata,
    input  logic [AXIS_KEEP_WIDTH-1:0] s_axis_direct_rx_tkeep,
    input  logic                       s_axis_direct_rx_tvalid,
    output logic                       s_axis_direct_rx_tready,
    input  logic                       s_axis_direct_rx_tlast,
    output logic [AXIS_DATA_WIDTH-1:0] m_axis_direct_rx_tdata,
    output logic [AXIS_KEEP_WIDTH-1:0] m_axis_direct_rx_tkeep,
    output logic                       m_axis_direct_rx_tvalid,
    input  logic                       m_axis_direct_rx_tready,
    output logic                       m_axis_direct_rx_tlast
);
  logic unused;
  assign unused = ^{s_axil_app_ctrl_awaddr[AXIL_ADDR_WIDTH-1:12], s_axil_app_ctrl_araddr[AXIL_ADDR_WIDTH-1:12]};

  gw_nic nic (
      .clk, .rst,
      .s_axis_host_tdata(s_axis_direct_tx_tdata),
      .s_axis_host_tkeep(s_axis_direct_tx_tkeep),
      .s_axis_host_tvalid(s_axis_direct_tx_tvalid),
      .s_axis_host_tready(s_axis_direct_tx_tready),
      .s_axis_host_tlast(s_axis_direct_tx_tlast),
      .s_axis_host_tuser(8'd0),  // nobody knows flows: UDP is compressed, TCP passes
      .m_axis_host_tdata(m_axis_direct_rx_tdata),
      .m_axis_host_tkeep(m_axis_direct_rx_tkeep),
      .m_axis_host_tvalid(m_axis_direct_rx_tvalid),
      .m_axis_host_tready(m_axis_direct_rx_tready),
      .m_axis_host_tlast(m_axis_direct_rx_tlast),
      .s_axis_wire_tdata(s_axis_direct_rx_tdata),
      .s_axis_wire_tkeep(s_axis_direct_rx_tkeep),
      .s_axis_wire_tvalid(s_axis_direct_rx_tvalid),
      .s_axis_wire_tready(s_axis_direct_rx_tready),
      .s_axis_wire_tlast(s_axis_direct_rx_tlast),
      .m_axis_wire_tdata(m_axis_direct_tx_tdata),
      .m_axis_wire_tkeep(m_axis_direct_tx_tkeep),
      .m_axis_wire_tvalid(m_axis_direct_tx_tvalid),
      .m_axis_wire_tready(m_axis_direct_tx_tready),
      .m_axis_wire_tlast(m_axis_direct_tx_tlast),
      .s_axil_awaddr(s_axil_app_ctrl_awaddr[11:0]),
      .s_axil_awprot(s_axil_app_ctrl_awprot),
      .s_axil_awvalid(s_axil_app_ctrl_awvalid),
      .s_axil_awready(s_axil_app_ctrl_awready),
      .s_axil_wdata(s_axil_app_ctrl_wdata),
      .s_axil_wstrb(s_axil_app_ctrl_wstrb),
      .s_axil_wvalid(s_axil_app_ctrl_wvalid),
      .s_axil_wready(s_axil_app_ctrl_wready),
      .s_axil_bresp(s_axil_app_ctrl_bresp),
      .s_axil_bvalid(s_axil_app_ctrl_bvalid),
      .s_axil_bready(s_axil_app_ctrl_bready),
      .s_axil_araddr(s_axil_app_ctrl_araddr[11:0]),
      .s_axil_arprot(s_axil_app_ctrl_arprot),
      .s_axil_arvalid(s_axil_app_ctrl_arvalid),
      .s_axil_arready(s_axil_app_ctrl_arready),
      .s_axil_rdata(s_axil_app_ctrl_rdata),
      .s_axil_rresp(s_axil_app_ctrl_rresp),
      .s_axil_rvalid(s_axil_app_ctrl_rvalid),
      .s_axil_rready(s_axil_app_ctrl_rready));
endmodule
