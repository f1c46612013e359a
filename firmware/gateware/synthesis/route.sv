// An engine between registers, for place and route: it has more pins than a package. What enters comes out of a shift
// register, and what leaves is folded into another, so that every path begins and ends in a register and none is optimised away.
// ENGINE is the module; HAS_USER is defined if it has `m_axis_tuser`.

module route (
    input  logic clk,
    input  logic in,
    output logic out
);

  localparam int ENTERS = 1 + 256 + 32 + 1 + 1 + 48 + 1;
  localparam int LEAVES = 1 + 256 + 32 + 1 + 1 + 1;
  logic [ENTERS-1:0] enters;
  logic [LEAVES-1:0] leaves, taken, folded;

  assign out = folded[LEAVES-1];

  always_ff @(posedge clk) begin
    enters <= {enters[ENTERS-2:0], in};
    taken  <= leaves;
    folded <= {folded[LEAVES-2:0], folded[LEAVES-1]} ^ taken;
  end

  `ENGINE engine (
      .clk(clk),
      .rst(enters[0]),
      .s_axis_tdata(enters[256:1]),
      .s_axis_tkeep(enters[288:257]),
      .s_axis_tvalid(enters[289]),
      .s_axis_tready(leaves[0]),
      .s_axis_tlast(enters[290]),
      .s_axis_tuser(enters[338:291]),
      .m_axis_tdata(leaves[256:1]),
      .m_axis_tkeep(leaves[288:257]),
      .m_axis_tvalid(leaves[289]),
      .m_axis_tready(enters[339]),
`ifdef HAS_USER
      .m_axis_tuser(leaves[291]),
`endif
      .m_axis_tlast(leaves[290])
  );

`ifndef HAS_USER
  assign leaves[291] = 1'b0;
`endif

endmodule
