// Front of both engines: beats to cells.
//
// A cell is 32 bytes of a frame, cut so that the first value begins a cell: with `r` bytes of
// header beyond whole beats, the first cell has `r` bytes, and each one after it has the last
// `32 - r` bytes of one beat and the first `r` of the next. So the rotation is constant within a
// frame.
//
// Enters:  beats of an AXI4-Stream; `room` while the engine can take the cells of four more clocks.
// Leaves:  a cell for each beat, and one behind the last beat with what is left of it, perhaps nothing. No back-pressure.
// Latency: 4 clocks. A frame of n beats takes n + 1 clocks.
// Follows: firmware/gateware/model/src/intake.rs, without the comparator of types of service.

module gw_front (
    input  logic         clk,
    input  logic         rst,

    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic [47:0]  s_axis_tuser,

    input  logic         room,
    output logic         issue,        // a cell enters this pipeline in this clock

    output logic         cell_valid,
    output logic [255:0] cell_data,
    output logic [4:0]   cell_start,   // of the first byte in `cell_data`: not 0 in a first cell alone
    output logic [5:0]   cell_count,   // bytes of the frame, 0..=32; below 32 in first cells and at a frame's end
    output logic         cell_first,
    output logic         cell_last,    // what follows is another frame
    output logic         cell_bypass,  // no value is in it by the layout
    output logic [15:0]  cell_values,  // of the frame, as in `s_axis_tuser`
    output logic [15:0]  cell_params   // raw_from, k, b
);

  // Stage 0: the beat as it came, or the cell behind the last beat.
  logic taken, open, flush;
  logic v0, flush0, first0;
  logic [255:0] data0;
  logic [31:0] keep0;
  gw_pkg::layout_t layout0;

  assign taken = s_axis_tvalid && s_axis_tready;
  assign issue = taken || flush;

  always_ff @(posedge clk) begin
    s_axis_tready <= room && !(taken && s_axis_tlast);
    flush <= taken && s_axis_tlast;
    if (taken) open <= !s_axis_tlast;
    v0 <= taken || flush;
    flush0 <= flush;
    first0 <= !open;
    if (taken) begin
      data0 <= s_axis_tdata;
      keep0 <= s_axis_tkeep;
      if (!open) layout0 <= s_axis_tuser;
    end
    if (rst) begin
      s_axis_tready <= 1'b0;
      flush <= 1'b0;
      open <= 1'b0;
      v0 <= 1'b0;
    end
  end

  // Bytes of the beat: `tkeep` has ones below and zeros above.
  logic [5:0] kept;
  always_comb begin
    kept = 6'd0;
    for (int i = 0; i < 32; i++) begin
      if (keep0[i] && (i == 31 || !keep0[(i+1)%32])) kept = kept | 6'(i + 1);
    end
  end

  // Stages 1 and 2: the beat's bytes move down by `bypass mod 32`; header cells are counted.
  logic v1, flush1, first1, v2, flush2, first2;
  logic [255:0] data1, data2;
  logic [5:0] kept1, kept2;
  logic [11:0] headers1, headers2;
  gw_pkg::layout_t layout1, layout2;
  logic no_values1, bypass2;
  logic [5:0] part1;           // r, 1..=32
  logic [6:0] over2;           // bytes of the beat beyond its first r, or a negative number
  logic [31:0] from_before2;   // bytes of the cell that the beat before has

  logic [31:0] beyond1;        // the first r

  assign beyond1 = gw_pkg::first_of(part1);
  assign part1 = layout1.bypass[4:0] == 5'd0 ? 6'd32 : {1'b0, layout1.bypass[4:0]};

  always_ff @(posedge clk) begin
    v1 <= v0;
    flush1 <= flush0;
    first1 <= first0 && !flush0;
    kept1 <= kept;
    layout1 <= layout0;
    no_values1 <= layout0.values == 16'd0;
    headers1 <= {1'b0, layout0.bypass[15:5]} + {11'd0, layout0.bypass[4:0] != 5'd0};
    data1 <= 256'({data0, data0} >> {layout0.bypass[4:3], 6'd0});

    v2 <= v1;
    flush2 <= flush1;
    first2 <= first1;
    kept2 <= kept1;
    layout2 <= layout1;
    over2 <= {1'b0, kept1} - {1'b0, part1};
    if (v1) begin
      if (first1) begin
        bypass2  <= no_values1 || headers1 != 12'd0;
        headers2 <= headers1 == 12'd0 ? 12'd0 : headers1 - 12'd1;
      end else begin
        bypass2 <= no_values1 || headers2 != 12'd0;
        if (headers2 != 12'd0) headers2 <= headers2 - 12'd1;
      end
    end
    data2 <= 256'({data1, data1} >> {layout1.bypass[2:0], 3'd0});
    // Those below 32 - r.
    for (int i = 0; i < 32; i++) from_before2[i] <= !beyond1[31-i];
    if (rst) begin
      v1 <= 1'b0;
      v2 <= 1'b0;
    end
  end

  // Stage 3: the cell.
  logic [255:0] previous;
  logic [5:0] left;  // of the beat before, beyond its first r

  always_ff @(posedge clk) begin
    cell_valid <= v2;
    if (v2) begin
      previous <= data2;
      left <= over2[6] ? 6'd0 : over2[5:0];
    end
    for (int i = 0; i < 32; i++) cell_data[8*i+:8] <= from_before2[i] ? previous[8*i+:8] : data2[8*i+:8];
    cell_first <= first2;
    cell_last <= flush2;
    cell_bypass <= bypass2;
    cell_start <= first2 ? -layout2.bypass[4:0] : 5'd0;
    cell_values <= layout2.values;
    cell_params <= {layout2.raw_from, layout2.k, layout2.b};
    if (flush2) cell_count <= left;
    else if (first2) cell_count <= over2[6] ? kept2 : {layout2.bypass[4:0] == 5'd0, layout2.bypass[4:0]};
    else cell_count <= over2[6] ? over2[5:0] + 6'd32 : 6'd32;
    if (rst) cell_valid <= 1'b0;
  end

endmodule
