// How many may still enter a pipeline that ends in a FIFO, so that the pipeline never has to stop.
//
// Enters:  `issue` when one enters the pipeline, `done` when one leaves the FIFO.
// Leaves:  `room`: a register that says that the FIFO holds what may enter until it is read and heeded, four clocks' worth,
//          without being full.
// Latency: 2 clocks, and for `done` one more, since what tells it is slow.
// Follows: nothing of the model, in which `ready` ripples back within a clock
// (firmware/gateware/model/src/pipeline.rs).

module gw_credits #(
    parameter int DEPTH = 32
) (
    input  logic clk,
    input  logic rst,
    input  logic issue,
    input  logic done,
    output logic room
);

`ifdef GW_FAULTS
  logic fault_credits;
  initial fault_credits = $test$plusargs("fault_credits");
`else
  localparam logic fault_credits = 1'b0;
`endif

  logic [$clog2(DEPTH):0] under_way;
  logic was_done;

  always_ff @(posedge clk) begin
    was_done <= done;
    if (issue && !was_done) under_way <= under_way + 1'b1;
    if (was_done && !issue) under_way <= under_way - 1'b1;
    room <= fault_credits || 32'(under_way) <= DEPTH - 5;
    if (rst) begin
      under_way <= '0;
      was_done <= 1'b0;
      room <= 1'b0;
    end
  end

endmodule
