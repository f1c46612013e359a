// A register slice of an AXI4-Stream: all outputs are registers, `s_axis_tready` too.
//
// Enters:  beats of WIDTH bits, whatever they are.
// Leaves:  the same; two are held at most.
// Latency: 1 clock.
// Follows: nothing of the model; it cuts the path of `ready`
// (firmware/gateware/model/src/pipeline.rs).

module gw_slice #(
    parameter int WIDTH = 8
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [WIDTH-1:0] s_axis,
    input  logic             s_axis_tvalid,
    output logic             s_axis_tready,
    output logic [WIDTH-1:0] m_axis,
    output logic             m_axis_tvalid,
    input  logic             m_axis_tready
);

  // Taken while the output waited.
  logic [WIDTH-1:0] spare;
  logic advance;
  // `s_axis_tready` again, for what is as wide as a beat: who sends decides much by the other one.
  logic ready;

  assign advance = m_axis_tready || !m_axis_tvalid;

  always_ff @(posedge clk) begin
    if (ready) spare <= s_axis;
    if (advance) begin
      m_axis <= ready ? s_axis : spare;
      m_axis_tvalid <= s_axis_tready ? s_axis_tvalid : 1'b1;
    end
    s_axis_tready <= advance || (s_axis_tready && !s_axis_tvalid);
    if (rst) begin
      m_axis_tvalid <= 1'b0;
      s_axis_tready <= 1'b1;
    end
  end

  (* keep *) always_ff @(posedge clk) ready <= rst || advance || (ready && !s_axis_tvalid);

endmodule
