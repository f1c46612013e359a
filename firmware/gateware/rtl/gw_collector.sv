// Takes coded frames from an engine into a ring, and sums their transport segments.
//
// Enters: s_axis, the engine's frames; for each of them, in the order of the plans, where its
// transport header is and where its packet ends (`l4_at`, `until_`). `free` is how far the reader
// of the ring has come.
// Leaves: writes to the ring; `outcome` of each frame. Of a frame that is longer than
// gw_nic_pkg::MAX_FRAME, the rest is not kept.
// Latency: eight clocks from a frame's last beat to `outcome`. A beat a clock while the ring has
// room.
module gw_collector (
    input  logic         clk,
    input  logic         rst,
    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic         s_axis_tuser,   // with the last beat: refused
    input  logic [6:0]   l4_at,
    input  logic [16:0]  until_,
    output logic         next,           // `l4_at` and `until_` of the frame behind it may come
    input  logic [gw_nic_pkg::RING_BITS:0] free,
    output logic         write,
    output logic [gw_nic_pkg::RING_BITS-1:0] write_at,
    output logic [255:0] write_data,
    output gw_nic_pkg::outcome_t outcome,
    output logic         outcome_valid,
    input  logic         outcome_ready
);
  localparam int BITS = gw_nic_pkg::RING_BITS;

  logic [BITS:0] place;
  logic [11:0] number;
  logic room, take, keep;
  logic [5:0] bytes;
  logic [4:0] outcomes_room;
  assign take = s_axis_tvalid && room;
  assign s_axis_tready = room;
  assign next = take && s_axis_tlast;
  assign bytes = gw_nic_pkg::bytes_of(s_axis_tkeep);
  assign keep = number < 12'(gw_nic_pkg::MAX_BEATS);

  logic valid_1, first_1, last_1, refused_1;
  logic [8:0] beats_1;
  logic [11:0] number_1;
  logic [5:0] bytes_1;
  logic [6:0] l4_at_1;
  logic [16:0] until_1;
  always_ff @(posedge clk) begin
    for (int i = 0; i < 32; i++) write_data[8*i +: 8] <= s_axis_tkeep[i] ? s_axis_tdata[8*i +: 8] : 8'h00;
    write_at <= place[BITS-1:0];
    first_1 <= number == '0;
    last_1 <= s_axis_tlast;
    refused_1 <= s_axis_tuser;
    number_1 <= number;
    beats_1 <= keep ? number[8:0] + 9'd1 : 9'(gw_nic_pkg::MAX_BEATS);
    bytes_1 <= bytes;
    l4_at_1 <= l4_at;
    until_1 <= until_;
    if (rst) begin
      place <= '0;
      number <= '0;
      room <= 1'b0;
      valid_1 <= 1'b0;
      write <= 1'b0;
    end else begin
      room <= (place - free) < (BITS+1)'((1 << BITS) - 2) && outcomes_room > 5'd9;
      valid_1 <= take;
      write <= take && keep;
      if (take) begin
        number <= s_axis_tlast ? '0 : &number ? number : number + 12'd1;
        if (keep) place <= place + 1'b1;
      end
    end
  end

  logic sum_done;
  logic [15:0] sum;
  gw_checksum segment_checksum (
      .clk, .rst, .valid(valid_1), .first(first_1), .last(last_1), .beat(number_1[8:0]), .data(write_data),
      .from({10'b0, l4_at_1}), .until_(until_1), .done(sum_done), .sum);

  // In step with the sum.
  logic [26:0] delayed [6];
  gw_nic_pkg::outcome_t outcome_in;
  always_ff @(posedge clk) begin
    delayed[0] <= {refused_1, {number_1, 5'b0} + {11'b0, bytes_1}, beats_1};
    for (int i = 1; i < 6; i++) delayed[i] <= delayed[i - 1];
  end
  assign outcome_in = {delayed[5], sum};
  logic unused_ready;
  gw_stream_fifo #(.W(gw_nic_pkg::OUTCOME_W), .BITS(4)) outcomes (
      .clk, .rst, .in_data(outcome_in), .in_valid(sum_done), .in_ready(unused_ready), .room(outcomes_room),
      .out_data(outcome), .out_valid(outcome_valid), .out_ready(outcome_ready));
endmodule
