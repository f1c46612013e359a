// Compression block: one value in, its tag and vector out.
//
// Enters:  any 32 bits, and b, k and 127 + x; `coded` is low if they are not a value and pass as they are.
// Leaves:  the tag, the vector with zeros above it, and how many bytes it has: 0, 1, 2 or 4. Of bits that pass: tag 0, 4 bytes.
// Latency: 4 clocks, one value each.
// Follows: `compression_block` of firmware/gateware/model/src/blocks.rs.

module gw_compress_lane (
    input  logic        clk,
    input  logic [31:0] value,
    input  logic        coded,
    input  logic [3:0]  b,
    input  logic [3:0]  k,
    input  logic [7:0]  raw_from,
    output logic [1:0]  tag,
    output logic [2:0]  length,
    output logic [31:0] bits
);

`ifdef GW_FAULTS
  logic fault_sign;
  initial fault_sign = $test$plusargs("fault_sign");
`else
  localparam logic fault_sign = 1'b0;
`endif

`ifdef GW_FAULTS
  logic fault_class_border;
  initial fault_class_border = $test$plusargs("fault_class_border");
`else
  localparam logic fault_class_border = 1'b0;
`endif

  // How many places 1.m moves down to become a fraction of 2^x; negative: the value is above 2^x.
  logic [8:0] distance1;
  logic [31:0] value1, value2, value3;
  logic coded1, coded2, coded3;
  logic [3:0] b1, k1;
  // The places that the leading one moves down in a vector, if it is a byte's and if it is a
  // half's.
  logic [3:0] byte_places1, half_places1;

  always_ff @(posedge clk) begin
    distance1 <= {1'b0, raw_from} - {1'b0, value[30:23]};
    byte_places1 <= raw_from[3:0] + ~value[26:23] + ~k + 4'd1;
    half_places1 <= raw_from[3:0] + ~value[26:23];
    value1 <= value;
    coded1 <= coded;
    b1 <= b;
    k1 <= k;
  end

  // The class. A vector has 15 bits of magnitude here; a byte's are the upper 7.
  logic far, is_raw, is_zero, is_byte;
  logic [1:0] tag2, tag3;
  logic [3:0] places2;

  assign far = distance1[7:4] != 4'd0;
  assign is_raw = distance1[8] || distance1[7:1] == 7'd0 && (fault_class_border || !distance1[0]);
  assign is_zero = far || distance1[3:0] > b1;
  assign is_byte = distance1[3:0] > k1;

  always_ff @(posedge clk) begin
    tag2 <= is_raw ? 2'd3 : is_zero ? 2'd0 : is_byte ? 2'd1 : 2'd2;
    places2 <= is_byte ? byte_places1 : half_places1;
    value2 <= value1;
    coded2 <= coded1;
  end

  logic [14:0] magnitude3;

  always_ff @(posedge clk) begin
    magnitude3 <= {1'b1, value2[22:9]} >> places2;
    tag3 <= tag2;
    value3 <= value2;
    coded3 <= coded2;
  end

  always_ff @(posedge clk) begin
    tag <= coded3 ? tag3 : 2'd0;
    if (!coded3 || tag3 == 2'd3) begin
      bits <= value3;
      length <= 3'd4;
    end else if (tag3 == 2'd2) begin
      bits <= {16'd0, value3[31], magnitude3};
      length <= 3'd2;
    end else if (tag3 == 2'd1) begin
      bits <= {24'd0, value3[31] && !fault_sign, magnitude3[14:8]};
      length <= 3'd1;
    end else begin
      bits <= 32'd0;
      length <= 3'd0;
    end
  end

endmodule
