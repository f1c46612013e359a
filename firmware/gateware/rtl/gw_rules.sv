// The first rule that matches a type of service, and whether it is the mark.
//
// Enters: types of service, one a clock. Leaves: the answer; `hit` is 0 if no rule matches, and
// then `rule` is 0.
// Latency: three clocks.
// Follows: dataplane/src/rules.rs, Rules::find and Rules::is_mark.
module gw_rules (
    input  logic        clk,
    /* verilator lint_off UNUSEDSIGNAL */  // not all of it is for here
    input  gw_nic_pkg::config_t cfg,
    input  logic [7:0]  tos,
    output logic        is_mark,
    output logic        hit,
    output logic [gw_nic_pkg::RULE_W-1:0] rule
);
  localparam int RULES = gw_nic_pkg::RULES;
  localparam int RULE_W = gw_nic_pkg::RULE_W;

  logic [RULES-1:0] matching, first;
  logic is_mark_1, is_mark_2;
  gw_nic_pkg::rule_t candidate;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [RULES-1:0] matching_d;
  logic [RULE_W-1:0] rule_d;
  always_comb begin
    candidate = '0;
    matching_d = '0;
    rule_d = '0;
    for (int i = 0; i < RULES; i++) begin
      candidate = cfg.rules[i*RULE_W +: RULE_W];
      matching_d[i] = candidate.valid && ((tos ^ candidate.tos) & candidate.mask) == 8'h00;
      rule_d = rule_d | (cfg.rules[i*RULE_W +: RULE_W] & {RULE_W{first[i]}});
    end
  end

  always_ff @(posedge clk) begin
    matching <= matching_d;
    is_mark_1 <= tos[7:2] == cfg.mark[7:2];
    // The lowest bit that is set.
    first <= matching & (~matching + 1'b1);
    is_mark_2 <= is_mark_1;
    rule <= rule_d;
    hit <= first != '0;
    is_mark <= is_mark_2;
  end
endmodule
