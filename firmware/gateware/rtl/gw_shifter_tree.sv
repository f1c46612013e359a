// Shifter tree: eight vectors of 0 to 4 bytes become one string without gaps.
//
// Enters:  eight vectors with zeros above them, and how many bytes each has: 0, 1, 2 or 4.
// Leaves:  the string, with zeros above it, and its length.
// Latency: 5 clocks, one string each.
// Follows: `shifter_tree` of firmware/gateware/model/src/compressor.rs, without the tags.

module gw_shifter_tree (
    input  logic         clk,
    input  logic [255:0] lanes,
    input  logic [23:0]  lengths,
    output logic [255:0] packed_,
    output logic [5:0]   length
);

`ifdef GW_FAULTS
  logic fault_pair_shift;
  initial fault_pair_shift = $test$plusargs("fault_pair_shift");
`else
  localparam logic fault_pair_shift = 1'b0;
`endif

  // Pairs, quads and all, each by the bytes that its lower half has: first by 0 to 3 of them, then
  // by whole fours.
  logic [255:0] pairs;
  logic [15:0] pair_lengths;
  logic [127:0] low_pairs;
  logic [175:0] shifted_pairs;
  logic [15:0] pair_lengths2;
  logic [255:0] quads;
  logic [9:0] quad_lengths;
  logic [127:0] low_quad;
  logic [151:0] shifted_quad;
  logic [2:0] fours3;
  logic [5:0] length3;

  always_ff @(posedge clk) begin
    for (int i = 0; i < 4; i++) begin
      pairs[64*i+:64] <= {32'd0, lanes[64*i+:32]} | ({32'd0, lanes[64*i+32+:32]} << {lengths[6*i+:3], 3'd0});
      pair_lengths[4*i+:4] <= {1'b0, lengths[6*i+:3]} + {1'b0, lengths[6*i+3+:3]};
    end

    for (int i = 0; i < 2; i++) begin
      low_pairs[64*i+:64] <= pairs[128*i+:64];
      shifted_pairs[88*i+:88] <= {24'd0, pairs[128*i+64+:64]} << {pair_lengths[8*i+:2], 3'd0};
    end
    pair_lengths2 <= pair_lengths;

    for (int i = 0; i < 2; i++) begin
      quads[128*i+:128] <= {64'd0, low_pairs[64*i+:64]} |
          ({40'd0, shifted_pairs[88*i+:88]} << {pair_lengths2[8*i+3] && !fault_pair_shift, pair_lengths2[8*i+2], 5'd0});
      quad_lengths[5*i+:5] <= {1'b0, pair_lengths2[8*i+:4]} + {1'b0, pair_lengths2[8*i+4+:4]};
    end

    low_quad <= quads[127:0];
    shifted_quad <= {24'd0, quads[255:128]} << {quad_lengths[1:0], 3'd0};
    fours3 <= quad_lengths[4:2];
    length3 <= {1'b0, quad_lengths[4:0]} + {1'b0, quad_lengths[9:5]};

    packed_ <= {128'd0, low_quad} | ({104'd0, shifted_quad} << {fours3, 5'd0});
    length <= length3;
  end

endmodule
