// A FIFO in distributed memory.
//
// Enters:  `push` with `in`; the user sees to it that there is room.
// Leaves:  `out`, the oldest entry, while `valid`; `pop` takes it.
// Latency: 1 clock.
// Follows: nothing of the model, which has no pipeline to decouple.

module gw_fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16  // a power of two
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             push,
    input  logic [WIDTH-1:0] in,
    input  logic             pop,
    output logic             valid,
    output logic [WIDTH-1:0] out
);

  localparam int ADDRESS = $clog2(DEPTH);

  (* ram_style = "distributed" *) logic [WIDTH-1:0] memory[DEPTH];
  logic [ADDRESS-1:0] head, tail, next_head;

  assign out = memory[head];
  assign next_head = head + 1'b1;

  always_ff @(posedge clk) if (push) memory[tail] <= in;

  always_ff @(posedge clk) begin
    if (push) tail <= tail + 1'b1;
    if (pop) head <= next_head;
    // Full never comes up, so equal pointers mean empty.
    valid <= push || (pop ? next_head != tail : head != tail);
    if (rst) begin
      head  <= '0;
      tail  <= '0;
      valid <= 1'b0;
    end
  end

endmodule
