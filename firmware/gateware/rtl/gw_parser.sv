// Reads a frame's headers and sums as its beats go by.
//
// Enters: beats from gw_store, a beat a clock and never held up.
// Leaves: for each frame one `record`, with its rule and with `done` for one clock, and the TCP
// options (`options`, the first byte lowest; what is behind the header is of no use). Up to two
// VLAN tags, IPv4 with options, IPv6 without extension headers, TCP, UDP.
// Latency: ten clocks from a frame's last beat.
// Follows: dataplane/src/wire/frame.rs (IpFrame::parse, IpFrame::packet, Packet). One difference:
// an IPv6 extension header that frame.rs steps over is another protocol here.
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

  // Stage 0: the first beat's words, by its tags.
  typedef struct packed {
    logic        v4;
    logic        v6;
    logic        cut;          // the EtherType is not there
    logic [4:0]  ip_at;
    logic [6:0]  past_v6;      // where an IPv6 header would end
    logic [15:0] w0;
    logic [15:0] w1;
    logic [15:0] w2;
    logic [15:0] w3;
    logic [7:0]  w4;           // its second byte
  } words_t;
  words_t words, words_1;
  logic [1:0] seen_tags;
  logic [15:0] ethertype;
  always_comb begin
    seen_tags = fault_vlan && tags == 2'd2 ? 2'd1 : tags;
    case (seen_tags)
      2'd0: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd6);
        {words.w0, words.w1} = {gw_nic_pkg::word_at(data, 4'd7), gw_nic_pkg::word_at(data, 4'd8)};
        {words.w2, words.w3, words.w4} = {gw_nic_pkg::word_at(data, 4'd9), gw_nic_pkg::word_at(data, 4'd10), data[8*23 +: 8]};
        words.cut = bytes < 6'd14;
      end
      2'd1: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd8);
        {words.w0, words.w1} = {gw_nic_pkg::word_at(data, 4'd9), gw_nic_pkg::word_at(data, 4'd10)};
        {words.w2, words.w3, words.w4} = {gw_nic_pkg::word_at(data, 4'd11), gw_nic_pkg::word_at(data, 4'd12), data[8*27 +: 8]};
        words.cut = bytes < 6'd18;
      end
      default: begin
        ethertype = gw_nic_pkg::word_at(data, 4'd10);
        {words.w0, words.w1} = {gw_nic_pkg::word_at(data, 4'd11), gw_nic_pkg::word_at(data, 4'd12)};
        {words.w2, words.w3, words.w4} = {gw_nic_pkg::word_at(data, 4'd13), gw_nic_pkg::word_at(data, 4'd14), data[8*31 +: 8]};
        words.cut = bytes < 6'd22;
      end
    endcase
    words.v4 = ethertype == 16'h0800;
    words.v6 = ethertype == 16'h86dd;
    words.ip_at = 5'd14 + {1'b0, seen_tags, 2'b00};
    words.past_v6 = 7'd54 + {3'b0, seen_tags, 2'b00};
  end

  // Stage 1: what they say.
  head_t head;
  logic [3:0] ihl;
  always_comb begin
    ihl = words_1.w0[11:8];
    head.v6 = words_1.v6;
    head.not_ip = !(words_1.v4 || words_1.v6) || words_1.cut;
    head.bad_version = words_1.w0[15:12] != (head.v6 ? 4'd6 : 4'd4);
    head.ip_at = words_1.ip_at;
    head.l4_at = head.v6 ? words_1.past_v6 : {2'b00, head.ip_at} + {1'b0, ihl, 2'b00};
    head.ip_len = head.v6 ? words_1.w2 : words_1.w1;
    head.packet_end = {1'b0, head.ip_len} + {10'b0, head.v6 ? words_1.past_v6 : {2'b00, head.ip_at}};
    head.first = words_1.w0;
    head.tos = head.v6 ? words_1.w0[11:4] : words_1.w0[7:0];
    head.bad_length = !head.v6 && (ihl < 4'd5 || words_1.w1 < {10'b0, ihl, 2'b00});
    // More fragments, or an offset; the don't-fragment bit does not matter.
    head.fragment = head.v6 ? words_1.w3[15:8] == 8'd44 : words_1.w3[13:0] != 14'd0;
    head.extension = head.v6 && (words_1.w3[15:8] == 8'd0 || words_1.w3[15:8] == 8'd43 || words_1.w3[15:8] == 8'd60);
    head.protocol = head.v6 ? words_1.w3[15:8] : words_1.w4;
  end

  // Stage 2: sums, and each beat turned so that the transport header begins in lane 0.
  logic valid_1, first_1, last_1, oversize_1, valid_2, first_2, last_2, oversize_2;
  logic [8:0] beat_1, beats_1, beat_2, beats_2;
  logic [5:0] bytes_1, bytes_2;
  logic [9:0] start_1, start_2;
  logic [7:0] user_1, user_2;
  logic [255:0] data_1, data_2;
  head_t head_2;
  always_ff @(posedge clk) begin
    valid_1 <= valid && !rst;
    {first_1, last_1, oversize_1, beat_1, bytes_1} <= {first, last, oversize, beat, bytes};
    {beats_1, start_1, user_1, data_1} <= {beats, start, user, data};
    if (valid && first) words_1 <= words;
    valid_2 <= valid_1 && !rst;
    {first_2, last_2, oversize_2, beat_2, bytes_2} <= {first_1, last_1, oversize_1, beat_1, bytes_1};
    {beats_2, start_2, user_2, data_2} <= {beats_1, start_1, user_1, data_1};
    if (valid_1 && first_1) head_2 <= head;
  end

  // Stage 3: which words of the transport header this beat has.
  logic [255:0] turned;
  logic [8:0] behind;          // beats behind the one in which the transport header begins
  logic [3:0] nth;             // it is that one, or one of the three behind it
  logic [15:0] early;          // lanes that belong to the beat's own sixteen words
  logic [15:0] skipped;        // the beat's words before the transport header's first lane
  logic [15:0] ip_checksum_3;
  logic has_ip_checksum_3;
  always_ff @(posedge clk) begin
    for (int i = 0; i < 16; i++) turned[16*i +: 16] <= data_2[16*(4'(i) + head_2.l4_at[4:1]) +: 16];
    for (int i = 0; i < 4; i++) nth[i] <= valid_2 && behind == 9'(i);
    for (int i = 0; i < 16; i++) early[i] <= !skipped[15-i];
    ip_checksum_3 <= gw_nic_pkg::word_at(data_2, head_2.ip_at == 5'd14 ? 4'd12 : head_2.ip_at == 5'd18 ? 4'd14 : 4'd0);
    has_ip_checksum_3 <= valid_2 && beat_2 == (head_2.ip_at == 5'd22 ? 9'd1 : 9'd0);
  end
  assign skipped = 16'(gw_pkg::first_of({2'b00, head_2.l4_at[4:1]}));
  assign behind = beat_2 - {7'b0, head_2.l4_at[6:5]};

  logic [15:0] l4 [34];        // the transport header and eight bytes of payload
  logic [15:0] ip_checksum_4;
  always_ff @(posedge clk) begin
    for (int i = 0; i < 34; i++)
      if (early[i % 16] ? nth[i / 16] : nth[i / 16 + 1]) l4[i] <= gw_nic_pkg::word_at(turned, 4'(i % 16));
    if (has_ip_checksum_3) ip_checksum_4 <= ip_checksum_3;
  end

  logic [16:0] ip_at_2, l4_at_2;
  logic header_done, unused_addresses, unused_l4;
  logic [15:0] header_sum, addresses_sum, l4_sum;
  assign ip_at_2 = {12'b0, head_2.ip_at};
  assign l4_at_2 = {10'b0, head_2.l4_at};
  gw_checksum header_checksum (
      .clk, .rst, .valid(valid_2), .first(first_2), .last(last_2), .beat(beat_2), .data(data_2),
      .from(ip_at_2), .until_(l4_at_2), .done(header_done), .sum(header_sum));
  gw_checksum addresses_checksum (
      .clk, .rst, .valid(valid_2), .first(first_2), .last(last_2), .beat(beat_2), .data(data_2),
      .from(ip_at_2 + (head_2.v6 ? 17'd8 : 17'd12)), .until_(ip_at_2 + (head_2.v6 ? 17'd40 : 17'd20)),
      .done(unused_addresses), .sum(addresses_sum));
  gw_checksum l4_checksum (
      .clk, .rst, .valid(valid_2), .first(first_2), .last(last_2), .beat(beat_2), .data(data_2),
      .from(l4_at_2), .until_(head_2.packet_end), .done(unused_l4), .sum(l4_sum));

  // Stage 4: the frame has ended, and the words are there.
  /* verilator lint_off UNUSEDSIGNAL */  // not all of it is needed to the end
  head_t head_3, head_4, head_5, head_6;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [13:0] len_3, len_4, len_5, len_6;
  logic oversize_3, oversize_4, oversize_5, oversize_6;
  logic [8:0] beats_3, beats_4, beats_5, beats_6;
  logic [9:0] start_3, start_4, start_5, start_6;
  logic [7:0] user_3, user_4, user_5, user_6;
  always_ff @(posedge clk) begin
    head_3 <= head_2;
    len_3 <= {beat_2, 5'b0} + {8'b0, bytes_2};
    {oversize_3, beats_3, start_3, user_3} <= {oversize_2, beats_2, start_2, user_2};
    {head_4, len_4, oversize_4, beats_4, start_4, user_4} <= {head_3, len_3, oversize_3, beats_3, start_3, user_3};
    {head_5, len_5, oversize_5, beats_5, start_5, user_5} <= {head_4, len_4, oversize_4, beats_4, start_4, user_4};
    {head_6, len_6, oversize_6, beats_6, start_6, user_6} <= {head_5, len_5, oversize_5, beats_5, start_5, user_5};
  end

  logic tcp_4;
  logic [3:0] words_4;       // of the transport header, in 32 bits
  always_ff @(posedge clk) tcp_4 <= head_3.protocol == 8'd6;
  assign words_4 = tcp_4 ? l4[6][15:12] : 4'd2;

  // Stage 5.
  logic tcp_5, udp_5, usual_5, tunnel_5;
  logic [3:0] words_5;
  logic [15:0] is_words_5;   // the same, a bit for each number
  logic [7:0] payload_at_5, flags_5;
  logic [15:0] udp_len_5, l4_checksum_5, ip_checksum_5;
  logic [15:0] l4_5 [34];
  always_ff @(posedge clk) begin
    tcp_5 <= tcp_4;
    udp_5 <= head_4.protocol == 8'd17;
    words_5 <= words_4;
    for (int i = 0; i < 16; i++) is_words_5[i] <= words_4 == 4'(i);
    payload_at_5 <= {1'b0, head_4.l4_at} + {2'b00, words_4, 2'b00};
    flags_5 <= l4[6][7:0];
    udp_len_5 <= l4[2];
    l4_checksum_5 <= tcp_4 ? l4[8] : l4[3];
    ip_checksum_5 <= ip_checksum_4;
    tunnel_5 <= !tcp_4 && (l4[1] == 16'd2152 || l4[1] == 16'd4789 || l4[1] == 16'd4791
                           || l4[1] == 16'd6081 || l4[1] == 16'd8472);
    usual_5 <= l4[6][15:12] == 4'd5 || (l4[6][15:12] == 4'd8 && l4[10] == 16'h0101 && l4[11] == 16'h080a);
    for (int i = 0; i < 34; i++) l4_5[i] <= l4[i];
  end

  // Stage 6: comparisons.
  logic [16:0] long_5, l4_end_5;
  always_comb begin
    long_5 = {3'b0, len_5};
    l4_end_5 = {10'b0, head_5.l4_at} + {1'b0, udp_len_5};
  end
  // The eight bytes behind the transport header, which has two words or at least five: else nobody
  // asks for them. Written as a sum of products: as one choice after the other, it was the slowest
  // path.
  always_comb begin
    segment_d = '0;
    for (int i = 2; i < 16; i++)
      if (i == 2 || i >= 5)
        segment_d = segment_d | ({l4_5[2*i], l4_5[2*i + 1], l4_5[2*i + 2], l4_5[2*i + 3]} & {64{is_words_5[i]}});
  end
  logic cut_6, cut_tcp_6, cut_udp_len_6, cut_udp_6, beyond_6, udp_equal_6, udp_bad_6, few_words_6, no_header_6;
  logic tcp_6, udp_6, usual_6, tunnel_6;
  logic [7:0] payload_at_6, flags_6;
  logic [15:0] udp_len_6, l4_checksum_6, ip_checksum_6;
  logic [63:0] segment_d, segment_6;
  logic [319:0] options_6;
  always_ff @(posedge clk) begin
    no_header_6 <= head_5.bad_version || long_5 < {12'b0, head_5.ip_at} + (head_5.v6 ? 17'd40 : 17'd20);
    cut_tcp_6 <= long_5 < {10'b0, head_5.l4_at} + 17'd20;
    cut_udp_len_6 <= long_5 < {10'b0, head_5.l4_at} + 17'd6;
    cut_udp_6 <= long_5 < {10'b0, head_5.l4_at} + 17'd8;
    cut_6 <= {9'b0, payload_at_5} > long_5;
    beyond_6 <= {9'b0, payload_at_5} > head_5.packet_end;
    udp_equal_6 <= l4_end_5 == head_5.packet_end;
    udp_bad_6 <= udp_len_5 < 16'd8 || l4_end_5 > head_5.packet_end;
    few_words_6 <= words_5 < 4'd5;
    {tcp_6, udp_6, usual_6, tunnel_6, payload_at_6} <= {tcp_5, udp_5, usual_5, tunnel_5, payload_at_5};
    {flags_6, udp_len_6, l4_checksum_6, ip_checksum_6} <= {flags_5, udp_len_5, l4_checksum_5, ip_checksum_5};
    segment_6 <= segment_d;
    for (int i = 0; i < 20; i++) options_6[16*i +: 16] <= {l4_5[10 + i][7:0], l4_5[10 + i][15:8]};
  end

  // The rule: there with `record`.
  logic is_mark, hit;
  logic [gw_nic_pkg::RULE_W-1:0] rule;
  gw_rules rules (.clk, .cfg, .tos(record_7.tos), .is_mark, .hit, .rule);

  // Stage 7: with the sums.
  gw_nic_pkg::packet_t packet_6;
  always_comb begin
    packet_6 = gw_nic_pkg::READABLE;
    if (head_6.bad_length) packet_6 = gw_nic_pkg::BAD;
    else if (head_6.fragment) packet_6 = gw_nic_pkg::IS_FRAGMENT;
    else if (head_6.extension || !(tcp_6 || udp_6)) packet_6 = gw_nic_pkg::OTHER_PROTOCOL;
    else if (tcp_6) begin
      if (cut_tcp_6 || few_words_6 || cut_6 || beyond_6) packet_6 = gw_nic_pkg::BAD;
    end else begin
      if (cut_udp_len_6) packet_6 = gw_nic_pkg::BAD;
      else if (!udp_equal_6) packet_6 = udp_bad_6 && !fault_udp_length ? gw_nic_pkg::BAD : gw_nic_pkg::HAS_UDP_OPTIONS;
      else if (cut_udp_6 || beyond_6) packet_6 = gw_nic_pkg::BAD;
    end
  end

  gw_nic_pkg::record_t record_7;
  logic [319:0] options_7;
  always_ff @(posedge clk) begin
    record_7.oversize <= oversize_6;
    record_7.beats <= beats_6;
    record_7.start <= start_6;
    record_7.len <= len_6;
    record_7.user <= user_6;
    record_7.not_ip <= head_6.not_ip;
    record_7.no_header <= no_header_6;
    record_7.v6 <= head_6.v6;
    record_7.ip_at <= head_6.ip_at;
    record_7.l4_at <= head_6.l4_at;
    record_7.packet_end <= head_6.packet_end;
    record_7.first <= head_6.first;
    record_7.tos <= head_6.tos;
    record_7.ip_len <= head_6.ip_len;
    record_7.ip_checksum <= ip_checksum_6;
    record_7.packet <= packet_6;
    record_7.udp <= udp_6;
    record_7.flags <= flags_6;
    record_7.tunnel <= tunnel_6;
    record_7.usual <= usual_6;
    record_7.udp_len <= udp_len_6;
    record_7.l4_checksum <= l4_checksum_6;
    record_7.payload_at <= payload_at_6;
    record_7.segment <= segment_6;
    record_7.ip_right <= 1'b0;     // below, a clock later
    record_7.pseudo <= '0;
    record_7.l4_sum <= '0;
    {record_7.is_mark, record_7.hit, record_7.rule} <= '0;
    options_7 <= options_6;
  end

  // Stage 9: `header_done` comes with record_8, six clocks behind stage 2.
  gw_nic_pkg::record_t record_8, record_9, record_10;
  logic [15:0] segment_sum_9;
  logic done_9;
  logic [15:0] l4_len_8;
  always_ff @(posedge clk) begin
    record_8 <= record_7;
    l4_len_8 <= 16'(record_7.packet_end - {10'b0, record_7.l4_at});
    record_9 <= record_8;
    record_9.ip_right <= record_8.v6 || header_sum == 16'hffff;
    record_9.pseudo <= gw_nic_pkg::plus(addresses_sum, record_8.udp ? 16'd17 : 16'd6);
    segment_sum_9 <= gw_nic_pkg::plus(l4_sum, l4_len_8);
    done_9 <= header_done && !rst;
    record_10 <= record_9;
    record_10.l4_sum <= gw_nic_pkg::plus(record_9.pseudo, segment_sum_9);
    done <= done_9 && !rst;
  end
  always_comb begin
    record = record_10;
    {record.is_mark, record.hit, record.rule} = {is_mark, hit, rule};
  end
  logic [319:0] options_8, options_9;
  always_ff @(posedge clk) {options, options_9, options_8} <= {options_9, options_8, options_7};
endmodule
