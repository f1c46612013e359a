// Puts eight bytes into a frame, or cuts eight out: the segment header of routed framing.
//
// Enters: a frame's beats, never held up. With each, `in_at`: where the hole begins in this beat
// (even), 0 if in one before it, 32 if in none so far. To be put in, with a frame's first beat:
// `in_put`, turned so that its byte j has a place j modulo 8 in a beat. If a frame gets a beat
// longer, one of any bytes enters behind it. With CUT, `in_short` says with the last beat that the
// frame gets a beat shorter.
// Leaves: the frame's beats; `out_last` with the last one.
// Latency: two clocks, and with CUT until the next beat enters, or three.
// Follows: dataplane/src/engine/{egress,ingress}.rs, where the segment header is written and
// parsed.
module gw_splice #(
    parameter bit CUT = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    input  logic         in_first,
    input  logic         in_last,
    input  logic         in_short,
    input  logic [5:0]   in_at,
    input  logic [63:0]  in_put,
    input  logic [255:0] in_data,
    output logic         out_valid,
    output logic         out_last,
    output logic [255:0] out_data
);
  // Out of the memory into a register. Meanwhile each byte finds out if it is below the hole.
  logic valid, last;
  logic [255:0] data;
  logic [31:0] below, below_d;
  assign below_d = gw_pkg::first_of(in_at);
  always_ff @(posedge clk) begin
    {last, data} <= {in_last, in_data};
    below <= below_d;
    valid <= in_valid && !rst;
  end

  generate
    if (CUT) begin : g_cut
      // The beat before: what is cut out is made up from the next.
      logic [255:0] held;
      logic [31:0] held_below;
      logic full, held_last, held_short, short_, unused;
      assign unused = ^{in_put, in_first};
      always_ff @(posedge clk) begin
        short_ <= in_short;
        if (valid) {held, held_below, held_last, held_short} <= {data, below, last, short_};
        for (int i = 0; i < 32; i++) begin
          if (held_below[i]) out_data[8*i +: 8] <= held[8*i +: 8];
          else out_data[8*i +: 8] <= i < 24 ? held[8*((i + 8) % 32) +: 8] : data[8*((i + 8) % 32) +: 8];
        end
        out_last <= held_last || short_;
        if (rst) begin
          full <= 1'b0;
          out_valid <= 1'b0;
        end else begin
          full <= valid || (full && !held_last);
          out_valid <= full && (held_last ? !held_short : valid);
        end
      end
    end else begin : g_put
      logic first, unused;
      logic [39:0] in_hole, in_hole_d;  // the hole, also in the next beat
      logic [63:0] put, carry, from;  // the eight bytes that have no place yet, each where it will be
      assign unused = in_short;
      always_comb begin
        // From where it begins on, and not from eight bytes later on.
        in_hole_d = ~{8'h00, below_d} & {below_d, 8'hff};
        from = first ? put : carry;
      end
      always_ff @(posedge clk) begin
        {first, put, in_hole} <= {in_first, in_put, in_hole_d};
        if (valid) begin
          for (int i = 0; i < 8; i++) carry[8*i +: 8] <= in_hole[32 + i] ? from[8*i +: 8] : data[8*(24 + i) +: 8];
        end
        for (int i = 0; i < 32; i++) begin
          if (below[i]) out_data[8*i +: 8] <= data[8*i +: 8];
          else if (in_hole[i]) out_data[8*i +: 8] <= from[8*(i % 8) +: 8];
          else out_data[8*i +: 8] <= data[8*((i + 24) % 32) +: 8];
        end
        out_last <= last;
        out_valid <= valid && !rst;
      end
    end
  endgenerate
endmodule
