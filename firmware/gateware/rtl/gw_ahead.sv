// Look-ahead of the decompressor: where a group would end, for each of a cell's 32 bytes.
//
// A group's length is in its first two bytes, so finding group after group is a loop. Here it is
// worked out for all bytes beforehand, whether a group starts there or not; what remains in the
// loop is one choice out of 32.
//
// Enters:  cells of gw_front.sv.
// Leaves:  the cell, and for each byte of it an entry: what the loop does behind a group that starts there.
// Latency: 4 clocks, and until the next cell enters, since a tag vector may reach into it; a
// frame's last cell does not wait.
// Follows: dataplane/src/kernels/ahead.rs; the lengths are those of `tag_decoder` of
// firmware/gateware/model/src/decompressor.rs.

module gw_ahead #(
    parameter int SIDE = 1
) (
    input  logic            clk,
    input  logic            rst,

    input  logic            cell_valid,
    input  logic [255:0]    cell_data,
    input  logic [5:0]      cell_count,
    input  logic            cell_last,
    input  logic            cell_bypass,
    input  logic [SIDE-1:0] cell_side,

    output logic            out_valid,
    output logic [255:0]    out_data,
    output logic [5:0]      out_count,
    output logic            out_last,
    output logic            out_short,   // the frame ends in this cell or at its end
    output logic            out_bypass,
    output logic [SIDE-1:0] out_side,
    // For each byte: {the group is not whole, go on to the next cell, skip one more, byte there}.
    output logic [255:0]    out_entries
);

  // Bytes of the vectors that four tags stand for: 0..=16.
  function automatic logic [4:0] weight(input logic [7:0] tags);
    logic [4:0] sum;
    sum = 5'd0;
    for (int i = 0; i < 4; i++) begin
      case (tags[2*i+:2])
        2'd1: sum = sum + 5'd1;
        2'd2: sum = sum + 5'd2;
        2'd3: sum = sum + 5'd4;
        default: ;
      endcase
    end
    weight = sum;
  endfunction

  // Stage 1: weights.
  logic v1, last1, bypass1;
  logic [255:0] data1;
  logic [5:0] count1;
  logic [SIDE-1:0] side1;
  logic [159:0] weights1;

  // Stage 2: waits for the byte behind it.
  logic v2, last2, bypass2, leaves2;
  logic [255:0] data2;
  logic [5:0] count2;
  logic [SIDE-1:0] side2;
  logic [159:0] weights2;
  logic [164:0] weights_on;  // with that of the next cell's first byte

  // Stage 3: where groups end.
  logic v3, last3, bypass3;
  logic [255:0] data3;
  logic [5:0] count3;
  logic [SIDE-1:0] side3;
  logic [223:0] ends3;

  assign leaves2 = v2 && (v1 || last2);
  assign weights_on = {weights1[4:0], weights2};

  always_ff @(posedge clk) begin
    v1 <= cell_valid;
    if (cell_valid) begin
      data1 <= cell_data;
      count1 <= cell_count;
      last1 <= cell_last;
      bypass1 <= cell_bypass;
      side1 <= cell_side;
      for (int i = 0; i < 32; i++) weights1[5*i+:5] <= weight(cell_data[8*i+:8]);
    end

    v2 <= v1 || (v2 && !leaves2);
    if (v1) begin
      data2 <= data1;
      count2 <= count1;
      last2 <= last1;
      bypass2 <= bypass1;
      side2 <= side1;
      weights2 <= weights1;
    end

    v3 <= leaves2;
    data3 <= data2;
    count3 <= count2;
    last3 <= last2;
    bypass3 <= bypass2;
    side3 <= side2;
    for (int i = 0; i < 32; i++) begin
      ends3[7*i+:7] <= 7'(i + 2) + {2'd0, weights_on[5*i+:5]} + {2'd0, weights_on[5*i+5+:5]};
    end

    if (rst) begin
      v1 <= 1'b0;
      v2 <= 1'b0;
      v3 <= 1'b0;
    end
  end

`ifdef GW_FAULTS
  logic fault_truncated;
  initial fault_truncated = $test$plusargs("fault_truncated");
`else
  localparam logic fault_truncated = 1'b0;
`endif

  // Stage 4: entries. A cell without values is passed in one step.
  logic ends_here;
  assign ends_here = last3 || !count3[5];

  always_ff @(posedge clk) begin
    out_valid <= v3;
    out_data <= data3;
    out_count <= count3;
    out_last <= last3;
    out_short <= ends_here;
    out_bypass <= bypass3;
    out_side <= side3;
    for (int i = 0; i < 32; i++) begin
      if (bypass3) out_entries[8*i+:8] <= 8'b0100_0000;
      else if (ends_here && ends3[7*i+:7] > {1'b0, count3} + {6'd0, fault_truncated}) out_entries[8*i+:8] <= 8'b1100_0000;
      else
        out_entries[8*i+:8] <= {1'b0, ends3[7*i+6] | ends3[7*i+5], ends3[7*i+6], ends3[7*i+:5]};
    end
    if (rst) out_valid <= 1'b0;
  end

endmodule
