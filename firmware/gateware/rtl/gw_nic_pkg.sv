// What the modules of a NIC's path hand to each other, and the numbers of what becomes of a frame.
//
// Follows dataplane/src/verdict.rs (names and order of outcomes), dataplane/src/checksum.rs (sums),
// dataplane/src/rules.rs (rules).
`ifndef GW_NIC_PKG
`define GW_NIC_PKG

// No module uses all of them.
/* verilator lint_off UNUSEDPARAM */
package gw_nic_pkg;

  // Frames are at most this long, without FCS; longer ones are thrown away and counted.
  localparam int MAX_FRAME = 9216;
  localparam int MAX_BEATS = MAX_FRAME / 32;
  // The two rings of a path: a whole frame fits while the one before it drains.
  localparam int RING_BITS = 10;
  localparam int RULES = 16;

  // Outcomes: places of their counters. A change is 0 and its place in Change::ALL, a reason to
  // pass 8 and its place in PassReason::ALL, a reason to drop 40 and its place in DropReason::ALL.
  localparam logic [5:0] COMPRESSED = 6'd0;
  localparam logic [5:0] REMARKED = 6'd1;
  localparam logic [5:0] RESTORED = 6'd2;
  localparam logic [5:0] NOT_IP = 6'd8;
  localparam logic [5:0] NO_RULE = 6'd9;
  localparam logic [5:0] MALFORMED = 6'd10;
  localparam logic [5:0] FRAGMENT = 6'd11;
  localparam logic [5:0] PROTOCOL = 6'd12;
  localparam logic [5:0] UDP_OFF = 6'd13;
  localparam logic [5:0] UDP_OPTIONS = 6'd14;
  localparam logic [5:0] TUNNEL = 6'd15;
  localparam logic [5:0] TCP_FLAGS = 6'd16;
  localparam logic [5:0] TCP_OPTION = 6'd17;
  localparam logic [5:0] NO_PAYLOAD = 6'd18;
  localparam logic [5:0] NO_VALUE = 6'd19;
  localparam logic [5:0] TRAILER = 6'd20;
  localparam logic [5:0] IP_CHECKSUM = 6'd21;
  localparam logic [5:0] L4_CHECKSUM = 6'd22;
  localparam logic [5:0] ALIGNMENT_UNKNOWN = 6'd23;
  localparam logic [5:0] MISALIGNED = 6'd25;
  localparam logic [5:0] NOT_SHORTER = 6'd33;
  localparam logic [5:0] NOT_COMPRESSED = 6'd35;
  localparam logic [5:0] FOREIGN_MARK = 6'd36;
  localparam logic [5:0] DROP_MALFORMED = 6'd40;
  localparam logic [5:0] DROP_IP_CHECKSUM = 6'd41;
  localparam logic [5:0] DROP_L4_CHECKSUM = 6'd42;
  localparam logic [5:0] DROP_NO_CHECKSUM = 6'd43;
  localparam logic [5:0] DROP_RECOMPUTED = 6'd44;
  localparam logic [5:0] DROP_SEGMENT_HEADER = 6'd45;
  localparam logic [5:0] DROP_GROUPS = 6'd46;
  localparam logic [5:0] DROP_EXCESS = 6'd47;
  localparam logic [5:0] DROP_TOO_LONG = 6'd48;
  // The gateware's own: a frame longer than MAX_FRAME.
  localparam logic [5:0] DROP_OVERSIZE = 6'd50;
  // Not outcomes: bytes of changed frames, as they came and as they left.
  localparam logic [5:0] BYTES_IN = 6'd56;
  localparam logic [5:0] BYTES_OUT = 6'd57;

  // Added to the checksum of a compressed segment (FORMAT.md section 5.3).
  localparam logic [15:0] CHECKSUM_CONSTANT = 16'h6777;

  // A rule: the registers of one, in their order (gw_regs.sv).
  typedef struct packed {
    logic       valid;
    logic       udp;       // datagrams too: handshake = "off"
    logic       payload;   // alignment = "payload": a segment starts with a value, or goes untouched
    logic       routed;    // framing
    logic [7:0] udp_offset;
    logic [3:0] b;
    logic [3:0] k;
    logic [7:0] x;
    logic [7:0] mask;
    logic [7:0] tos;
  } rule_t;
  localparam int RULE_W = 44;

  // All that software sets.
  typedef struct packed {
    logic [RULES*RULE_W-1:0] rules;  // rule_t each, the first lowest (yosys knows no arrays of them)
    logic [7:0]  mark;       // its two lower bits are ignored
    logic [13:0] mtu;        // of IP packets; ingress restores no longer ones
  } config_t;

  // Where a packet cannot be read (wire/frame.rs, IpFrame::packet).
  typedef enum logic [2:0] {
    READABLE = 3'd0, BAD = 3'd1, IS_FRAGMENT = 3'd2, OTHER_PROTOCOL = 3'd3, HAS_UDP_OPTIONS = 3'd4
  } packet_t;

  // What gw_parser says of a frame, when the frame has ended.
  typedef struct packed {
    logic        oversize;     // longer than MAX_FRAME: nothing of it is kept
    logic [8:0]  beats;        // what it takes in the ring
    logic [9:0]  start;        // where in the ring
    logic [13:0] len;
    logic [7:0]  user;         // s_axis_tuser of its first beat
    logic        not_ip;
    logic        no_header;    // not the IP header that the EtherType says
    logic        v6;
    logic [4:0]  ip_at;
    logic [6:0]  l4_at;
    logic [16:0] packet_end;   // as the IP length says
    logic [15:0] first;        // the IP header's first word: version, type of service
    logic [7:0]  tos;
    logic [15:0] ip_len;       // the length field
    logic [15:0] ip_checksum;  // the field, IPv4
    logic        ip_right;     // the IPv4 header checksum holds
    packet_t     packet;
    logic        udp;
    logic [7:0]  flags;        // TCP
    logic        tunnel;       // UDP destination port
    logic        usual;        // TCP: no options, or timestamps alone
    logic [15:0] udp_len;
    logic [15:0] l4_checksum;  // the field
    logic [7:0]  payload_at;
    logic [15:0] pseudo;       // addresses and protocol, without the length
    logic [15:0] l4_sum;       // pseudo-header and segment; 16'hffff if the checksum is right
    logic [63:0] segment;      // the payload's first eight bytes, the first one uppermost
    logic        is_mark;
    logic        hit;          // a rule matches: `rule`
    logic [RULE_W-1:0] rule;   // rule_t
  } record_t;

  // What is to become of a frame: the classifier's verdict for the modules behind them.
  typedef struct packed {
    logic [8:0]  beats;
    logic [9:0]  start;
    logic [13:0] len;
    logic        coded;        // goes through the engine; else `outcome` is final
    logic        trial;        // ... to see whether it decodes: `drop_outcome` if so, else it passes with `outcome`
    logic        drop;         // not coded: goes nowhere
    logic        remark;       // not coded: loses its type of service
    logic [5:0]  outcome;
    logic [5:0]  drop_outcome;
    // The engine's part.
    logic        splice;       // a segment header at `payload_at` is cut out, or put in
    logic [13:0] in_len;       // bytes of the frame that take part
    logic [47:0] layout;       // gw_pkg::layout_t, behind the splice
    logic [63:0] segment;      // egress: the header to put in
    // Ingress: what has to come out.
    logic [16:0] expected;
    logic        padded;
    // Headers.
    logic        rewrite;      // the coded frame gets new headers
    logic        v6;
    logic        udp;
    logic        no_checksum;
    logic [4:0]  ip_at;
    logic [6:0]  l4_at;
    logic [7:0]  payload_at;
    logic [15:0] first;
    logic [7:0]  new_tos;
    logic [15:0] ip_len;
    logic [15:0] ip_checksum;
    logic [15:0] udp_len;
    logic [15:0] l4_checksum;
    logic [15:0] pseudo;
  } plan_t;

  // What came out of the engine.
  typedef struct packed {
    logic        refused;
    logic [16:0] len;
    logic [8:0]  beats;        // what it takes in the ring of coded frames
    logic [15:0] sum;          // of the transport segment
  } outcome_t;

  // A 16-bit word of a frame that leaves with another value.
  typedef struct packed {
    logic        on;
    logic [6:0]  word;   // at byte 2 * word
    logic [15:0] value;  // as a number: its upper byte goes first
  } patch_t;

  localparam int PATCHES = 5;
  localparam int PATCH_W = 24;

  // A frame's last step: what leaves, and what is free again.
  typedef struct packed {
    logic        drop;
    logic        coded;        // leaves from the ring of coded frames
    logic [9:0]  start;        // in the ring of frames as they came
    logic [8:0]  beats;        // ... to free there
    logic [8:0]  coded_beats;  // to free in the other one
    logic [8:0]  last;         // the number of what leaves' last beat
    logic [5:0]  last_bytes;   // what that has, 0 to 32
    logic [PATCHES*PATCH_W-1:0] patches;
  } order_t;

  // For the counters: a frame has been classified.
  typedef struct packed {
    logic        valid;
    logic [5:0]  outcome;
    logic [13:0] len_in;
    logic [13:0] len_out;
  } verdict_t;

  // Widths of the above, since yosys takes no `$bits` of a type.
  localparam int RECORD_W = 327;
  localparam int PLAN_W = 322;
  localparam int OUTCOME_W = 43;
  localparam int ORDER_W = 165;

  // Ones' complement sum of two words; 0 only if both are.
  function automatic logic [15:0] plus(input logic [15:0] a, input logic [15:0] b);
    logic [16:0] sum;
    sum = {1'b0, a} + {1'b0, b};
    plus = sum[15:0] + {15'b0, sum[16]};
  endfunction

  // The same of three: first without carries, so that one carry chain is left, and the one that
  // comes round.
  function automatic logic [15:0] plus3(input logic [15:0] a, input logic [15:0] b, input logic [15:0] c);
    logic [15:0] carries;
    carries = (a & b) | (a & c) | (b & c);
    plus3 = plus(a ^ b ^ c, {carries[14:0], carries[15]});
  endfunction

  // Whether two sums are the same number; 0 and 16'hffff are.
  function automatic logic same(input logic [15:0] a, input logic [15:0] b);
    same = a == b || ((a == 16'h0000 || a == 16'hffff) && (b == 16'h0000 || b == 16'hffff));
  endfunction

  // How many bytes a beat has: `keep` has ones below and zeros above. One place has a border, so no
  // priority is needed.
  function automatic logic [5:0] bytes_of(input logic [31:0] keep);
    bytes_of = 6'd0;
    for (int i = 0; i < 32; i++) if (keep[i] && (i == 31 || !keep[(i + 1) % 32])) bytes_of = bytes_of | 6'(i + 1);
  endfunction

  // How many VLAN tags a first beat has, two at most.
  function automatic logic [1:0] tags_of(input logic [255:0] data);
    logic [15:0] outer, inner;
    outer = word_at(data, 4'd6);
    inner = word_at(data, 4'd8);
    if (outer != 16'h8100 && outer != 16'h88a8) tags_of = 2'd0;
    else tags_of = inner == 16'h8100 || inner == 16'h88a8 ? 2'd2 : 2'd1;
  endfunction

  // The word at an even byte offset of a beat; its first byte is the upper one.
  function automatic logic [15:0] word_at(input logic [255:0] data, input logic [3:0] word);
    logic [15:0] swapped;
    swapped = data[16*word +: 16];
    word_at = {swapped[7:0], swapped[15:8]};
  endfunction

  // Beats of so many bytes.
  function automatic logic [8:0] beats_of(input logic [13:0] len);
    beats_of = len[13:5] + {8'b0, len[4:0] != 5'd0};
  endfunction

endpackage
/* verilator lint_on UNUSEDPARAM */

`endif
