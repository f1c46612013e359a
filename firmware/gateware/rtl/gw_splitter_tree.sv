// Splitter tree: a group's vectors, which follow each other without gaps, to eight lanes.
//
// Enters:  a tag vector and 32 bytes that begin with the vectors.
// Leaves:  each lane's vector, with other bytes above it, and its tag.
// Latency: 6 clocks, one group each.
// Follows: `tag_decoder` and `select` of firmware/gateware/model/src/decompressor.rs.

module gw_splitter_tree (
    input  logic         clk,
    input  logic [15:0]  tags,
    input  logic [255:0] vectors,
    output logic [255:0] lanes,
    output logic [15:0]  lane_tags
);

`ifdef GW_FAULTS
  logic fault_split;
  initial fault_split = $test$plusargs("fault_split");
`else
  localparam logic fault_split = 1'b0;
`endif

  // Bytes of the vectors of two tags: 0..=8.
  function automatic logic [3:0] pair_length(input logic [3:0] pair);
    logic [3:0] low, high;
    low  = {1'b0, &pair[1:0], pair[1] & ~pair[0], pair[0] & ~pair[1]};
    high = {1'b0, &pair[3:2], pair[3] & ~pair[2], pair[2] & ~pair[3]};
    pair_length = low + high;
  endfunction

  // Stage 1: lengths. Stages 2 and 3: quads, by 0 to 3 bytes and then by whole fours. Stages 4 and
  // 5: pairs. Stage 6: lanes.
  logic [255:0] vectors1, quads3, pairs5;
  logic [15:0] tags1, tags2, tags3, tags4, tags5;
  logic [7:0] pairs1, pairs2, pairs3, pairs4;
  logic [4:0] quad1;
  logic [2:0] quad2;
  logic [127:0] low2, low4;
  logic [223:0] high2;
  logic [191:0] high4;

  always_ff @(posedge clk) begin
    vectors1 <= vectors;
    tags1 <= tags;
    quad1 <= {1'b0, pair_length(tags[3:0])} + {1'b0, pair_length(tags[7:4])};
    pairs1 <= {pair_length(tags[11:8]), pair_length(tags[3:0])};

    low2 <= vectors1[127:0];
    high2 <= 224'(vectors1 >> {quad1[1:0], 3'd0});
    quad2 <= quad1[4:2];
    tags2 <= tags1;
    pairs2 <= pairs1;

    quads3[127:0] <= low2;
    for (int i = 0; i < 4; i++) begin
      case (quad2)
        3'd0: quads3[128+32*i+:32] <= high2[32*i+:32];
        3'd1: quads3[128+32*i+:32] <= high2[32*((i+1)%7)+:32];
        3'd2: quads3[128+32*i+:32] <= high2[32*((i+2)%7)+:32];
        3'd3: quads3[128+32*i+:32] <= high2[32*((i+3)%7)+:32];
        // By 16 bytes there is nothing to shift by bytes: these are the upper half.
        default: quads3[128+32*i+:32] <= i == 3 ? last2 : high2[32*((i+4)%7)+:32];
      endcase
    end
    tags3 <= tags2;
    pairs3 <= pairs2;

    for (int i = 0; i < 2; i++) begin
      low4[64*i+:64] <= quads3[128*i+:64];
      // 12 of the 16 bytes matter: 8 behind at most 8, of which 3 by bytes.
      high4[96*i+:96] <= 96'(quads3[128*i+:128] >> {pairs3[4*i+:2], 3'd0});
    end
    for (int i = 0; i < 2; i++) last4[32*i+:32] <= quads3[128*i+96+:32];
    tags4 <= tags3;
    pairs4 <= pairs3;

    for (int i = 0; i < 2; i++) begin
      pairs5[128*i+:64] <= low4[64*i+:64];
      case (pairs4[4*i+2+:2])
        2'd0: pairs5[128*i+64+:64] <= high4[96*i+:64];
        2'd1: pairs5[128*i+64+:64] <= high4[96*i+32+:64];
        default: pairs5[128*i+64+:64] <= {last4[32*i+:32], high4[96*i+64+:32]};
      endcase
    end
    tags5 <= tags4;

    for (int i = 0; i < 4; i++) begin
      lanes[64*i+:32] <= pairs5[64*i+:32];
      case (tags5[4*i+:2])
        2'd0: lanes[64*i+32+:32] <= pairs5[64*i+:32];
        2'd1: lanes[64*i+32+:32] <= pairs5[64*i+8+:32];
        2'd2: lanes[64*i+32+:32] <= fault_split ? pairs5[64*i+8+:32] : pairs5[64*i+16+:32];
        default: lanes[64*i+32+:32] <= pairs5[64*i+32+:32];
      endcase
    end
    lane_tags <= tags5;
  end

  // What lies beyond the strings that bytes shift.
  logic [31:0] last2;
  logic [63:0] last4;
  always_ff @(posedge clk) last2 <= vectors1[255:224];

endmodule
