// Puts eight bytes into a frame, or cuts eight out: the segment header of routed framing.
//
// Enters: s_axis, a frame's beats. With each frame, `on` (else it goes through as it is), `hole` (where in the frame; even),
// `put` (what to put in, the first byte uppermost) and `beats` (what leaves); they stay until `next`.
// Leaves: m_axis. `next` for a clock, with the frame's last beat out: what goes with the next frame may come.
// Latency: a clock, and with CUT one more beat. A beat a clock; a frame that gets a beat longer takes a clock more.
// Follows: dataplane/src/engine/{egress,ingress}.rs, where the segment header is written and parsed.
module gw_splice #(
    parameter bit CUT = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         on,
    input  logic [7:0]   hole,
    input  logic [63:0]  put,
    input  logic [8:0]   beats,
    output logic         next,
    input  logic [255:0] s_axis_tdata,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    output logic [255:0] m_axis_tdata,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tfirst,
    output logic         m_axis_tlast
);
`ifdef GW_FAULTS
  logic fault_splice;
  initial fault_splice = $test$plusargs("fault_splice");
`else
  localparam logic fault_splice = 1'b0;
`endif

  logic [8:0] number;        // of the beat that leaves next
  logic free, emit;
  logic [255:0] out;
  logic [5:0] at;            // where the hole begins in this beat; 32: behind it
  logic passed;              // it began in an earlier beat
  always_comb begin
    free = !m_axis_tvalid || m_axis_tready;
    passed = on && {6'b0, hole[7:5]} < number;
    if (passed) at = 6'd0;
    else if (on && {6'b0, hole[7:5]} == number) at = {1'b0, hole[4:0] & {5{!fault_splice || hole[4:0] < 5'd24}}};
    else at = 6'd32;
  end

  logic ends;                // this beat is the last that leaves
  assign ends = number == beats - 9'd1;
  assign next = emit && ends;

  always_ff @(posedge clk) begin
    if (free) begin
      m_axis_tdata <= out;
      m_axis_tfirst <= number == '0;
      m_axis_tlast <= ends;
    end
    if (rst) begin
      m_axis_tvalid <= 1'b0;
      number <= '0;
    end else begin
      if (free) m_axis_tvalid <= emit;
      if (emit) number <= ends ? '0 : number + 9'd1;
    end
  end

  generate
    if (CUT) begin : g_cut
      // The beat before the one that is offered: what is cut out is made up from the next.
      logic [255:0] held;
      logic full, held_last, over;  // `over`: the frame has left, and this is what the cut has left over
      logic [63:0] unused;
      always_comb begin
        unused = put;
        for (int i = 0; i < 32; i++) begin
          if (6'(i) < at) out[8*i +: 8] = held[8*i +: 8];
          else if (i < 24) out[8*i +: 8] = held[8*((i + 8) % 32) +: 8];
          else out[8*i +: 8] = s_axis_tdata[8*((i + 8) % 32) +: 8];
        end
        emit = free && full && !over && (held_last || s_axis_tvalid);
        s_axis_tready = !full || over || emit;
      end
      always_ff @(posedge clk) begin
        if (s_axis_tvalid && s_axis_tready) begin
          held <= s_axis_tdata;
          held_last <= s_axis_tlast;
        end
        if (rst) begin
          full <= 1'b0;
          over <= 1'b0;
        end else begin
          if (s_axis_tvalid && s_axis_tready) begin
            full <= 1'b1;
            // The last beat out has taken what it needs of the last beat in.
            over <= emit && ends && !held_last;
          end else if (emit && held_last || over) begin
            full <= 1'b0;
            over <= 1'b0;
          end
        end
      end
    end else begin : g_put
      logic [63:0] carry, from;  // the eight bytes that have no place yet; the lowest goes first
      logic flush;
      logic [319:0] longer;
      logic [5:0] rest;
      always_comb begin
        for (int i = 0; i < 8; i++) from[8*i +: 8] = passed ? carry[8*i +: 8] : put[8*(7 - i) +: 8];
        rest = 6'd0;
        for (int i = 0; i < 40; i++) begin
          rest = 6'(i) - at;
          if (6'(i) < at && i < 32) longer[8*i +: 8] = s_axis_tdata[8*(i % 32) +: 8];
          else if (rest < 6'd8) longer[8*i +: 8] = from[8*rest[2:0] +: 8];
          else longer[8*i +: 8] = s_axis_tdata[8*((i + 24) % 32) +: 8];
        end
        out = longer[255:0];
        emit = free && (flush || s_axis_tvalid);
        s_axis_tready = free && !flush;
      end
      always_ff @(posedge clk) begin
        if (emit) carry <= longer[319:256];
        if (rst) flush <= 1'b0;
        else if (emit) flush <= !flush && s_axis_tlast && !ends;
      end
    end
  endgenerate
endmodule
