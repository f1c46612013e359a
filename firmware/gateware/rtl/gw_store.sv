// Puts frames into a ring, whole, and shows every beat to the parser.
//
// Enters: s_axis, a frame's beats; all but the last are full. `free` is how far the reader of the
// ring has come; `records_low` says that there is little room for what the parser will say.
// Leaves: writes to the ring; to the parser, a clock later, the beat, and with the last one where
// the frame lies. A frame longer than gw_nic_pkg::MAX_FRAME is taken to its end and thrown away:
// its place in the ring is given back.
// Latency: a clock. It takes a beat a clock while the ring has room.
module gw_store (
    input  logic         clk,
    input  logic         rst,
    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic [7:0]   s_axis_tuser,
    input  logic         records_low,
    input  logic [gw_nic_pkg::RING_BITS:0] free,
    // The ring.
    output logic         write,
    output logic [gw_nic_pkg::RING_BITS-1:0] write_at,
    // The parser, and the ring's data.
    output logic         valid,
    output logic         first,
    output logic         last,
    output logic [8:0]   beat,      // its number; of no use in a frame that is oversize
    output logic [5:0]   bytes,
    output logic [255:0] data,      // bytes that the frame does not have are 0
    output logic [7:0]   user,
    output logic [1:0]   tags,      // VLAN tags, with a first beat: found here, since the parser has no time for it
    output logic         oversize,  // with the last beat, as all below
    output logic [8:0]   beats,
    output logic [9:0]   start
);
  localparam int BITS = gw_nic_pkg::RING_BITS;

`ifdef GW_FAULTS
  logic fault_abort;
  initial fault_abort = $test$plusargs("fault_abort");
`else
  localparam logic fault_abort = 1'b0;
`endif

  logic [BITS:0] next, start_q;  // where the next beat goes; where its frame began
  logic [8:0] number;
  logic open, room;

  logic take, too_long;
  logic [5:0] count;
  assign s_axis_tready = room;
  assign take = s_axis_tvalid && room;
  assign too_long = number == 9'(gw_nic_pkg::MAX_BEATS);
  assign count = s_axis_tlast ? gw_nic_pkg::bytes_of(s_axis_tkeep) : 6'd32;

  always_ff @(posedge clk) begin
    first <= !open;
    last <= s_axis_tlast;
    beat <= number;
    bytes <= count;
    for (int i = 0; i < 32; i++) data[8*i +: 8] <= s_axis_tkeep[i] || !s_axis_tlast ? s_axis_tdata[8*i +: 8] : 8'h00;
    write_at <= next[BITS-1:0];
    if (!open) user <= s_axis_tuser;
    tags <= gw_nic_pkg::tags_of(s_axis_tdata);
    oversize <= too_long;
    beats <= too_long ? 9'd0 : number + 9'd1;
    start <= start_q[BITS-1:0];
    if (rst) begin
      next <= '0;
      start_q <= '0;
      number <= '0;
      open <= 1'b0;
      room <= 1'b0;
      valid <= 1'b0;
      write <= 1'b0;
    end else begin
      // What is taken in this clock is not yet in `next`.
      room <= (next - free) < (BITS+1)'((1 << BITS) - 2) && !records_low;
      valid <= take;
      write <= take && !too_long;
      if (take) begin
        open <= !s_axis_tlast;
        number <= s_axis_tlast ? 9'd0 : too_long ? number : number + 9'd1;
        if (too_long) next <= fault_abort ? next : start_q;
        else next <= next + 1'b1;
        if (s_axis_tlast && !too_long) start_q <= next + 1'b1;
      end
    end
  end
endmodule
