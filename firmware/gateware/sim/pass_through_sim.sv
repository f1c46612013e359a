// The test bench itself, with nothing in it: each stream goes through one register, and one
// register of the register bus keeps what was written. `tests/harness.rs` holds the driver to this.

module pass_through_sim (
    `include "ports.svh"
);

  assign s0_tready = m0_tready || !m0_tvalid;
  assign s1_tready = m1_tready || !m1_tvalid;

  always_ff @(posedge clk) begin
    if (s0_tready) begin
      m0_tvalid <= s0_tvalid;
      m0_tdata  <= s0_tdata;
      m0_tkeep  <= s0_tkeep;
      m0_tlast  <= s0_tlast;
      m0_tuser  <= s0_tuser;
    end
    if (s1_tready) begin
      m1_tvalid <= s1_tvalid;
      m1_tdata  <= s1_tdata;
      m1_tkeep  <= s1_tkeep;
      m1_tlast  <= s1_tlast;
      m1_tuser  <= s1_tuser;
    end
    if (reg_valid && reg_ready && reg_write && reg_addr == 16'd4) reg_rdata <= reg_wdata;
    // Ready every other clock, so that the driver's wait is used; beyond, nobody answers.
    reg_ready <= reg_valid && !reg_ready && reg_addr < 16'h100;
    if (rst) begin
      m0_tvalid <= 1'b0;
      m1_tvalid <= 1'b0;
      reg_ready <= 1'b0;
      reg_rdata <= '0;
    end
  end

endmodule
