// Reads a frame's headers and sums as its beats go by.
//
// Enters: beats from gw_store, a beat a clock and never held up.
// Leaves: for each frame one `record`, with its rule and with `done` for one clock, and the TCP options (`options`, the first byte lowest; what
// is behind the header is of no use). Up to two VLAN tags, IPv4 with options, IPv6 without extension headers, TCP, UDP.
// Latency: eight clocks from a frame's last beat.
// Follows: dataplane/src/wire/frame.rs (IpFrame::parse, IpFrame::packet, Packet). One difference: an IPv6 extension header that
// frame.rs steps over is another protocol here.
module gw_parser (
    input  logic         clk,
    input  logic         rst,
    input  gw_nic_pkg::config_t cfg,
    input  logic         valid,
    input  logic         first,
    input  logic         last,
    input  logic [8:0]   beat,
    input  logic [5:0]   bytes,
    input  logic [255:0] data,
    input  logic [7:0]   user,
    input  logic [1:0]   tags,
    input  logic         oversize,
    input  logic [8:0]   beats,
    input  logic [9:0]   start,
    output logic         done,
    output gw_nic_pkg::record_t record,
    output logic [319:0] options
);

`ifdef GW_FAULTS
  logic fault_vlan;
  initial fault_vlan = $test$plusargs("fault_vlan");
  logic fault_udp_length;
  initial fault_udp_length = $test$plusargs("fault_udp_length");
`else
  localparam logic fault_vlan = 1'b0;
  localparam logic fault_udp_length = 1'b0;
`endif

  // What the first beat says; it has all of it, the IPv4 checksum aside.
  typedef struct packed {
    logic        not_ip;
    logic        bad_version;
    logic        v6;
    logic [4:0]  ip_at;
    logic [6:0]  l4_at;
    logic [16:0] packet_end;
    logic [15:0] first;
    logic [7:0]  tos;
    logic [15:0] ip_len;
    logic        bad_length;   // IPv4: header length, or total length below it
    logic        fragment;
    logic        extension;    // IPv6
    logic [7:0]  protocol;
  } head_t;

  // Stage 0: the first beat.
  head_t head;
  logic [1:0] seen_tags;
  logic [15:0] ethertype, w0, w1, w2, w3;
  logic [7:0] w4;            // its second byte
  always_comb begin
    seen_tags = fault_vlan && tags == 2'd2 ? 2'd1 : tags;
    case (seen_tags)
      2'd0: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd6);
        {w0, w1, w2} = {gw_nic_pkg::word_at(data, 4'd7), gw_nic_pkg::word_at(data, 4'd8), gw_nic_pkg::word_at(data, 4'd9)};
        {w3, w4} = {gw_nic_pkg::word_at(data, 4'd10), data[8*23 +: 8]};
      end
      2'd1: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd8);
        {w0, w1, w2} = {gw_nic_pkg::word_at(data, 4'd9), gw_nic_pkg::word_at(data, 4'd10), gw_nic_pkg::word_at(data, 4'd11)};
        {w3, w4} = {gw_nic_pkg::word_at(data, 4'd12), data[8*27 +: 8]};
      end
      default: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd10);
        {w0, w1, w2} = {gw_nic_pkg::word_at(data, 4'd11), gw_nic_pkg::word_at(data, 4'd12), gw_nic_pkg::word_at(data, 4'd13)};
        {w3, w4} = {gw_nic_pkg::word_at(data, 4'd14), data[8*31 +: 8]};
      end
    endcase
    head.v6 = ethertype == 16'h86dd;
    head.not_ip = (ethertype != 16'h0800 && ethertype != 16'h86dd)
               || bytes < 6'd14 || (seen_tags != 2'd0 && bytes < 6'd18) || (seen_tags == 2'd2 && bytes < 6'd22);
    head.bad_version = w0[15:12] != (head.v6 ? 4'd6 : 4'd4);
    head.ip_at = 5'd14 + {1'b0, seen_tags, 2'b00};
    head.l4_at = {2'b00, head.ip_at} + (head.v6 ? 7'd40 : {1'b0, w0[11:8], 2'b00});
    head.packet_end = {12'b0, head.ip_at} + (head.v6 ? 17'd40 + {1'b0, w2} : {1'b0, w1});
    head.first = w0;
    head.tos = head.v6 ? w0[11:4] : w0[7:0];
    head.ip_len = head.v6 ? w2 : w1;
    head.bad_length = !head.v6 && (w0[11:8] < 4'd5 || w1 < {10'b0, w0[11:8], 2'b00});
    // More fragments, or an offset; the don't-fragment bit does not matter.
    head.fragment = head.v6 ? w3[15:8] == 8'd44 : w3[13:0] != 14'd0;
    head.extension = head.v6 && (w3[15:8] == 8'd0 || w3[15:8] == 8'd43 || w3[15:8] == 8'd60);
    head.protocol = head.v6 ? w3[15:8] : w4;
  end

  // Stage 1: sums, and the transport header word by word, turned so that it begins in lane 0.
  logic valid_1, first_1, last_1, oversize_1;
  logic [8:0] beat_1, beats_1;
  logic [5:0] bytes_1;
  logic [9:0] start_1;
  logic [7:0] user_1;
  logic [255:0] data_1;
  head_t head_1;
  always_ff @(posedge clk) begin
    valid_1 <= valid && !rst;
    {first_1, last_1, oversize_1, beat_1, bytes_1} <= {first, last, oversize, beat, bytes};
    {beats_1, start_1, user_1, data_1} <= {beats, start, user, data};
    if (valid && first) head_1 <= head;
  end

  logic [255:0] turned;
  logic [8:0] behind;        // beats behind the one in which the transport header begins
  logic [15:0] early;        // lanes that belong to the beat's own sixteen words
  logic [15:0] l4 [34];      // the transport header and eight bytes of payload
  logic [15:0] ip_checksum_2;
  always_comb begin
    for (int i = 0; i < 16; i++) turned[16*i +: 16] = data_1[16*(4'(i) + head_1.l4_at[4:1]) +: 16];
    behind = beat_1 - {7'b0, head_1.l4_at[6:5]};
    for (int i = 0; i < 16; i++) early[i] = 5'(i) + {1'b0, head_1.l4_at[4:1]} < 5'd16;
  end
  always_ff @(posedge clk) begin
    if (valid_1) begin
      for (int i = 0; i < 34; i++)
        if (behind == 9'(i / 16) + (early[i % 16] ? 9'd0 : 9'd1)) l4[i] <= gw_nic_pkg::word_at(turned, 4'(i % 16));
      if (head_1.ip_at == 5'd22 ? beat_1 == 9'd1 : beat_1 == 9'd0)
        ip_checksum_2 <= gw_nic_pkg::word_at(data_1, head_1.ip_at == 5'd14 ? 4'd12 : head_1.ip_at == 5'd18 ? 4'd14 : 4'd0);
    end
  end

  logic [16:0] ip_at_1, l4_at_1;
  logic header_done, unused_addresses, unused_l4;
  logic [15:0] header_sum, addresses_sum, l4_sum;
  assign ip_at_1 = {12'b0, head_1.ip_at};
  assign l4_at_1 = {10'b0, head_1.l4_at};
  gw_checksum header_checksum (
      .clk, .rst, .valid(valid_1), .first(first_1), .last(last_1), .beat(beat_1), .data(data_1),
      .from(ip_at_1), .until_(l4_at_1), .done(header_done), .sum(header_sum));
  gw_checksum addresses_checksum (
      .clk, .rst, .valid(valid_1), .first(first_1), .last(last_1), .beat(beat_1), .data(data_1),
      .from(ip_at_1 + (head_1.v6 ? 17'd8 : 17'd12)), .until_(ip_at_1 + (head_1.v6 ? 17'd40 : 17'd20)),
      .done(unused_addresses), .sum(addresses_sum));
  gw_checksum l4_checksum (
      .clk, .rst, .valid(valid_1), .first(first_1), .last(last_1), .beat(beat_1), .data(data_1),
      .from(l4_at_1), .until_(head_1.packet_end), .done(unused_l4), .sum(l4_sum));

  // Stage 2: the frame has ended, and the words are there.
  /* verilator lint_off UNUSEDSIGNAL */  // not all of it is needed to the end
  head_t head_2, head_3, head_4;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [13:0] len_2, len_3, len_4;
  logic oversize_2, oversize_3, oversize_4;
  logic [8:0] beats_2, beats_3, beats_4;
  logic [9:0] start_2, start_3, start_4;
  logic [7:0] user_2, user_3, user_4;
  always_ff @(posedge clk) begin
    head_2 <= head_1;
    len_2 <= {beat_1, 5'b0} + {8'b0, bytes_1};
    {oversize_2, beats_2, start_2, user_2} <= {oversize_1, beats_1, start_1, user_1};
    {head_3, len_3, oversize_3, beats_3, start_3, user_3} <= {head_2, len_2, oversize_2, beats_2, start_2, user_2};
    {head_4, len_4, oversize_4, beats_4, start_4, user_4} <= {head_3, len_3, oversize_3, beats_3, start_3, user_3};
  end

  logic tcp_2;
  logic [3:0] words_2;       // of the transport header, in 32 bits
  always_ff @(posedge clk) tcp_2 <= head_1.protocol == 8'd6;
  assign words_2 = tcp_2 ? l4[6][15:12] : 4'd2;

  // Stage 3.
  logic tcp_3, udp_3, usual_3, tunnel_3;
  logic [3:0] words_3;
  logic [7:0] payload_at_3, flags_3;
  logic [15:0] udp_len_3, l4_checksum_3, ip_checksum_3;
  logic [15:0] l4_3 [34];
  always_ff @(posedge clk) begin
    tcp_3 <= tcp_2;
    udp_3 <= head_2.protocol == 8'd17;
    words_3 <= words_2;
    payload_at_3 <= {1'b0, head_2.l4_at} + {2'b00, words_2, 2'b00};
    flags_3 <= l4[6][7:0];
    udp_len_3 <= l4[2];
    l4_checksum_3 <= tcp_2 ? l4[8] : l4[3];
    ip_checksum_3 <= ip_checksum_2;
    tunnel_3 <= !tcp_2 && (l4[1] == 16'd2152 || l4[1] == 16'd4789 || l4[1] == 16'd4791
                           || l4[1] == 16'd6081 || l4[1] == 16'd8472);
    usual_3 <= l4[6][15:12] == 4'd5 || (l4[6][15:12] == 4'd8 && l4[10] == 16'h0101 && l4[11] == 16'h080a);
    for (int i = 0; i < 34; i++) l4_3[i] <= l4[i];
  end

  // Stage 4: comparisons.
  logic [16:0] long_3, l4_end_3;
  always_comb begin
    long_3 = {3'b0, len_3};
    l4_end_3 = {10'b0, head_3.l4_at} + {1'b0, udp_len_3};
  end
  // The eight bytes behind the transport header. Written as a sum of products: as one choice after the other, it was the slowest path.
  always_comb begin
    segment_d = '0;
    for (int i = 0; i < 16; i++)
      segment_d = segment_d | ({l4_3[2*i], l4_3[2*i + 1], l4_3[2*i + 2], l4_3[2*i + 3]} & {64{words_3 == 4'(i)}});
  end
  logic cut_4, cut_tcp_4, cut_udp_len_4, cut_udp_4, beyond_4, udp_equal_4, udp_bad_4, few_words_4, no_header_4;
  logic tcp_4, udp_4, usual_4, tunnel_4;
  logic [7:0] payload_at_4, flags_4;
  logic [15:0] udp_len_4, l4_checksum_4, ip_checksum_4;
  logic [63:0] segment_d, segment_4;
  logic [319:0] options_4;
  always_ff @(posedge clk) begin
    no_header_4 <= head_3.bad_version || long_3 < {12'b0, head_3.ip_at} + (head_3.v6 ? 17'd40 : 17'd20);
    cut_tcp_4 <= long_3 < {10'b0, head_3.l4_at} + 17'd20;
    cut_udp_len_4 <= long_3 < {10'b0, head_3.l4_at} + 17'd6;
    cut_udp_4 <= long_3 < {10'b0, head_3.l4_at} + 17'd8;
    cut_4 <= {9'b0, payload_at_3} > long_3;
    beyond_4 <= {9'b0, payload_at_3} > head_3.packet_end;
    udp_equal_4 <= l4_end_3 == head_3.packet_end;
    udp_bad_4 <= udp_len_3 < 16'd8 || l4_end_3 > head_3.packet_end;
    few_words_4 <= words_3 < 4'd5;
    {tcp_4, udp_4, usual_4, tunnel_4, payload_at_4} <= {tcp_3, udp_3, usual_3, tunnel_3, payload_at_3};
    {flags_4, udp_len_4, l4_checksum_4, ip_checksum_4} <= {flags_3, udp_len_3, l4_checksum_3, ip_checksum_3};
    segment_4 <= segment_d;
    for (int i = 0; i < 20; i++) options_4[16*i +: 16] <= {l4_3[10 + i][7:0], l4_3[10 + i][15:8]};
  end

  // The rule: there with `record`.
  logic is_mark, hit;
  logic [gw_nic_pkg::RULE_W-1:0] rule;
  gw_rules rules (.clk, .cfg, .tos(record_5.tos), .is_mark, .hit, .rule);

  // Stage 5: with the sums.
  gw_nic_pkg::packet_t packet_4;
  always_comb begin
    packet_4 = gw_nic_pkg::READABLE;
    if (head_4.bad_length) packet_4 = gw_nic_pkg::BAD;
    else if (head_4.fragment) packet_4 = gw_nic_pkg::IS_FRAGMENT;
    else if (head_4.extension || !(tcp_4 || udp_4)) packet_4 = gw_nic_pkg::OTHER_PROTOCOL;
    else if (tcp_4) begin
      if (cut_tcp_4 || few_words_4 || cut_4 || beyond_4) packet_4 = gw_nic_pkg::BAD;
    end else begin
      if (cut_udp_len_4) packet_4 = gw_nic_pkg::BAD;
      else if (!udp_equal_4) packet_4 = udp_bad_4 && !fault_udp_length ? gw_nic_pkg::BAD : gw_nic_pkg::HAS_UDP_OPTIONS;
      else if (cut_udp_4 || beyond_4) packet_4 = gw_nic_pkg::BAD;
    end
  end

  gw_nic_pkg::record_t record_5;
  logic [319:0] options_5;
  always_ff @(posedge clk) begin
    record_5.oversize <= oversize_4;
    record_5.beats <= beats_4;
    record_5.start <= start_4;
    record_5.len <= len_4;
    record_5.user <= user_4;
    record_5.not_ip <= head_4.not_ip;
    record_5.no_header <= no_header_4;
    record_5.v6 <= head_4.v6;
    record_5.ip_at <= head_4.ip_at;
    record_5.l4_at <= head_4.l4_at;
    record_5.packet_end <= head_4.packet_end;
    record_5.first <= head_4.first;
    record_5.tos <= head_4.tos;
    record_5.ip_len <= head_4.ip_len;
    record_5.ip_checksum <= ip_checksum_4;
    record_5.packet <= packet_4;
    record_5.udp <= udp_4;
    record_5.flags <= flags_4;
    record_5.tunnel <= tunnel_4;
    record_5.usual <= usual_4;
    record_5.udp_len <= udp_len_4;
    record_5.l4_checksum <= l4_checksum_4;
    record_5.payload_at <= payload_at_4;
    record_5.segment <= segment_4;
    record_5.ip_right <= 1'b0;     // below, a clock later
    record_5.pseudo <= '0;
    record_5.l4_sum <= '0;
    {record_5.is_mark, record_5.hit, record_5.rule} <= '0;
    options_5 <= options_4;
  end

  // Stage 7: `header_done` comes with record_6, five clocks behind stage 1.
  gw_nic_pkg::record_t record_6, record_7, record_8;
  logic [15:0] segment_sum_7;
  logic done_7;
  logic [15:0] l4_len_6;
  always_ff @(posedge clk) begin
    record_6 <= record_5;
    l4_len_6 <= 16'(record_5.packet_end - {10'b0, record_5.l4_at});
    record_7 <= record_6;
    record_7.ip_right <= record_6.v6 || header_sum == 16'hffff;
    record_7.pseudo <= gw_nic_pkg::plus(addresses_sum, record_6.udp ? 16'd17 : 16'd6);
    segment_sum_7 <= gw_nic_pkg::plus(l4_sum, l4_len_6);
    done_7 <= header_done && !rst;
    record_8 <= record_7;
    record_8.l4_sum <= gw_nic_pkg::plus(record_7.pseudo, segment_sum_7);
    done <= done_7 && !rst;
  end
  always_comb begin
    record = record_8;
    {record.is_mark, record.hit, record.rule} = {is_mark, hit, rule};
  end
  logic [319:0] options_6, options_7;
  always_ff @(posedge clk) {options, options_7, options_6} <= {options_7, options_6, options_5};
endmodule
