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

  // In parts of so many bits, with places of their own: a register that reaches all of a wide
  // memory has to be far away from much of it.
  localparam int PART = 64;
  localparam int PARTS = (WIDTH + PART - 1) / PART;
  logic [ADDRESS-1:0] head, tail, next_head;

  assign next_head = head + 1'b1;

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

  for (genvar i = 0; i < PARTS; i++) begin : part
    localparam int BITS = i == PARTS - 1 ? WIDTH - PART * i : PART;
    (* ram_style = "distributed" *) logic [BITS-1:0] memory[DEPTH];
    logic [ADDRESS-1:0] part_head, part_tail;

    assign out[PART*i+:BITS] = memory[part_head];

    always_ff @(posedge clk) if (push) memory[part_tail] <= in[PART*i+:BITS];

    // Else tools make one register of those that are the same.
    (* keep *) always_ff @(posedge clk) begin
      if (push) part_tail <= part_tail + 1'b1;
      if (pop) part_head <= part_head + 1'b1;
      if (rst) begin
        part_head <= '0;
        part_tail <= '0;
      end
    end
  end

endmodule
