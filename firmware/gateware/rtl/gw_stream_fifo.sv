// A FIFO in distributed memory between two sides that may both pause; gw_fifo.sv leaves it to its
// user that there is room.
//
// Enters: `in_data` while `in_valid` and `in_ready`. Leaves: `out_data` while `out_valid` and
// `out_ready`. `room` is how many more fit, for those who have to stop early.
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
  // In parts of so many bits, with places of their own: a register that reaches all of a wide
  // memory has to be far away from much of it.
  localparam int PART = 64;
  localparam int PARTS = (W + PART - 1) / PART;
  logic push, pop;

  // All that the two sides see of the places are registers.
  assign push = in_valid && in_ready;
  assign pop = out_valid && out_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      room <= {1'b1, {BITS{1'b0}}};
      in_ready <= 1'b1;
      out_valid <= 1'b0;
    end else begin
      if (push && !pop) room <= room - 1'b1;
      if (pop && !push) room <= room + 1'b1;
      in_ready <= pop || room > (BITS+1)'(1) || (room[0] && !push);
      out_valid <= push || !room[BITS] && !(pop && &room[BITS-1:0]);
    end
  end

  generate
    for (genvar i = 0; i < PARTS; i++) begin : g_part
      localparam int WIDTH = i == PARTS - 1 ? W - PART * i : PART;
      logic [WIDTH-1:0] store [1 << BITS];
      logic [BITS-1:0] head, tail;
      assign out_data[PART*i +: WIDTH] = store[head];
      always_ff @(posedge clk) if (push) store[tail] <= in_data[PART*i +: WIDTH];
      // Else tools make one register of those that are the same.
      (* keep *) always_ff @(posedge clk) begin
        if (rst) begin
          head <= '0;
          tail <= '0;
        end else begin
          if (push) tail <= tail + 1'b1;
          if (pop) head <= head + 1'b1;
        end
      end
    end
  endgenerate
endmodule
