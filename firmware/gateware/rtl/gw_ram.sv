// Block memory: a beat written and a beat read a clock.
//
// Leaves: `read_data`, a clock behind `read_at`. Of an address that is written in that clock it is
// of no use: rings are read behind what is written. To promise more, tools put a comparison and a
// register around each bit.
module gw_ram #(
    parameter int W = 256,
    parameter int BITS = 10
) (
    input  logic            clk,
    input  logic            write,
    input  logic [BITS-1:0] write_at,
    input  logic [W-1:0]    write_data,
    input  logic [BITS-1:0] read_at,
    output logic [W-1:0]    read_data
);
  (* no_rw_check *) logic [W-1:0] store [1 << BITS];
  always_ff @(posedge clk) begin
    if (write) store[write_at] <= write_data;
    read_data <= store[read_at];
`ifndef SYNTHESIS
    // Whoever uses it is found in simulation.
    if (write && write_at == read_at) read_data <= ~write_data;
`endif
  end
endmodule
