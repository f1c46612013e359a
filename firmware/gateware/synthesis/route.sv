// A design between registers, for place and route: it has more pins than a package. What enters
// comes out of a shift register, and what leaves is folded into another, so that every path begins
// and ends in a register and none is optimised away. Two registers are at each border, so that the
// chains do not pull the design's own registers to where they happen to lie. DESIGN is the module,
// gw_nic if NIC is defined and else an engine.

module route (
    input  logic clk,
    input  logic in,
    output logic out
);

  // The design's ports, by their names.
  logic rst;
`ifdef NIC
  localparam int ENTERS = 1 + (291 + 8) + 291 + 70;
  localparam int LEAVES = 291 + 291 + 41;
  logic [255:0] s_axis_host_tdata, s_axis_wire_tdata, m_axis_host_tdata, m_axis_wire_tdata;
  logic [31:0] s_axis_host_tkeep, s_axis_wire_tkeep, m_axis_host_tkeep, m_axis_wire_tkeep;
  logic s_axis_host_tvalid, s_axis_wire_tvalid, m_axis_host_tvalid, m_axis_wire_tvalid;
  logic s_axis_host_tready, s_axis_wire_tready, m_axis_host_tready, m_axis_wire_tready;
  logic s_axis_host_tlast, s_axis_wire_tlast, m_axis_host_tlast, m_axis_wire_tlast;
  logic [7:0] s_axis_host_tuser;
  logic [11:0] s_axil_awaddr, s_axil_araddr;
  logic [2:0] s_axil_awprot, s_axil_arprot;
  logic [31:0] s_axil_wdata, s_axil_rdata;
  logic [3:0] s_axil_wstrb;
  logic [1:0] s_axil_bresp, s_axil_rresp;
  logic s_axil_awvalid, s_axil_wvalid, s_axil_bready, s_axil_arvalid, s_axil_rready;
  logic s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
`else
  localparam int ENTERS = 1 + 291 + 48;
  localparam int LEAVES = 291 + 1;
  logic [255:0] s_axis_tdata, m_axis_tdata;
  logic [31:0] s_axis_tkeep, m_axis_tkeep;
  logic s_axis_tvalid, s_axis_tready, s_axis_tlast, m_axis_tvalid, m_axis_tready, m_axis_tlast;
  logic [47:0] s_axis_tuser;
  logic m_axis_tuser;  // of the decompressor alone
`endif

  logic [ENTERS-1:0] enters, given;
  logic [LEAVES-1:0] leaves, seen, taken, folded;

  assign out = folded[LEAVES-1];

  // Kept, or tools take the next register of the chain for it.
  (* keep *) always_ff @(posedge clk) given <= enters;

  always_ff @(posedge clk) begin
    enters <= {enters[ENTERS-2:0], in};
    seen   <= leaves;
    taken  <= seen;
    folded <= {folded[LEAVES-2:0], folded[LEAVES-1]} ^ taken;
  end

`ifdef NIC
  assign {s_axis_host_tdata, s_axis_host_tkeep, s_axis_host_tvalid, s_axis_host_tlast, s_axis_host_tuser, m_axis_host_tready,
          s_axis_wire_tdata, s_axis_wire_tkeep, s_axis_wire_tvalid, s_axis_wire_tlast, m_axis_wire_tready,
          s_axil_awaddr, s_axil_awprot, s_axil_awvalid, s_axil_wdata, s_axil_wstrb, s_axil_wvalid, s_axil_bready,
          s_axil_araddr, s_axil_arprot, s_axil_arvalid, s_axil_rready, rst} = given;
  assign leaves = {m_axis_host_tdata, m_axis_host_tkeep, m_axis_host_tvalid, m_axis_host_tlast, s_axis_host_tready,
                   m_axis_wire_tdata, m_axis_wire_tkeep, m_axis_wire_tvalid, m_axis_wire_tlast, s_axis_wire_tready,
                   s_axil_awready, s_axil_wready, s_axil_bresp, s_axil_bvalid, s_axil_arready, s_axil_rdata, s_axil_rresp,
                   s_axil_rvalid};
`else
  assign {s_axis_tdata, s_axis_tkeep, s_axis_tvalid, s_axis_tlast, s_axis_tuser, m_axis_tready, rst} = given;
  assign leaves = {m_axis_tdata, m_axis_tkeep, m_axis_tvalid, m_axis_tlast, m_axis_tuser, s_axis_tready};
`endif

  `DESIGN design (.*);

endmodule
