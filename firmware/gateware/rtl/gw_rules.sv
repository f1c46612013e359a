// The first rule that matches a type of service, and whether it is the mark.
//
// Enters: a type of service. Leaves: the answer, in the same clock; `hit` is 0 if no rule matches.
// Follows: dataplane/src/rules.rs, Rules::find and Rules::is_mark.
module gw_rules (
    /* verilator lint_off UNUSEDSIGNAL */  // the MTU is not for here
    input  gw_nic_pkg::config_t cfg,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic [7:0]  tos,
    output logic        is_mark,
    output logic        hit,
    output gw_nic_pkg::rule_t rule
);
  gw_nic_pkg::rule_t candidate;
  always_comb begin
    candidate = '0;
    is_mark = tos[7:2] == cfg.mark[7:2];
    hit = 1'b0;
    rule = '0;
    for (int i = gw_nic_pkg::RULES - 1; i >= 0; i--)
    begin
      candidate = cfg.rules[i*gw_nic_pkg::RULE_W +: gw_nic_pkg::RULE_W];
      if (candidate.valid && ((tos ^ candidate.tos) & candidate.mask) == 8'h00) begin
        hit = 1'b1;
        rule = candidate;
      end
    end
  end
endmodule
