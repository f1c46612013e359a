// What is to become of a frame from the wire.
//
// Enters: the parser's records. Leaves: a plan for each, three clocks later.
// Follows: dataplane/src/engine/ingress.rs, Ingress::decide, with codec 1 and `handshake = "off"`:
// capability options on SYNs are left to whoever owns the flows. A segment header of another codec
// is refused as one of another version.
module gw_ingress_classifier (
    input  logic        clk,
    input  logic        rst,
    input  logic [7:2]  mark,
    input  logic [13:0] mtu,
    input  gw_nic_pkg::record_t next_record,
    input  logic        next_valid,
    output gw_nic_pkg::plan_t plan,
    output logic        plan_valid
);
  // Stage 0: out of the memory into a register.
  gw_nic_pkg::record_t record;
  logic record_valid;
  always_ff @(posedge clk) begin
    record <= next_record;
    record_valid <= next_valid && !rst;
  end

  // Stage 1: the rule, the segment header, comparisons.
  gw_nic_pkg::rule_t rule;
  assign rule = record.rule;

  logic [7:0] version, codec, seg_head, seg_x;
  logic [6:0] seg_tos;  // without its lowest bit
  logic [15:0] seg_len;
  logic [3:0] seg_b, seg_k;
  logic parameters, header;
  logic [13:0] seen_end;
  logic [16:0] header_end;
  assign {version, codec} = record.segment[63:48];
  assign seg_tos = record.segment[47:41];
  assign {seg_head, seg_len, seg_b, seg_k, seg_x} = record.segment[39:0];
  always_comb begin
    seen_end = record.packet_end < {3'b0, record.len} ? record.packet_end[13:0] : record.len;
    parameters = seg_b != 4'd0 && seg_b <= 4'd14 && seg_k <= seg_b && {1'b0, seg_k} + 5'd7 >= {1'b0, seg_b}
              && (!seg_x[7] || seg_x >= 8'hb0);
    header_end = {9'b0, record.payload_at} + 17'd8;
    header = record.packet_end >= header_end && {3'b0, record.len} >= header_end && version == 8'd1 && codec == 8'd1 && !seg_tos[0]
          && parameters && {1'b0, seg_len} >= {9'b0, seg_head} + 17'd4;
  end

  /* verilator lint_off UNUSEDSIGNAL */  // records and rules are handed on whole
  gw_nic_pkg::record_t r;
  gw_nic_pkg::rule_t rule_1;
  /* verilator lint_on UNUSEDSIGNAL */
  logic valid_1, is_mark_1, in_place_1, short_1, header_1, seg_marked_1, flags_1, empty_1;
  logic too_long_1, routed_too_long_1;  // for the MTU
  logic [15:0] payload_len_1;
  logic [13:0] seen_end_1;
  always_ff @(posedge clk) begin
    r <= record;
    rule_1 <= rule;
    is_mark_1 <= record.is_mark;
    in_place_1 <= record.hit && !rule.routed;
    short_1 <= {3'b0, record.len} < record.packet_end;
    header_1 <= header;
    seg_marked_1 <= seg_tos[6:1] == mark;
    // SYN, RST, URG.
    flags_1 <= !record.udp && (record.flags & 8'h26) != 8'h00;
    payload_len_1 <= 16'(record.packet_end - {9'b0, record.payload_at});
    empty_1 <= record.packet_end < {9'b0, record.payload_at} + {9'b0, record.udp ? rule.udp_offset : 8'd0} + 17'd4;
    seen_end_1 <= seen_end;
    too_long_1 <= record.packet_end > {3'b0, mtu} + {12'b0, record.ip_at};
    routed_too_long_1 <= {1'b0, seg_len} + {9'b0, record.payload_at} > {3'b0, mtu} + {12'b0, record.ip_at};
    valid_1 <= record_valid && !rst;
  end

  // Stage 2: the verdict.
  logic [7:0] r_head, r_x;
  logic [5:0] r_tos;
  logic r_no_checksum;
  logic [15:0] r_len;
  logic [3:0] r_b, r_k;
  assign r_tos = r.segment[47:42];
  assign r_no_checksum = r.segment[40];
  assign {r_head, r_len, r_b, r_k, r_x} = r.segment[39:0];

  gw_nic_pkg::plan_t d;
  gw_pkg::layout_t layout;
  logic ours, routed;
  logic [7:0] head_len;
  logic [15:0] raw_len;
  logic [13:0] values;
  logic unsummed, right;
  always_comb begin
    ours = header_1 && !seg_marked_1 && (r.udp ? !r.tunnel : !flags_1 && !r_no_checksum);
    unsummed = r.udp && r.l4_checksum == 16'h0000;
    right = r.l4_sum == 16'hffff;
    routed = is_mark_1;
    head_len = routed ? r_head : r.udp ? rule_1.udp_offset : 8'd0;
    raw_len = routed ? r_len : payload_len_1;
    values = 14'((raw_len - {8'b0, head_len}) >> 2);

    d = '0;
    d.beats = r.beats;
    d.start = r.start;
    d.len = r.len;
    d.in_len = routed ? seen_end_1 : r.len;
    d.splice = routed;
    layout.bypass = {8'b0, r.payload_at} + {8'b0, head_len};
    layout.values = {2'b0, values};
    layout.b = routed ? r_b : rule_1.b;
    layout.k = routed ? r_k : rule_1.k;
    layout.raw_from = 8'd127 + (routed ? r_x : rule_1.x);
    d.layout = layout;
    d.expected = {9'b0, r.payload_at} + {1'b0, raw_len};
    // Tags may have been put on after the padding.
    d.padded = !routed && r.len >= 14'd60 && r.len <= 14'd46 + {9'b0, r.ip_at};
    d.rewrite = 1'b1;
    d.v6 = r.v6;
    d.udp = r.udp;
    d.no_checksum = routed ? r_no_checksum : unsummed;
    d.ip_at = r.ip_at;
    d.l4_at = r.l4_at;
    d.payload_at = r.payload_at;
    d.first = r.first;
    d.new_tos = routed ? {r_tos, r.tos[1:0]} : r.tos;
    d.ip_len = r.ip_len;
    d.ip_checksum = r.ip_checksum;
    d.udp_len = r.udp_len;
    d.l4_checksum = r.l4_checksum;
    d.pseudo = r.pseudo;

    d.outcome = gw_nic_pkg::NOT_COMPRESSED;
    if (r.oversize) begin
      {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_OVERSIZE};
    end else if (r.not_ip) begin
      d.outcome = gw_nic_pkg::NOT_IP;
    end else if (r.no_header) begin
      d.outcome = gw_nic_pkg::MALFORMED;
    end else if (!routed && !in_place_1) begin
      d.outcome = gw_nic_pkg::NOT_COMPRESSED;
    end else if (r.packet == gw_nic_pkg::BAD) begin
      {d.drop, d.outcome} = routed ? {1'b1, gw_nic_pkg::DROP_MALFORMED} : {1'b0, gw_nic_pkg::MALFORMED};
    end else if (r.packet == gw_nic_pkg::IS_FRAGMENT) begin
      d.outcome = gw_nic_pkg::FRAGMENT;
    end else if (r.packet == gw_nic_pkg::OTHER_PROTOCOL) begin
      d.outcome = gw_nic_pkg::PROTOCOL;
    end else if (r.packet == gw_nic_pkg::HAS_UDP_OPTIONS) begin
      // No engine sends UDP options, but a changed length field may look like them.
      d.outcome = gw_nic_pkg::UDP_OPTIONS;
      {d.coded, d.trial, d.drop_outcome} = {routed && ours, 1'b1, gw_nic_pkg::DROP_MALFORMED};
    end else if (routed) begin
      if (short_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_MALFORMED};
      end else if (!r.ip_right) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_IP_CHECKSUM};
      end else if (unsummed || right) begin
        // A host takes it for what it is, or for data.
        d.outcome = gw_nic_pkg::FOREIGN_MARK;
        {d.coded, d.trial} = {ours, 1'b1};
        d.drop_outcome = unsummed ? gw_nic_pkg::DROP_NO_CHECKSUM : gw_nic_pkg::DROP_RECOMPUTED;
      end else if (r.l4_sum != gw_nic_pkg::CHECKSUM_CONSTANT) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_L4_CHECKSUM};
      end else if (!header_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_SEGMENT_HEADER};
      end else if (flags_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_MALFORMED};
      end else if (seg_marked_1 || (!r.udp && r_no_checksum)) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_SEGMENT_HEADER};
      end else if (routed_too_long_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_TOO_LONG};
      end else begin
        d.coded = 1'b1;
      end
    end else begin
      if (!short_1) begin
        d.outcome = gw_nic_pkg::NOT_COMPRESSED;
      end else if (flags_1) begin
        // No engine compressed these; the host drops what is cut short.
        d.outcome = gw_nic_pkg::TCP_FLAGS;
      end else if (!r.ip_right) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_IP_CHECKSUM};
      end else if (empty_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_MALFORMED};
      end else if (too_long_1) begin
        {d.drop, d.outcome} = {1'b1, gw_nic_pkg::DROP_TOO_LONG};
      end else begin
        d.coded = 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    plan <= d;
    plan_valid <= valid_1 && !rst;
  end
endmodule
