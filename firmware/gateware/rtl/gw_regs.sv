// Registers: rules, mark and MTU for both directions, and the counters of both. README.md has the
// table.
//
// Enters: accesses on a simple bus, which stay until `reg_ready`; verdicts of both directions.
// Leaves: `cfg`; with `reg_ready`, for a clock, what was read. Latency: six clocks an access.
module gw_regs (
    input  logic        clk,
    input  logic        rst,
    input  logic        reg_valid,
    input  logic        reg_write,
    input  logic [11:0] reg_addr,
    input  logic [31:0] reg_wdata,
    output logic        reg_ready,
    output logic [31:0] reg_rdata,
    output gw_nic_pkg::config_t cfg,
    input  gw_nic_pkg::verdict_t egress,
    input  gw_nic_pkg::verdict_t ingress
);
  localparam logic [31:0] ID = 32'h4757_4e31;  // "GWN1"
  localparam logic [13:0] LONGEST = 14'(gw_nic_pkg::MAX_FRAME - 22);

  logic [4:0] steps;         // how far an access is
  logic clear, read_egress, read_ingress;
  logic [31:0] egress_data, ingress_data;
  gw_nic_pkg::rule_t rule;
  // A rule_t each: its lower word and its upper one.
  logic [gw_nic_pkg::RULE_W-1:0] rules [gw_nic_pkg::RULES];
  logic [7:0] mark;
  logic [13:0] mtu;
  always_comb begin
    cfg.mark = mark;
    cfg.mtu = mtu;
    for (int i = 0; i < gw_nic_pkg::RULES; i++)
      cfg.rules[i*gw_nic_pkg::RULE_W +: gw_nic_pkg::RULE_W] = rules[i];
  end
  logic [3:0] place;
  logic first_step, unused;
  // Which rule's lower or upper word is written; a clock of its own, since an address reaches all
  // rules.
  logic [gw_nic_pkg::RULES-1:0] write_lower, write_upper;
  logic writes_rule;
  assign unused = ^reg_addr[1:0];
  assign first_step = reg_valid && steps == '0 && !reg_ready;
  assign place = reg_addr[6:3];
  assign writes_rule = first_step && reg_write && reg_addr[11:7] == 5'h02;
  assign read_egress = first_step && !reg_write && reg_addr[11:9] == 3'd1;
  assign read_ingress = first_step && !reg_write && reg_addr[11:9] == 3'd2;

  gw_counters egress_counters (
      .clk, .rst, .clear, .verdict(egress), .read_at(reg_addr[8:3]), .read_upper(reg_addr[2]), .read(read_egress),
      .read_data(egress_data));
  gw_counters ingress_counters (
      .clk, .rst, .clear, .verdict(ingress), .read_at(reg_addr[8:3]), .read_upper(reg_addr[2]), .read(read_ingress),
      .read_data(ingress_data));

  always_ff @(posedge clk) begin
    clear <= 1'b0;
    reg_ready <= steps[3];
    steps <= {steps[3:0], first_step};
    if (first_step && reg_write) begin
      if (reg_addr[11:2] == 10'h001) clear <= reg_wdata[0];
      if (reg_addr[11:2] == 10'h002) mark <= {reg_wdata[7:2], 2'b00};
      if (reg_addr[11:2] == 10'h003) mtu <= reg_wdata > {18'b0, LONGEST} ? LONGEST : reg_wdata[13:0];
    end
    rule <= rules[place];
    for (int i = 0; i < gw_nic_pkg::RULES; i++) begin
      write_lower[i] <= writes_rule && !reg_addr[2] && place == 4'(i);
      write_upper[i] <= writes_rule && reg_addr[2] && place == 4'(i);
      if (write_lower[i]) rules[i][31:0] <= reg_wdata;
      if (write_upper[i]) rules[i][43:32] <= {reg_wdata[31], reg_wdata[10:0]};
    end
    if (steps[3]) begin
      reg_rdata <= '0;
      if (reg_addr[11:9] == 3'd1) reg_rdata <= egress_data;
      else if (reg_addr[11:9] == 3'd2) reg_rdata <= ingress_data;
      else if (reg_addr[11:7] == 5'h02 && !reg_addr[2]) reg_rdata <= {rule.b, rule.k, rule.x, rule.mask, rule.tos};
      else if (reg_addr[11:7] == 5'h02)
        reg_rdata <= {rule.valid, 20'b0, rule.udp, rule.payload, rule.routed, rule.udp_offset};
      else if (reg_addr[11:2] == 10'h000) reg_rdata <= ID;
      else if (reg_addr[11:2] == 10'h002) reg_rdata <= {24'b0, mark};
      else if (reg_addr[11:2] == 10'h003) reg_rdata <= {18'b0, mtu};
    end
    if (rst) begin
      steps <= '0;
      reg_ready <= 1'b0;
      write_lower <= '0;
      write_upper <= '0;
      for (int i = 0; i < gw_nic_pkg::RULES; i++) rules[i] <= '0;
      mark <= 8'h30;
      mtu <= 14'd1500;
    end
  end
endmodule
