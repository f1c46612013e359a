// The definition of a lane, and what a proof compares. Written from FORMAT.md section 3 and
// dataplane/src/codec/lane.rs, with the arithmetic that they have: thresholds of exponents, a
// significand that is shifted by a difference of weights, the highest bit of a magnitude. `prove`
// takes the registers out of the lanes, so that both sides are functions, and asks yosys for an
// input on which they differ.

// What parameters there are (dataplane/src/codec/params.rs).
module valid_params (
    input  logic [3:0] b,
    input  logic [3:0] k,
    input  logic [7:0] raw_from,
    output logic       valid
);
  assign valid = b >= 4'd1 && b <= 4'd14 && k <= b && {1'b0, k} + 5'd7 >= {1'b0, b} && raw_from >= 8'd47 && raw_from <= 8'd254;
endmodule

module compress_equal (
    input  logic        clk,
    input  logic [31:0] value,
    input  logic [3:0]  b,
    input  logic [3:0]  k,
    input  logic [7:0]  raw_from,
    output logic        valid,
    output logic        equal
);

  valid_params params (.b(b), .k(k), .raw_from(raw_from), .valid(valid));

  logic [7:0] exponent, shift;
  logic [31:0] significand;
  logic [1:0] tag, lane_tag;
  logic [2:0] bytes, lane_bytes;
  logic [31:0] vector_, lane_vector;

  always_comb begin
    exponent = value[30:23];
    significand = {8'd0, 1'b1, value[22:0]};
    shift = 8'd0;
    if (exponent >= raw_from) begin
      tag = 2'd3;
      bytes = 3'd4;
      vector_ = value;
`ifdef WRONG
    end else if (exponent <= raw_from - {4'd0, b}) begin
`else
    end else if (exponent < raw_from - {4'd0, b}) begin
`endif
      tag = 2'd0;
      bytes = 3'd0;
      vector_ = 32'd0;
    end else if (exponent < raw_from - {4'd0, k}) begin
      tag = 2'd1;
      bytes = 3'd1;
      // The last bit of a byte vector weighs 2^(x-k-7), that of the significand
      // 2^(exponent-127-23).
      shift = raw_from + 8'd23 - ({4'd0, k} + 8'd7) - exponent;
      vector_ = {24'd0, value[31], 7'd0} | (significand >> shift);
    end else begin
      tag = 2'd2;
      bytes = 3'd2;
      shift = raw_from + 8'd23 - 8'd15 - exponent;
      vector_ = {16'd0, value[31], 15'd0} | (significand >> shift);
    end
  end

  gw_compress_lane lane (
      .clk(clk),
      .value(value),
      .coded(1'b1),
      .b(b),
      .k(k),
      .raw_from(raw_from),
      .tag(lane_tag),
      .length(lane_bytes),
      .bits(lane_vector)
  );

  assign equal = lane_tag == tag && lane_bytes == bytes && lane_vector == vector_;

endmodule

module decompress_equal (
    input  logic        clk,
    input  logic [1:0]  tag,
    input  logic [31:0] bits,
    input  logic [3:0]  b,
    input  logic [3:0]  k,
    input  logic [7:0]  raw_from,
    output logic        valid,
    output logic        equal
);

  valid_params params (.b(b), .k(k), .raw_from(raw_from), .valid(valid));

  logic [14:0] magnitude;
  logic [7:0] exponent, lowest;
  logic [4:0] leading;
  logic [37:0] mantissa;
  logic sign;
  logic [31:0] value, lane_value;

  always_comb begin
    magnitude = tag == 2'd1 ? {8'd0, bits[6:0]} : bits[14:0];
    sign = tag == 2'd1 ? bits[7] : bits[15];
`ifdef WRONG
    lowest = tag == 2'd1 ? {4'd0, k} + 8'd6 : 8'd15;
`else
    lowest = tag == 2'd1 ? {4'd0, k} + 8'd7 : 8'd15;
`endif
    leading = 5'd0;
    for (int i = 0; i < 15; i++) if (magnitude[i]) leading = 5'(i);
    exponent = raw_from - lowest + {3'd0, leading};
    mantissa = {23'd0, magnitude} << (5'd23 - leading);
    case (tag)
      2'd0: value = 32'd0;
      2'd3: value = bits;
      default: value = magnitude == 15'd0 ? {sign, 31'd0} : {sign, exponent, mantissa[22:0]};
    endcase
  end

  gw_decompress_lane lane (
      .clk(clk),
      .tag(tag),
      .bits(bits),
      .k(k),
      .raw_from(raw_from),
      .value(lane_value)
  );

  assign equal = lane_value == value;

endmodule
