// Decides what leaves, and computes the headers that it leaves with.
//
// Enters: plans of all frames in their order, and for those that were coded what came out of the
// engine.
// Leaves: an `order` for gw_sender, and the verdict for the counters, for one clock.
// Latency: two clocks for a frame that leaves as it came, seven for a coded one.
// Follows: dataplane/src/engine/ingress.rs (restore) or egress.rs (compress),
// dataplane/src/wire/rewrite.rs.
module gw_finish #(
    parameter bit EGRESS = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    input  gw_nic_pkg::plan_t plan,
    input  logic         plan_valid,
    output logic         plan_ready,
    input  gw_nic_pkg::outcome_t outcome,
    input  logic         outcome_valid,
    output logic         outcome_ready,
    output gw_nic_pkg::order_t order,
    output logic         order_valid,
    input  logic         order_ready,
    output gw_nic_pkg::verdict_t verdict
);
`ifdef GW_FAULTS
  logic fault_trial;
  initial fault_trial = $test$plusargs("fault_trial");
  logic fault_padding;
  initial fault_padding = $test$plusargs("fault_padding");
`else
  localparam logic fault_trial = 1'b0;
  localparam logic fault_padding = 1'b0;
`endif

  typedef enum logic [2:0] {IDLE, WAIT, DECIDE, LENGTHS, SUMS, MORE_SUMS, PUSH} state_t;
  state_t state;
  /* verilator lint_off UNUSEDSIGNAL */  // plans are handed on whole
  gw_nic_pkg::plan_t p;
  /* verilator lint_on UNUSEDSIGNAL */
  gw_nic_pkg::outcome_t o;

  // DECIDE: what leaves. WAIT has compared what is known before.
  logic over_least;                    // the frame as it came was not padded: without tags it has more than 60 bytes
  logic changed_d, drop_d;
  logic [5:0] outcome_d;
  logic [13:0] len_d;
  logic decoded, whole;
  always_comb begin
    decoded = !o.refused && o.len >= p.expected;
    whole = o.len == p.expected;
    changed_d = 1'b0;
    drop_d = 1'b0;
    outcome_d = p.outcome;
    len_d = p.len;
    if (EGRESS) begin
      // Both would be padded to 60 bytes, without tags.
      changed_d = o.len < {3'b0, p.len} && (over_least || fault_padding);
      outcome_d = changed_d ? gw_nic_pkg::COMPRESSED : gw_nic_pkg::NOT_SHORTER;
      if (changed_d) len_d = o.len[13:0];
    end else if (p.trial) begin
      drop_d = decoded && (whole || fault_trial);
      if (drop_d) outcome_d = p.drop_outcome;
    end else begin
      changed_d = decoded && (whole || p.padded);
      drop_d = !changed_d;
      if (changed_d) len_d = p.expected[13:0];
      if (changed_d) outcome_d = gw_nic_pkg::RESTORED;
      else outcome_d = decoded ? gw_nic_pkg::DROP_EXCESS : gw_nic_pkg::DROP_GROUPS;
    end
  end

  // The arithmetic of the headers, a step a clock.
  logic changed, drop;
  logic [5:0] outcome_q;
  logic [13:0] len;
  logic [15:0] new_first, new_ip_len, l4_len;
  logic [15:0] ip_1, ip_2, l4_1, l4_2, l4_3;

  function automatic logic [15:0] update(input logic [15:0] field, input logic [15:0] was, input logic [15:0] is);
    update = was == is ? field : ~gw_nic_pkg::plus3(~field, ~was, is);
  endfunction

  logic [15:0] field, l4_field;
  always_comb begin
    field = EGRESS ? gw_nic_pkg::plus(~l4_3, gw_nic_pkg::CHECKSUM_CONSTANT) : ~l4_3;
    l4_field = field;
    if (field == 16'h0000 && p.udp) l4_field = 16'hffff;
    if (p.no_checksum) l4_field = 16'h0000;
  end

  always_ff @(posedge clk) begin
    case (state)
      IDLE: begin
        p <= plan;
        changed <= plan.remark;
        drop <= plan.drop;
        outcome_q <= plan.outcome;
        len <= plan.len;
        if (plan_valid) begin
          if (plan.coded) state <= WAIT;
          else state <= plan.remark ? LENGTHS : PUSH;
        end
      end
      WAIT: begin
        o <= outcome;
        over_least <= p.len > 14'd46 + {9'b0, p.ip_at};
        if (outcome_valid) state <= DECIDE;
      end
      DECIDE: begin
        changed <= changed_d;
        drop <= drop_d;
        outcome_q <= outcome_d;
        len <= len_d;
        state <= changed_d && p.rewrite ? LENGTHS : PUSH;
      end
      LENGTHS: begin
        new_first <= p.v6 ? {p.first[15:12], p.new_tos, p.first[3:0]} : {p.first[15:8], p.new_tos};
        new_ip_len <= p.remark ? p.ip_len
                    : {2'b0, len} - {9'b0, p.v6 ? p.l4_at : {2'b0, p.ip_at}};
        l4_len <= {2'b0, len} - {9'b0, p.l4_at};
        // Without the old checksum, and for UDP without the old length.
        l4_1 <= gw_nic_pkg::plus3(o.sum, ~p.l4_checksum, p.udp ? ~p.udp_len : 16'h0000);
        state <= SUMS;
      end
      SUMS: begin
        ip_1 <= update(p.ip_checksum, p.first, new_first);
        l4_2 <= gw_nic_pkg::plus3(l4_1, p.pseudo, l4_len);
        state <= MORE_SUMS;
      end
      MORE_SUMS: begin
        ip_2 <= update(ip_1, p.ip_len, new_ip_len);
        l4_3 <= p.udp ? gw_nic_pkg::plus(l4_2, l4_len) : l4_2;
        state <= PUSH;
      end
      default: if (order_ready) state <= IDLE;
    endcase
    if (rst) state <= IDLE;
  end

  logic rewritten;
  logic [6:0] ip_word, l4_word;
  always_comb begin
    rewritten = changed && p.coded && p.rewrite;
    ip_word = {3'b0, p.ip_at[4:1]};
    l4_word = {1'b0, p.l4_at[6:1]};
    order.drop = drop;
    order.coded = changed && p.coded;
    order.start = p.start;
    order.beats = p.beats;
    order.coded_beats = p.coded ? o.beats : 9'd0;
    // A frame of no bytes is one beat.
    order.last = len == '0 ? 9'd0 : 9'((len - 14'd1) >> 5);
    order.last_bytes = {len[4:0] == 5'd0 && len != '0, len[4:0]};
    order.patches = {
      {rewritten, l4_word + (p.udp ? 7'd3 : 7'd8), l4_field},
      {rewritten && p.udp, l4_word + 7'd2, l4_len},
      {(rewritten || p.remark) && !p.v6, ip_word + 7'd5, ip_2},
      {rewritten, ip_word + (p.v6 ? 7'd2 : 7'd1), new_ip_len},
      {rewritten || p.remark, ip_word, new_first}};
  end
  assign plan_ready = state == IDLE;
  assign outcome_ready = state == WAIT;
  assign order_valid = state == PUSH;
  assign verdict = {order_valid && order_ready, outcome_q, p.len, len};
endmodule
