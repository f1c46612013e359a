// A FIFO in distributed memory between two sides that may both pause; gw_fifo.sv leaves it to its user that there is room.
//
// Enters: `in_data` while `in_valid` and `in_ready`. Leaves: `out_data` while `out_valid` and `out_ready`. `room` is how many
// more fit, for those who have to stop early.
// Latency: 1 clock.
module gw_stream_fifo #(
    parameter int W = 8,
    parameter int BITS = 4
) (
    input  logic          clk,
    input  logic          rst,
    input  logic [W-1:0]  in_data,
    input  logic          in_valid,
    output logic          in_ready,
    output logic [BITS:0] room,
    output logic [W-1:0]  out_data,
    output logic          out_valid,
    input  logic          out_ready
);
  logic [W-1:0] store [1 << BITS];
  logic [BITS-1:0] head, tail;
  logic push, pop;

  // All that the two sides see of the places are registers.
  assign push = in_valid && in_ready;
  assign pop = out_valid && out_ready;
  assign out_data = store[head];

  always_ff @(posedge clk) begin
    if (push) store[tail] <= in_data;
    if (rst) begin
      head <= '0;
      tail <= '0;
      room <= {1'b1, {BITS{1'b0}}};
      in_ready <= 1'b1;
      out_valid <= 1'b0;
    end else begin
      if (push) tail <= tail + 1'b1;
      if (pop) head <= head + 1'b1;
      if (push && !pop) room <= room - 1'b1;
      if (pop && !push) room <= room + 1'b1;
      in_ready <= pop || room > (BITS+1)'(1) || (room[0] && !push);
      out_valid <= push || !room[BITS] && !(pop && &room[BITS-1:0]);
    end
  end
endmodule
