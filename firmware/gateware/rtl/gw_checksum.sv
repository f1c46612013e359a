// Ones' complement sum over a part of a frame, a beat a clock.
//
// Enters: a frame's beats, each with its number, `valid` for one clock a beat, in order; bytes that
// the frame does not have are 0. `from` (even) and `until` are offsets in the frame, and are read
// with every beat. A byte at an odd end counts as the upper half of a word.
// Leaves: `done` for one clock, and with it `sum`, folded: 0 only if every byte was.
// Latency: six clocks from the last beat to `done`.
// Follows: dataplane/src/checksum.rs, Sum::of.
module gw_checksum (
    input  logic         clk,
    input  logic         rst,
    input  logic         valid,
    input  logic         first,
    input  logic         last,
    input  logic [8:0]   beat,
    input  logic [255:0] data,
    input  logic [16:0]  from,
    input  logic [16:0]  until_,
    output logic         done,
    output logic [15:0]  sum
);
`ifdef GW_FAULTS
  logic fault_carry;
  initial fault_carry = $test$plusargs("fault_carry");
  logic fault_odd_byte;
  initial fault_odd_byte = $test$plusargs("fault_odd_byte");
`else
  localparam logic fault_carry = 1'b0;
  localparam logic fault_odd_byte = 1'b0;
`endif

  // Where the part begins and ends part this beat, 0 to 32.
  function automatic logic [5:0] clipped(input logic [16:0] offset, input logic [8:0] number);
    logic [17:0] relative;
    relative = {1'b0, offset} - {4'b0, number, 5'b0};
    if (relative[17]) clipped = 6'd0;
    else if (|relative[16:5]) clipped = 6'd32;
    else clipped = {1'b0, relative[4:0]};
  endfunction

  // First the borders, then which bytes are between them: both reach all bytes.
  logic valid_0, first_0, last_0;
  logic [5:0] lo, hi;
  logic [255:0] data_0;
  logic valid_m, first_m, last_m;
  logic [31:0] part, part_d;
  logic [255:0] data_m;
  assign part_d = gw_pkg::first_of(hi) & ~gw_pkg::first_of(lo);
  always_ff @(posedge clk) begin
    lo <= clipped(from, beat);
    hi <= clipped(until_, beat) & {5'b11111, !fault_odd_byte};
    {first_0, last_0, data_0} <= {first, last, data};
    valid_0 <= valid && !rst;
    part <= part_d;
    {first_m, last_m, data_m} <= {first_0, last_0, data_0};
    valid_m <= valid_0 && !rst;
  end

  logic [255:0] masked;
  logic [16:0] pair [8];
  always_comb begin
    for (int i = 0; i < 32; i++) masked[8*i +: 8] = part[i] ? data_m[8*i +: 8] : 8'h00;
    for (int i = 0; i < 8; i++)
      pair[i] = {1'b0, gw_nic_pkg::word_at(masked, 4'(2*i))} + {1'b0, gw_nic_pkg::word_at(masked, 4'(2*i + 1))};
  end

  logic [16:0] pair_q [8];
  logic [19:0] total_q;
  logic [31:0] acc_q;
  logic valid_1, first_1, last_1, valid_2, first_2, last_2, last_3;

  logic [31:0] acc;
  logic [16:0] folded;
  always_comb begin
    acc = (first_2 ? 32'd0 : acc_q) + {12'b0, total_q};
    folded = {1'b0, acc_q[31:16]} + {1'b0, acc_q[15:0]};
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < 8; i++) pair_q[i] <= pair[i];
    total_q <= ({3'b0, pair_q[0]} + {3'b0, pair_q[1]} + {3'b0, pair_q[2]} + {3'b0, pair_q[3]})
             + ({3'b0, pair_q[4]} + {3'b0, pair_q[5]} + {3'b0, pair_q[6]} + {3'b0, pair_q[7]});
    {first_1, last_1} <= {first_m, last_m};
    {first_2, last_2} <= {first_1, last_1};
    if (valid_2) acc_q <= acc;
    sum <= folded[15:0] + {15'b0, folded[16] && !fault_carry};
    if (rst) begin
      {valid_1, valid_2, last_3, done} <= '0;
    end else begin
      valid_1 <= valid_m;
      valid_2 <= valid_1;
      last_3 <= valid_2 && last_2;
      done <= last_3;
    end
  end
endmodule
