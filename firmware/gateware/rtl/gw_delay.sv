// What goes beside a pipeline.
//
// Enters:  WIDTH bits.
// Leaves:  the same, CLOCKS later.
// Latency: CLOCKS.

module gw_delay #(
    parameter int WIDTH  = 1,
    parameter int CLOCKS = 2  // at least 2
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] in,
    output logic [WIDTH-1:0] out
);

  logic [WIDTH*CLOCKS-1:0] stages;

  assign out = stages[WIDTH*CLOCKS-1-:WIDTH];

  always_ff @(posedge clk) stages <= {stages[WIDTH*(CLOCKS-1)-1:0], in};

endmodule
