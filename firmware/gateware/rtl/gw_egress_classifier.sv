// What is to become of a frame of the host.
//
// Enters: the parser's records and TCP options. With a TCP frame, `record.user` has what the owner
// of its flow knows: bit 7, the segment may be compressed, and bits 1 and 0 are its head's length;
// or bit 7 is 0, and bits 4 to 0 are the reason's place in PassReason::ALL, 0 for
// `alignment-unknown`.
// Leaves: a plan for each, four clocks later, at most one in two clocks. TCP options other than
// timestamps take a clock a byte to look at.
// Follows: dataplane/src/engine/egress.rs, Egress::decide, with codec 1, `handshake = "off"` and
// `heuristic = "off"`: the look at values (FORMAT.md S9) is off here.
module gw_egress_classifier (
    input  logic        clk,
    input  logic        rst,
    input  logic [7:2]  mark,
    input  gw_nic_pkg::record_t record,
    input  logic [319:0] options,
    input  logic        record_valid,
    output logic        record_ready,
    input  logic        plans_low,
    output gw_nic_pkg::plan_t plan,
    output logic        plan_valid
);
`ifdef GW_FAULTS
  logic fault_mptcp;
  initial fault_mptcp = $test$plusargs("fault_mptcp");
`else
  localparam logic fault_mptcp = 1'b0;
`endif

  // Stage 0: out of the memory into a register, again and again while its options are looked at: to
  // hold it would take an enable that reaches all of it. So a record takes two clocks.
  gw_nic_pkg::record_t held;
  gw_nic_pkg::rule_t rule;
  logic holds;                         // `held` is the record that is offered
  assign rule = held.rule;

  // Options that sign or renumber the payload, or cannot be read: a byte a clock, for the frame
  // that waits.
  logic walking, walked, binding;
  logic [319:0] rest;
  logic [5:0] left;
  logic [7:0] skip;
  logic needs_walk, take;
  assign take = holds && !plans_low && (!needs_walk || walked);
  assign record_ready = take;
  always_ff @(posedge clk) begin
    held <= record;
    needs_walk <= record.hit && !record.udp && record.packet == gw_nic_pkg::READABLE && !record.usual && record.user[7]
               && record.packet_end != {9'b0, record.payload_at};
    if (!walking) begin
      rest <= options;
      left <= 6'(held.payload_at - {1'b0, held.l4_at}) - 6'd20;
      skip <= '0;
      binding <= walked && !take ? binding : 1'b0;
    end else begin
      rest <= {8'h00, rest[319:8]};
      left <= left - 6'd1;
      skip <= skip == '0 ? '0 : skip - 8'd1;
      if (skip == '0 && left != '0) begin
        if (rest[7:0] == 8'd19 || rest[7:0] == 8'd29 || (rest[7:0] == 8'd30 && !fault_mptcp)) binding <= 1'b1;
        else if (rest[7:0] > 8'd1) begin
          if (left == 6'd1 || rest[15:8] < 8'd2) binding <= 1'b1;
          skip <= rest[15:8] - 8'd1;
        end
      end
    end
    holds <= record_valid && !take && !rst;
    if (rst) begin
      walking <= 1'b0;
      walked <= 1'b0;
    end else if (walking) begin
      // The end of the list, or of the header.
      if (left == '0 || (skip == '0 && rest[7:0] == 8'd0) || binding) begin
        walking <= 1'b0;
        walked <= 1'b1;
      end
    end else begin
      if (take) walked <= 1'b0;
      else if (holds && needs_walk && !walked) walking <= 1'b1;
    end
  end

  // Stage 1.
  /* verilator lint_off UNUSEDSIGNAL */  // records and rules are handed on whole
  gw_nic_pkg::record_t r;
  gw_nic_pkg::rule_t rule_1;
  /* verilator lint_on UNUSEDSIGNAL */
  logic valid_1, is_mark_1, hit_1, short_1, trailing_1, binding_1;
  logic [15:0] payload_len_1, l4_len_1;
  logic [7:0] head_len_1;
  always_ff @(posedge clk) begin
    r <= held;
    rule_1 <= rule;
    is_mark_1 <= held.is_mark;
    hit_1 <= held.hit;
    short_1 <= {3'b0, held.len} < held.packet_end;
    trailing_1 <= {3'b0, held.len} > held.packet_end;
    binding_1 <= needs_walk && binding;
    payload_len_1 <= 16'(held.packet_end - {9'b0, held.payload_at});
    l4_len_1 <= 16'(held.packet_end - {10'b0, held.l4_at});
    head_len_1 <= held.udp ? rule.udp_offset : {6'b0, held.user[1:0]};
    valid_1 <= take && !rst;
  end

  // Stage 2.
  /* verilator lint_off UNUSEDSIGNAL */
  gw_nic_pkg::record_t s;
  gw_nic_pkg::rule_t rule_2;
  /* verilator lint_on UNUSEDSIGNAL */
  logic valid_2, is_mark_2, hit_2, short_2, trailing_2, binding_2, unsummed_2, sum_right_2, no_value_2, no_payload_2;
  logic [15:0] payload_len_2;
  logic [7:0] head_len_2;
  logic [13:0] values_2;
  always_ff @(posedge clk) begin
    s <= r;
    rule_2 <= rule_1;
    {is_mark_2, hit_2, short_2, trailing_2, binding_2} <= {is_mark_1, hit_1, short_1, trailing_1, binding_1};
    {payload_len_2, head_len_2} <= {payload_len_1, head_len_1};
    unsummed_2 <= r.udp && r.l4_checksum == 16'h0000;
    // Right, or left to offload: the pseudo-header's sum.
    sum_right_2 <= r.l4_sum == 16'hffff || gw_nic_pkg::same(r.l4_checksum, gw_nic_pkg::plus(r.pseudo, l4_len_1));
    no_payload_2 <= payload_len_1 == 16'd0;
    no_value_2 <= {1'b0, payload_len_1} < {9'b0, head_len_1} + 17'd4;
    values_2 <= 14'((payload_len_1 - {8'b0, head_len_1}) >> 2);
    valid_2 <= valid_1 && !rst;
  end

  // Stage 3: the verdict.
  gw_nic_pkg::plan_t d;
  gw_pkg::layout_t layout;
  logic remark;
  always_comb begin
    d = '0;
    remark = 1'b0;
    d.beats = s.beats;
    d.start = s.start;
    d.len = s.len;
    d.in_len = s.len;
    d.splice = rule_2.routed;
    d.segment = {8'd1, 8'd1, s.tos[7:2], 1'b0, unsummed_2, head_len_2, payload_len_2, rule_2.b, rule_2.k, rule_2.x};
    layout.bypass = {8'b0, s.payload_at} + (rule_2.routed ? 16'd8 : 16'd0) + {8'b0, head_len_2};
    layout.values = {2'b0, values_2};
    layout.b = rule_2.b;
    layout.k = rule_2.k;
    layout.raw_from = 8'd127 + rule_2.x;
    d.layout = layout;
    d.rewrite = rule_2.routed;
    d.v6 = s.v6;
    d.udp = s.udp;
    d.ip_at = s.ip_at;
    d.l4_at = s.l4_at;
    d.payload_at = s.payload_at;
    d.first = s.first;
    d.ip_len = s.ip_len;
    d.ip_checksum = s.ip_checksum;
    d.udp_len = s.udp_len;
    d.l4_checksum = s.l4_checksum;
    d.pseudo = s.pseudo;

    if (s.oversize) {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_OVERSIZE};
    else if (s.not_ip) d.outcome = gw_nic_pkg::NOT_IP;
    else if (s.no_header) d.outcome = gw_nic_pkg::MALFORMED;
    // The host's own frame carries the mark: it goes on without.
    else if (is_mark_2) remark = 1'b1;
    else if (!hit_2) d.outcome = gw_nic_pkg::NO_RULE;
    else if (s.packet == gw_nic_pkg::BAD) d.outcome = gw_nic_pkg::MALFORMED;
    else if (s.packet == gw_nic_pkg::IS_FRAGMENT) d.outcome = gw_nic_pkg::FRAGMENT;
    else if (s.packet == gw_nic_pkg::OTHER_PROTOCOL) d.outcome = gw_nic_pkg::PROTOCOL;
    else if (s.packet == gw_nic_pkg::HAS_UDP_OPTIONS) d.outcome = gw_nic_pkg::UDP_OPTIONS;
    // The far end would take it for a compressed one.
    else if (!rule_2.routed && short_2) remark = 1'b1;
    else if (s.udp && !rule_2.udp) d.outcome = gw_nic_pkg::UDP_OFF;
    else if (s.udp && s.tunnel) d.outcome = gw_nic_pkg::TUNNEL;
    // SYN, RST.
    else if (!s.udp && (s.flags & 8'h06) != 8'h00) d.outcome = gw_nic_pkg::TCP_FLAGS;
    else if (!s.udp && no_payload_2) d.outcome = gw_nic_pkg::NO_PAYLOAD;
    else if (short_2) d.outcome = gw_nic_pkg::MALFORMED;
    else if (!s.ip_right) d.outcome = gw_nic_pkg::IP_CHECKSUM;
    else if (!unsummed_2 && !sum_right_2) d.outcome = gw_nic_pkg::L4_CHECKSUM;
    else if (!s.udp && !s.user[7])
      d.outcome = s.user[4:0] == 5'd0 ? gw_nic_pkg::ALIGNMENT_UNKNOWN : 6'd8 + {1'b0, s.user[4:0]};
    // URG.
    else if (!s.udp && s.flags[5]) d.outcome = gw_nic_pkg::TCP_FLAGS;
    else if (binding_2) d.outcome = gw_nic_pkg::TCP_OPTION;
    else if (!s.udp && head_len_2 != 8'd0 && (rule_2.payload || !rule_2.routed)) d.outcome = gw_nic_pkg::MISALIGNED;
    else if (trailing_2) d.outcome = gw_nic_pkg::TRAILER;
    else if (no_value_2) d.outcome = gw_nic_pkg::NO_VALUE;
    else d.coded = 1'b1;

    d.remark = remark;
    if (remark) d.outcome = gw_nic_pkg::REMARKED;
    d.new_tos = remark ? {6'b0, s.tos[1:0]} : {mark, s.tos[1:0]};
  end

  always_ff @(posedge clk) begin
    plan <= d;
    plan_valid <= valid_2 && !rst;
  end
endmodule
