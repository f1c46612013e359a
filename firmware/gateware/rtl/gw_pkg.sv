// What modules share: the bits of `s_axis_tuser` at the engines, and which bytes of a beat are its
// first ones.
//
// Follows: firmware/gateware/model/src/lib.rs (`Layout`), dataplane/src/codec/params.rs (`Params`).

`ifndef GW_PKG
`define GW_PKG

package gw_pkg;

  // How a frame is coded; read with the frame's first beat. The most significant field comes first.
  typedef struct packed {
    logic [7:0]  raw_from;  // [47:40] 127 + x, in 47..=254
    logic [3:0]  k;         // [39:36] the byte offset: 0..=b, at least b-7
    logic [3:0]  b;         // [35:32] the bound exponent: 1..=14
    logic [15:0] values;    // [31:16] values of 4 bytes; 0 bypasses the whole frame
    logic [15:0] bypass;    // [15:0]  bytes before the first value
  } layout_t;

  // The first `count` of 32 bits, and all of them from 32 on. For `i < count` tools build a
  // subtractor for each bit.
  function automatic logic [31:0] first_of(input logic [5:0] count);
    logic [7:0] few;  // of eight, by the lower three bits
    few = {1'b0, &count[2:0], count[2] & count[1], count[2] & (count[1] | count[0]), count[2],
           count[2] | (count[1] & count[0]), count[2] | count[1], |count[2:0]};
    first_of = {{8{count[5]}} | ({8{count[4] & count[3]}} & few),
                {8{count[5] | (count[4] & count[3])}} | ({8{count[4]}} & few),
                {8{count[5] | count[4]}} | ({8{count[3]}} & few),
                {8{count[5] | count[4] | count[3]}} | few};
  endfunction

endpackage

`endif
