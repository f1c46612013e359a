// Sends frames from the two rings, with the words that have changed, and frees their place.
//
// Enters: orders; both rings' memories answer `read_at` and `coded_at` a clock later.
// Leaves: m_axis; `free` and `coded_free`, how far it has come in the rings.
// Latency: six clocks. A beat a clock, from frame to frame too; a dropped frame takes a clock.
module gw_sender (
    input  logic         clk,
    input  logic         rst,
    input  gw_nic_pkg::order_t order,
    input  logic         order_valid,
    output logic         order_ready,
    output logic [gw_nic_pkg::RING_BITS-1:0] read_at,
    input  logic [255:0] read_data,
    output logic [gw_nic_pkg::RING_BITS-1:0] coded_at,
    input  logic [255:0] coded_data,
    output logic [gw_nic_pkg::RING_BITS:0] free,
    output logic [gw_nic_pkg::RING_BITS:0] coded_free,
    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast
);
  localparam int BITS = gw_nic_pkg::RING_BITS;

  // The order in hand: out of the memory into a register.
  /* verilator lint_off UNUSEDSIGNAL */  // orders are handed on whole
  gw_nic_pkg::order_t o;
  /* verilator lint_on UNUSEDSIGNAL */
  logic busy, last;
  logic [8:0] number, left;
  logic ask, done;
  logic [4:0] room;
  logic room_enough;
  logic asked, turned, patched_in;
  logic [BITS:0] coded_next;
  always_comb begin
    ask = busy && !o.drop && room_enough;
    done = busy && (o.drop || (ask && last));
    order_ready = !busy || done;
    last_bytes = last ? o.last_bytes : 6'd32;
    coded_next = coded_free + {2'b0, busy ? o.coded_beats : 9'd0};
  end

  // A clock later, with the data.
  logic from_coded, asked_last;
  logic [2:0] words;         // the beat's number, if below eight: patches are in a frame's first 256 bytes
  logic patched;
  logic [5:0] last_bytes;
  logic [31:0] keep;
  logic [gw_nic_pkg::PATCHES*gw_nic_pkg::PATCH_W-1:0] patches;
  always_ff @(posedge clk) begin
    room_enough <= room > 5'd5;  // five beats may be on their way
    from_coded <= o.coded;
    asked_last <= last;
    words <= number[2:0];
    patched <= number[8:3] == '0;
    patches <= o.patches;
    keep <= gw_pkg::first_of(last_bytes);
    if (ask) begin
      number <= number + 9'd1;
      left <= left - 9'd1;
      last <= left == 9'd1;
      read_at <= read_at + 1'b1;
      coded_at <= coded_at + 1'b1;
    end
    if (order_ready) begin
      o <= order;
      number <= '0;
      left <= order.last;
      last <= order.last == '0;
      read_at <= order.start;
      coded_at <= coded_next[BITS-1:0];
    end
    if (rst) begin
      busy <= 1'b0;
      asked <= 1'b0;
      turned <= 1'b0;
      patched_in <= 1'b0;
      free <= '0;
      coded_free <= '0;
    end else begin
      asked <= ask;
      turned <= asked;
      patched_in <= turned;
      if (order_ready) busy <= order_valid;
      if (done) begin
        free <= free + {2'b0, o.beats};
        coded_free <= coded_next;
      end
    end
  end

  // Another clock later: block memory is slow, and takes most of a clock. Meanwhile each patch
  // finds its word.
  logic [255:0] plain, data;
  logic turned_last, patched_last;
  logic [31:0] turned_keep, patched_keep;
  logic [255:0] patched_data;
  always_ff @(posedge clk) begin
    plain <= from_coded ? coded_data : read_data;
    {turned_last, turned_keep} <= {asked_last, keep};
    // And another one for the way to the FIFO, which is as wide as a beat.
    {patched_last, patched_keep, patched_data} <= {turned_last, turned_keep, data};
  end

  localparam int PATCHES = gw_nic_pkg::PATCHES;
  logic [16*PATCHES-1:0] hits_d, values_d;
  gw_nic_pkg::patch_t patch;
  always_comb begin
    patch = '0;
    for (int j = 0; j < PATCHES; j++) begin
      patch = patches[j*gw_nic_pkg::PATCH_W +: gw_nic_pkg::PATCH_W];
      for (int i = 0; i < 16; i++) hits_d[PATCHES*i + j] = patch.on && patched && patch.word == {words, 4'(i)};
      values_d[16*j +: 16] = {patch.value[7:0], patch.value[15:8]};
    end
  end

  // Each 64 bits of a beat have the values in registers of their own, as the FIFO has places: one
  // that reaches a whole beat is far away from much of it.
  localparam int PART = 4;  // words
  generate
    for (genvar part = 0; part < 16 / PART; part++) begin : g_part
      logic [PART*PATCHES-1:0] hits;
      logic [16*PATCHES-1:0] values;
      logic [16*PART-1:0] choice;
      always_comb begin
        choice = plain[16*PART*part +: 16*PART];
        for (int j = 0; j < PATCHES; j++)
          for (int i = 0; i < PART; i++)
            if (hits[PATCHES*i + j]) choice[16*i +: 16] = values[16*j +: 16];
      end
      assign data[16*PART*part +: 16*PART] = choice;
      // Else tools make one register of those that are the same.
      (* keep *) always_ff @(posedge clk) {hits, values} <= {hits_d[PART*PATCHES*part +: PART*PATCHES], values_d};
    end
  endgenerate

  // Also `tkeep` is kept: to make it from fewer bits behind the memory would take time there.
  logic unused_ready;
  gw_stream_fifo #(.W(289), .BITS(4)) beats (
      .clk, .rst, .in_data({patched_last, patched_keep, patched_data}), .in_valid(patched_in), .in_ready(unused_ready), .room,
      .out_data({m_axis_tlast, m_axis_tkeep, m_axis_tdata}), .out_valid(m_axis_tvalid), .out_ready(m_axis_tready));
endmodule
