// Counts verdicts, 64 bits each.
//
// Enters: verdicts, at most one every other clock. Leaves: the counter at `read_at`, half of it at
// a time, two clocks later: its upper half is the one of when the lower one was read. Places are
// the outcomes of gw_nic_pkg. After a reset, and after `clear`, it takes 64 clocks to become zero;
// verdicts until then are lost.
// Follows: dataplane/src/verdict.rs, Counters.
module gw_counters (
    input  logic        clk,
    input  logic        rst,
    input  logic        clear,
    input  gw_nic_pkg::verdict_t verdict,
    input  logic [5:0]  read_at,
    input  logic        read_upper,
    input  logic        read,
    output logic [31:0] read_data
);
`ifdef GW_FAULTS
  logic fault_counts;
  initial fault_counts = $test$plusargs("fault_counts");
`else
  localparam logic fault_counts = 1'b0;
`endif

  logic [63:0] counts [64];
  logic [63:0] bytes_in, bytes_out;
  logic [6:0] swept;

  // A verdict; a clock later, with the counter of it; and another one later, with one more. The
  // memory is slow, and so is the addition.
  gw_nic_pkg::verdict_t v;
  logic [63:0] old, older, sum, seen;
  logic counted, was_counted;
  logic [5:0] place;
  logic [31:0] upper;
  logic fetched;
  logic [5:0] fetched_at;
  logic is_change;
  assign is_change = v.outcome[5:3] == 3'd0;
  assign sum = older + 64'd1;
  assign seen = fetched_at == gw_nic_pkg::BYTES_IN ? bytes_in
              : fetched_at == gw_nic_pkg::BYTES_OUT ? bytes_out : counts[fetched_at];

  always_ff @(posedge clk) begin
    v <= verdict;
    old <= counts[verdict.outcome];
    if (v.valid) begin
      place <= v.outcome;
      // One that was written while this one was read.
      older <= was_counted && place == v.outcome && !fault_counts ? sum : old;
    end
    fetched <= read;
    fetched_at <= read_at;
    if (fetched) begin
      read_data <= read_upper ? upper : seen[31:0];
      if (!read_upper) upper <= seen[63:32];
    end
    if (!swept[6]) counts[swept[5:0]] <= '0;
    else if (counted) counts[place] <= sum;
    if (rst || clear) begin
      swept <= '0;
      v.valid <= 1'b0;
      counted <= 1'b0;
      was_counted <= 1'b0;
      bytes_in <= '0;
      bytes_out <= '0;
    end else begin
      counted <= v.valid && swept[6];
      was_counted <= counted;
      if (!swept[6]) swept <= swept + 7'd1;
      if (v.valid && is_change && swept[6]) begin
        bytes_in <= bytes_in + {50'b0, v.len_in};
        bytes_out <= bytes_out + {50'b0, v.len_out};
      end
    end
  end
endmodule
