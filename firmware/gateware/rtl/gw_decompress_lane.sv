// Decompression block: one tag and vector in, the value out.
//
// Enters:  a tag and any 32 bits, of which those above the vector are ignored; k and 127 + x.
// Leaves:  the value's 32 bits.
// Latency: 4 clocks, one value each.
// Follows: `decompression_block` of firmware/gateware/model/src/blocks.rs.

module gw_decompress_lane (
    input  logic        clk,
    input  logic [1:0]  tag,
    input  logic [31:0] bits,
    input  logic [3:0]  k,
    input  logic [7:0]  raw_from,
    output logic [31:0] value
);

`ifdef GW_FAULTS
  logic fault_magnitude_zero;
  initial fault_magnitude_zero = $test$plusargs("fault_magnitude_zero");
`else
  localparam logic fault_magnitude_zero = 1'b0;
`endif

  // The magnitude as 15 bits of a fraction, and the exponent if its top bit is set.
  logic [31:0] bits1, bits2, bits3;
  logic [1:0] tag1, tag2, tag3;
  logic [14:0] magnitude1, magnitude2, significand3;
  logic [7:0] top1, top2, exponent3;
  logic sign1, sign2, sign3;

  always_ff @(posedge clk) begin
    bits1 <= bits;
    tag1 <= tag;
    sign1 <= tag[0] ? bits[7] : bits[15];
    magnitude1 <= tag[0] ? {bits[6:0], 8'd0} : bits[14:0];
    top1 <= raw_from + (tag[0] ? {4'hf, ~k} : 8'hff);
  end

  // The leading zeros.
  logic [3:0] zeros1, zeros2;
  logic none2, none3;

  always_comb begin
    zeros1 = 4'd0;
    for (int i = 0; i < 15; i++) if (magnitude1[i]) zeros1 = 4'(14 - i);
  end

  always_ff @(posedge clk) begin
    zeros2 <= zeros1;
    none2 <= magnitude1 == 15'd0;
    magnitude2 <= magnitude1;
    top2 <= top1;
    sign2 <= sign1;
    tag2 <= tag1;
    bits2 <= bits1;
  end

  always_ff @(posedge clk) begin
    significand3 <= magnitude2 << zeros2;
    exponent3 <= top2 - {4'd0, zeros2};
    none3 <= none2;
    sign3 <= sign2;
    tag3 <= tag2;
    bits3 <= bits2;
  end

  always_ff @(posedge clk) begin
    if (tag3 == 2'd3) value <= bits3;
    else if (tag3 == 2'd0) value <= 32'd0;
    else value <= {sign3, none3 && !fault_magnitude_zero ? 31'd0 : {exponent3, significand3[13:0], 9'd0}};
  end

  logic unused;
  assign unused = &{1'b0, significand3[14]};

endmodule
