// What modules share: the bits of `s_axis_tuser` at the engines.
//
// Follows: dataplane/src/burst/mod.rs (`Layout`), dataplane/src/codec/params.rs (`Params`).

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

endpackage

`endif
