// AXI4-Lite in front of gw_regs' bus: one access at a time, whole words. Answers are always OKAY;
// what has no register reads as 0.
//
// Enters: s_axil. Leaves: an access on the bus. Latency: two clocks, and the bus's.
module gw_axil (
    input  logic        clk,
    input  logic        rst,
    input  logic [11:0] s_axil_awaddr,
    input  logic [2:0]  s_axil_awprot,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [3:0]  s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [1:0]  s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [11:0] s_axil_araddr,
    input  logic [2:0]  s_axil_arprot,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0]  s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,
    output logic        reg_valid,
    output logic        reg_write,
    output logic [11:0] reg_addr,
    output logic [31:0] reg_wdata,
    input  logic        reg_ready,
    input  logic [31:0] reg_rdata
);
  logic unused;
  assign unused = ^{s_axil_awprot, s_axil_arprot, s_axil_wstrb};
  assign s_axil_bresp = 2'b00;
  assign s_axil_rresp = 2'b00;

  logic idle, take_write, take_read;
  assign idle = !reg_valid && !s_axil_bvalid && !s_axil_rvalid;
  assign take_write = idle && s_axil_awvalid && s_axil_wvalid;
  assign take_read = idle && s_axil_arvalid && !take_write;
  assign s_axil_awready = take_write;
  assign s_axil_wready = take_write;
  assign s_axil_arready = take_read;

  always_ff @(posedge clk) begin
    if (take_write || take_read) begin
      reg_write <= take_write;
      reg_addr <= take_write ? s_axil_awaddr : s_axil_araddr;
      reg_wdata <= s_axil_wdata;
    end
    if (reg_valid && reg_ready) s_axil_rdata <= reg_rdata;
    if (rst) begin
      reg_valid <= 1'b0;
      s_axil_bvalid <= 1'b0;
      s_axil_rvalid <= 1'b0;
    end else begin
      if (take_write || take_read) reg_valid <= 1'b1;
      else if (reg_ready) reg_valid <= 1'b0;
      if (reg_valid && reg_ready && reg_write) s_axil_bvalid <= 1'b1;
      else if (s_axil_bready) s_axil_bvalid <= 1'b0;
      if (reg_valid && reg_ready && !reg_write) s_axil_rvalid <= 1'b1;
      else if (s_axil_rready) s_axil_rvalid <= 1'b0;
    end
  end
endmodule
