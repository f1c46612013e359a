// Brings frames from the ring to an engine.
//
// Enters: `plan` of a frame to be coded; the ring's memory answers `read_at` a clock later.
// Leaves: m_axis, the frame as the engine wants it, `m_axis_tuser` with every beat.
// Latency: five clocks, with CUT six. A beat a clock, from frame to frame too.
module gw_feeder #(
    parameter bit CUT = 1'b0
) (
    input  logic         clk,
    input  logic         rst,
    /* verilator lint_off UNUSEDSIGNAL */  // plans are handed on whole
    input  gw_nic_pkg::plan_t plan,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic         plan_valid,
    output logic         plan_ready,
    output logic [gw_nic_pkg::RING_BITS-1:0] read_at,
    input  logic [255:0] read_data,
    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic [47:0]  m_axis_tuser
);
`ifdef GW_FAULTS
  logic fault_splice;
  initial fault_splice = $test$plusargs("fault_splice");
`else
  localparam logic fault_splice = 1'b0;
`endif

  // What the splice does to the length: eight bytes more or less.
  logic [8:0] beats;         // to be read; of a frame that gets a beat longer, one more than it has
  logic longer, shorter;
  logic [4:0] last_bytes;    // 0: 32
  logic [63:0] turned;       // what is put in
  logic [2:0] place;
  always_comb begin
    longer = !CUT && plan.splice && (plan.in_len[4:0] == 5'd0 || plan.in_len[4:0] > 5'd24);
    shorter = CUT && plan.splice && plan.in_len[4:0] != 5'd0 && plan.in_len[4:0] <= 5'd8;
    beats = plan.in_len[13:5] + {8'b0, plan.in_len[4:0] != 5'd0} + {8'b0, longer};
    last_bytes = plan.in_len[4:0] + {!plan.splice ? 2'd0 : CUT ? 2'd3 : 2'd1, 3'd0};
    place = '0;
    for (int j = 0; j < 8; j++) begin
      place = 3'(j) - plan.payload_at[2:0];
      turned[8*j +: 8] = plan.segment[8*(7 - 32'(place)) +: 8];
    end
  end

  // Reading: a plan waits here while its beats are asked for. Beats that are asked for have room in
  // the FIFO.
  logic busy, ask, final_ask, one_left, first, short_, room_enough, work_room, taken;
  logic [8:0] left;
  logic [4:0] room;
  logic on, behind;          // the hole began in a beat before this one
  logic [2:0] beats_to;      // beats before the one that it begins in
  logic [4:0] hole;
  logic [63:0] put;
  assign ask = busy && room_enough;
  assign final_ask = ask && one_left;
  assign plan_ready = (!busy || final_ask) && work_room;
  assign taken = plan_valid && plan_ready;

  always_ff @(posedge clk) begin
    room_enough <= room > 5'd6;  // six beats may be on their way
    if (ask) begin
      read_at <= read_at + 1'b1;
      left <= left - 9'd1;
      one_left <= left == 9'd2;
      first <= 1'b0;
      behind <= behind || beats_to == '0;
      beats_to <= beats_to - 3'd1;
    end
    if (taken) begin
      read_at <= plan.start;
      left <= beats;
      one_left <= beats == 9'd1;
      first <= 1'b1;
      short_ <= shorter;
      {on, behind, beats_to, hole} <= {plan.splice, 1'b0, plan.payload_at};
      put <= turned;
    end
    if (rst) busy <= 1'b0;
    else if (taken) busy <= 1'b1;
    else if (final_ask) busy <= 1'b0;
  end

  // A clock later, with the data.
  logic asked, asked_first, asked_last, asked_short;
  logic [5:0] asked_at;
  logic [63:0] asked_put;
  always_ff @(posedge clk) begin
    asked <= ask && !rst;
    {asked_first, asked_last, asked_short, asked_put} <= {first, final_ask, final_ask && short_, put};
    if (on && behind) asked_at <= 6'd0;
    else if (on && beats_to == '0) asked_at <= {1'b0, hole & {5{!fault_splice || hole < 5'd24}}};
    else asked_at <= 6'd32;
  end

  logic spliced, spliced_last;
  logic [255:0] spliced_data;
  gw_splice #(.CUT(CUT)) splice (
      .clk, .rst, .in_valid(asked), .in_first(asked_first), .in_last(asked_last), .in_short(asked_short), .in_at(asked_at),
      .in_put(asked_put), .in_data(read_data), .out_valid(spliced), .out_last(spliced_last), .out_data(spliced_data));

  logic unused_ready, unused_valid;
  logic [4:0] unused_room, bytes;
  gw_stream_fifo #(.W(257), .BITS(4)) spliced_beats (
      .clk, .rst, .in_data({spliced_last, spliced_data}), .in_valid(spliced), .in_ready(unused_ready), .room,
      .out_data({m_axis_tlast, m_axis_tdata}), .out_valid(m_axis_tvalid), .out_ready(m_axis_tready));
  // What goes with a frame.
  gw_stream_fifo #(.W(53), .BITS(4)) works (
      .clk, .rst, .in_data({last_bytes, plan.layout}), .in_valid(taken), .in_ready(work_room), .room(unused_room),
      .out_data({bytes, m_axis_tuser}), .out_valid(unused_valid), .out_ready(m_axis_tvalid && m_axis_tready && m_axis_tlast));
  assign m_axis_tkeep = m_axis_tlast ? gw_pkg::first_of({bytes == 5'd0, bytes}) : '1;
endmodule
